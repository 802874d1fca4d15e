"""How many kernels many shapes take, warming up, and compiled functions that travel between processes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import kernels
from fuser.errors import ArgumentError, CompileForbidden, FuserError
from fuser.runtime import cache


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> kernels._Memory:
    """No disk cache, and nothing remembered."""
    empty = kernels._Memory()
    nothing = cache.Store((), 0)
    monkeypatch.setattr(kernels, "memory", lambda: empty)
    monkeypatch.setattr(cache, "store", lambda: nothing)
    return empty


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


LAWS = {
    "any size": lambda rng: int(rng.integers(1, 20_001)),
    "any magnitude": lambda rng: int(2 ** rng.uniform(0, 14.2877)),
    "small": lambda rng: int(rng.integers(1, 300)),
}


@pytest.mark.parametrize("law", LAWS)
def test_two_hundred_shapes_take_few_kernels(fresh: kernels._Memory, law: str) -> None:
    """At most one kernel a capacity (the power of two that holds a row), and four: a row alone, rows of one element."""
    rng = np.random.default_rng(0)
    run = fuser.compile(softmax)
    capacities = set()
    for _ in range(200):
        rows, columns = LAWS[law](rng), LAWS[law](rng)
        capacities.add((columns - 1).bit_length())
        if rows * columns <= 1 << 16:
            np.testing.assert_allclose(run(np.ones((rows, columns), np.float32)), 1 / columns, rtol=1e-5)
        else:
            run.warm(f"f32[{rows}, {columns}]")
    assert fresh.compiled <= len(capacities) + 4


def test_warm_compiles_what_a_call_needs(fresh: kernels._Memory) -> None:
    run = fuser.compile(softmax)
    plan = run.warm("f32[100, 300]")
    assert len(plan.kernels) == 1
    assert fresh.compiled == 1
    run(np.ones((100, 300), np.float32))
    run(np.ones((90, 290), np.float32))
    assert fresh.compiled == 1  # 300 and 290 are of one bucket


def test_kernels_that_differ_in_their_tasks_are_one(fresh: kernels._Memory) -> None:
    run = fuser.compile(lambda x: x * 2 + 1)
    for rows in (3, 40, 500, 6000):
        np.testing.assert_array_equal(run(np.ones((rows, 9))), 3)
        np.testing.assert_array_equal(run(np.ones((9, rows))), 3)
    assert fresh.compiled == 1


def test_a_forbidden_compilation_names_the_call(fresh: kernels._Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.settings import Settings

    run = fuser.compile(softmax)
    run.warm("f32[100, 300]")
    monkeypatch.setattr(kernels, "settings", lambda: Settings(compile="never"))
    run(np.ones((100, 300), np.float32))
    with pytest.raises(CompileForbidden) as caught:
        run(np.ones((5, 7)))
    assert "the call: softmax.warm('f64[5, 7]', device='cpu')" in str(caught.value)


def scaled(x: Any, *more: Any, factor: float = 2.0, deep: bool = False) -> Any:
    return np.exp(x - np.max(x, axis=-1, keepdims=True)) * factor + sum(more)


def _misaligned(shape: tuple[int, ...], offset: int) -> Any:
    room = np.ones(int(np.prod(shape)) * 4 + 32, np.uint8)
    start = -room.ctypes.data % 16 + offset
    return room[start : start + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)


FORMS: dict[str, Callable[[], Any]] = {
    "plain": lambda: np.ones((64, 100), np.float32),
    "every other column": lambda: np.ones((64, 100), np.float32)[:, ::2],
    "upside down": lambda: np.ones((64, 100), np.float32)[::-1],
    "transposed": lambda: np.ones((64, 100), np.float32).T,
    "one row for all": lambda: np.broadcast_to(np.ones(100, np.float32), (64, 100)),
    "misaligned": lambda: _misaligned((64, 100), 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_a_forbidden_compilation_names_is_what_warm_needs(
    fresh: kernels._Memory, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    from fuser.settings import Settings

    x, other = FORMS[form](), np.float32(3)
    if form not in ("plain", "misaligned"):  # a CPU has one kernel for both
        fuser.compile(scaled)(FORMS["plain"](), other, factor=0.5, deep=True)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "settings", lambda: Settings(compile="never"))
        with pytest.raises(CompileForbidden) as caught:
            fuser.compile(scaled)(x, other, factor=0.5, deep=True)
    (named,) = (n.removeprefix("the call: ") for n in caught.value.notes if n.startswith("the call: "))
    eval(named, {"scaled": fuser.compile(scaled)})
    monkeypatch.setattr(kernels, "settings", lambda: Settings(compile="never"))
    got = fuser.compile(scaled)(x, other, factor=0.5, deep=True)
    np.testing.assert_allclose(got, scaled(x, other, factor=0.5), rtol=1e-6)


@pytest.mark.parametrize("text", ["f32[4; strides 1, 2]", "f32[4; offset 16]", "f32[4; offset]", "f32[4; rows 2]",
                                  "f32[4; strides x]", "f32[; strides 1]"])  # fmt: skip
def test_specs_with_mistakes_behind_the_dims(text: str) -> None:
    with pytest.raises(FuserError, match="is not a spec"):
        fuser.compile(softmax).plan(text)


@fuser.compile
def decorated(x: Any) -> Any:
    return x + 1


def test_pickling() -> None:
    x = np.arange(4.0)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
    again = pickle.loads(pickle.dumps(fuser.compile(softmax, rounding="each-op")))
    np.testing.assert_allclose(again(x), softmax(x))
    assert again._options.rounding == "each-op"
    program = fuser.parse("def twice(x: f64[n]):\n    return 2 * x\n").twice
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(program))(x), 2 * x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fuser.compile("lambda x: x * 3")))(x), x * 3)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(fuser.compile(lambda x: x))


class Layer:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.shift = np.arange(4.0)

    @fuser.compile
    def apply(self, x: Any) -> Any:
        return x * self.scale + self.shift


def test_methods_read_their_objects_attributes() -> None:
    one, two, x = Layer(2.0), Layer(3.0), np.ones(4)
    for _ in range(3):
        np.testing.assert_array_equal(one.apply(x), 2 + np.arange(4))
        np.testing.assert_array_equal(two.apply(x), 3 + np.arange(4))
    one.scale, one.shift = 5.0, np.zeros(4)
    np.testing.assert_array_equal(one.apply(x), np.full(4, 5.0))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(two.apply))(x), 3 + np.arange(4))


@pytest.mark.parametrize("spec", ["f32[8192, 4096", "q8[3]"])
def test_a_spec_with_a_mistake_is_named(spec: str) -> None:
    with pytest.raises(ArgumentError, match="spec") as caught:
        fuser.compile(softmax).plan(spec)
    assert caught.value.slug == "spec"


class Exporter:
    """An array of a library that fuser does not know, through DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_arrays_are_read_and_written_without_a_copy() -> None:
    x, y = np.arange(4.0), np.ones(4)
    np.testing.assert_array_equal(fuser.compile(lambda x, y: x * 2 + y)(Exporter(x), y), x * 2 + 1)

    def add(x: Any) -> None:
        x += 1

    fuser.compile(add)(Exporter(x))
    np.testing.assert_array_equal(x, np.arange(4) + 1)
