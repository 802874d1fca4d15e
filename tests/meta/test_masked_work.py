"""Programs of shifted stores in place: what code generation makes of a group is what the planner counted for it.

A value that is needed under several masks is made once for each, and shifts of shifts multiply them: three rounds of a
percolation as one kernel took 38,640 evaluations an element, where the planner counted 1,091. Counts, no times.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.evaluate import Tracer
from fuser.passes.facts import Facts
from fuser.passes.legality import WALK_BUDGET, examine
from fuser.passes.walk import Walk


def percolation(rounds: int) -> Any:
    def percolate(water: Any, rock: Any) -> Any:
        water = water.copy()
        for _ in range(rounds):
            water[1:, :] = np.maximum(water[1:, :], water[:-1, :] * rock[1:, :])
            water[:-1, :] = np.maximum(water[:-1, :], water[1:, :] * rock[:-1, :])
            water[:, 1:] = np.maximum(water[:, 1:], water[:, :-1] * rock[:, 1:])
            water[:, :-1] = np.maximum(water[:, :-1], water[:, 1:] * rock[:, :-1])
        return water

    return percolate


def rows(count: int) -> Any:
    def recurrence(x: Any, y: Any) -> Any:
        x = x.copy()
        for i in range(1, count):
            x[i, 1:] = x[i - 1, 1:] * y[i, 1:] + x[i - 1, :-1]
        return x

    return recurrence


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[Tracer]:
    """How many values code generation made, by what it made them for."""
    counts: Counter[Tracer] = Counter()
    make = Tracer._make

    def counting(self: Tracer, key: Any) -> int:
        counts[self] += 1
        return make(self, key)

    monkeypatch.setattr(Tracer, "_make", counting)
    return counts


def lower(plan: Any) -> None:
    for group, schedule in zip(plan.groups, plan.schedules, strict=True):
        plan.toolchain.lower(plan.graph, group, schedule, plan.device, plan.size_class.layouts)


@pytest.mark.parametrize(
    ("program", "device"),
    [(percolation(3), "sm_90"), (percolation(3), "cpu"), (rows(16), "sm_90")],
    ids=["percolation-sm_90", "percolation-cpu", "rows-sm_90"],
)
def test_no_kernel_is_more_work_than_the_budget(program: Any, device: str, made: Counter[Tracer]) -> None:
    plan = fuser.compile(program).plan(*["f32[64, 64]"] * 2, device=device)
    lower(plan)
    assert 100 < max(made.values()) < 1.5 * WALK_BUDGET  # reads of memory are not counted by the planner


def test_the_planner_counts_what_is_made(made: Counter[Tracer]) -> None:
    plan = fuser.compile(percolation(2)).plan(*["f32[64, 64]"] * 2, device="sm_90")
    (group,) = plan.groups
    facts = Facts(plan.graph)
    formed: Any = examine(facts, frozenset(group.members) & facts.core_set, frozenset(group.outputs))
    walk: Walk = formed.walk
    lower(plan)
    assert walk.evaluations == pytest.approx(max(made.values()), rel=0.1)


def test_cut_programs_give_what_numpy_gives() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.random((2, 24, 20), np.float32)
    for program in (percolation(2), rows(12)):
        assert np.array_equal(fuser.compile(program)(x, y), program(x, y))
