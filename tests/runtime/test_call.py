"""Calling compiled functions with the arrays people have: views of every kind, `out=`, stores into arguments, threads.

NumPy itself is what every answer is held against; the programs round nothing, so that equality is exact.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import ArgumentError, ShapeError
from tests import engines
from tests.engines import Array, Engine
from tests.threads import together


def affine(x: Any, y: Any) -> Any:
    return x * 2 + y


def base(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _misaligned(shape: tuple[int, ...]) -> Array:
    """Starts 4 bytes past a 16-byte boundary: aligned for the dtype, not for vectors."""
    count = int(np.prod(shape))
    raw = np.zeros(count + 8, np.float32)
    start = (-raw.ctypes.data % 16) // 4 + 1
    found = raw[start : start + count].reshape(shape)
    found[...] = base(*shape)
    assert found.ctypes.data % 16 == 4
    return found


def _odd_bytes(shape: tuple[int, ...]) -> Array:
    """Starts at an odd address: not even aligned for its dtype."""
    raw = np.zeros(int(np.prod(shape)) * 4 + 1, np.uint8)[1:]
    found = raw.view(np.float32).reshape(shape)
    found[...] = base(*shape)
    assert not found.flags.aligned
    return found


def _read_only(x: Array) -> Array:
    x.flags.writeable = False
    return x


VIEWS: dict[str, Callable[[], Array]] = {
    "contiguous": lambda: base(6, 35),
    "every-other-column": lambda: base(6, 70)[:, ::2],
    "columns-from-1": lambda: base(6, 36)[:, 1:],
    "rows-backwards": lambda: base(6, 35)[::-1],
    "columns-backwards": lambda: base(6, 35)[:, ::-1],
    "both-backwards-by-2": lambda: base(12, 70)[::-2, ::-2],
    "transposed": lambda: base(35, 6).T,
    "fortran": lambda: np.asfortranarray(base(6, 35)),
    "one-row-repeated": lambda: np.broadcast_to(base(35), (6, 35)),
    "one-column-repeated": lambda: np.broadcast_to(base(6, 1), (6, 35)),
    "one-value": lambda: np.broadcast_to(np.float32(3), (6, 35)),
    "windows": lambda: np.lib.stride_tricks.sliding_window_view(base(40), 35),
    "inner-of-three": lambda: base(6, 35, 2)[:, :, 1],
    "misaligned": lambda: _misaligned((6, 35)),
    "odd-address": lambda: _odd_bytes((6, 35)),
    "big-endian": lambda: base(6, 35).astype(">f4"),
    "read-only": lambda: _read_only(base(6, 35)),
}
NOT_WRITABLE = ("one-row-repeated", "one-column-repeated", "one-value", "windows", "read-only")
COPIED = ("odd-address", "big-endian")  # a kernel reads a native copy, so that it cannot store


# -- inputs ----------------------------------------------------------------------------------------
@engines.each
@pytest.mark.parametrize("name", VIEWS)
def test_any_view_is_read_where_it_lies(engine: Engine, name: str) -> None:
    x, y = VIEWS[name](), base(6, 35)[::-1].copy()
    run = engine.compile(
        lambda x, y: (affine(x, y), affine(y, x), np.sum(x, axis=0), np.sum(x, axis=1), np.max(x), x.T)
    )
    want = (affine(x, y), affine(y, x), np.sum(x, axis=0), np.sum(x, axis=1), np.max(x), x.T)
    assert engines.unlike(run(x, y), tuple(w.astype(np.float32) for w in want)) is None


def test_one_compiled_function_serves_every_view_in_turn() -> None:
    run, y = fuser.compile(affine), base(6, 35)
    for _ in range(2):
        for name, view in VIEWS.items():
            assert engines.unlike(run(view(), y), affine(view(), y).astype(np.float32)) is None, name


@engines.each
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1, 1), (1, 7), (7, 1), (2, 0, 3)], ids=str)
def test_small_and_empty_shapes(engine: Engine, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    run = engine.compile(
        lambda x: (x + 1, np.sum(x), np.sum(x, axis=tuple(range(x.ndim)), keepdims=True), x * x.mean())
    )
    with np.errstate(all="ignore"):
        want = (x + 1, np.sum(x), np.sum(x, axis=tuple(range(x.ndim)), keepdims=True), x * (1 if x.size else np.nan))
    assert engines.unlike(run(x), want) is None


def test_results_in_kind() -> None:
    """0-d arrays and NumPy scalars come back as NumPy's operators give them: scalars."""
    run = fuser.compile(lambda x: x + 1)
    for x in (np.float32(2), np.array(2, np.float32)):
        assert type(run(x)) is np.float32
    assert type(fuser.compile(lambda x: np.sum(x))(base(5))) is np.float32
    assert type(fuser.compile(lambda x: np.sum(x, keepdims=True))(base(5))) is np.ndarray
    assert type(run(2)) is int
    assert type(run(2.5)) is float


