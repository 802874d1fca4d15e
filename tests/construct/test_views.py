"""Views and piecewise arrays against NumPy's functions of the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.optable import table
from tests.construct.support import run, same

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
SQUARE = np.arange(25, dtype=np.int32).reshape(5, 5)
LONG = np.arange(7.0)
ONES = np.ones((1, 4), np.float32)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("transpose", (A,), {}),
    ("transpose", (A, (2, 0, 1)), {}),
    ("swapaxes", (A, 0, -1), {}),
    ("moveaxis", (A, 0, 2), {}),
    ("moveaxis", (A, (0, 1), (1, 2)), {}),
    ("rollaxis", (A, 2), {}),
    ("rollaxis", (A, 0, 2), {}),
    ("matrix_transpose", (A,), {}),
    ("expand_dims", (A, 1), {}),
    ("expand_dims", (A, (0, -1)), {}),
    ("squeeze", (ONES,), {}),
    ("squeeze", (ONES, 0), {}),
    ("reshape", (A, (6, 4)), {}),
    ("reshape", (A, -1), {}),
    ("reshape", (A, (4, -1)), {}),
    ("reshape", (A, (3, 8)), {}),
    ("reshape", (A, (4, 6)), {"order": "F"}),
    ("ravel", (A,), {}),
    ("ravel", (A, "F"), {}),
    ("flip", (A,), {}),
    ("flip", (A, 1), {}),
    ("flipud", (A,), {}),
    ("fliplr", (A,), {}),
    ("roll", (A, 2), {}),
    ("roll", (A, -3, 1), {}),
    ("roll", (A, (1, 2), (0, 2)), {}),
    ("roll", (A, 1, (0, 2)), {}),
    ("rot90", (A,), {}),
    ("rot90", (A, 3, (1, 2)), {}),
    ("rot90", (A, -2), {}),
    ("diagonal", (A,), {}),
    ("diagonal", (SQUARE, 2), {}),
    ("diagonal", (A, -1, 2, 1), {}),
    ("atleast_1d", (np.float32(3),), {}),
    ("atleast_2d", (LONG,), {}),
    ("atleast_3d", (LONG,), {}),
    ("atleast_3d", (SQUARE,), {}),
    ("broadcast_to", (ONES, (3, 4)), {}),
    ("repeat", (A, 2), {}),
    ("repeat", (A, 3, 1), {}),
    ("tile", (LONG, 2), {}),
    ("tile", (A, (2, 1, 3)), {}),
    ("tile", (LONG, (2, 2)), {}),
    ("pad", (A, 1), {}),
    ("pad", (A, ((1, 2), (0, 0), (3, 0))), {"constant_values": 7}),
    ("pad", (LONG, (2, 3)), {"constant_values": (1, 2)}),
    ("pad", (A, ((1, 1), (2, 0), (0, 3)), "edge"), {}),
    ("pad", (A, 1, "wrap"), {}),
    ("pad", (LONG, (3, 2), "reflect"), {}),
    ("pad", (LONG, (3, 9), "symmetric"), {}),
    ("pad", (LONG, (15, 15), "reflect"), {}),
    ("append", (LONG, 3.0), {}),
    ("append", (A, A), {"axis": 1}),
    ("split", (A, 3, 1), {}),
    ("split", (LONG, [2, 5]), {}),
    ("array_split", (LONG, 3), {}),
    ("hsplit", (A, 3), {}),
    ("vsplit", (A, 2), {}),
    ("unstack", (A,), {}),
    ("diff", (A,), {}),
    ("diff", (LONG, 2), {}),
    ("diff", (A, 1, 0), {"prepend": 0}),
    ("ediff1d", (A,), {}),
    ("trace", (SQUARE, 1), {}),
    ("tril", (SQUARE, 1), {}),
    ("triu", (A,), {}),
    ("diag", (LONG,), {}),
    ("diag", (LONG, 2), {}),
    ("diag", (LONG, -1), {}),
    ("diag", (SQUARE, 1), {}),
]


def identity(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> str:
    name, args, kwargs = case
    shown = ["x" if isinstance(a, np.ndarray) else str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]
    return f"{name}({', '.join(shown)})".replace("\n", " ")[:60]


@pytest.mark.parametrize("case", CASES, ids=identity)
def test_equals_numpy(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    name, args, kwargs = case
    row = table().find("numpy", name)
    assert row is not None
    build: Any = row.build  # type: ignore[union-attr]
    x, rest = args[0], args[1:]
    same(lambda b, n: build(b, n, *rest, **kwargs), lambda a: getattr(np, name)(a, *rest, **kwargs), x)


JOINS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("concatenate", [A, A, A], {"axis": 1}),
    ("concatenate", [A, A.astype(np.float64)], {}),
    ("concatenate", [A, np.zeros((0, 3, 4), np.int8)], {}),
    ("concatenate", [A, SQUARE], {"axis": None}),
    ("stack", [LONG, LONG], {}),
    ("stack", [A, A, A], {"axis": -1}),
    ("hstack", [LONG, LONG], {}),
    ("hstack", [A, A], {}),
    ("vstack", [LONG, LONG], {}),
    ("dstack", [SQUARE, SQUARE], {}),
    ("column_stack", [LONG, LONG], {}),
    ("column_stack", [SQUARE, np.arange(5)], {}),
]


@pytest.mark.parametrize("case", JOINS, ids=lambda c: f"{c[0]}-{len(c[1])}-{c[2]}")
def test_joins_equal_numpy(case: tuple[str, list[Any], dict[str, Any]]) -> None:
    name, arrays, kwargs = case
    row: Any = table().find("numpy", name)
    same(lambda b, *n: row.build(b, list(n), **kwargs), lambda *a: getattr(np, name)(list(a), **kwargs), *arrays)


def test_symbolic_shapes_stay_symbolic() -> None:
    from fuser.construct import views
    from fuser.dtypes import F32
    from fuser.graph import Builder
    from fuser.hostexpr import sym

    b = Builder()
    x = b.argument("x", F32, (sym("n"), sym("d")))
    assert views.reshape(b, x, -1).shape == (sym("n") * sym("d"),)
    assert views.reshape(b, views.ravel(b, x), (sym("d"), -1)).shape == (sym("d"), sym("n"))
    assert b.shapes.guards == {}


def test_a_reshape_that_cannot_be_is_refused_at_the_call() -> None:
    from fuser.errors import ShapeError

    row: Any = table().find("numpy", "reshape")
    with pytest.raises(ShapeError, match="cannot reshape"):
        run(lambda b, x: row.build(b, x, (5, -1)), A)


def test_deep_views_do_not_recurse() -> None:
    from fuser.construct import views

    def build(b: Any, x: Any) -> Any:
        for _ in range(2000):
            x = views.flip(b, x)
        return x

    assert (run(build, LONG)[0] == LONG).all()
