"""Long work shows itself on a terminal, is silent elsewhere, and leaves the terminal as it was when interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fuser import datagen, progress, specs

pty = pytest.importorskip("pty", reason="no pseudo-terminals here")

PROGRAM = """
def centred(x: f32[n, d]):
    return x - mean(x, axis=-1, keepdims=True)
"""
BIG = ("--dims", "n=8192,d=8192", "--device", "cpu")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "centred.fuse"
    path.write_text(PROGRAM)
    return str(path)


class Terminal:
    """A command whose stderr is a terminal and whose stdout is a pipe."""

    def __init__(self, *words: str) -> None:
        self.screen, child = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuser", *words], stdout=subprocess.PIPE, stderr=child, env=environment
        )
        os.close(child)
        self.seen = ""

    def until(self, text: str) -> None:
        while text not in self.seen:
            try:
                more = os.read(self.screen, 4096)
            except OSError:  # Linux: the other end is closed
                more = b""
            assert more, f"no {text!r} in {self.seen!r}"
            self.seen += more.decode()

    def finish(self) -> tuple[str, int]:
        """Standard output and exit status; the rest of the screen is read too."""
        try:
            while more := os.read(self.screen, 4096):
                self.seen += more.decode()
        except OSError:
            pass
        out = self.process.communicate(timeout=60)[0]
        os.close(self.screen)
        return out.decode(), self.process.returncode


def test_bars_on_a_terminal_and_nothing_of_them_in_the_output(program: str) -> None:
    command = Terminal("run", program, *BIG)
    command.until("data ")
    command.until("%")
    out, status = command.finish()
    assert status == 0
    assert out.startswith("result 0: float32[8192, 8192]")
    assert "\x1b" not in out
    assert command.seen.rstrip("\r").endswith("\x1b[2K")  # the last bar is erased


def test_quiet_says_nothing(program: str) -> None:
    command = Terminal("run", program, *BIG, "--quiet")
    out, status = command.finish()
    assert (status, command.seen) == (0, "")
    assert out.startswith("result 0")


def test_what_is_redirected_holds_no_bars(program: str) -> None:
    words = [sys.executable, "-m", "fuser", "run", program, *BIG]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_interrupting_leaves_the_terminal_sane(program: str) -> None:
    command = Terminal("run", program, "--dims", "n=60000,d=8192", "--device", "cpu")
    command.until("left")
    command.process.send_signal(signal.SIGINT)
    out, status = command.finish()
    assert (out, status) == ("", 130)
    assert command.seen.rstrip().endswith("interrupted")
    assert "Traceback" not in command.seen
    assert "\x1b[?25l" not in command.seen  # the cursor was never hidden


def test_measuring_shows_bars_too(program: str) -> None:
    command = Terminal("bench", program, "--dims", "n=64,d=64", "--device", "cpu")
    out, status = command.finish()
    assert status == 0
    assert "verdict" in out
    assert "data " in command.seen
    assert command.seen.rstrip("\r").endswith("\x1b[2K")


# -- the helper ------------------------------------------------------------------------------------------
def test_nobody_watches_here() -> None:
    with progress.shown(), progress.task("work", 3) as work:
        assert type(work) is progress.Task
        work.advance(2, "now")
        work.expect(5)
    assert list(progress.track([1, 2], "work", str)) == [1, 2]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "watched", lambda: True)


@pytest.mark.parametrize("still", [False, True])
def test_lines_stand_above_bars(watched: None, capsys: pytest.CaptureFixture[str], still: bool) -> None:
    with progress.shown(still=still):
        for k in progress.track(range(3), "rows", "row {}".format):
            with progress.task("inner"):
                time.sleep(0.3)
            with progress.aside():
                print(f"line {k}")
    assert capsys.readouterr().out == "line 0\nline 1\nline 2\n"


def test_the_rest_is_estimated_from_the_pace_so_far(watched: None) -> None:
    with progress.shown(still=True), progress.task("work", 10) as work:
        assert isinstance(work, progress._Drawn)
        assert work.left is None
        time.sleep(0.02)
        work.advance(5)
        assert work.left is not None
        assert 0 < work.left <= work.advanced - work.begun
        work.advance(7)  # more than was expected
        assert (work.done, work.total, work.left) == (12, 12, 0.0)


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "7 s"), (127, "2:07"), (3727, "1:02:07")])
def test_durations(seconds: float, text: str) -> None:
    assert progress.clock(seconds) == text


def test_amounts() -> None:
    assert progress.units_of(3, 17) == "3/17"
    assert progress.units_of(1 << 20, 1 << 22) == " 25%"


@pytest.mark.parametrize("spec", ["f32[700, 3]", "bf16[2111]", "f64[2, 5, 7]", "i8[999]", "i64[999]", "bool[333]"])
def test_data_drawn_in_pieces_is_the_data_drawn_at_once(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("randn", "rand", "randint"):
        whole = datagen.generate(kind, specs.parse(spec), {}, 5)
        with monkeypatch.context() as patch:
            patch.setattr(datagen, "PIECE", 101)
            pieces = datagen.generate(kind, specs.parse(spec), {}, 5)
        assert whole.dtype == pieces.dtype
        np.testing.assert_array_equal(whole, pieces)
