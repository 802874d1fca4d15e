"""Reductions along rows and across them in one group: what is legal, where it pays, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.passes.fuse import Options, plan_groups
from fuser.plan import Plan


def margins(x: Any) -> Any:
    return np.sum(x * x, axis=1), np.sum(x * x, axis=0)


def centred(x: Any) -> Any:
    """Every element needs its column's mean."""
    return x - np.mean(x, axis=0), np.sum(x, axis=1)


def rows_of_centred(x: Any) -> Any:
    return np.sum(np.exp(x - np.max(x, axis=0)), axis=1)


def columns_of_columns(x: Any) -> Any:
    """A reduction across rows of what needs another one."""
    return np.sum(np.abs(x - np.max(x, axis=0)), axis=0), np.sum(x, axis=1)


def softmax_and_columns(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return p, np.sum(p, axis=0)


def middle(x: Any) -> Any:
    """[a, b, c]: what rows fold is not what the others keep."""
    return np.sum(x, axis=2), np.sum(x, axis=1)


def plan(program: Callable[..., Any], spec: str, device: str = "sm_90") -> Plan:
    return fuser.compile(program).plan(spec, device=device)


def reasons(found: Plan) -> set[str]:
    return {d.reason for d in found.decisions if d.verdict == "apart"}


@pytest.mark.parametrize("program", [margins, softmax_and_columns])
@pytest.mark.parametrize("spec", ["f32[65536, 4096]", "bf16[8192, 8192]", "f32[30000, 1000]"])
def test_one_group(program: Callable[..., Any], spec: str) -> None:
    found = plan(program, spec)
    (group,) = found.groups
    assert group.kind == "mixed"
    assert len(group.across) == len(group.column_stores) == 1
    assert found.bytes_moved == found.bytes_floor


def test_what_follows_a_result_across_rows_costs_once_a_column() -> None:
    def means(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return np.mean(e / np.sum(e, axis=1, keepdims=True), axis=0)

    assert [g.kind for g in plan(means, "f32[16384, 8192]").groups] == ["mixed"]


def test_a_result_across_rows_is_fed_by_the_stage_that_has_its_operand() -> None:
    (group,) = plan(softmax_and_columns, "f32[65536, 4096]").groups
    (stages,) = group.stages
    assert [len(s.across) for s in stages] == [0, 0, 1]
    assert [len(s.stores) for s in stages] == [0, 0, 1]


@pytest.mark.parametrize(
    ("program", "spec", "device", "reason"),
    [
        (margins, "f32[65536, 4096]", "cpu", "axes"),
        (margins, "f32[1024, 4096]", "sm_90", "strips"),
        (margins, "f32[65536, 64]", "sm_90", "strips"),
        (margins, "f32[4096, 131072]", "sm_90", "width"),
        (centred, "f32[65536, 4096]", "sm_90", "axes"),
        (rows_of_centred, "f32[65536, 4096]", "sm_90", "axes"),
        (columns_of_columns, "f32[65536, 4096]", "sm_90", "barrier"),
        (middle, "f32[64, 512, 1024]", "sm_90", "axes"),
    ],
)
def test_apart_and_why(program: Callable[..., Any], spec: str, device: str, reason: str) -> None:
    found = plan(program, spec, device)
    assert len(found.groups) > 1
    assert reason in reasons(found)


def test_the_reason_in_words() -> None:
    few, wide = plan(margins, "f32[1024, 4096]"), plan(margins, "f32[4096, 131072]")
    assert "16 strips of rows are too few to fill the device" in str(few.why("sum.1", "sum.2"))
    assert "sums of its columns would take" in str(wide.why("sum.1", "sum.2"))
    assert "they reduce different axes" in str(plan(margins, "f32[65536, 4096]", "cpu").why("sum.1", "sum.2")).replace(
        "their kernels", "they"
    )


def test_an_argument_is_updated_where_it_lies() -> None:
    """`total += x.sum(0)` beside row sums: the second launch reads and writes it at the same place."""

    def step(x: Any, total: Any) -> Any:
        total += np.sum(x, axis=0)
        return np.sum(x, axis=1)

    found = fuser.compile(step).plan("f32[65536, 4096]", "f32[4096]", device="sm_90")
    (group,), _ = plan_groups(found.graph, found.sizes, found.device, Options(in_place=True))
    assert group.kind == "mixed"
    assert [position for _, position in group.in_place] == [1]