def test_results_are_fresh_arrays() -> None:
    run, x = fuser.compile(lambda x: (x + 1, x)), base(1000)
    first, same = run(x)
    second, _ = run(x)
    for a, b in ((first, second), (first, x), (second, x), (first, same)):
        assert not np.shares_memory(a, b)
    first[:] = 0
    assert second[5] == 6
    assert run(x)[0][5] == 6


def test_inputs_stay_as_they_are() -> None:
    x, y = base(300), base(300)
    fuser.compile(lambda x, y: (x * y, np.cumsum(x), x[::-1] + y))(x, y)
    np.testing.assert_array_equal(x, base(300))
    np.testing.assert_array_equal(y, base(300))


# -- out= ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in VIEWS if n not in NOT_WRITABLE])
def test_out_may_be_any_writable_view(name: str) -> None:
    out, x, y = VIEWS[name](), base(6, 35), base(6, 35) * 3
    assert fuser.compile(affine)(x, y, out=out) is out
    np.testing.assert_array_equal(out, affine(x, y))


def test_out_leaves_its_neighbours_alone() -> None:
    whole = np.full((8, 40), -1, np.float32)
    fuser.compile(affine)(base(6, 35), base(6, 35), out=whole[1:7, 2:37])
    np.testing.assert_array_equal(whole[1:7, 2:37], base(6, 35) * 3)
    whole[1:7, 2:37] = -1
    assert (whole == -1).all()


@pytest.mark.parametrize("shift", [-1, 0, 1, 17])
def test_out_may_overlap_an_input(shift: int) -> None:
    """The result is that of a program that reads everything first."""
    whole = base(500)
    x, out = whole[50:450], whole[50 + shift : 450 + shift]
    want = np.cumsum(x) + x[::-1]
    fuser.compile(lambda x: np.cumsum(x) + x[::-1])(x, out=out)
    np.testing.assert_array_equal(out, want)


def test_out_of_another_dtype_is_converted_as_numpy_does() -> None:
    out = np.zeros(5, np.int16)
    fuser.compile(lambda x: x * 2)(base(5), out=out)
    assert out.tolist() == [0, 2, 4, 6, 8]
    wide = np.zeros(5)
    fuser.compile(lambda x: x * 2)(base(5), out=wide)
    assert wide.tolist() == [0, 2, 4, 6, 8]


def test_out_for_several_results() -> None:
    run, outs = fuser.compile(lambda x: (x + 1, np.sum(x))), (np.zeros(5, np.float32), np.zeros((), np.float32))
    assert run(base(5), out=outs) is outs
    assert outs[0].tolist() == [1, 2, 3, 4, 5]
    assert outs[1] == 10
    named = {"a": np.zeros(5, np.float32), "b": np.zeros(5, np.float32)}
    fuser.compile(lambda x: {"a": x + 1, "b": x - 1})(base(5), out=named)
    assert named["b"].tolist() == [-1, 0, 1, 2, 3]


def test_out_that_does_not_fit_is_refused_and_left_alone() -> None:
    run, out = fuser.compile(lambda x: x + 1), np.zeros(4, np.float32)
    with pytest.raises(ShapeError, match=r"out= has shape \(4,\)") as caught:
        run(base(5), out=out)
    assert caught.value.slug == "out-shape"
    with pytest.raises(ArgumentError, match="2 arrays for 1 result") as refused:
        run(base(5), out=(out, out))
    assert refused.value.slug == "out-count"
    assert not out.any()
    with pytest.raises(ArgumentError) as locked:
        run(base(4), out=_read_only(np.zeros(4, np.float32)))
    assert locked.value.slug == "read-only"


# -- stores into arguments -------------------------------------------------------------------------
def step(x: Any, v: Any) -> Any:
    v[:] = v * 0.5 + x
    x[1:] = x[1:] - v[:-1]
    return v.sum()


