"""Schedules of small inputs on CUDA: spread over a device that they do not fill, the same bits by other means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.codegen.cuda import nvrtc, printer
from fuser.codegen.expand import expand
from fuser.codegen.loops import Await, Barrier, Ticket, walk
from fuser.dtypes import BF16, F32
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_cuda import sizes, under


def test_blocks_share_the_segments_of_a_sum_that_has_few() -> None:
    for n, sharers, slots in ((1 << 14, 1, False), (1 << 18, 4, True), (1 << 21, 1, True), (1 << 24, 1, False)):
        (chosen,) = Case("abs_sum", F32, sizes(1, n, 1)).schedules
        assert (chosen.sharers, chosen.slots) == (sharers, slots), n


def test_many_rows_have_blocks_of_their_own_segments() -> None:
    (chosen,) = Case("row_sum", F32, sizes(16, 1 << 18, 1)).schedules
    assert (chosen.kind, chosen.sharers) == ("split", 1)


def test_a_small_sum_asks_for_its_ticket_before_it_loads() -> None:
    (kernel,) = Case("abs_sum", F32, sizes(1, 1 << 18, 1)).kernels
    body = [s for s in walk(kernel.body) if isinstance(s, (Ticket, Barrier, Await))]
    assert [type(s) for s in body] == [Ticket, Barrier, Await]
    assert not body[0].ordered  # type: ignore[union-attr]


def test_small_columns_have_narrow_threads() -> None:
    """128 bytes of a row a warp, and all rows of a thread on the way; few rows are one thread's."""
    for dtype, vector in ((F32, 1), (BF16, 2)):
        (chosen,) = Case("column_sum", dtype, sizes(256, 1024, 1)).schedules
        assert (chosen.threads, chosen.vector, chosen.threads_per_row) == (256, vector, 8), dtype
        assert chosen.unroll == 32
        (short,) = Case("column_sum", dtype, sizes(16, 1024, 1)).schedules
        assert (short.threads, short.vector, short.threads_per_row, short.unroll) == (128, vector, 1, 2)
    (large,) = Case("column_sum", F32, sizes(256, 65_536, 1)).schedules
    assert (large.vector, large.threads_per_row) == (4, 8)


def test_small_chains_have_a_thread_an_element() -> None:
    found = [Case("polynomial", F32, sizes(n, 1024, 1)).schedules[0] for n in (16, 256)]
    assert [(s.threads, s.vector) for s in found] == [(256, 1), (128, 4)]


def test_what_a_block_folds_in_turns_has_256_kib() -> None:
    found = [
        Case("abs_sum", t, sizes(1, n, 1)).schedules[0] for t, n in ((BF16, 1 << 28), (F32, 1 << 28), (F32, 1 << 24))
    ]
    assert [s.turns for s in found] == [8, 4, 1]
    assert Case("abs_sum", BF16, sizes(1, 1 << 32, 1), index_bits=64).schedules[0].turns == 1


@pytest.mark.parametrize(
    ("name", "n", "m"), [("abs_sum", 1, 1 << 18), ("row_statistics", 2, 1 << 17), ("column_sum", 256, 1024)]
)
def test_small_kernels_compile_without_spills(name: str, n: int, m: int) -> None:
    pytest.importorskip("cupy")
    for kernel in Case(name, F32, sizes(n, m, 1)).kernels:
        binary = nvrtc.compile(printer.print_kernel(expand(kernel)), kernel.name, "sm_90")
        assert (binary.spills, binary.stack) == (0, 0)


@pytest.mark.parametrize("name", ["abs_sum", "row_statistics"])
@pytest.mark.parametrize("n", [150_000, 70_001, 20_000])
def test_blocks_that_share_a_segment_change_no_bit(name: str, n: int) -> None:
    case = Case(name, F32, sizes(2, n, 1))
    (chosen,) = case.schedules
    want = under(case, replace(chosen, sharers=1))
    for threads, vector in ((128, 4), (64, 4), (64, 2)):
        most = chosen.order.lanes // (threads * vector)
        for sharers, unroll in ((most, 4), (most, 1), (most // 2, 2)):
            other = replace(chosen, kind="split", threads=threads, threads_per_row=threads, vector=vector,
                            sharers=sharers, unroll=unroll)  # fmt: skip
            assert under(case, other) == want, other


@pytest.mark.parametrize("n", [8208, 12_000, 16_384])
@pytest.mark.parametrize(("name", "rows"), [("abs_sum", 1), ("row_sum", 3)])
def test_few_rows_of_64_kib_are_shared_by_blocks_and_keep_their_bits(name: str, rows: int, n: int) -> None:
    case = Case(name, F32, sizes(rows, n, 1))
    (chosen,) = case.schedules
    assert (chosen.cluster, chosen.threads, chosen.resident) == (8, 128, True)
    alone = replace(chosen, cluster=1, threads=256, threads_per_row=256, resident=False, unroll=2)
    assert [a.tobytes() for a in case.run()] == under(case, alone)


def test_only_few_and_long_rows_are_shared_by_blocks() -> None:
    found = [Case("row_sum", F32, sizes(n, m, 1)).schedules[0] for n, m in ((3, 8192), (64, 16_384), (4096, 16_384))]
    assert [s.cluster for s in found] == [1, 1, 1]


@pytest.mark.parametrize("name", ["abs_sum", "row_statistics", "column_sum"])
def test_partials_in_slots_change_no_bit(name: str) -> None:
    case = Case(name, F32, sizes(*((2, 70_001, 1) if name != "column_sum" else (5000, 40, 1))))
    (chosen,) = case.schedules
    assert chosen.kind == "split"
    want = under(case, replace(chosen, slots=False))
    assert under(case, replace(chosen, slots=True)) == want
    if name != "column_sum":
        shared = replace(chosen, slots=True, threads=64, threads_per_row=64, vector=4, sharers=2)
        assert under(case, shared) == want


@pytest.mark.parametrize("name", ["column_sum", "column_normalise", "column_softmax"])
@pytest.mark.parametrize("n", [1, 7, 16, 33, 300])
def test_a_thread_with_all_lanes_of_its_columns_changes_no_bit(name: str, n: int) -> None:
    case = Case(name, F32, sizes(n, 72, 1))
    (chosen,) = case.schedules
    want = [a.tobytes() for a in case.run()]
    for vector, unroll, threads in ((1, 1, 64), (1, 4, 32), (4, 2, 32)):
        other = replace(chosen, kind="columns", vector=vector, unroll=unroll, threads=threads, threads_per_row=1,
                        parked=False, copies=False, cluster=1, ahead=0)  # fmt: skip
        assert under(case, other) == want, other
