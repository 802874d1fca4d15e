"""Rows that are whole vectors and rows that are not, by one kernel: which rows, and the bits of each alone."""

import pytest

import fuser
from fuser import kernels
from fuser.codegen import schedule
from fuser.codegen.schedule import either
from fuser.codegen.schedule.batch import choose_cuda
from fuser.dtypes import F32
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under


@pytest.mark.parametrize("m", [1000, 1001, 400, 257, 48, 33])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_both_keep_their_bits(name: str, m: int) -> None:
    case = Case(name, F32, sizes(5, m))
    chosen = chosen_for(case)
    assert chosen.ragged is not None
    assert chosen.uneven == (m % 4 > 0)
    alone = either.own(chosen)
    assert (alone.vector == 1) == chosen.uneven
    assert under(case, alone) == [a.tobytes() for a in case.run()]


def test_lengths_of_a_capacity_share_a_kernel() -> None:
    cases = [Case("softmax", F32, sizes(5, m)) for m in (1000, 1001, 514)]
    assert len({kernels.content(case.kernels[0]) for case in cases}) == 1


def test_rows_whose_other_code_is_better_apart() -> None:
    assert [chosen_for(Case("softmax", F32, sizes(5, m))).ragged for m in (100, 99, 8000, 7999)] == [None] * 4


def test_what_spills_or_is_tuned_is_the_code_of_its_own_rows() -> None:
    for m in (1000, 1001):
        chosen = chosen_for(Case("softmax", F32, sizes(5, m)))
        assert schedule.retreat(chosen) == either.own(chosen)
        assert all(s.ragged is None for s in schedule.neighbours(chosen) if hasattr(s, "ragged"))


def test_blocks_of_a_batch_have_one_size() -> None:
    chosen = chosen_for(Case("softmax", F32, sizes(5, 1000)))
    wider = chosen_for(Case("softmax", F32, sizes(5, 48)))
    (first, _) = choose_cuda([chosen, wider]).parts
    assert first.ragged is not None
    assert first.threads == first.ragged.threads == wider.threads


def test_a_plan_says_that_lengths_need_be_no_multiples() -> None:
    run = fuser.compile(lambda x: x - x.max(axis=-1, keepdims=True))
    texts = {run.plan(f"f32[4096, {m}]", device="sm_90").to_text() for m in (1000, 1001)}
    valid = {line.strip() for text in texts for line in text.splitlines() if "valid for" in line}
    assert valid == {"valid for  any x.0; 512 < x.1 <= 1024, 16-byte aligned, 32-bit indices"}
    assert all("ragged rows 64 threads, 16 x f32 each" in text for text in texts)
