"""Case A28: processes that share a disk cache, and caches that were damaged, are read-only, or missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys, numpy as np, fuser
from fuser import kernels
from fuser.runtime import cache
def f(x):
    return np.tanh(x).sum(axis=0)
x = np.random.default_rng(3).random((50, 40))
if len(sys.argv) > 1:  # a barrier: wait until all are here
    print("ready", flush=True)
    sys.stdin.readline()
F = fuser.compile(f)
close = bool(np.allclose(F(x), f(x), rtol=1e-12) and np.allclose(F(x), f(x), rtol=1e-12))
planned = "fuser.passes.fuse" in sys.modules or "fuser.codegen.schedule" in sys.modules
print(json.dumps(
    {"close": close, "compiled": kernels.compiled_count(), "planned": planned, "problem": cache.store().problem}
))
"""


def start(folder: Path | str, *args: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "FUSER_CACHE_DIR": str(folder), **more}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *args],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], line: str = "") -> dict[str, Any]:
    out, err = process.communicate(line, timeout=120)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert found["close"]
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.kernel"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one process has filled."""
    folder = tmp_path_factory.mktemp("caches") / "filled"
    assert finish(start(folder))["compiled"] > 0
    return folder


def is_plan(path: Path) -> bool:
    return b'"decisions"' in path.read_bytes()[:500]


def test_a_second_process_neither_plans_nor_compiles(filled: Path) -> None:
    assert sum(map(is_plan, files(filled))) == 1
    found = finish(start(filled))
    assert (found["compiled"], found["planned"]) == (0, False)


def test_eight_processes_at_once_with_an_empty_cache(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    running = [start(folder, "wait") for _ in range(8)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:  # all are waiting: off they go
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        assert finish(process)["problem"] == ""
    assert not list(folder.glob("??/*.tmp"))
    found = finish(start(folder))
    assert (found["compiled"], found["planned"]) == (0, False)


def damaged(whole: bytes, how: str) -> bytes:
    """What is left of a file: nothing, its first half, noise, or all of it but one bit."""
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :]
    return {"empty": b"", "half": whole[:middle], "noise": os.urandom(len(whole)), "one bit": flipped}[how]


@pytest.mark.parametrize("damage", ["empty", "half", "noise", "one bit"])
def test_damaged_entries_are_made_again_and_replaced(filled: Path, damage: str) -> None:
    before = {path: path.read_bytes() for path in files(filled)}
    for path, whole in before.items():
        path.write_bytes(damaged(whole, damage))
    found = finish(start(filled))
    assert found["compiled"] > 0
    assert found["planned"]
    assert set(before) <= set(files(filled))
    found = finish(start(filled))
    assert (found["compiled"], found["planned"]) == (0, False)


@pytest.mark.parametrize("damage", ["half", "one bit", "gone"])
@pytest.mark.parametrize("kind", ["plan", "kernel"])
def test_one_damaged_kind_of_entry_is_made_again(filled: Path, kind: str, damage: str) -> None:
    """A plan whose kernels are lost is made anew with them; kernels whose plan is lost are found by their content."""
    chosen = [
        path for path in files(filled) if is_plan(path) == (kind == "plan") and b'"digest"' not in path.read_bytes()
    ]
    for path in chosen:
        whole = path.read_bytes()
        path.unlink()
        if damage != "gone":
            path.write_bytes(damaged(whole, damage))
    found = finish(start(filled))
    assert found["planned"]
    assert (found["compiled"] > 0) == (kind == "kernel")
    assert set(chosen) <= set(files(filled))
    assert not finish(start(filled))["planned"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    found = finish(start(blocked / "cache"))
    assert found["compiled"] > 0
    assert found["problem"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_cache(filled: Path) -> None:
    for path in [filled, *filled.iterdir()]:
        path.chmod(0o500)
    try:
        found = finish(start(filled))
        assert (found["compiled"], found["planned"]) == (0, False)
    finally:
        for path in [filled, *filled.iterdir()]:
            path.chmod(0o700)


def test_a_shipped_layer_gives_its_plans_to_an_installation_that_is_not_known_yet(filled: Path, tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    shutil.copytree(filled, layer)
    for path in files(layer):
        if b'"digest"' in path.read_bytes():
            path.unlink()
    found = finish(start(f"{tmp_path / 'own'}{os.pathsep}{layer}"))
    assert (found["compiled"], found["planned"]) == (0, False)


def test_no_home(tmp_path: Path) -> None:
    finish(start("", HOME=str(tmp_path / "missing" / "home"), XDG_CACHE_HOME=""))


def test_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    code = PROGRAM.replace("def f(x):", "cache.os.replace = lambda *a: os.kill(os.getpid(), 9)\ndef f(x):", 1)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "FUSER_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL
    assert list(folder.glob("??/*.tmp"))
    assert files(folder) == []
    assert finish(start(folder))["compiled"] > 0
    assert finish(start(folder))["compiled"] == 0


def test_never_compiles_where_that_is_forbidden(filled: Path, tmp_path: Path) -> None:
    assert finish(start(filled, FUSER_COMPILE="never"))["compiled"] == 0
    process = start(tmp_path / "empty", FUSER_COMPILE="never")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "[compile-never]" in err
    assert "f.warm('f64[50, 40]', device='cpu')" in err
