"""`fuserc explain --save / --check / --diff`, and `--dump-graph` into files."""

from pathlib import Path

import pytest

from fuser.cli import main
from tests.plans.test_planfile import ROWS, WHOLE


def fuserc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit status, and what was printed."""
    monkeypatch.setattr("sys.argv", ["fuserc", *words])
    status = 0
    try:
        main()
    except SystemExit as left:
        status = int(left.code or 0)
    out, err = capsys.readouterr()
    return status, out + err


def test_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    source, plan = tmp_path / "scale.fuse", str(tmp_path / "plan.json")
    source.write_text(ROWS.strip() + "\n")

    def run(*words: str) -> tuple[int, str]:
        return fuserc(monkeypatch, capsys, "explain", str(source), *words, plan)

    status, said = run("--device", "sm_80", "--dims", "n=8192,d=128", "--save")
    assert (status, said.startswith(f"saved {plan}: 1 kernel")) == (0, True)
    assert run("--check")[0] == 0  # the file's device and sizes
    assert run("--diff")[1].endswith(f"the same as {plan}\n")
    source.write_text(WHOLE.strip() + "\n")
    status, said = run("--check")
    assert status == 1
    assert "FusionLost: `scale` plans 2 kernels, was 1" in said
    status, said = run("--diff")
    assert status == 0
    assert "- scale.fuse:4  top -> out" in said


def test_a_plan_file_goes_with_an_action(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fuserc(monkeypatch, capsys, "explain", "f.fuse", "plan.json")[0] == 2
    assert fuserc(monkeypatch, capsys, "explain", "f.fuse", "--check")[0] == 2


@pytest.mark.parametrize("form", ["svg", "html", "dot", "json", "txt"])
def test_dump_into_a_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, file = tmp_path / "scale.fuse", tmp_path / f"plan.{form}"
    source.write_text(ROWS.strip() + "\n")
    status, said = fuserc(monkeypatch, capsys, str(source), f"--dump-graph={file}", "--device", "sm_90")
    assert (status, said) == (0, f"wrote {file}\n")
    assert "scale" in file.read_text(encoding="utf-8")


def test_unknown_form(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = fuserc(monkeypatch, capsys, "f.fuse", "--dump-graph=pdf")
    assert status == 2
    assert "is not one of text, json, dot, svg, html" in said
