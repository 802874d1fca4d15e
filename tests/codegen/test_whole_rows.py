"""Rows in registers: the longest ones a kernel holds run without a condition a slot, and rows to come are asked for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from benchmarks import workloads
from fuser.codegen import schedule
from fuser.codegen.loops import If, Kernel, Prefetch, walk
from fuser.device import find
from fuser.dtypes import BF16, F32, F64, DType
from fuser.schedule import CudaSchedule
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under


def branches(kernel: Kernel) -> tuple[int, int] | None:
    """Conditions within the code of whole rows and within that of others; None where there is one code for both."""
    outer = [s for s in kernel.body if isinstance(s, If) and s.uniform and s.orelse]
    if not outer:
        return None
    found = [sum(isinstance(s, If) for s in walk(part)) for part in (outer[0].orelse, outer[0].then)]
    return found[0], found[1]


@pytest.mark.parametrize("m", [512, 400, 272, 500])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "cross_entropy", "row_statistics"])
def test_whole_rows_and_others_keep_their_bits(name: str, dtype: DType, m: int) -> None:
    case = Case(name, dtype, sizes(5, m))
    chosen = chosen_for(case)
    assert chosen.capacity == 512
    assert chosen.resident or name == "row_statistics"
    plain = replace(chosen, resident=False, threads=128, threads_per_row=64, vector=1)
    assert under(case, plain) == [a.tobytes() for a in case.run()]


@pytest.mark.parametrize(("m", "there"), [(512, True), (400, True), (500, False)])
def test_rows_that_can_be_whole_have_code_without_conditions(m: int, there: bool) -> None:
    (kernel,) = Case("softmax", BF16, sizes(5, m)).kernels
    found = branches(kernel)
    assert (found is not None) == there  # 500 is no multiple of 16, so this kernel never meets a row of 512
    assert found is None or found[0] < found[1]


def test_long_programs_are_written_once() -> None:
    """Two copies of a long program cost more, in registers and compile time, than conditions do."""
    case = Case("softmax", BF16, sizes(5, 512))
    few = replace(chosen_for(case), threads=128, threads_per_row=2)
    case.__dict__["schedules"] = (few,)
    assert branches(case.kernels[0]) is None


def chosen_of(name: str, dtype: DType, n: int, m: int) -> CudaSchedule:
    case = Case(name, dtype, sizes(n, m))
    chosen = schedule.choose(case.graph, case.groups[0], case.size_class, find("sm_90"))
    assert isinstance(chosen, CudaSchedule)
    assert chosen.resident
    return chosen


def test_stored_rows_are_asked_for_ahead_where_there_are_many() -> None:
    assert chosen_of("softmax", BF16, 1 << 16, 1024).ahead * 1024 * 2 > 4 << 20  # bytes on their way
    assert chosen_of("softmax", BF16, 4096, 1024).ahead == 0  # all run at once
    assert chosen_of("row_statistics", F32, 1 << 16, 1024).ahead == 0  # only read


def test_rows_beside_two_weights_are_held_and_ask_ahead_too() -> None:
    (layer_norm,) = workloads.select(workloads.GPU, "A07")
    (chosen,) = fuser.compile(layer_norm.fn).plan(*layer_norm.specs, device="sm_90").schedules
    assert isinstance(chosen, CudaSchedule)
    assert chosen.resident
    assert not chosen.parked
    assert chosen.ahead * 8192 * 2 > 4 << 20


@pytest.mark.parametrize("m", [512, 400])
def test_what_is_asked_for_ahead_is_in_range_and_changes_no_bit(m: int) -> None:
    case = Case("softmax", BF16, sizes(21, m))
    chosen = replace(chosen_for(case), ahead=8)
    other = replace(case)
    other.__dict__["groups"], other.__dict__["schedules"] = case.groups, (chosen,)
    assert any(isinstance(s, Prefetch) for s in walk(other.kernels[0].body))
    assert [a.tobytes() for a in other.run()] == [a.tobytes() for a in case.run()]


def test_a_nan_keeps_its_payload_in_the_order_of_f64() -> None:
    """Only maxima whose NaNs are all one may join in any order."""
    from fuser.codegen.schedule.accumulate import folds_of
    from fuser.codegen.schedule.measures import body_of

    for dtype, free in ((F32, True), (BF16, True), (F64, False)):
        case = Case("softmax", dtype, sizes(5, 512))
        body = body_of(case.graph, case.groups[0], tuple(case.size_class.layouts))
        maximum, total = (folds_of(case.graph, stage.reduces)[0] for stage in body.stages[:2])
        assert (maximum.unordered, total.unordered) == (free, False)


@pytest.mark.parametrize("width", [8192, 16384])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_both_sides_of_the_branch_share_the_scratch_of_folds(dtype: Any, width: int) -> None:
    """Rows that start at an odd place are read by elements, and their far lanes meet in scratch."""

    def softmax(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    x = np.zeros(300 * width + 1, dtype)[1:].reshape(300, width)
    assert fuser.compile(softmax).plan(x, device="sm_90").kernels


@pytest.mark.parametrize(("rows", "width"), [(2536, 20000), (2600, 65536), (2536, 45346)])
def test_a_block_takes_no_more_turns_than_there_are_segments(rows: int, width: int) -> None:
    plan = fuser.compile(lambda x: np.min(x, axis=1)).plan(f"bf16[{rows}, {width}]", device="sm_90")
    assert [k.name for k in plan.kernels]
    for s in plan.schedules:
        assert isinstance(s, CudaSchedule)
        assert 2 * s.turns <= max(s.order.segments, 2)
