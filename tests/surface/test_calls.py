"""How functions are called, and what they depend on: no value of one call is repeated in another."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import ArgumentError, TraceError

X = np.arange(6.0).reshape(2, 3)


# -- arguments -------------------------------------------------------------------------------------
def spread(x: Any, /, scale: Any = 2.0, *rest: Any, shift: Any = 0.0, **named: Any) -> Any:
    total = x * scale + shift
    for r in rest:
        total = total + r
    for v in named.values():
        total = total - v
    return total


@pytest.mark.parametrize(("args", "kwargs"), [
    ((X,), {}), ((X, 3.0), {}), ((X,), {"scale": 3}), ((X, 2, X, 1.5), {"shift": X}),
    ((X,), {"shift": 1, "a": X, "b": 2.0}),
])  # fmt: skip
def test_every_kind_of_parameter(args: Any, kwargs: Any) -> None:
    np.testing.assert_array_equal(fuser.compile(spread)(*args, **kwargs), spread(*args, **kwargs))


def test_a_wrong_call_names_the_signature() -> None:
    with pytest.raises(ArgumentError, match="spread"):
        fuser.compile(spread)(x=X)


def test_arrays_in_containers() -> None:
    f = fuser.compile(lambda p, pair: {"y": p["w"] * pair[0] + p["b"], "n": (pair[1], [p["w"]])})
    got = f({"w": X, "b": 1.0}, (X, 3))
    np.testing.assert_array_equal(got["y"], X * X + 1)
    assert got["n"][0] == 3


class Model:
    def __init__(self, weight: Any, scale: float) -> None:
        self.weight, self.scale = weight, scale

    def apply(self, x: Any) -> Any:
        return x * self.weight * self.scale

    def __call__(self, x: Any) -> Any:
        return self.apply(x) + 1

    @staticmethod
    def plain(x: Any) -> Any:
        return x + 2


def test_methods_static_methods_and_callable_objects() -> None:
    model = Model(np.ones((2, 3)), 2.0)
    apply, called = fuser.compile(model.apply), fuser.compile(model)
    np.testing.assert_array_equal(apply(X), X * 2)
    np.testing.assert_array_equal(called(X), X * 2 + 1)
    np.testing.assert_array_equal(fuser.compile(Model.plain)(X), X + 2)
    model.scale = 5.0
    np.testing.assert_array_equal(apply(X), X * 5)
    model.weight = np.full((2, 3), 3.0)
    np.testing.assert_array_equal(called(X), X * 15 + 1)


# -- scalars ---------------------------------------------------------------------------------------
def test_scalar_arguments_are_values_of_the_call() -> None:
    f = fuser.compile(lambda x, h, n: x * h + n)
    for h, n in itertools.product((0.5, 2.0, -1.0), (0, 3)):
        np.testing.assert_array_equal(f(X, h, n), X * h + n)
    assert f.specializations == {}


def test_specialisation_on_demand_says_which_line() -> None:
    def f(x: Any, steps: Any, axis: Any) -> Any:
        for _ in range(steps):
            x = x + 1
        return x.sum(axis=axis)

    compiled = fuser.compile(f)
    for steps, axis in ((1, 0), (3, 1), (2, 0)):
        np.testing.assert_array_equal(compiled(X, steps, axis), f(X, steps, axis))
    assert set(compiled.specializations) == {"steps", "axis"}
    assert all("test_calls.py" in line for line in compiled.specializations.values())


def test_static_arguments() -> None:
    def f(x: Any, mode: Any, power: Any) -> Any:
        return x**power if mode == "power" else x * power

    compiled = fuser.compile(f, static_argnames=("power",))
    for mode, power in (("power", 2), ("power", 3), ("times", 3), ("times", 3.0)):
        np.testing.assert_array_equal(compiled(X, mode, power), f(X, mode, power))


def test_true_is_not_one() -> None:
    f = fuser.compile(lambda x, flag: x + 1 if flag is True else x - 1)
    assert f(X, True)[0, 0] == 1
    assert f(X, 1)[0, 0] == -1


# -- no silent constant ------------------------------------------------------------------------------
SCALE = 2.0
TABLE = {"bias": 1.0, "weights": np.ones(3)}


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fuser.compile(lambda x: x * SCALE + TABLE["bias"] * TABLE["weights"])
    for scale, bias in ((2.0, 1.0), (3.0, 1.0), (3.0, 4.0)):
        monkeypatch.setitem(globals(), "SCALE", scale)
        monkeypatch.setitem(TABLE, "bias", bias)
        np.testing.assert_array_equal(f(X), X * scale + bias)
    TABLE["weights"][:] = 2  # type: ignore[index]
    np.testing.assert_array_equal(f(X), X * 3 + 8)


def test_closures() -> None:
    factor, weights = 1.0, np.ones(3)

    def f(x: Any) -> Any:
        return x * factor + weights

    compiled = fuser.compile(f)
    for factor in (1.0, 2.0, -3.0):
        weights += 1
        np.testing.assert_array_equal(compiled(X), X * factor + weights)


def test_defaults_and_partials() -> None:
    for k in (1.0, 2.0):
        np.testing.assert_array_equal(fuser.compile(functools.partial(spread, scale=k))(X), X * k)


def helper(x: Any) -> Any:
    return x + 1


def test_a_helper_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fuser.compile(lambda x: helper(x) * 2)
    assert f(X)[0, 0] == 2
    monkeypatch.setitem(globals(), "helper", lambda x: x + 10)
    assert f(X)[0, 0] == 20


def test_a_counter_is_refused() -> None:
    counter = itertools.count()
    with pytest.raises(TraceError, match="two programs"):
        fuser.compile(lambda x: x + next(counter))(X)


def test_state_that_a_call_would_change_is_refused() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        log.append(1)
        return x * len(log)

    with pytest.raises(TraceError):
        fuser.compile(f)(X)


def test_shapes_and_dtypes_of_later_calls() -> None:
    f = fuser.compile(lambda x: x / x.shape[0] + np.zeros(x.shape[-1], x.dtype))
    for shape, dtype in (((2, 3), "f8"), ((4, 3), "f8"), ((4, 1), "f4"), ((1, 5), "f4"), ((0, 2), "f8")):
        x = np.ones(shape, dtype)
        got = f(x)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, x / max(shape[0], 1))


def test_a_loop_too_long_to_unroll_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.frontend import context

    def f(x: Any, n: Any) -> Any:
        for _ in range(n):
            x = x * 0.5 + 1
        return x

    monkeypatch.setattr(context, "LONGEST", 500)
    np.testing.assert_allclose(fuser.compile(f)(X, 20), f(X, 20))
    with pytest.raises(TraceError, match="unrolled while tracing"):
        fuser.compile(f)(X, 10_000_000)
