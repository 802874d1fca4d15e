"""Every example runs, checks itself and shows its plan in every form, in this process where that can be."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuser import script, targets
from fuser.errors import FuserError
from tests.meta.project import ROOT

EXAMPLES = sorted(p for p in (ROOT / "examples").iterdir() if p.suffix in (".fuse", ".py"))
KERNELS = {
    "scores": 5,
    "photograph": 2,
    "batch_norm": 3,
    "kmeans": 2,
    "cross_entropy": 2,
    "larger_than_memory": 3,
}  # on a GPU; others: one
WIDTH = 100


def found(path: Path) -> targets.Found:
    return targets.find(str(path), "cpu")


@pytest.fixture(autouse=True)
def _stable(monkeypatch: pytest.MonkeyPatch) -> Any:
    from fuser.settings import settings

    monkeypatch.setenv("FUSER_STABLE", "1")
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_there_are_enough_of_both_kinds() -> None:
    kinds = [p.suffix for p in EXAMPLES]
    assert min(kinds.count(".fuse"), kinds.count(".py")) >= 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_runs_as_it_stands_and_checks_itself(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = found(path)
    values = targets.inputs(example, (), "")
    script.run(example.compiled, values, True, None, print)
    printed = capsys.readouterr().out
    shown = len(re.findall("^(?:result|argument) ", printed, re.MULTILINE))
    assert shown > 0
    assert len(re.findall("^check: ", printed, re.MULTILINE)) == shown


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_shows_its_plan_in_every_form(path: Path) -> None:
    example = found(path)
    plan = example.compiled.plan(*targets.inputs(example, (), "", data=False), device="sm_90")
    text = script.dump(plan, "text")
    assert len(plan.groups) <= KERNELS.get(path.stem, 1), text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert str(ROOT) not in text
    assert "lambda" not in text
    record = json.loads(script.dump(plan, "json"))
    assert record["schema"] == 1
    assert record["totals"]["kernels"] == len(plan.groups) == len(record["kernels"])
    dot = script.dump(plan, "dot")
    assert dot.startswith("digraph ")
    assert dot.count("{") == dot.count("}")


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.suffix == ".py"], ids=lambda p: p.name)
def test_a_script_takes_dump_graph(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = found(path)
    assert example.make is not None
    monkeypatch.setattr(sys, "argv", [path.name, "--dump-graph=json", "--device", "sm_90"])
    script.main(example.compiled, example.make)
    assert json.loads(capsys.readouterr().out)["device"] == "sm_90"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    command = f"fuserc run examples/{path.name}" if path.suffix == ".fuse" else f"python examples/{path.name}"
    assert command in text
    compile(text, path.name, "exec", dont_inherit=True)  # a .fuse file is Python too, for editors


def test_a_script_runs_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "softmax.py"), "--device", "cpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "check: result float32[512, 1000]" in done.stdout


def test_a_device_that_a_script_cannot_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    example = found(ROOT / "examples" / "softmax.py")
    assert example.make is not None
    monkeypatch.setattr(sys, "argv", ["softmax.py", "--device", "sm_90"])
    with pytest.raises(SystemExit, match="not-a-machine"):
        script.main(example.compiled, example.make)
    with pytest.raises(FuserError, match="not known"):
        targets.find(str(ROOT / "examples" / "softmax.fuse"), None).compiled.plan("f32[4, 4]", device="sm_1")
