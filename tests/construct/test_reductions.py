"""Reductions, means and scans with every argument that NumPy gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.construct import reduction as red
from fuser.dtypes import F32
from fuser.errors import ArgumentError, FuserError, ShapeError
from fuser.graph import Builder
from fuser.hostexpr import sym
from fuser.optable import table
from tests.construct.support import run, same, trace

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
AXES: list[Any] = [None, 0, 1, -1, (0, 1), (0, 2), (1, -1), (0, 1, 2), ()]
MASK = RNG.random((3, 4, 5)) > 0.4


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all"])
def test_axes_and_keepdims(name: str, axis: Any) -> None:
    for keepdims in (False, True):
        same(
            lambda b, x, k=keepdims: red.reduce(b, name, x, axis, k),
            lambda x, k=keepdims: getattr(np, name)(x, axis=axis, keepdims=k),
            X,
            tolerance=1e-5,
        )


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float64"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "any"])
def test_dtypes(name: str, dtype: str) -> None:
    x = (X * 3).astype(dtype)
    same(lambda b, x: red.reduce(b, name, x, 1), lambda x: getattr(np, name)(x, axis=1), x, tolerance=1e-3)


def test_dtype_initial_and_where() -> None:
    same(lambda b, x: red.reduce(b, "sum", x, 0, dtype="f64"), lambda x: x.sum(0, dtype=np.float64), X, tolerance=1e-12)
    small = np.full(300, 100, np.int8)
    same(lambda b, x: red.reduce(b, "sum", x, dtype="i8"), lambda x: x.sum(dtype=np.int8), small)
    same(lambda b, x: red.reduce(b, "sum", x, 1, initial=10), lambda x: x.sum(1, initial=10), X, tolerance=1e-5)
    same(lambda b, x: red.reduce(b, "max", x, 1, initial=0.5), lambda x: x.max(1, initial=0.5), X)
    same(lambda b, x, m: red.reduce(b, "sum", x, 1, where=m), lambda x, m: x.sum(1, where=m), X, MASK, tolerance=1e-5)
    same(
        lambda b, x, m: red.reduce(b, "min", x, (0, 1), where=m, initial=9),
        lambda x, m: x.min((0, 1), where=m, initial=9),
        X,
        MASK,
    )
    with pytest.raises(ArgumentError, match="initial"):
        run(lambda b, x, m: red.reduce(b, "min", x, where=m), X, MASK)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_positions(name: str, axis: Any) -> None:
    ties = np.round(X)
    ties[1, 2, 3] = np.nan
    for keepdims in (False, True):
        same(
            lambda b, x, k=keepdims: red.arg(b, name, x, axis, k),
            lambda x, k=keepdims: getattr(np, name)(x, axis=axis, keepdims=k),
            ties,
        )


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "float64"])
def test_means_and_variances(name: str, dtype: str) -> None:
    x = (X * 10).astype(dtype)
    row: Any = table().find("numpy", name)
    for options in ({}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, {"dtype": np.float64}):
        same(
            lambda b, x, o=options: row.build(b, x, **o),
            lambda x, o=options: getattr(np, name)(x, **o),
            x,
            tolerance=2e-3,
        )
    if name != "mean":
        same(lambda b, x: row.build(b, x, ddof=1), lambda x: getattr(np, name)(x, ddof=1), x, tolerance=2e-3)


def test_masked_mean_and_variance() -> None:
    same(lambda b, x, m: red.mean(b, x, 1, where=m), lambda x, m: x.mean(1, where=m), X, MASK, tolerance=1e-5)
    same(lambda b, x, m: red.var(b, x, 1, where=m), lambda x, m: x.var(1, where=m), X, MASK, tolerance=1e-5)


def test_variance_under_a_large_mean() -> None:
    x = np.float32(1e6) + np.tile(np.arange(4, dtype=np.float32), (8, 1024))
    found = run(lambda b, x: red.var(b, x), x)[0]
    assert abs(found - 1.25) < 1e-2


@pytest.mark.parametrize("weights", [None, "rows", "full"])
def test_average(weights: str | None) -> None:
    w = {None: None, "rows": np.arange(1.0, 5), "full": np.abs(X)}[weights]
    if w is None:
        same(lambda b, x: red.average(b, x, 1), lambda x: np.average(x, 1), X, tolerance=1e-5)
    else:
        same(lambda b, x, w: red.average(b, x, 1, w), lambda x, w: np.average(x, 1, weights=w), X, w, tolerance=1e-5)


@pytest.mark.parametrize(
    "name", ["nansum", "nanprod", "nanmin", "nanmax", "nanmean", "nanvar", "nanstd", "nanargmax", "nanargmin"]
)
def test_nan_skipping(name: str) -> None:
    x = np.where(MASK, X, np.nan).astype(np.float64)
    row: Any = table().find("numpy", name)
    same(lambda b, x: row.build(b, x, axis=2), lambda x: getattr(np, name)(x, axis=2), x, tolerance=1e-12)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, 2])
def test_scans(name: str, axis: Any) -> None:
    same(lambda b, x: red.scan(b, name, x, axis), lambda x: getattr(np, name)(x, axis=axis), X, tolerance=1e-5)
    small = (X * 9).astype(np.int8)
    same(lambda b, x: red.scan(b, name, x, axis), lambda x: getattr(np, name)(x, axis=axis), small)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "sum", "prod"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.bool_, np.float64])
def test_folds_in_a_dtype_that_was_asked_for(name: str, dtype: Any) -> None:
    whole = np.arange(1, 31, dtype=np.int32).reshape(3, 10)
    row: Any = table().find("numpy", name)
    fold = red.scan if name.startswith("cum") else red.reduce
    same(lambda b, x: fold(b, row.name, x, 1, dtype=dtype), lambda x: getattr(np, name)(x, axis=1, dtype=dtype), whole)


def test_empty_axes() -> None:
    empty = np.zeros((0, 2), np.float32)
    for name in ("sum", "prod", "any"):
        same(lambda b, x, n=name: red.reduce(b, n, x, 0), lambda x, n=name: getattr(np, n)(x, axis=0), empty)
    for name in ("min", "max"):
        same(lambda b, x, n=name: red.reduce(b, n, x, 1), lambda x, n=name: getattr(np, n)(x, axis=1), empty)
        same(
            lambda b, x, n=name: red.reduce(b, n, x, 0, initial=3),
            lambda x, n=name: getattr(np, n)(x, axis=0, initial=3),
            empty,
        )
        with pytest.raises(ShapeError, match="no identity"):
            run(lambda b, x, n=name: red.reduce(b, n, x, 0), empty)
    with pytest.raises(ShapeError, match="argmax"):
        run(lambda b, x: red.argmax(b, x, 0), empty)
    assert np.isnan(run(lambda b, x: red.mean(b, x, 0), empty)[0]).all()


def test_an_axis_that_may_turn_out_empty_is_guarded() -> None:
    from fuser.construct import indexing

    x = np.arange(5, dtype=np.float32)
    graph = trace(lambda b, x: red.reduce(b, "max", indexing.getitem(b, x, slice(3, None))), [x])
    assert not all(g.holds({"n0_0": 3}) for g in graph.guards)
    with pytest.raises(ShapeError, match="no identity"):
        run(lambda b, x: red.reduce(b, "max", indexing.getitem(b, x, slice(3, None))), x[:3])


@pytest.mark.parametrize("axis", [3, -4, (0, 0), 1.5, "x", True], ids=repr)
def test_bad_axes(axis: Any) -> None:
    with pytest.raises(FuserError, match="axis"):
        trace(lambda b, x: red.reduce(b, "sum", x, axis), [X])


def test_mean_divides_by_a_host_length() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"), sym("d")))
    m = red.mean(b, x, -1, keepdims=True)
    assert m.shape == (sym("n"), 1)
    scalars = [n for n in b.nodes if n.op == "scalar"]
    assert [str(n.attrs.expr) for n in scalars] == ["d"]  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [0.1, 1e6, 3.0, -7.7])
def test_a_constant_has_no_spread(value: float) -> None:
    found = run(lambda b, x: red.std(b, x, 1), np.full((4, 1001), value, np.float32))[0]
    assert (found < 1e-6 * abs(value)).all()
    assert not np.isnan(found).any()
