"""What kernels ask for before its turn comes, in the interpreter: it changes no bit and stays inside its arrays."""

from dataclasses import replace

import pytest

from fuser.codegen.loops import Prefetch, walk
from fuser.dtypes import BF16, F32, F64, DType
from fuser.schedule import CudaSchedule
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under


def asked(case: Case, chosen: CudaSchedule) -> int:
    """Requests in the first kernel of a case under another schedule of its first group."""
    other = replace(case)
    other.__dict__["groups"], other.__dict__["schedules"] = case.groups, (chosen, *case.schedules[1:])
    return sum(isinstance(s, Prefetch) for s in walk(other.kernels[0].body))


@pytest.mark.parametrize("size", [(5, 4096), (3, 1000), (9, 64), (4, 8201)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_scans_that_ask_for_rows_ahead_keep_their_bits(dtype: DType, size: tuple[int, int]) -> None:
    for name in ("running_sum", "scan_variants") if dtype == F32 else ("running_sum",):
        case = Case(name, dtype, sizes(*size))
        early, late = (replace(chosen_for(case), ahead=far) for far in (2, 0))
        assert asked(case, early) > 0 == asked(case, late)
        assert under(case, early) == under(case, late)


def test_scans_ask_for_rows_or_for_the_next_round_of_a_long_one() -> None:
    chosen = {m: chosen_for(Case("running_sum", BF16, sizes(1 << 16, m))) for m in (1024, 4096, 8192)}
    assert {m: s.ahead for m, s in chosen.items()} == {1024: 4 * 528, 4096: 528, 8192: 1}  # 528 rows: 4 MiB
    assert {s.min_blocks for s in chosen.values()} == {4}


@pytest.mark.parametrize("size", [(700, 64), (1030, 48), (129, 272)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_scans_down_columns_that_ask_for_tiles_ahead_keep_their_bits(dtype: DType, size: tuple[int, int]) -> None:
    case = Case("running_max", dtype, sizes(*size))
    assert chosen_for(case).ahead == (1 if dtype == BF16 else 0)  # 32 KiB an SM, and no more
    early, late = (replace(chosen_for(case), ahead=far) for far in (2, 0))
    assert asked(case, early) == 1 > asked(case, late)  # 128 lines or 256 of a tile, a thread each
    assert under(case, early) == under(case, late)  # the interpreter checks that no line is outside


@pytest.mark.parametrize("size", [(5, 1024), (3, 1008), (4, 72)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
@pytest.mark.parametrize("name", ["running_sum", "scan_variants"])
def test_threads_that_count_as_several_keep_the_bits_of_a_scan(name: str, dtype: DType, size: tuple[int, int]) -> None:
    """Also of exclusive and reversed ones, of which there are some along rows and some down columns."""
    case = Case(name, dtype, sizes(*size))

    def bits(vector: int) -> list[bytes]:
        other, schedules = replace(case), []
        for group, s in zip(case.groups, case.schedules, strict=True):
            assert isinstance(s, CudaSchedule)
            wide = replace(s, vector=vector, threads_per_row=s.order.lanes // vector)
            schedules.append(wide if group.space.inner else s)
        other.__dict__["groups"], other.__dict__["schedules"] = case.groups, tuple(schedules)
        return [a.tobytes() for a in other.run()]

    assert bits(4) == bits(8) == bits(16)


def test_halves_of_short_rows_are_scanned_eight_a_thread() -> None:
    for dtype, vector in ((BF16, 8), (F32, 4)):
        assert chosen_for(Case("running_sum", dtype, sizes(1 << 16, 1024))).vector == vector


@pytest.mark.parametrize("far", [1, 2, 9])
@pytest.mark.parametrize(("dtype", "size"), [(F32, (4096, 80)), (BF16, (9000, 32)), (F32, (2049, 64))], ids=str)
def test_tiles_of_columns_asked_for_ahead_keep_their_bits(dtype: DType, size: tuple[int, int], far: int) -> None:
    case = Case("column_softmax", dtype, sizes(*size))
    chosen = chosen_for(case)
    assert chosen.parked
    early, late = replace(chosen, ahead=far), replace(chosen, ahead=0)
    assert asked(case, early) == chosen.capacity // chosen.cluster // chosen.threads
    assert under(case, early) == under(case, late)  # the interpreter checks that no line is outside


def test_blocks_of_columns_that_fold_several_turns_meet_once() -> None:
    case = Case("column_softmax", F32, sizes(5000, 48))
    chosen = chosen_for(case)
    assert (chosen.cluster, chosen.order.segments) == (16, 64)
    assert under(case, replace(chosen, cluster=8)) == under(case, chosen)
