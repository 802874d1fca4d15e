"""Rows whose length is no multiple of 16 elements: what is loaded whole, and that no bit hangs on it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.construct import reduction
from fuser.dtypes import BF16, BOOL, F16, F32, F64, DType
from fuser.graph import Builder
from fuser.hostexpr import Dim, sym
from fuser.keys import vector_unit
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, sizes, under
from tests.simulate import Simulated


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


LENGTHS = [*range(1, 41), *(n + d for n in (64, 128, 256, 512, 1024, 4096) for d in (-1, 1)), 2049, 8191]


@pytest.mark.parametrize("m", LENGTHS)
@pytest.mark.parametrize("name", ["softmax", "row_statistics"])
def test_rows_of_any_length_keep_their_bits(name: str, m: int) -> None:
    """Fused or not: the last elements of a row are under conditions within conditions."""
    case = Case(name, BF16, sizes(5, m))
    assert [a.tobytes() for a in case.run()] == [a.tobytes() for a in replace(case, fused=False).run()]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "argmax": lambda x: np.argmax(x, axis=-1),
    "all but the first": lambda x: fuser.ops.softmax(x[:, 1:], axis=-1),
    "three dims": lambda x: np.max(x[None] * x.dtype.type(2), axis=-1),
    "where": lambda x: np.sum(np.where(x > 0, x, -x), axis=-1),
}


@pytest.mark.parametrize("shape", [(1, 401), (9, 1023), (40, 131), (6, 1000)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_against_the_reference(name: str, shape: tuple[int, int]) -> None:
    """Memory that ends with the last row, at any place between vectors."""
    x = np.random.default_rng(3).integers(-8, 9, shape).astype(np.float16)
    got, want = Simulated(PROGRAMS[name])(x), fuser.reference(PROGRAMS[name])(x)
    np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-3)


def test_rows_changed_in_place() -> None:
    def scale(x: Any) -> None:
        x[:] = x / np.max(np.abs(x), axis=-1, keepdims=True)

    x = np.random.default_rng(4).standard_normal((9, 301)).astype(np.float16)
    want = x / np.max(np.abs(x), axis=-1, keepdims=True)
    Simulated(scale)(x)
    np.testing.assert_allclose(x.astype(np.float32), want.astype(np.float32), rtol=2e-3)
