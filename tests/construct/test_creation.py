"""Arrays made inside a program, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.construct import creation
from fuser.construct.common import NeedsStatic
from fuser.dtypes import F32
from fuser.errors import FuserError
from fuser.graph import Builder
from fuser.hostexpr import scalar_symbol, sym
from fuser.optable import table
from tests.construct.support import run, same

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("zeros", (3,), {}),
    ("zeros", ((2, 3),), {"dtype": np.int8}),
    ("ones", ((2, 0),), {}),
    ("full", ((2, 2), 7), {}),
    ("full", (3, 2.5), {"dtype": "float32"}),
    ("full", (3, 2.5), {"dtype": "int32"}),
    ("arange", (5,), {}),
    ("arange", (2, 9, 3), {}),
    ("arange", (9, 2, -2), {}),
    ("arange", (5, 2), {}),
    ("arange", (0.5, 3, 0.25), {}),
    ("arange", (0, 1, 0.1), {}),
    ("arange", (0, 1, 0.1), {"dtype": np.float32}),
    ("arange", (3,), {"dtype": np.float32}),
    ("arange", (10,), {"dtype": "uint8"}),
    ("linspace", (0, 1, 7), {}),
    ("linspace", (-3, 4.5, 50), {}),
    ("linspace", (0, 1, 5), {"endpoint": False}),
    ("linspace", (2, 2, 1), {}),
    ("linspace", (0, 10, 4), {"dtype": int}),
    ("linspace", (0, 1, 5), {"retstep": True}),
    ("eye", (3,), {}),
    ("eye", (3, 4), {"k": 1}),
    ("eye", (4, 2, -1), {"dtype": bool}),
    ("identity", (3,), {}),
    ("tri", (3, 4, 1), {}),
    ("indices", ((2, 3),), {}),
    ("meshgrid", (np.arange(3), np.arange(4.0)), {}),
    ("meshgrid", (np.arange(3), np.arange(2)), {"indexing": "ij"}),
    ("meshgrid", (np.arange(3), np.arange(2)), {"sparse": True}),
    ("array", ([1, 2, 3],), {}),
    ("array", ([[1, 2.5], [3, 4]],), {}),
    ("array", ([True, False],), {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}{c[1]}{c[2] or ''}".replace("\n", ""))
def test_equals_numpy(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    name, args, kwargs = case
    row: Any = table().find("numpy", name)
    tolerance = 1e-15 if name in ("linspace", "arange") else 0.0
    same(lambda b: row.build(b, *args, **kwargs), lambda: getattr(np, name)(*args, **kwargs), tolerance=tolerance)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like"])
def test_like(name: str) -> None:
    row: Any = table().find("numpy", name)
    x = np.ones((2, 3), np.float16)
    same(lambda b, x: row.build(b, x), getattr(np, name), x)
    same(lambda b, x: row.build(b, x, dtype=np.int32), lambda x: getattr(np, name)(x, dtype=np.int32), x)
    same(lambda b, x: row.build(b, x, shape=(4,)), lambda x: getattr(np, name)(x, shape=(4,)), x)


def test_lengths_may_be_dims() -> None:
    x = np.ones(6, np.float32)
    same(lambda b, x: creation.arange(b, x.shape[0]), lambda x: np.arange(len(x)), x)
    same(lambda b, x: creation.arange(b, 1, x.shape[0], 2), lambda x: np.arange(1, len(x), 2), x)
    same(lambda b, x: creation.eye(b, x.shape[0]), lambda x: np.eye(len(x)), x)
    same(lambda b, x: creation.linspace(b, 0, 1, x.shape[0]), lambda x: np.linspace(0, 1, len(x)), x, tolerance=1e-15)


def test_scalars_inside_literal_arrays() -> None:
    def build(b: Any, x: Any, h: Any) -> Any:
        return creation.array(b, [[1.0, h], [h, x]])

    found = run(build, np.float64(3), scalars={"h": 2.5})[0]
    assert found.tolist() == [[1.0, 2.5], [2.5, 3.0]]


def test_a_run_time_length_asks_to_be_static() -> None:
    b = Builder()
    k = scalar_symbol("k", "int")
    makers: list[Any] = [creation.arange, creation.zeros, creation.eye]
    for make in makers:
        with pytest.raises(NeedsStatic) as caught:
            make(b, k)
        assert caught.value.expr == k


def test_bad_arguments() -> None:
    b = Builder()
    with pytest.raises(FuserError, match="negative"):
        creation.zeros(b, (3, -1))
    with pytest.raises(FuserError, match="zero"):
        creation.arange(b, 0, 5, 0)
    with pytest.raises(FuserError, match="integer"):
        creation.zeros(b, 2.5)
    with pytest.raises(FuserError, match="too long"):
        creation.array(b, np.zeros(5000))
    with pytest.raises(FuserError, match="no counterpart"):
        creation.array(b, ["a"])


def test_a_constant_needs_no_storage() -> None:
    b = Builder()
    z = creation.zeros(b, (sym("n"), sym("d")), F32)
    assert [n.op for n in b.close([z]).nodes] == ["scalar", "view"]
