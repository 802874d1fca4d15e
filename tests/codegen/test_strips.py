"""Strips: threads that take several rows of a pointwise kernel give the bits of threads that take one, and load what
the rows share once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fuser
from fuser.codegen.loops import LoadVec, walk
from fuser.codegen.schedule import cuda
from fuser.dtypes import BF16, F32, F64, DType
from fuser.errors import InternalError
from fuser.schedule import CudaSchedule
from tests.codegen.corpus import Case


def under(case: Case, schedule: CudaSchedule) -> list[bytes]:
    other = replace(case)
    other.__dict__["schedules"] = (schedule,)
    return [a.tobytes() for a in other.run()]


@pytest.mark.parametrize("size", [(37, 64, 16), (64, 48, 32), (5, 33, 7), (1, 16, 1)], ids=str)
@pytest.mark.parametrize("name", ["broadcast", "joined", "gathered", "stencil"])
def test_strips_change_no_bit(name: str, size: tuple[int, int, int]) -> None:
    case = Case(name, F32, tuple(zip("nmk", size, strict=True)))
    (chosen,) = case.schedules
    assert isinstance(chosen, CudaSchedule)
    plain = replace(chosen, unroll=1, threads=64, threads_per_row=1)
    want = under(case, plain)
    for strip, vector in ((2, plain.vector), (4, plain.vector), (8, 1)):
        assert under(case, replace(plain, strip=strip, vector=vector)) == want


def test_what_rows_share_is_loaded_once() -> None:
    case = Case("broadcast", F32, (("n", 4096), ("m", 4096)))
    (chosen,) = case.schedules
    assert isinstance(chosen, CudaSchedule)
    assert (chosen.strip, chosen.vector) == (4, 4)
    (kernel,) = case.kernels
    loads = [s.buffer for s in walk(kernel.body) if isinstance(s, LoadVec)]
    assert (loads.count("g"), loads.count("x")) == (1, 4)


@pytest.mark.parametrize(("dtype", "vector", "strip"), [(F32, 4, 4), (BF16, 8, 4), (F64, 2, 4)])
def test_the_rows_of_a_strip_follow_from_what_registers_hold(dtype: DType, vector: int, strip: int) -> None:
    case = Case("broadcast", dtype, (("n", 8192), ("m", 4096)))
    (chosen,) = case.schedules
    assert isinstance(chosen, CudaSchedule)
    assert (chosen.vector, chosen.strip) == (vector, strip)


@pytest.mark.parametrize(("name", "size"), [("broadcast", 64), ("polynomial", 4096), ("joined", 4096)])
def test_small_arrays_and_rows_that_share_nothing_are_taken_one_by_one(name: str, size: int) -> None:
    case = Case(name, F32, (("n", size), ("m", size), ("k", size)))
    assert [s.strip for s in case.schedules if isinstance(s, CudaSchedule)] == [1]


def test_a_strip_that_spills_is_halved_and_then_given_up() -> None:
    schedule = CudaSchedule("pointwise", 128, 4, strip=4)
    seen = []
    while (found := cuda.retreat(schedule)) is not None:
        schedule = found
        seen.append((schedule.strip, schedule.vector))
    assert seen == [(2, 4), (1, 4), (1, 2), (1, 1)]
    assert np.all(np.diff([a * b for a, b in seen]) < 0)


def test_grouped_divisions_that_spill_get_registers_and_are_then_given_up() -> None:
    """In a loop the promise of many threads goes first; a pointwise kernel is no faster with groups but without it."""
    loop = CudaSchedule("columns", 128, guarded=True, min_blocks=8)
    assert cuda.retreat(loop) == replace(loop, min_blocks=1)
    assert cuda.retreat(replace(loop, min_blocks=1)) == replace(loop, guarded=False, min_blocks=1)
    flat = CudaSchedule("pointwise", 128, guarded=True, min_blocks=16)
    assert cuda.retreat(flat) == replace(flat, guarded=False, min_blocks=1)


def test_strips_by_hand_of_what_has_none_are_refused() -> None:
    line = fuser.compile("lambda x: x * 2").plan("f32[4096]", device="sm_90")
    ragged = fuser.compile("lambda x, y: x * y").plan("f32[64, 33]", "f32[33]", device="sm_90")
    for plan in (line, ragged):
        (chosen,) = plan.schedules
        forced = replace(plan, tuned={0: replace(chosen, strip=2, vector=4)})  # type: ignore[type-var]
        with pytest.raises(InternalError, match="need rows"):
            _ = forced.built