@engines.each
@pytest.mark.parametrize("name", [n for n in VIEWS if n not in (*NOT_WRITABLE, *COPIED)])
def test_stores_reach_the_callers_array(engine: Engine, name: str) -> None:
    mine, theirs = (VIEWS[name](), base(6, 35) * 2), (VIEWS[name]().copy(), base(6, 35) * 2)
    got, want = engine.compile(step)(*mine), step(*theirs)
    assert got == pytest.approx(want, rel=1e-6)
    np.testing.assert_array_equal(mine[0], theirs[0])
    np.testing.assert_array_equal(mine[1], theirs[1])


@engines.each
def test_stores_see_old_values_where_numpy_does(engine: Engine) -> None:
    def reverse(x: Any) -> None:
        x[:] = x[::-1] + np.cumsum(x)

    x, want = base(1000), base(1000)
    engine.compile(reverse)(x)
    reverse(want)
    np.testing.assert_array_equal(x, want)


def test_a_store_into_what_cannot_hold_it_is_refused() -> None:
    run = fuser.compile(step)
    for name in ("read-only", "one-row-repeated", "odd-address", "big-endian"):
        x = VIEWS[name]()
        before = x.copy()
        with pytest.raises(ArgumentError) as caught:
            run(x, base(6, 35))
        assert caught.value.slug == "read-only", name
        assert "`x`" in str(caught.value)
        np.testing.assert_array_equal(x, before)


def test_arguments_that_share_memory_with_a_stored_one_are_refused() -> None:
    whole = base(7, 35)
    with pytest.raises(ArgumentError) as caught:
        fuser.compile(step)(whole[:6], whole[1:])
    assert caught.value.slug == "overlap"
    assert "`v`" in str(caught.value)
    assert "`x`" in str(caught.value)
    np.testing.assert_array_equal(whole, base(7, 35))
    columns = base(6, 70)
    fuser.compile(step)(columns[:, ::2], columns[:, 1::2])  # interleaved: no element in common
    want = (base(6, 70)[:, ::2].copy(), base(6, 70)[:, 1::2].copy())
    step(*want)
    np.testing.assert_array_equal(columns[:, ::2], want[0])


def test_a_returned_argument_is_the_callers_object() -> None:
    def bump(x: Any) -> Any:
        x += 1
        return x

    x = base(5)
    assert fuser.compile(bump)(x) is x
    assert x.tolist() == [1, 2, 3, 4, 5]


# -- threads ---------------------------------------------------------------------------------------
def test_one_compiled_function_in_many_threads() -> None:
    """First calls race to compile, of several size classes at once; every caller gets its own answer."""
    run = fuser.compile(lambda x: (x * 2 + 1, np.sum(x)))
    faults: list[str] = []
    gate = threading.Barrier(8)

    def work(k: int) -> None:
        gate.wait()
        for n in (5, 100, 3000, 40_000):
            x = np.full(n + k, k, np.float32)
            doubled, total = run(x)
            if not (doubled == 2 * k + 1).all() or total != k * (n + k) or doubled.shape != x.shape:
                faults.append(f"thread {k}, {n}")

    together(work, range(8))
    assert not faults


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 4)], ids=str)
def test_temporaries_of_no_bytes(shape: tuple[int, ...]) -> None:
    """A second call and later ones, by whichever road."""
    for program in (
        lambda x: np.cumsum(x, axis=-1).sum(axis=-1),
        lambda x: np.cumsum(x).sum(),
        lambda x: np.cumsum(np.cumsum(x, -1) * 0.5, -1),
    ):
        run, x = fuser.compile(program), np.ones(shape)
        for _ in range(12):
            np.testing.assert_array_equal(run(x), program(x))


def test_an_array_whose_elements_share_memory_is_not_stored_into() -> None:
    def cleared(x: Any) -> Any:
        x[1:] = 0
        return x.sum()

    run = fuser.compile(cleared)
    assert run(np.ones(8)[::2]) == 1
    for shape, strides in (((4,), (0,)), ((4, 3), (8, 8))):
        with pytest.raises(ArgumentError) as caught:
            run(np.lib.stride_tricks.as_strided(np.ones(9), shape, strides))
        assert caught.value.slug == "overlap"
    many = np.ones((6, 5))[::-2, ::2].T
    fuser.compile(cleared)(many)
    assert many.sum() == 3
