"""Rows without whole vectors: a thread's far lanes become neighbours before the team folds them, and no bit changes."""

from dataclasses import replace

import pytest

from fuser.codegen.loops import Alloc, Barrier, Collective, walk
from fuser.codegen.schedule.regroup import LEAST_GROUPS
from fuser.codegen.scopes import fold_together
from fuser.dtypes import BF16, F32, DType
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under


def scratch(case: Case) -> list[Alloc]:
    return [s for s in walk(case.kernels[0].body) if isinstance(s, Alloc) and s.name.startswith("partials")]


@pytest.mark.parametrize("m", [2049, 4097, 9001])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "residual_norm", "row_sum"])
def test_far_lanes_are_folded_in_their_order(name: str, dtype: DType, m: int) -> None:
    m = min(m, 6001) if name == "residual_norm" else m  # three longer rows are added up in a kernel before
    if dtype == F32 and name != "row_sum" and m <= 4096:
        m = 2 * m + 1  # so short they share a kernel with rows of whole vectors, and its teams
    case = Case(name, dtype, sizes(3, m))
    chosen = chosen_for(case)
    groups = chosen.order.lanes // (chosen.threads_per_row * chosen.vector)
    assert groups >= LEAST_GROUPS
    assert bool(scratch(case)) == (not fold_together(groups, chosen.threads_per_row))
    few = chosen.order.lanes // (LEAST_GROUPS // 2)  # threads that leave fewer groups than are worth it
    plain = replace(chosen, resident=False, parked=False, threads=min(few, 1024), threads_per_row=min(few, 1024))
    other = replace(case)
    other.__dict__["groups"], other.__dict__["schedules"] = case.groups, (plain, *case.schedules[1:])
    if few <= 1024:
        assert not scratch(other)
    assert under(case, plain) == [a.tobytes() for a in case.run()]


def test_a_stage_folds_once_whatever_its_groups() -> None:
    (kernel,) = Case("softmax", F32, sizes(3, 4097)).kernels
    kinds = [type(s) for s in walk(kernel.body)]
    assert kinds.count(Collective) == 2
    assert kinds.count(Barrier) == 1  # the sum's: a maximum is one state a thread whatever its groups


def test_what_has_no_order_is_one_state_a_thread() -> None:
    case = Case("row_statistics", F32, sizes(3, 4097))
    chosen = chosen_for(case)
    assert chosen.order.lanes > chosen.threads_per_row * chosen.vector
    taken = [s for s in walk(case.kernels[0].body) if isinstance(s, Collective)]
    assert sorted(s.reduction for s in taken) == ["argmax", "max", "min", "sum"]
    assert [len(s.state) for s in taken if s.reduction == "argmax"] == [2]
    want = case.reference()
    for got, expected in zip(case.run()[1:], want[1:], strict=True):
        assert got.tobytes() == expected.tobytes()


def test_rows_in_shared_memory_keep_their_lanes_apart() -> None:
    """A chain of comparisons takes longer than memory where few warps share an SM."""
    case = Case("row_statistics", F32, sizes(4096, 16384))
    chosen = chosen_for(case)
    assert chosen.parked
    groups = chosen.order.lanes // (chosen.threads_per_row * chosen.vector)
    assert groups > 1
    taken = [s for s in walk(case.kernels[0].body) if isinstance(s, Collective) and s.reduction == "argmax"]
    assert sum(len(s.state) for s in taken) == 2 * groups
