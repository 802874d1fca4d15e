"""Index maps against NumPy's own index arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import indexmap as im
from fuser.hostexpr import HostExpr, call, lit, sym
from fuser.interpreter import index_value
from fuser.shapes import Shape

N, D = sym("n"), sym("d")


def read(x: np.ndarray[tuple[int, ...], np.dtype[np.int64]], mapping: im.IndexMap, shape: tuple[int, ...]) -> object:
    """`x` through a map, element by element."""
    out = np.empty(shape, x.dtype)
    for place in np.ndindex(*shape):
        env = {f"${k}": v for k, v in enumerate(place)}
        out[place] = x[tuple(int(e.evaluate(env)) for e in mapping.exprs)]
    return out.tolist()


SHAPES = [((2, 3, 4), (4, 3, 2)), ((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 2, 2)), ((1, 6), (6, 1, 1)), ((12,), (3, 4))]


@pytest.mark.parametrize(("source", "result"), SHAPES)
def test_reshape(source: tuple[int, ...], result: tuple[int, ...]) -> None:
    x = np.arange(np.prod(source)).reshape(source)
    assert read(x, im.reshape(source, result), result) == x.reshape(result).tolist()


def test_a_reshape_that_keeps_blocks_stays_affine() -> None:
    mapping = im.reshape((N, D, 4), (N, D * 4))
    assert str(mapping) == "($0, $1 // 4, $1 % 4)"
    assert str(im.reshape((N, D * 4), (N, D, 4))) == "($0, 4*$1 + $2)"


def test_transpose_and_broadcast() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    assert read(x, im.transpose((2, 0, 1)), (4, 2, 3)) == x.transpose(2, 0, 1).tolist()
    row = np.arange(3).reshape(1, 3)
    assert read(row, im.broadcast((1, 3), (4, 2, 3)), (4, 2, 3)) == np.broadcast_to(row, (4, 2, 3)).tolist()


def test_composition_is_substitution() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    inner, outer = im.transpose((2, 0, 1)), im.reshape((4, 2, 3), (8, 3))
    both = im.IndexMap(inner.apply(outer.exprs))
    assert read(x, both, (8, 3)) == x.transpose(2, 0, 1).reshape(8, 3).tolist()
    assert im.IndexMap(inner.apply(im.identity(3).exprs)) == inner
    assert im.identity(3).is_identity
    assert not inner.is_identity


def test_recombining_undoes_a_split() -> None:
    shape: Shape = (N, D)
    position = im.offset(im.reshape(shape, (N * D,)).exprs, im.contiguous_strides(shape))
    assert position == im.axis(0)


def test_coefficients() -> None:
    e = 3 * im.axis(0) * N + im.axis(1) - 2
    assert im.coefficient(e, "$0") == 3 * N
    assert im.coefficient(e, "$1") == lit(1)
    assert im.coefficient(e, "$2") == lit(0)
    assert im.coefficient(call("%", im.axis(0), 4), "$0") is None
    assert im.coefficient(im.axis(0) * im.axis(0), "$0") is None


def index_expressions() -> st.SearchStrategy[HostExpr]:
    leaf = st.sampled_from([im.axis(0), im.axis(1)]) | st.integers(-5, 9).map(lit)

    def grow(inner: st.SearchStrategy[HostExpr]) -> st.SearchStrategy[HostExpr]:
        both = st.builds(call, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
        return both | st.builds(call, st.sampled_from(["//", "%"]), inner, st.integers(1, 7).map(lit))

    return st.recursive(leaf, grow, max_leaves=8)


@given(index_expressions(), st.integers(1, 5), st.integers(1, 5))
def test_bounds_hold(e: HostExpr, rows: int, columns: int) -> None:
    values = [e.evaluate({"$0": i, "$1": j}) for i in range(rows) for j in range(columns)]
    found = im.bounds(e, {"$0": (0, rows - 1), "$1": (0, columns - 1)})
    assert found is not None
    assert found[0] <= min(values)
    assert max(values) <= found[1]


@given(index_expressions())
def test_index_arrays_agree_with_single_indices(e: HostExpr) -> None:
    grid = {"$0": np.arange(3).reshape(3, 1), "$1": np.arange(4).reshape(1, 4)}
    whole = np.broadcast_to(index_value(e, grid), (3, 4))
    assert whole.tolist() == [[e.evaluate({"$0": i, "$1": j}) for j in range(4)] for i in range(3)]


def test_bounds_are_unknown_without_ranges() -> None:
    assert im.bounds(N + im.axis(0), {"$0": (0, 3)}) is None


def test_unravel_and_linear_are_inverse() -> None:
    for position in range(24):
        index = im.unravel(lit(position), (2, 3, 4))
        assert im.linear(index, (2, 3, 4)) == lit(position)
