"""No silent constant: whatever a program reads from outside, its second call never repeats the first call's value.

Each case makes a program and a change of what it reads. After the change a call must give what the function itself
gives, or the program must have been refused.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import dataclasses
import enum
import functools
import itertools
import os
import random
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError, TraceTypeError
from tests.frontend.trace import outside_values

X = np.arange(1.0, 5.0)
SCALE = 2.0
Case = tuple[Callable[[Any], Any], Callable[[], Any]]
CASES: dict[str, Callable[[], Case]] = {}
REFUSED: dict[str, Callable[[], Callable[[Any], Any]]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def refused(make: Callable[[], Callable[[Any], Any]]) -> Callable[[], Callable[[Any], Any]]:
    REFUSED[make.__name__] = make
    return make


def put(space: Any, name: str, value: Any = 3.0) -> Callable[[], None]:
    """Sets an attribute or item when called."""
    return lambda: space.__setitem__(name, value) if hasattr(space, "__setitem__") else setattr(space, name, value)


class Reader:
    """Reads a global in every way a class can."""

    k = 2.0

    def method(self, x: Any) -> Any:
        return x * SCALE

    def through_another(self, x: Any) -> Any:
        return self.method(x)

    @property
    def value(self) -> float:
        return SCALE

    @staticmethod
    def static(x: Any) -> Any:
        return x * SCALE

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * cls.k * SCALE


class Derived(Reader):
    def method(self, x: Any) -> Any:
        return super().method(x) + 1


def change_global() -> None:
    globals()["SCALE"] = 3.0


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    yield
    globals()["SCALE"] = outside_values.SCALE = outside_values.Settings.SCALE = 2.0
    outside_values.W[0] = 1.0
    Reader.k = 2.0


@case
def namespaces() -> Case:
    args = argparse.Namespace(scale=2.0, more=types.SimpleNamespace(k=1.0))
    return (lambda x: x * args.scale * args.more.k), put(args.more, "k")


@case
def a_class_attribute() -> Case:
    return (lambda x: x * Reader.k), put(Reader, "k")


@case
def a_class_attribute_through_an_instance_of_a_derived_class() -> Case:
    reader = Derived()
    return (lambda x: x * reader.k), put(Reader, "k")


@case
def a_callable_object_with_state_of_its_class() -> Case:
    class Scale:
        k = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.k

    return Scale(), put(Scale, "k")


@case
def a_function_attribute() -> Case:
    def f(x: Any) -> Any:
        return x * f.scale  # type: ignore[attr-defined]

    f.scale = 2.0  # type: ignore[attr-defined]
    return f, put(f, "scale")


for _name, _program in {
    "method": lambda m, x: m.method(x), "method_of_a_method": lambda m, x: m.through_another(x),
    "property": lambda m, x: x * m.value, "static": lambda m, x: Reader.static(x),
    "of_class": lambda m, x: Reader.of_class(x), "super": lambda m, x: Derived().method(x),
    "local_object": lambda m, x: Reader().method(x),
}.items():  # fmt: skip

    def _reading(program: Any = _program) -> Case:
        reader = Reader()
        return (lambda x: program(reader, x)), change_global

    CASES[f"a_global_read_by_{_name}"] = _reading


@case
def a_bound_method() -> Case:
    return Reader().through_another, change_global


@case
def a_decorated_helper() -> Case:
    def twice(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any) -> Any:
            return 2 * f(*args)

        return wrapper

    @twice
    def helper(x: Any) -> Any:
        return x * SCALE

    return (lambda x: helper(x)), change_global


@case
def a_cached_helper() -> Case:
    @functools.lru_cache
    def helper() -> float:
        return SCALE

    return (lambda x: x * helper()), lambda: (change_global(), helper.cache_clear())


@case
def a_cached_property() -> Case:
    class Cached:
        def __init__(self) -> None:
            self.k = 2.0

        @functools.cached_property
        def double(self) -> float:
            return self.k * 2

    cached = Cached()
    return (lambda x: x * cached.double), lambda: (put(cached, "k")(), vars(cached).pop("double", None))


def _container(make: Callable[[], Any], read: Callable[[Any], Any], change: Callable[[Any], Any]) -> Callable[[], Case]:
    def build() -> Case:
        held = make()
        return (lambda x: x * read(held)), lambda: change(held)

    return build


CASES |= {
    "a_set": _container(lambda: {"a"}, lambda s: 2.0 if "b" in s else 1.0, lambda s: s.add("b")),
    "a_deque": _container(lambda: collections.deque([2.0]), lambda d: d[0], lambda d: d.append(d.pop() + 1)),
    "a_bytearray": _container(lambda: bytearray(b"2"), lambda d: d[0], lambda d: d.__setitem__(0, 3)),
    "an_array": _container(lambda: array.array("d", [2.0]), lambda d: d[0], lambda d: d.__setitem__(0, 3.0)),
    "a_user_dict": _container(lambda: collections.UserDict(k=2.0), lambda d: d["k"], lambda d: put(d, "k")()),
    "a_chain_map": _container(lambda: collections.ChainMap({"k": 2.0}), lambda d: d["k"], lambda d: put(d, "k")()),
    "a_0d_array": _container(lambda: np.array(2.0), lambda a: a, lambda a: a.__setitem__((), 3.0)),
    "a_float_of_a_0d_array": _container(lambda: np.array(2.0), float, lambda a: a.__setitem__((), 3.0)),
    "an_element_seen_by_python": _container(lambda: np.ones(2), lambda a: float(a[0]), lambda a: a.__setitem__(0, 3.0)),
    "an_array_as_a_list": _container(lambda: np.ones(2), lambda a: sum(a.tolist()), lambda a: a.__setitem__(0, 3.0)),
    "a_polynomial": _container(
        lambda: np.poly1d([2.0, 1.0]), lambda p: p(0.5), lambda p: p.coeffs.__setitem__(0, 3.0)
    ),
    "a_context_variable": _container(
        lambda: contextvars.ContextVar("k", default=2.0), lambda c: c.get(), lambda c: c.set(3.0)
    ),
}  # fmt: skip


@case
def a_view_of_a_dict() -> Case:
    below = {"k": 2.0}
    above = types.MappingProxyType(below)
    return (lambda x: x * above["k"]), put(below, "k")


@case
def thread_local_state() -> Case:
    local = threading.local()
    local.k = 2.0
    return (lambda x: x * local.k), put(local, "k")


@case
def deep_objects() -> Case:
    top = node = types.SimpleNamespace()
    for _ in range(12):
        node.next = types.SimpleNamespace()
        node = node.next
    node.k = 2.0

    def f(x: Any) -> Any:
        here = top
        while hasattr(here, "next"):
            here = here.next
        return x * here.k

    return f, put(node, "k")


@case
def nested_dataclasses() -> Case:
    @dataclasses.dataclass
    class Inner:
        k: float

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    outer = Outer(Inner(2.0))
    return (lambda x: x * outer.inner.k), put(outer.inner, "k")


@case
def a_module_imported_inside() -> Case:
    def f(x: Any) -> Any:
        from tests.frontend.trace import outside_values as values

        return x * values.SCALE

    return f, put(outside_values, "SCALE")


@case
def a_helper_imported_inside() -> Case:
    def f(x: Any) -> Any:
        from tests.frontend.trace.outside_values import W, scaled

        return scaled(x) * W

    return f, lambda: (put(outside_values, "SCALE")(), outside_values.W.__setitem__(0, 9.0))


@case
def a_module_under_another_name() -> Case:
    def f(x: Any) -> Any:
        values = outside_values
        return x * values.SCALE * getattr(values, "SCALE")  # noqa: B009

    return f, put(outside_values, "SCALE")


@case
def a_class_in_a_module() -> Case:
    return (lambda x: x * outside_values.Settings.SCALE), put(outside_values.Settings, "SCALE")


@case
def attributes_made_up_at_run_time() -> Case:
    store = {"k": 2.0}

    class Proxy:
        def __getattr__(self, name: str) -> float:
            if name.startswith("_"):
                raise AttributeError(name)
            return store[name]

    proxy = Proxy()
    return (lambda x: x * proxy.k), put(store, "k")


@case
def the_environment() -> Case:
    os.environ["FUSER_TEST_SCALE"] = "2"
    return (lambda x: x * float(os.environ["FUSER_TEST_SCALE"])), put(os.environ, "FUSER_TEST_SCALE", "3")


@case
def the_command_line() -> Case:
    return (lambda x: x * len(sys.argv)), lambda: sys.argv.append("more")


@case
def replaced_defaults() -> Case:
    def f(x: Any, k: float = 2.0, *, more: float = 1.0) -> Any:
        return x * k * more

    return f, lambda: (setattr(f, "__defaults__", (3.0,)), f.__kwdefaults__.update(more=5.0))  # type: ignore[func-returns-value]


@case
def enumerations() -> Case:
    class Mode(enum.Enum):
        DOUBLE = 2.0
        TRIPLE = 3.0

    held = {"mode": Mode.DOUBLE}
    return (lambda x: x * held["mode"].value), put(held, "mode", Mode.TRIPLE)


@pytest.mark.parametrize("name", CASES)
def test_a_change_outside_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    program, change = CASES[name]()
    run = fuser.compile(program)
    for _ in range(2):
        np.testing.assert_array_equal(run(X), program(X))
    change()
    np.testing.assert_array_equal(run(X), program(X))


# -- what is refused -------------------------------------------------------------------------------
REFUSED |= {
    "random": lambda: lambda x: x * random.randint(0, 1), "numpy_random": lambda: lambda x: x * np.random.rand(),
    "clock": lambda: lambda x: x * time.time(), "counter": lambda: _with(itertools.count(), lambda c, x: x * next(c)),
    "generator": lambda: _with(np.random.default_rng(0), lambda r, x: x + r.normal(size=x.shape)),
    "evaluated": lambda: lambda x: x * eval("SCALE"), "all_globals": lambda: lambda x: x * globals()["SCALE"],
    "file": lambda: lambda x: x * len(open(__file__).read()),  # noqa: SIM115
    "loaded": lambda: lambda x: x * np.load("k.npy"),
    "appended": lambda: _with([], lambda held, x: (held.append(1), x * len(held))),
}  # fmt: skip


def _with(value: Any, program: Any) -> Any:
    return lambda x: program(value, x)


@refused
def numpy_imported_inside() -> Any:
    def f(x: Any) -> Any:
        import numpy as inside

        return x * inside.random.rand()

    return f


@refused
def a_class_attribute_that_is_counted() -> Any:
    def f(x: Any) -> Any:
        Reader.k += 1
        return x * Reader.k

    return f


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_read_once_is_refused(name: str) -> None:
    before = Reader.k
    with pytest.raises(FuserError):
        fuser.compile(REFUSED[name]())(X)
    assert Reader.k == before


# -- objects ---------------------------------------------------------------------------------------
class Solver:
    """Methods that call methods, make arrays and store into them."""

    def __init__(self, w: Any) -> None:
        self.w = w

    def smoothed(self, u: Any) -> Any:
        out = np.zeros(u.shape[0])
        out[1:-1] = (u[:-2] + self.w * u[2:]) / 2
        return out

    def step(self, u: Any) -> Any:
        return self.smoothed(u) + outside_values.W.sum()


class Damped(Solver):
    def __init__(self, w: Any) -> None:
        super().__init__(w)
        self.damping = 0.5

    def step(self, u: Any) -> Any:
        return super().step(u) * self.damping


def test_methods_trace_whoever_calls_them() -> None:
    solver, damped = Solver(2.0), Damped(3.0)
    for program in (solver.step, lambda u: damped.step(solver.step(u)), lambda u: Damped(1.0).step(u)):
        np.testing.assert_array_equal(fuser.compile(program)(X), program(X))
    assert type(damped) is Damped
    assert vars(damped) == {"w": 3.0, "damping": 0.5}


def test_objects_come_out_as_they_went_in() -> None:
    solver = Solver(2.0)
    got = fuser.compile(lambda x: (x, solver, Solver, Solver(1.0)))(X)
    assert got[1] is solver
    assert got[2] is Solver
    assert type(got[3]) is Solver
    with pytest.raises(TraceTypeError, match="Solver that holds traced arrays"):
        fuser.compile(lambda x: Solver(x * 2))(X)


# -- refusals --------------------------------------------------------------------------------------
def _sorted_rows(y: Any) -> Any:
    return np.sort(y)


def stops_early(x: Any) -> Any:
    a = np.unique(x)
    for row in a:  # the trace cannot go on from here
        x = x + row
    return np.linalg.inv(x), _sorted_rows(x), np.histogram(x)


def test_calls_beyond_the_point_where_the_trace_stops_are_listed_too() -> None:
    with pytest.raises(FuserError) as caught:
        fuser.compile(stops_early)(np.eye(3))
    for call in ("np.unique(x)", "np.linalg.inv(x)", "np.sort(y)", "np.histogram(x)"):
        assert str(caught.value).count(call) == 1


# -- objects as arguments --------------------------------------------------------------------------
def test_what_is_in_an_argument_counts_at_each_call() -> None:
    def program(x: Any, owner: Any, function: Any) -> Any:
        return function(owner.smoothed(x)) * owner.w

    def scaled(x: Any) -> Any:
        return x * SCALE

    run, solver = fuser.compile(program), Solver(2.0)
    for change in (lambda: None, put(solver, "w", 5.0), change_global):
        change()
        np.testing.assert_array_equal(run(X, solver, scaled), program(X, solver, scaled))


def test_a_number_that_comes_out_complex_is_an_error_of_the_call() -> None:
    run = fuser.compile(lambda x, h: x * h**0.5)
    np.testing.assert_array_equal(run(X, 4.0), X * 2)
    with pytest.raises(FuserError, match="complex"):
        run(X, -4.0)
