"""Matrix products on the CPU's short road: learned by the first call, and bit for bit what the long road gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.dtypes import BF16, F16
from fuser.errors import ArgumentError
from fuser.launches import Apart, PlainCall
from fuser.runtime.quickcpu import CpuCall
from tests.runtime.test_library import CASES

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
COPIED = ("nothing to add", "no rows")  # a call without a sum, and one without memory: the long road's


def array(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def learned(f: Any) -> Any:
    """The launch that the last kind of call left."""
    launch = list(f._roads._table.values())[-1]
    return launch.quick if isinstance(launch, Apart) else launch


def layers(x: Any, w: Any) -> Any:
    return np.tanh(np.tanh(x @ w) @ w)


def flat(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", CASES)
def test_short_and_long_road_give_the_same_bits(name: str) -> None:
    fn, args, _ = CASES[name]
    compiled = fuser.compile(fn)
    others = tuple(np.ascontiguousarray(a + 1) for a in args)  # of the same kind, elsewhere in memory
    by_long_road = [flat(fuser.compile(fn)(*given)) for given in (args, others)]
    compiled(*args)
    assert isinstance(learned(compiled), PlainCall if name in COPIED else CpuCall)
    for given, want in zip((args, others), by_long_road, strict=True):
        for g, w in zip(flat(compiled(*given)), want, strict=True):
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            assert np.array_equal(g, w)


@pytest.mark.parametrize("spread", [lambda a: np.repeat(a, 2, axis=-1)[..., ::2], np.asfortranarray, lambda a: a[::-1]])
def test_arguments_that_are_views(spread: Callable[[Array], Array]) -> None:
    x, w = array(6, 5), array(5, 5)
    compiled = fuser.compile(layers)
    for _ in range(3):
        assert np.array_equal(compiled(spread(x), spread(w)), fuser.compile(layers)(spread(x), spread(w)))


@pytest.mark.parametrize("dtype", [BF16.numpy, F16.numpy, np.float64, np.int32, np.complex64])
def test_every_dtype(dtype: Any) -> None:
    x, w = (10 * array(6, 5)).astype(dtype), (10 * array(5, 4)).astype(dtype)
    compiled = fuser.compile(lambda x, w: x @ w)
    first = compiled(x, w)
    assert np.array_equal(compiled(x, w), first)
    if np.dtype(dtype).kind != "V":
        np.testing.assert_allclose(first.astype(np.complex128), (x @ w).astype(np.complex128), rtol=1e-2)


def test_results_are_fresh_and_positional_calls_go_straight() -> None:
    x, w = array(8, 8), array(8, 8)
    compiled = fuser.compile(layers)
    first = compiled(x, w)
    kept = first.copy()
    assert compiled._roads.native == compiled._roads.direct
    again = compiled(x, w)
    again[...] = 0
    assert np.array_equal(compiled(x, w), kept)
    assert np.array_equal(first, kept)
    assert compiled(x[:4], w).shape == (4, 8)  # another kind


def test_out_receives_the_product_also_where_it_is_an_operand() -> None:
    x, w, out = array(8, 8), array(8, 8), np.empty((8, 8), np.float32)
    compiled = fuser.compile(lambda x, w: x @ w)
    want = compiled(x, w)
    for _ in range(3):
        out[...] = 0
        assert compiled(x, w, out=out) is out
        assert np.array_equal(out, want)
    own = x.copy()
    assert compiled(own, w, out=own) is own
    assert np.array_equal(own, want)


def test_a_product_is_stored_into_an_argument() -> None:
    def step(x: Any, w: Any) -> None:
        x[...] = np.maximum(x @ w, 0)

    w = array(8, 8)
    compiled = fuser.compile(step)
    for _ in range(3):
        x = array(8, 8)
        want = np.maximum(x @ w, 0)
        compiled(x, w)
        np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="shares memory"):
        compiled(w, w)


SCALE = 1.0


def test_a_change_outside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = array(4, 4), array(4, 4)
    compiled = fuser.compile(lambda x, w: (x @ w) * SCALE)
    one = compiled(x, w)
    assert np.array_equal(compiled(x, w), one)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert np.array_equal(compiled(x, w), 2 * one)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(array(6, 5)), torch.from_numpy(array(5, 5))
    compiled = fuser.compile(layers)
    want = fuser.compile(layers)(x, w)
    for _ in range(3):
        assert torch.equal(compiled(x, w), want)
        assert torch.equal(compiled(x.T.contiguous().T, w), want)
    assert type(learned(compiled)).__name__ == "TorchCall"
