"""What a function reads from outside: closures, globals, `self`, arrays, helpers. No value of it is ever stale."""

import functools
import types
from typing import Any

import numpy as np
import pytest

from fuser.errors import TraceError
from fuser.frontend.capture import captured_arrays, snapshot
from tests.frontend.trace.running import check, run, traced

X = np.array([1.0, 4.0, 9.0])
SCALE = 2.0
WEIGHTS = np.array([1.0, 10.0, 100.0])
TABLE = {"w": np.array([2.0, 2.0, 2.0]), "rate": 0.5}
OFFSETS = np.array([1, 2])
settings = types.ModuleType("settings")
settings.gain = 3.0  # type: ignore[attr-defined]
settings.bias = np.array([1.0, 1.0, 1.0])  # type: ignore[attr-defined]


def make(k: Any, h: Any) -> Any:
    def inner(x: Any) -> Any:
        return h(x) + k

    return inner


def test_closures_of_one_factory_are_three_programs() -> None:
    a, b, c = make(1, np.sqrt), make(2, np.sqrt), make(1, np.square)
    for _ in range(2):
        assert run(a, X).tolist() == [2, 3, 4]
        assert run(b, X).tolist() == [3, 4, 5]
        assert run(c, X).tolist() == [2, 17, 82]
    assert len({snapshot(a), snapshot(b), snapshot(c)}) == 3


def test_a_global_number_is_part_of_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return x * SCALE

    before = snapshot(f)
    assert snapshot(f) == before
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert snapshot(f) != before
    assert run(f, X).tolist() == [5, 20, 45]
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert snapshot(f) != before


def helper(x: Any) -> Any:
    return x * SCALE


def test_globals_of_helpers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return helper(x) + 1

    before = snapshot(f)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert snapshot(f) != before
    assert run(f, X).tolist() == [8, 29, 64]


def test_a_changed_helper_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return helper(x)

    before = snapshot(f)
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    assert snapshot(f) != before
    assert run(f, X).tolist() == [0, 3, 8]


def test_a_captured_array_is_a_hidden_input_with_its_present_content(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return x * WEIGHTS + WEIGHTS.max()

    t = traced(f, X)
    assert [a.name for a in t.graph.arguments if a.captured] == ["WEIGHTS"]
    monkeypatch.setitem(globals(), "WEIGHTS", WEIGHTS + 1)
    (now,) = captured_arrays(f, t.graph)
    assert now.tolist() == [2, 11, 101]
    before = snapshot(f)
    monkeypatch.setitem(globals(), "WEIGHTS", WEIGHTS.astype(np.float32))
    assert snapshot(f) != before
    check(f, X)


def test_an_array_that_python_looks_into_counts_by_content() -> None:
    offsets = np.array([1, 2])

    def f(x: Any) -> Any:
        return sum(np.roll(x, int(k)) for k in offsets)

    check(f, X)
    before = snapshot(f)
    offsets[0] = 0
    assert snapshot(f) != before
    check(f, X)


def test_a_store_into_a_captured_array_is_an_effect() -> None:
    buffer = np.zeros(3)

    def f(x: Any) -> Any:
        buffer[1:] = x[1:]
        return buffer * 2

    assert run(f, X).tolist() == [0, 8, 18]
    assert buffer.tolist() == [0, 4, 9]


def test_arrays_in_dicts_and_modules() -> None:
    def f(x: Any) -> Any:
        return x * TABLE["w"] * TABLE["rate"] + settings.gain + settings.bias

    check(f, X)
    t = traced(f, X)
    assert [a.name for a in t.graph.arguments if a.captured] == ["TABLE.w", "settings.bias"]
    before = snapshot(f)
    settings.gain = 4.0  # type: ignore[attr-defined]
    try:
        assert snapshot(f) != before
        check(f, X)
    finally:
        settings.gain = 3.0  # type: ignore[attr-defined]


class Model:
    def __init__(self) -> None:
        self.w, self.b, self.steps = np.array([1.0, 2.0, 3.0]), 0.5, 0

    def __call__(self, x: Any) -> Any:
        return self.layer(x) + self.b

    def layer(self, x: Any) -> Any:
        return np.maximum(x * self.w, 0)

    def counting(self, x: Any) -> Any:
        self.steps += 1
        return x * self.w

    def normalised(self, x: Any) -> Any:
        out = np.zeros(x.shape)
        out[:] = x / self.w.sum()
        return out


def test_methods_and_callable_objects() -> None:
    model = Model()
    check(model, X)
    check(model.layer, X)
    check(model.normalised, X)
    assert [a.name for a in traced(model.layer, X).graph.arguments] == ["x", "self.w"]
    for fn in (model, model.layer):
        before = snapshot(fn)
        model.b += 1
        assert snapshot(fn) != before
    model.w = model.w * 2
    assert run(model.layer, X).tolist() == [2, 16, 54]


def test_state_changed_inside_is_refused_and_put_back() -> None:
    model = Model()
    with pytest.raises(TraceError, match=r"`self\.steps` is changed inside"):
        traced(model.counting, X)
    assert model.steps == 0
    assert isinstance(model.w, np.ndarray)


def test_partials_and_lambdas() -> None:
    def scaled(w: Any, x: Any, power: Any = 1) -> Any:
        return (w * x) ** power

    check(functools.partial(scaled, WEIGHTS, power=2), X)
    check(lambda x: x * WEIGHTS, X)


def test_decorated_functions() -> None:
    def doubled(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any) -> Any:
            return 2 * f(*args)

        return wrapper

    @doubled
    def f(x: Any) -> Any:
        y = np.ones(x.shape)
        y[0] = x[0]
        return y

    check(f, X)


def test_a_constant_array_of_the_functions_own() -> None:
    def f(x: Any) -> Any:
        kernel = np.array([1.0, 2.0, 1.0]) / 4
        return x * kernel, kernel

    check(f, X)


def test_large_literals_are_hidden_inputs() -> None:
    def f(x: Any) -> Any:
        return x + np.array(list(range(300)))[:3]

    check(f, X)
    assert sum(a.captured for a in traced(f, X).graph.arguments) == 1


def test_the_module_of_the_function_is_left_alone() -> None:
    before = dict(globals())
    run(lambda x: helper(x) * WEIGHTS + np.zeros(x.shape), X)
    assert dict(globals()) == before
    assert np.zeros is __import__("numpy").zeros


def test_two_traces_that_differ_are_refused() -> None:
    draws = iter(range(100))

    def f(x: Any) -> Any:
        y = x + 1
        return y * next(draws)

    with pytest.raises(TraceError, match="traced twice gives two programs"):
        traced(f, X)


def test_an_exception_of_the_function_itself_comes_through() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        traced(f, X)
