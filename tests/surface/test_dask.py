"""dask arrays: NumPy's answers on the whole arrays, block by block, here and in two processes; refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import daskarrays
from fuser.errors import FuserError, UnsupportedError

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

RNG = np.random.default_rng(0)
X, S, G = RNG.standard_normal((100, 60)), RNG.standard_normal((40, 40)), RNG.standard_normal(60)
BOTH, ROWS = (17, 20), (17, 60)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def standard(x: Any, g: Any) -> Any:
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) * g, x.sum(), x.max(axis=1)


def nearest(x: Any, c: Any) -> Any:
    return ((x[:, None, :] - c[None, :, :]) ** 2).sum(axis=-1).argmin(axis=1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "pointwise": (lambda x: np.tanh(x) * 2 + 1, (X,), BOTH),
    "an array beside": (lambda x, g: x * g + 1, (X, G), BOTH),
    "a number": (lambda x, a: (x * a).sum(axis=0), (X, 2.5), BOTH),
    "all elements": (lambda x: np.abs(x).sum(), (X,), BOTH),
    "each axis": (lambda x: (x.sum(axis=0), x.mean(axis=1), x.std(), x.min(axis=0, keepdims=True)), (X,), BOTH),
    "products and truth": (lambda x: (x.prod(axis=0), (x > 2).any(axis=0), (x > -9).all()), (X,), BOTH),
    "rows in one block": (softmax, (X,), ROWS),
    "rows in several": (softmax, (X,), BOTH),
    "several passes": (standard, (X, G), BOTH),
    "its own transpose": (lambda s: s + s.T, (S,), (13, 13)),
    "transposed": (lambda x: np.exp(x.T), (X,), BOTH),
    "a product": (lambda x, w: np.tanh(x @ w), (X, RNG.standard_normal((60, 7))), ROWS),
    "an outer product": (lambda x, y: (x[:, None] * y[None, :]).sum(axis=1), (X[:, 0], X[0]), (9,)),
    "nearest": (nearest, (X, RNG.standard_normal((5, 60))), ROWS),
    "a scan of rows": (lambda x: np.cumsum(x, axis=1), (X,), ROWS),
    "as it is, and a dict": (lambda x: {"x": x, "more": x + 1, "n": x.shape[0]}, (X,), BOTH),
    "integers": (lambda x: (x * 10).astype(np.int32).sum(axis=0), (X,), BOTH),
    "narrow": (lambda x: x.astype(np.float32).mean(axis=0), (X,), BOTH),
    "of a reduction only": (lambda x: np.sqrt(x.max(axis=1) - x.min(axis=1)), (X,), BOTH),
    "twice over": (lambda x: ((x - x.mean()) ** 2).mean(axis=0).max(), (X,), BOTH),
    "one block": (softmax, (X,), (100, 60)),
    "blocks of one": (lambda x: x - x.sum(axis=0), (X[:5],), (1, 60)),
}  # fmt: skip


def blocks(a: Any, chunks: tuple[int, ...]) -> Any:
    """The first argument in blocks; others as they are."""
    return da.from_array(a, chunks=chunks)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [v for k in sorted(value) for v in leaves(value[k])]
    return [v for part in value for v in leaves(part)] if isinstance(value, tuple) else [value]


def same(got: Any, want: Any) -> None:
    for a, b in zip(leaves(dask.compute(got)[0]), leaves(want), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy_on_the_whole_array(name: str) -> None:
    function, (first, *others), chunks = PROGRAMS[name]
    got = fuser.compile(function)(blocks(first, chunks), *others)
    for leaf in leaves(got):
        if isinstance(leaf, da.Array):
            assert leaf.compute(scheduler="synchronous").shape == leaf.shape
            assert leaf.dtype == leaf.compute(scheduler="synchronous").dtype
    with dask.config.set(scheduler="threads"):
        same(got, function(first, *others))


def test_two_arrays_in_unlike_blocks() -> None:
    got = fuser.compile(lambda x, y: x * y + 1)(blocks(X, (17, 20)), blocks(X, (50, 60)))
    same(got, X * X + 1)


def test_one_kernel_a_block_and_a_tree() -> None:
    """Two reductions of one array are one pass over its blocks; nothing is computed by the call."""
    touched: list[Any] = []

    def touch(block: Any) -> Any:
        touched.append(block.shape)
        return block

    x = blocks(X, BOTH).map_blocks(touch, dtype=X.dtype)
    touched.clear()
    low, high = fuser.compile(lambda x: (x.min(), np.exp(x).max()))(x)
    assert touched == []
    dask.compute(low, high, scheduler="synchronous")
    assert len(touched) == 6 * 3


def test_blocks_are_made_again_where_memory_cannot_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    count: list[int] = []

    def touch(block: Any) -> Any:
        count.append(1)
        return block

    f = fuser.compile(lambda x: ((x - x.mean(axis=0)) ** 2).sum(axis=0))
    for memory, passes in ((1e12, 1), (1e3, 2)):
        monkeypatch.setattr(daskarrays, "memory_bytes", lambda m=memory: m)
        got = f(blocks(X, ROWS).map_blocks(touch, dtype=X.dtype))
        count.clear()
        same(got, ((X - X.mean(axis=0)) ** 2).sum(axis=0))
        assert len(count) == 6 * passes


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a scan": (lambda x: np.cumsum(x, axis=0), r"axis 0 of `x` is in 6 blocks, and it accumulates along the axis"),
    "a shift": (lambda x: x[1:] - x[:-1], "read at other places"),
    "backwards": (lambda x: x[::-1] + 1, "read at other places"),
    "an index": (lambda x: x.argmax(axis=0), "`argmax` over an axis in several blocks"),
    "joined": (lambda x: np.concatenate([x, x]), "put together from pieces"),
    "a product along it": (lambda x: x.T @ x, "product runs along"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_whole_axis_is_refused_with_the_reason(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason) as caught:
        fuser.compile(function)(blocks(X, ROWS))
    assert caught.value.slug == "blocks"
    assert "rechunk({0: -1})" in str(caught.value)
    assert "test_dask.py" in str(caught.value)
    same(fuser.compile(function)(blocks(X, (100, 60))), function(X))


def test_other_refusals() -> None:
    def store(x: Any) -> None:
        x += 1

    x = blocks(X, ROWS)
    unknown = x[x[:, 0] > 0]
    for call in (
        lambda: fuser.compile(store)(x),
        lambda: fuser.compile(softmax)(x, out=np.empty_like(X)),
        lambda: fuser.compile(softmax)(unknown),
    ):
        with pytest.raises(FuserError) as caught:
            call()
        assert caught.value.slug == "blocks"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made,
        distributed.Client(made) as client,
    ):
        yield client


def test_two_processes(cluster: Any) -> None:
    import os

    x = blocks(X, BOTH)
    got = fuser.compile(standard)(x, G)
    for a, b in zip(cluster.gather(cluster.compute(list(got))), standard(X, G), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    where = x.map_blocks(lambda b: np.full((1, 1), os.getpid()), chunks=(1, 1), dtype=int)
    assert os.getpid() not in set(cluster.compute(where).result().ravel().tolist())
