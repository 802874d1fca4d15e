"""What a row's results take besides reductions: loads that wait for nothing come with the row, the same bits."""

from dataclasses import replace

import pytest

from fuser.codegen.loops import Collective, Kernel, Load, walk
from fuser.codegen.program import Apply, Constant, Fetch, Program, Result
from fuser.codegen.verify import verify
from fuser.dtypes import BF16, F32, I64, DType
from fuser.hostexpr import lit, sym
from fuser.proofs import GATHERED
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, few_rows, under


def loads_before_a_reduction(kernel: Kernel) -> list[str]:
    """The arrays that single elements are loaded from before the first fold over threads."""
    names = {b.name for b in kernel.buffers}
    found = list[str]()
    for s in walk(kernel.body):
        if isinstance(s, Collective):
            break
        if isinstance(s, Load) and s.buffer in names:
            found.append(s.buffer)
    return found


@pytest.mark.parametrize("m", [4096, 16_384, 33_008, 65_536])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_label_comes_with_the_row_and_the_logit_there_does_not(dtype: DType, m: int) -> None:
    case = few_rows("cross_entropy", dtype, 3, m)
    chosen = chosen_for(case)
    assert chosen.resident
    assert loads_before_a_reduction(case.kernels[0]) == ["i"]
    assert [f for k in case.kernels for f in verify(k)] == []
    plain = replace(chosen, resident=False, parked=False, copies=False, cluster=1, ahead=0)
    other = replace(case)
    other.__dict__["groups"], other.__dict__["schedules"] = case.groups, (plain, *case.schedules[1:])
    assert loads_before_a_reduction(other.kernels[0]) == []
    assert [a.tobytes() for a in case.run()] == under(case, plain)


def test_what_waits_for_anything_is_not_early() -> None:
    row, at = sym("p0"), sym(f"{GATHERED}0")
    steps = (
        Fetch(0, (row,), (), I64),  # 0: a label
        Fetch(1, (at,), (), F32),  # 1: the element there
        Result(2, 0, F32),  # 2
        Constant(lit(2), F32),  # 3
        Apply("multiply", (1, 3), F32),  # 4: made of it
        Apply("subtract", (2, 4), F32),  # 5
        Apply("cast", (2,), I64),  # 6: a position that a reduction finds
        Fetch(1, (sym(f"{GATHERED}6"),), (), F32),  # 7: the element there
        Fetch(3, (row,), (), F32),  # 8: nobody's
    )
    program = Program(steps, ())
    assert program.loaded_early([5]) == (0,)
    assert program.loaded_early([5, 8]) == (0, 8)
    assert program.loaded_early([7]) == ()
    assert program.loaded_early([2, 3]) == ()
    assert program.needed([5], known=(1,)) == (False, True, True, True, True, True, False, False, False)


def test_rows_of_no_more_than_reductions_load_nothing_early() -> None:
    case = Case("softmax", BF16, (("n", 140), ("m", 4096), ("k", 1)))
    assert loads_before_a_reduction(case.kernels[0]) == []
