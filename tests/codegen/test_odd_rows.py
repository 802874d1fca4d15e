"""Rows whose length is no multiple of 16 elements: what is loaded whole, and that no bit hangs on it."""

from dataclasses import replace

import pytest

from fuser.construct import reduction
from fuser.dtypes import BF16, BOOL, F16, F32, F64, DType
from fuser.graph import Builder
from fuser.hostexpr import Dim, sym
from fuser.keys import vector_unit
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under


@pytest.mark.parametrize(("dtype", "m"), [(BF16, 1000), (F16, 136), (F32, 1004), (F32, 2052), (F64, 516)], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "row_statistics"])
def test_rows_of_whole_vectors_are_loaded_as_such(name: str, dtype: DType, m: int) -> None:
    case = Case(name, dtype, sizes(5, m))
    chosen = chosen_for(case)
    assert chosen.vector > 1
    plain = replace(chosen, resident=False, threads=128, threads_per_row=64, vector=1)
    assert under(case, plain) == [a.tobytes() for a in case.run()]


@pytest.mark.parametrize(
    ("dtypes", "last", "unit"),
    [
        ((BF16,), sym("d"), 8),
        ((F32,), sym("d"), 4),
        ((F32, BF16), sym("d"), 8),
        ((F64,), sym("d"), 4),
        ((BF16, BOOL), sym("d"), 16),
        ((BF16,), sym("d") // 2, 16),  # halves of rows consist of vectors too
    ],
)
def test_the_unit_of_a_program(dtypes: tuple[DType, ...], last: Dim, unit: int) -> None:
    b = Builder("rows")
    arguments = [b.argument(f"x{k}", t, (sym("n"), last)) for k, t in enumerate(dtypes)]
    results = [reduction.reduce(b, "max", x, -1) for x in arguments]
    assert vector_unit(b.close(results)) == unit
