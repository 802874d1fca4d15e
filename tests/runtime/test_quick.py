"""The short roads: what they answer, when they must not be taken, and that they keep nothing alive."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import quick
from fuser.errors import ArgumentError, OverflowArgumentError
from fuser.runtime import native_entry, pool
from tests.threads import running

Function = Callable[..., Any]
X = np.arange(12.0).reshape(3, 4)

native = pytest.mark.skipif(not native_entry.usable(), reason="this interpreter has no native road")


def taken(f: Any, *args: Any, out: Any = None, **kwargs: Any) -> bool:
    """Whether the native road takes a call (and runs it)."""
    roads = f._roads
    answer = roads.native(*args) if out is None and not kwargs else roads.named(args, kwargs, out)
    return answer is not NotImplemented


def same(got: Any, want: Any) -> None:
    """Equal in type, dtype and value, through containers."""
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        same(list(got.values()), list(want.values()))
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert np.asarray(got).dtype == np.asarray(want).dtype


PROGRAMS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "one": (lambda x: x * 2 + 1, (X,)),
    "scalar": (lambda x: x.sum(), (X,)),
    "tuple": (lambda x: (x + 1, x.sum(axis=0)), (X,)),
    "list": (lambda x: [x + 1, x * 2], (X,)),
    "dict": (lambda x: {"a": x + 1, "n": x.shape[0]}, (X,)),
    "numbers": (lambda x, a, b: x * a + b, (X, 2.5, 3)),
    "narrow": (lambda x, a: x * a, (X.astype("f4"), 0.1)),
    "integers": (lambda x, a: x + a, (X.astype("i4"), -7)),
    "expression": (lambda x, a: x * (a * 2), (X, 3)),
    "two kernels": (lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(axis=0), (X / 12,)),
    "views": (lambda x: x[:, ::-1] * 2, (X[::-1, ::2],)),
    "0-d": (lambda x: x * 2, (np.array(3.0),)),
    "empty": (lambda x: (x * 2, x.sum(axis=0)), (np.ones((0, 3)),)),
    "NumPy scalar": (lambda x, n: x * n, (X, np.float64(3))),
    "static": (lambda x, flag: x * 2 if flag else x * 3, (X, True)),
    "none": (lambda x, bias: x * 2 if bias is None else x + bias, (X, None)),
    "library": (lambda x: x @ x.T, (X,)),
    "the same twice": (lambda x, y: x * y, (X, X)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_gives_what_the_first_gives(name: str) -> None:
    f, args = PROGRAMS[name]
    run = fuser.compile(f)
    for _ in range(4):
        same(run(*args), f(*args))


@native
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("expression", "NumPy scalar", "library")])
def test_plain_calls_go_the_native_road(name: str) -> None:
    f, args = PROGRAMS[name]
    run = fuser.compile(f)
    for _ in range(3):
        run(*args)
    assert taken(run, *args)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_another_kind_of_argument_is_another_call(times: int) -> None:
    def f(x: Any, a: Any) -> Any:
        return x * a

    run = fuser.compile(f)
    for _ in range(times):
        run(X, 2.0)
    others = [
        (X.astype("f4"), 2.0), (X.T, 2.0), (X[::2], 2.0), (X, 2), (X, True), (X, X[0]), (X[0], 2.0), (X[:0], 2.0),
        (X.astype(">f8"), 2.0), (np.frombuffer(b"\0" + X.tobytes(), "u1")[1:].view("f8"), 2.0),
    ]  # fmt: skip
    for args in others:
        for _ in range(3):
            np.testing.assert_array_equal(run(*args), f(*args))


def test_integers_that_do_not_fit_are_refused_every_time() -> None:
    run = fuser.compile(lambda x, a: x + a)
    x = np.arange(3, dtype=np.int32)
    for _ in range(3):
        run(x, 5)
    for number in (2**31, 2**64, 2**200):
        with pytest.raises(OverflowArgumentError):
            run(x, number)
    np.testing.assert_array_equal(run(x, 2**31 - 5), x + (2**31 - 5))


SCALE = 2.0


def test_a_changed_global_is_seen() -> None:
    global SCALE
    run = fuser.compile(lambda x: x * SCALE)
    try:
        for value in (2.0, 3.0, -1.0):
            SCALE = value
            for _ in range(3):
                np.testing.assert_array_equal(run(X), X * value)
    finally:
        SCALE = 2.0


def test_a_shadowed_builtin_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fuser.compile(lambda x: abs(x) - 1)
    for _ in range(3):
        np.testing.assert_array_equal(run(-X), X - 1)
    monkeypatch.setitem(globals(), "abs", lambda v: v * 100)
    np.testing.assert_array_equal(run(-X), X * -100 - 1)
    monkeypatch.undo()
    np.testing.assert_array_equal(run(-X), X - 1)


def test_a_changed_closure_and_changed_code_are_seen() -> None:
    scale = 2.0

    def f(x: Any) -> Any:
        return x * scale

    run = fuser.compile(f)
    for scale in (2.0, 5.0):  # the cell is what the function reads
        for _ in range(3):
            np.testing.assert_array_equal(run(X), X * scale)
    f.__code__ = (lambda x: x + scale).__code__
    np.testing.assert_array_equal(run(X), X + 5)


def test_a_changed_container_is_seen() -> None:
    config = {"scale": 2.0}
    run = fuser.compile(lambda x: x * config["scale"])
    for value in (2.0, 7.0):
        config["scale"] = value
        for _ in range(3):
            np.testing.assert_array_equal(run(X), X * value)


def test_captured_arrays_are_read_at_each_call() -> None:
    weights = np.ones(4)
    run = fuser.compile(lambda x: x * weights)
    for value in (1.0, 4.0):
        weights[:] = value
        for _ in range(3):
            np.testing.assert_array_equal(run(X), X * value)


# -- writing -----------------------------------------------------------------------------------------
def update(w: Any, g: Any, lr: float) -> None:
    w -= lr * g


def test_stores_into_arguments() -> None:
    run = fuser.compile(update)
    w, g = np.ones(100, "f4"), np.full(100, 2, "f4")
    for k in range(1, 6):
        assert run(w, g, 0.5) is None
        assert (w == 1 - k).all()


def test_a_returned_argument_is_the_argument() -> None:
    def add(x: Any, a: float) -> Any:
        x += a
        return x

    run, x = fuser.compile(add), np.zeros(5)
    for k in range(1, 6):
        assert run(x, 1.0) is x
        assert (x == k).all()


@pytest.mark.parametrize("warm", [0, 1, 3])
def test_overlapping_and_read_only_arguments_are_refused(warm: int) -> None:
    run = fuser.compile(update)
    w, g = np.ones(100), np.ones(100)
    for _ in range(warm):
        run(w, g, 0.5)
    both = np.ones(150)
    with pytest.raises(ArgumentError, match=r"\[overlap\]"):
        run(both[:100], both[50:], 0.5)
    assert (both == 1).all()
    run(both[::2][:50], both[1::2][:50], 0.5)  # side by side, without a byte in common
    w.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"\[read-only\]"):
        run(w, g, 0.5)


def test_out_and_keywords() -> None:
    run = fuser.compile(lambda x, a: x * a + 1)
    out = np.empty_like(X)
    for _ in range(4):
        assert run(X, a=3.0, out=out) is out
        np.testing.assert_array_equal(out, X * 3 + 1)
        np.testing.assert_array_equal(run(a=2, x=X), X * 2 + 1)
        np.testing.assert_array_equal(run(x=X, a=2), X * 2 + 1)


@native
def test_out_and_keywords_go_the_native_road() -> None:
    run, out = fuser.compile(lambda x, a: x * a + 1), np.empty_like(X)
    for _ in range(3):
        run(X, a=3.0, out=out)
    assert taken(run, X, a=3.0, out=out)
    assert not taken(run, X, b=3.0, out=out)


@pytest.mark.parametrize("warm", [0, 3])
def test_out_that_overlaps_an_argument(warm: int) -> None:
    run = fuser.compile(lambda x: x * 2 + 1)
    fresh = np.arange(60.0)
    for _ in range(warm):
        run(fresh[:50], out=np.empty(50))
    run(fresh[:50], out=fresh[10:])
    np.testing.assert_array_equal(fresh[10:], np.arange(50) * 2 + 1)


# -- upkeep ------------------------------------------------------------------------------------------
def test_nothing_is_leaked_or_held() -> None:
    run = fuser.compile(lambda x, a: (x * a, x.sum()))
    x, a = np.ones(5), 2.5
    for _ in range(4):
        run(x, a)
    watched: tuple[Any, ...] = (x, a, NotImplemented, x.dtype, np.ndarray)
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(500):
        run(x, a)
    after = [sys.getrefcount(o) for o in watched]
    assert all(abs(p - q) < 50 for p, q in zip(before, after, strict=True))
    gone = weakref.ref(x)
    del x, watched
    gc.collect()
    assert gone() is None


def test_results_are_the_callers_alone() -> None:
    run = fuser.compile(lambda x: x + 1)
    kept = [run(np.full(4, float(k))) for k in range(6)]
    assert [float(r[0]) for r in kept] == [1, 2, 3, 4, 5, 6]


def test_many_kinds_of_calls_are_remembered_within_bounds() -> None:
    from fuser import quick

    run = fuser.compile(lambda x: x * 2)
    for n in range(1, quick.KINDS + 40):
        assert run(np.ones(n)).shape == (n,)
    assert len(run._roads._table) <= quick.KINDS
    assert all(len(t.launches) <= 512 for found in run._traces.values() for t in found)


def test_one_function_from_many_threads_while_the_pool_changes() -> None:
    x = np.random.default_rng(0).random(1 << 18)
    run = fuser.compile(lambda x: (x * 2).sum())
    want = run(x)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for _ in range(30):
            if run(x) != want:
                wrong.append(number)

    before = pool.num_threads()
    try:
        with running(work, range(6)):
            for k in range(8):
                fuser.set_num_threads(1 + k % 3)
    finally:
        fuser.set_num_threads(before)
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_on() -> None:
    x = np.random.default_rng(0).random(1 << 18)
    run = fuser.compile(lambda x: (x * 2).sum())
    for _ in range(3):
        want = run(x)
    child = os.fork()
    if child == 0:
        right = run(x) == want and fuser.compile(lambda x: x.max())(x) == x.max()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


@native
def test_an_exception_in_the_middle_leaves_the_road_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.runtime import quickcpu

    calls = [0]

    def empty(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] % 3 == 0:
            raise MemoryError("no room")
        return np.empty(*args)

    monkeypatch.setattr(quickcpu.CpuCall, "maker", lambda self, shape, dtype: (empty, (shape, dtype.numpy)))
    run = fuser.compile(lambda x: (x * 2, x.sum(axis=0)))
    for _ in range(2):
        run(X)
    seen = 0
    for _ in range(12):
        try:
            same(run(X), (X * 2, X.sum(axis=0)))
        except MemoryError:
            seen += 1
    assert seen > 3


class Torchlike:
    """A launch that stands for torch's: it is found without native code."""

    torch = True

    def __call__(self, flat: Any) -> Any:
        return ("ran", *flat)


def test_the_direct_road_looks_at_kinds_and_at_what_is_read_from_outside() -> None:
    holds = [True]
    roads = quick.Roads(lambda: None, lambda: lambda: holds[0])
    x, y = np.ones(3), np.ones(4)
    assert roads.direct(x, 2.0) is NotImplemented  # nothing is known
    ticket = roads.ticket((x, 2.0), {}, None)
    assert ticket is not None
    roads._table[ticket.key] = Torchlike()  # type: ignore[assignment]
    found = roads.direct(x, 2.0)
    assert found[0] == "ran"
    assert found[1] is x
    assert roads.direct(y, 2.0) is NotImplemented
    assert roads.direct(x, 2) is NotImplemented
    assert roads.direct([x], 2.0) is NotImplemented
    holds[0] = False
    assert roads.direct(x, 2.0) is NotImplemented
