"""Subscripts, read and stored, against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.construct import creation, indexing, storing
from fuser.dtypes import F32
from fuser.errors import FuserError, IndexingError, UnsupportedError
from fuser.graph import Builder
from fuser.hostexpr import lit, sym
from tests.construct.support import run, same, trace

A = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
V = np.arange(10.0)
I = np.array([2, 0, -1])
J = np.array([[1, -3], [2, 0]], np.int32)
s_ = np.s_

KEYS: list[Any] = [
    0, -1, s_[1, 2], s_[1, 2, -3], s_[:], s_[1:], s_[:-1], s_[1:-1], s_[::2], s_[::-1], s_[1:3, ::-2], s_[..., 1],
    s_[:, None, 1], s_[None], s_[..., None], s_[2:1], s_[:100], s_[-100:], s_[-2:], s_[5:], s_[:, 3:0:-1],
    s_[:, ::-3, -1], s_[-1:0:-1], s_[10::-1], s_[:, 1:4:2, 1:-1:2], s_[:, :, :0],
]  # fmt: skip
ARRAY_KEYS: list[Any] = [
    s_[I], s_[:, I], s_[I, I], s_[I, :, I], s_[0, :, I], s_[:, I, 1], s_[:, 1, J], s_[J, :, 1:3], s_[None, I, 0],
    s_[..., I], s_[:, None, I], s_[J], s_[J, J, J], s_[I[:, None], I], s_[[0, 2]], s_[:, [[1], [2]]],
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reads_equal_numpy(key: Any) -> None:
    same(lambda b, x: indexing.getitem(b, x, key), lambda x: x[key], A)


@pytest.mark.parametrize("key", ARRAY_KEYS, ids=lambda k: str(k).replace("\n", ""))
def test_array_reads_equal_numpy(key: Any) -> None:
    same(lambda b, x: indexing.getitem(b, x, key), lambda x: x[key], A)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_stores_equal_numpy(key: Any) -> None:
    def stored(x: Any) -> Any:
        y = x.copy()
        y[key] = -1
        return y

    same(lambda b, x: storing.setitem(b, x, key, -1), stored, A)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_stores_of_arrays_equal_numpy(key: Any) -> None:
    value = np.array(-np.arange(A[key].size, dtype=np.float64).reshape(A[key].shape))

    def stored(x: Any, v: Any) -> Any:
        y = x.copy()
        y[key] = v
        return y

    same(lambda b, x, v: storing.setitem(b, x, key, v), stored, A, value)


MASKS: list[Any] = [
    A > 20,
    A[:, :, 0] > 20,
    A[:, 0, 0] > 10,
    s_[:, A[0] > 8],
    s_[1, A[0, :, 0] > 3],
    s_[1:, A[0, :, 0] > 3, 2],
]


@pytest.mark.parametrize("key", MASKS, ids=range(len(MASKS)))
def test_masked_stores_equal_numpy(key: Any) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    place = next(k for k, p in enumerate(parts) if isinstance(p, np.ndarray))

    def stored(x: Any, mask: Any) -> Any:
        y = x.copy()
        y[(*parts[:place], mask, *parts[place + 1 :])] = 7
        return y

    def built(b: Any, x: Any, mask: Any) -> Any:
        return storing.setitem(b, x, (*parts[:place], mask, *parts[place + 1 :]), 7)

    same(built, stored, A, parts[place])


def test_a_masked_store_broadcasts_over_the_axes_that_remain() -> None:
    row = np.arange(5, dtype=np.float32)

    def stored(x: Any, m: Any, v: Any) -> Any:
        y = x.copy()
        y[m] = v
        return y

    same(lambda b, x, m, v: storing.setitem(b, x, m, v), stored, A, A[:, :, 0] > 20, row)


def test_a_store_at_a_computed_position() -> None:
    def stored(x: Any, k: Any) -> Any:
        y = x.copy()
        y[:, k] = 5
        y[k, 1:3, 0] = 6
        return y

    def built(b: Any, x: Any, k: Any) -> Any:
        return storing.setitem(b, storing.setitem(b, x, (slice(None), k), 5), (k, slice(1, 3), 0), 6)

    same(built, stored, A, np.int64(-2))


def test_a_run_time_index_wraps_and_is_guarded() -> None:
    for k in (0, 3, -1, -10):
        assert run(lambda b, x, k: indexing.getitem(b, x, k), V, scalars={"k": k})[0] == V[k]
    graph = trace(lambda b, x, k: indexing.getitem(b, x, k), [V], scalars={"k": 0})
    assert not all(g.holds({"n0_0": 10, "=k": 10}) for g in graph.guards)


def test_gather_out_of_range_is_clamped() -> None:
    index = np.array([100, -100, 3])
    assert run(lambda b, x, i: indexing.getitem(b, x, i), V, index)[0].tolist() == [9.0, 0.0, 3.0]


def test_slices_with_dims_for_bounds() -> None:
    def half(b: Any, x: Any) -> Any:
        n = x.shape[0]
        return indexing.getitem(b, x, slice(n // 2, n)), indexing.getitem(b, x, slice(None, n - 1))

    same(half, lambda x: (x[len(x) // 2 :], x[: len(x) - 1]), V)


def test_a_symbolic_slice_records_what_it_assumes() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    y = indexing.getitem(b, x, slice(1, -1))
    assert y.shape == (sym("n") - 2,)
    assert [str(g) for g in b.shapes.guards] == ["n >= 2"]


def test_taking_along_an_axis() -> None:
    order = np.argsort(-A, axis=1)
    same(lambda b, x, i: indexing.take_along_axis(b, x, i, 1), lambda x, i: np.take_along_axis(x, i, 1), A, order)
    first = np.zeros((3, 1, 5), np.int64)
    same(lambda b, x, i: indexing.take_along_axis(b, x, i, 1), lambda x, i: np.take_along_axis(x, i, 1), A, first)
    same(lambda b, x, i: indexing.take(b, x, i, 1), lambda x, i: np.take(x, i, 1), A, J % 4)
    same(lambda b, x, i: indexing.take(b, x, i, 0, "wrap"), lambda x, i: np.take(x, i, 0, mode="wrap"), A, J)
    same(lambda b, x, i: indexing.take(b, x, i, 0, "clip"), lambda x, i: np.take(x, i, 0, mode="clip"), A, J)


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (5, IndexingError, "out of bounds"),
        (-4, IndexingError, "out of bounds"),
        (s_[0, 0, 0, 0], IndexingError, "too many indices"),
        (s_[..., ...], IndexingError, "single ellipsis"),
        (1.0, IndexingError, "integer"),
        ("a", IndexingError, "integer"),
        (True, UnsupportedError, "bool"),
        (s_[::0], IndexingError, "zero"),
    ],
)
def test_bad_keys_say_what_is_wrong(key: Any, kind: type[FuserError], words: str) -> None:
    with pytest.raises(kind, match=words):
        trace(lambda b, x: indexing.getitem(b, x, key), [A], static=True)


def test_data_dependent_shapes_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="depends on data") as caught:
        trace(lambda b, x, m: indexing.getitem(b, x, m), [A, A > 2])
    assert caught.value.slug == "data-dependent-shape"
    with pytest.raises(UnsupportedError) as caught:
        trace(lambda b, x, i: storing.setitem(b, x, i, 0), [A, I])
    assert caught.value.slug == "scatter"


def test_a_store_that_does_not_fit() -> None:
    with pytest.raises(FuserError, match="cannot store"):
        trace(lambda b, x, v: storing.setitem(b, x, 0, v), [A, np.ones(3)], static=True)
    with pytest.raises(FuserError, match="out of bounds"):
        trace(lambda b, x: storing.setitem(b, x, 0, lit(300)), [np.zeros(4, np.uint8)])


slices = st.builds(
    slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.none() | st.integers(-4, 4).filter(bool)
)


@given(slices, st.integers(0, 8))
def test_any_slice_of_any_length(s: slice, n: int) -> None:
    x = np.arange(n, dtype=np.int16)
    same(lambda b, a: indexing.getitem(b, a, s), lambda a: a[s], x)

    def stored(a: Any) -> Any:
        y = a.copy()
        y[s] = -1
        return y

    same(lambda b, a: storing.setitem(b, a, s, -1), stored, x)


def test_literal_index_lists_are_constants() -> None:
    b = Builder()
    assert creation.array(b, [1, 2]).op == "piecewise"
    assert creation.array(b, [[1.5, 2], [3, 4]]).shape == (2, 2)
