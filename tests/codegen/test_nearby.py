"""Schedules that tuning may try: each gives the bits of the formula's, and there is something to try."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.schedule.nearby import neighbours
from fuser.device import find
from fuser.schedule import CudaSchedule, Schedule
from tests.simulate import Simulated


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


PROGRAMS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "pointwise": (lambda x, y: np.tanh(x) * y, ((37, 1000), (1000,))),
    "transposed": (lambda x, y: np.maximum(x + y.T, 0), ((130, 70), (70, 130))),
    "short rows": (softmax, ((9, 33),)),
    "resident rows": (softmax, ((5, 1500),)),
    "parked rows": (softmax, ((3, 20000),)),
    "full": (lambda x: np.abs(x).sum(), ((300_000,),)),
    "columns": (lambda x: (x * x).sum(axis=0), ((700, 65),)),
    "scan": (lambda x: np.cumsum(x, axis=-1), ((3, 1500),)),
    "scan of columns": (lambda x: np.cumsum(x, axis=0), ((700, 33),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_neighbour_gives_the_same_bits(name: str) -> None:
    program, shapes = PROGRAMS[name]
    rng = np.random.default_rng(len(name))
    args = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    simulated = Simulated(program, after_expand=False)
    wanted = simulated(*args)
    bound, traced = simulated.compiled._trace(tuple(args), {})
    plan = simulated.compiled._plan_for(bound, traced, find("sm_90"))
    (key,) = traced.plans
    tried = neighbours(plan.schedules[0])
    assert len(tried) >= (1 if "scan" in name else 2)
    for schedule in tried:
        traced.plans[key] = replace(plan, tuned={0: schedule})
        assert simulated(*args).tobytes() == wanted.tobytes(), schedule


def test_neighbours_keep_the_order_and_never_repeat() -> None:
    for program, shapes in PROGRAMS.values():
        for device in ("sm_80", "sm_120", "cpu"):
            plan = fuser.compile(program).plan(*[f"f32[{', '.join(map(str, s))}]" for s in shapes], device=device)
            for schedule in plan.schedules:
                found = neighbours(schedule)
                assert len(set(found)) == len(found)
                assert schedule not in found
                assert {(s.order, s.kind, s.capacity) for s in found} <= {
                    (schedule.order, schedule.kind, schedule.capacity)
                }


def varied(s: Schedule, name: str) -> set[Any]:
    return {getattr(other, name) for other in neighbours(s)}


def test_what_a_ring_or_a_cluster_holds_is_not_varied() -> None:
    """The rows of a ring fill shared memory, and the blocks of a cluster share one row."""
    ring = CudaSchedule("mixed", threads=256, threads_per_row=256, vector=4, unroll=4, copies=True, parked=True)
    assert varied(ring, "unroll") <= {4}
    row = CudaSchedule("rows", threads=256, threads_per_row=256, vector=4, resident=True, cluster=2)
    assert varied(row, "threads") == {256}
    assert varied(replace(row, cluster=1), "threads") > {256}
