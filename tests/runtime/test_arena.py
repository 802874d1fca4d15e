"""Temporaries in one block: those alive together do not overlap, those that are not may share."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fuser
from fuser.runtime import call
from fuser.runtime.arena import ALIGNMENT, Life, place
from fuser.runtime.arrays import Place

LIVES = st.lists(
    st.builds(
        lambda nbytes, first, length: Life(nbytes, first, first + length),
        st.integers(0, 5000), st.integers(0, 8), st.integers(0, 4),
    ),
    max_size=12,
)  # fmt: skip


@given(LIVES)
def test_neighbours_in_time_do_not_overlap(lives: list[Life]) -> None:
    offsets, total = place(lives)
    for i, (a, x) in enumerate(zip(lives, offsets, strict=True)):
        assert x % ALIGNMENT == 0
        assert x + a.nbytes <= total or not a.nbytes
        for b, y in zip(lives[:i], offsets[:i], strict=True):
            if a.first <= b.last and b.first <= a.last:
                assert x + a.nbytes <= y or y + b.nbytes <= x or not a.nbytes or not b.nbytes


def test_a_chain_needs_two_blocks() -> None:
    offsets, total = place([Life(1000, k, k + 1) for k in range(10)])
    assert total == 2 * 1024
    assert set(offsets) == {0, 1024}


def test_a_program_of_many_products_reuses_memory() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = np.tanh(x @ x)
        return x

    x = np.random.default_rng(0).random((64, 64)) / 64
    run = fuser.compile(chain)
    np.testing.assert_allclose(run(x), chain(x), rtol=1e-10)
    (launchable,) = [made for found in run._traces.values() for t in found for made in t.launches.values()]
    program = launchable.program
    assert sum(s.nbytes for s in program.scratch) >= 11 * x.nbytes
    assert program.arena.nbytes <= 3 * x.nbytes
    plan = run.plan(x)
    assert plan.temporary_bytes == program.arena.nbytes


def test_counters_that_end_at_zero_are_told_from_flags() -> None:
    """A sum leaves its counters and slots at zero; what the tiles of a scan have published stays."""

    def arena(function: Any) -> Any:
        plan = fuser.compile(function).plan("f32[300000]", device="sm_90")
        steps = tuple(zip(plan.groups, plan.built, strict=True))
        return call.bind(plan.graph, steps, Place("cuda", 0), {"x.0": 300000}).arena

    total = arena(lambda x: np.sum(x))
    assert sorted(total.offsets[k] for k in total.counters) == [0, ALIGNMENT]
    assert total.zeroed == ALIGNMENT * (1 + 128 * 8 // ALIGNMENT)  # 128 partials of 8 bytes
    both = arena(lambda x: (np.sum(x), np.cumsum(x)))
    assert both.zeroed > ALIGNMENT
    assert not both.counters
