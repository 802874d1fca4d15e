"""How many kernels many shapes take, warming up, and compiled functions that travel between processes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import kernels
from fuser.errors import CompileForbidden
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


def test_two_hundred_shapes_take_few_kernels(fresh: kernels._Memory) -> None:
    rng = np.random.default_rng(0)
    run = fuser.compile(softmax)
    buckets = set()
    for _ in range(200):
        rows, columns = (int(2 ** rng.uniform(0, 14.28)) + 1 for _ in range(2))  # a row alone is a trace of its own
        rows = max(2, min(rows, (1 << 18) // columns))
        buckets.add((columns - 1).bit_length())
        x = rng.random((rows, columns), dtype=np.float32)
        np.testing.assert_allclose(run(x).sum(axis=-1), 1, rtol=1e-4)
    assert fresh.compiled <= len(buckets) + 4


def test_warm_compiles_what_a_call_needs(fresh: kernels._Memory) -> None:
    run = fuser.compile(softmax)
    plan = run.warm("f32[100, 300]")
    assert len(plan.kernels) == 1
    assert fresh.compiled == 1
    run(np.ones((100, 300), np.float32))
    run(np.ones((90, 290), np.float32))
    assert fresh.compiled <= 2  # 300 and 290 are of one bucket; that neither is a multiple of 16 too


def test_a_forbidden_compilation_names_the_call(fresh: kernels._Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.settings import Settings

    run = fuser.compile(softmax)
    run.warm("f32[100, 300]")
    monkeypatch.setattr(kernels, "settings", lambda: Settings(compile="never"))
    run(np.ones((100, 300), np.float32))
    with pytest.raises(CompileForbidden, match=r"softmax\(f64\[5, 7\]\)"):
        run(np.ones((5, 7)))


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
