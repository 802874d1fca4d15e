"""Plan files: what is saved comes back, an edit that loses a fusion is caught and named, one that gains is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import planfile
from fuser.errors import ArgumentError, FusionLost
from fuser.plan import Plan

ROWS = """
def scale(x: f32[n, d]) -> f32[n, d]:
    e = exp(x)
    top = max(e, axis=-1, keepdims=True)
    return e / top
"""
ROWS_OF_X = 8192  # too many for one block
ARRAY = ROWS_OF_X * 128 * 4
WHOLE = ROWS.replace("max(e, axis=-1, keepdims=True)", "max(e)")


def plan_of(text: str, rows: int = ROWS_OF_X) -> Plan:
    program: Any = fuser.parse(text.strip() + "\n", "scale.fuse")
    return program["scale"].plan(np.zeros((rows, 128), np.float32), device="sm_90")


def saved(text: str) -> dict[str, Any]:
    return planfile.record(plan_of(text))


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = plan_of(ROWS)
    plan.save(path)
    assert planfile.load(path) == planfile.record(plan)
    plan.check(path)
    assert plan.diff(path) == ""


def test_the_file_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        plan_of(WHOLE).save(tmp_path / name)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


def test_what_a_file_holds() -> None:
    found = saved(ROWS)
    (kernel,) = found["kernels"]
    assert kernel["operators"] == ["e", "top", "out"]
    assert kernel["reads"] == {"x": ARRAY}
    assert kernel["writes"] == {"out": ARRAY}
    assert found["totals"] == {"kernels": 1, "bytes": 2 * ARRAY, "floor": 2 * ARRAY}
    assert found["dims"] == {"n": ROWS_OF_X, "d": 128}
    assert "us" not in json.dumps(found)


def test_a_lost_fusion_is_named() -> None:
    with pytest.raises(FusionLost) as caught:
        planfile.check(plan_of(WHOLE), saved(ROWS))
    said = str(caught.value)
    assert "`scale` plans 2 kernels, was 1" in said
    assert "[fusion-lost]" in said
    assert "scale.fuse:4  top -> out: the result is known only after every row  (K1 | K2, was K1)" in said
    assert "through memory than the saved plan" in said
    assert "--save" in said


def test_a_gain_passes_and_shows_in_the_diff() -> None:
    planfile.check(plan_of(ROWS), saved(WHOLE))
    lines = planfile.diff(plan_of(ROWS), saved(WHOLE))
    assert lines[0].startswith("scale: 1 kernel, was 2; 8.39 MB, was ")
    assert "+ top -> out: one kernel  (K1, was K1 | K2)" in lines


def test_new_and_vanished_operators() -> None:
    more = ROWS.replace("e = exp(x)", "t = tanh(x)\n    e = exp(t)")
    assert "+ t  in K1" in planfile.diff(plan_of(more), saved(ROWS))
    assert "- t  was in K1" in planfile.diff(plan_of(ROWS), saved(more))
    planfile.check(plan_of(more), saved(ROWS))  # a new operator that fuses is no loss


def test_a_new_kernel_is_a_loss_even_when_old_fusions_hold() -> None:
    more = ROWS.replace("return e / top", "r = e / top\n    low = min(r)\n    return r - low")
    with pytest.raises(FusionLost, match="3 kernels, was 1") as caught:
        planfile.check(plan_of(more), saved(ROWS))
    assert "r -> low: their kernels reduce different axes" in str(caught.value)


def test_other_sizes_compare_kernels_only() -> None:
    planfile.check(plan_of(ROWS, 64), saved(ROWS))
    assert planfile.diff(plan_of(ROWS, 64), saved(ROWS))[0] == f"saved for n={ROWS_OF_X} d=128, sm_90"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "name": "f"}', '{"schema": 1, "kernels": 3, "totals": {}}'],
)
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"plan\.json") as caught:
        planfile.load(path)
    assert caught.value.slug == "bad-plan-file"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot read"):
        planfile.load(tmp_path / "none.json")
    with pytest.raises(ArgumentError, match="cannot write"):
        plan_of(ROWS).save(tmp_path / "none" / "plan.json")
