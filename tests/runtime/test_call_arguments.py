"""What a call's arguments may be: nested containers, keywords, static values, run-time scalars, closures; and what is
traced or compiled again for which of them (counts, not times)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import fuser
from fuser.compiled import Compiled
from fuser.errors import FuserError
from tests import engines
from tests.engines import Array, Engine


def base(*shape: int) -> Array:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


class Counted:
    """A compiled function that counts what was done for it."""

    def __init__(self, fn: Any, **options: Any) -> None:
        self.traced = self.planned = self.built = 0
        self.run: Compiled = engines.with_tools(fuser.compile(fn, **options), self._counting)

    def _counting(self, tools: Any) -> Any:
        def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                setattr(self, name, getattr(self, name) + 1)
                return function(*args, **options)

            return call

        return replace(
            tools, prepare=counting("traced", tools.prepare), plan_groups=counting("planned", tools.plan_groups),
            build=counting("built", tools.build),
        )  # fmt: skip

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.traced, self.planned, self.built


# -- containers ------------------------------------------------------------------------------------
class Pair(NamedTuple):
    mean: Any
    spread: Any


@engines.each
def test_nested_arguments_and_results(engine: Engine) -> None:
    def step(params: Any, batch: Any, *, scale: float) -> Any:
        w, (b, c) = params["w"], params["bias"]
        new = {"w": w * scale, "bias": (b + batch[0], c - batch[1])}
        return new, [batch[0], Pair(w.mean(), w.max())], scale * 2, None

    params = {"w": base(4, 3), "bias": (base(3), base(3) * 2)}
    batch = [base(3), np.float32(2)]
    got, want = engine.compile(step)(params, batch, scale=2.0), step(params, batch, scale=2.0)
    assert list(got[0]) == list(want[0])
    assert isinstance(got[1][1], Pair)
    assert got[2:] == (4.0, None)
    assert engines.unlike(got[:2], want[:2]) is None


def test_stores_into_nested_arguments() -> None:
    def update(state: Any, g: Any) -> None:
        for s in state["slots"]:
            s[:] = s * 0.5 + g

    state = {"slots": [base(5), base(5) * 2], "name": "adam"}
    fuser.compile(update)(state, base(5))
    assert state["slots"][0].tolist() == (base(5) * 1.5).tolist()
    assert state["slots"][1].tolist() == (base(5) * 2).tolist()


def test_the_same_array_twice() -> None:
    x = base(7)
    assert engines.unlike(fuser.compile(lambda x, y: x * y)(x, x), x * x) is None
    assert engines.unlike(fuser.compile(lambda p: p["a"] + p["b"][0])({"a": x, "b": [x]}), x + x) is None


# -- keywords and defaults -------------------------------------------------------------------------
def scaled(x: Any, y: Any = None, /, a: float = 2.0, *more: Any, flag: bool = False, **rest: Any) -> Any:
    total = x * a
    if y is not None:
        total = total + y
    for m in (*more, *rest.values()):
        total = total + m
    return -total if flag else total


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((base(4),), {}),
        ((base(4), base(4)), {}),
        ((base(4), None), {"a": 3.5}),
        ((base(4), base(4), 1.5, base(4), base(4)), {"flag": True}),
        ((base(4),), {"other": base(4), "third": 1}),
    ],
)
def test_every_kind_of_parameter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    run = fuser.compile(scaled)
    assert engines.unlike(run(*args, **kwargs), scaled(*args, **kwargs)) is None
    assert run.__name__ == "scaled"


def test_a_parameter_named_out_is_the_functions_own_or_refused() -> None:
    """`out=` of the call must not silently swallow an argument."""
    try:
        run = fuser.compile(lambda x, out: x + out)
        result = run(base(3), base(3))
    except FuserError:
        return
    np.testing.assert_array_equal(result, base(3) * 2)


# -- static values, run-time scalars ---------------------------------------------------------------
def test_numbers_are_read_at_run_time() -> None:
    c = Counted(lambda x, a, k: x * a + k)
    for a, k in ((1.5, 2), (2.5, -7), (float("inf"), 0)):
        assert engines.unlike(c.run(base(4), a, k), base(4) * np.float32(a) + k) is None
    assert c.counts == (1, 1, 1)
    c.run(base(4), 2, 2)  # an int for a float: another weak kind
    assert c.traced == 2


def test_strings_bools_and_none_are_static() -> None:
    def pick(x: Any, mode: str, flip: bool) -> Any:
        y = x * x if mode == "square" else x + 1
        return y[::-1] if flip else y

    c = Counted(pick)
    for mode in ("add", "square", "add"):
        for flip in (True, False):
            assert engines.unlike(c.run(base(3), mode, flip), pick(base(3), mode, flip)) is None
    assert c.traced == 4


def test_static_argnames_specialise() -> None:
    def power(x: Any, n: int) -> Any:
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    c = Counted(power, static_argnames="n")
    for n in (1, 3, 3, 2):
        assert engines.unlike(c.run(base(4), n), power(base(4), n)) is None
    assert c.traced == 3
    assert c.run.specializations == {}


def test_a_number_used_as_an_axis_becomes_static_and_says_where() -> None:
    c = Counted(lambda x, axis: np.sum(x, axis=axis))
    for axis in (0, 1, -1, 0):
        assert engines.unlike(c.run(base(3, 4), axis), np.sum(base(3, 4), axis=axis)) is None
    assert list(c.run.specializations) == ["axis"]
    assert "test_call_arguments.py:" in c.run.specializations["axis"]


def test_numpy_scalars_are_strong() -> None:
    run = fuser.compile(lambda x, s: x * s)
    assert run(base(3), np.float64(2)).dtype == np.float64
    assert run(base(3), 2.0).dtype == np.float32
    assert run(base(3).astype(np.int8), np.int32(2)).dtype == np.int32


# -- what sizes cost -------------------------------------------------------------------------------
def test_sizes_of_one_bucket_share_everything() -> None:
    c = Counted(lambda x: np.exp(x) * 2 + np.sum(x, axis=1, keepdims=True))
    for n in (33, 35, 61, 63, 37):
        x = base(3, n) / 100
        np.testing.assert_allclose(c.run(x), np.exp(x) * 2 + x.sum(axis=1, keepdims=True), rtol=1e-5)
    traced, planned, _ = c.counts
    assert (traced, planned) == (1, 1)


def test_rows_do_not_count_towards_traces() -> None:
    c = Counted(lambda x: x + 1)
    for n in (2, 3, 5, 100, 10_000):
        c.run(base(n, 7))
    c.run(base(1, 7))
    assert c.traced == 1
    c.run(base(0, 7))
    assert c.traced == 2


def test_dtype_and_layout_are_told_apart() -> None:
    c = Counted(lambda x: x * 2)
    c.run(base(8, 8))
    c.run(base(8, 8).astype(np.float64))
    assert c.traced == 2
    c.run(base(8, 8)[:, ::2])
    assert c.traced == 2
    assert c.planned == 3


def test_closures_are_looked_at_again() -> None:
    factor = 2.0
    table = base(4)

    def f(x: Any) -> Any:
        return x * factor + table

    run = fuser.compile(f)
    assert engines.unlike(run(base(4)), base(4) * 2 + table) is None
    factor = 5.0
    assert engines.unlike(run(base(4)), base(4) * 5 + table) is None
    table[:] = 0
    assert engines.unlike(run(base(4)), base(4) * 5) is None
    table = base(4) * 10
    assert engines.unlike(run(base(4)), base(4) * 15) is None


EMPTY: dict[str, Callable[..., Any]] = {
    "turned": lambda x: x.T,
    "added and turned": lambda x: (np.sum(x), (x * 2).T),
    "turned and upside down": lambda x: (x[..., ::-1] + x, x.T),
    "turned and added": lambda x: x + x.T[: x.shape[0], : x.shape[1]] if x.shape[0] == x.shape[1] else x.T * 2,
    "joined": lambda x: np.concatenate([x, x.T.reshape(x.shape)]),
}


@engines.each
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements_seen_from_other_sides(engine: Engine, name: str, shape: tuple[int, int]) -> None:
    for dtype in (np.float32, np.float64):
        x = np.zeros(shape, dtype)
        got, want = engine.compile(EMPTY[name])(x), EMPTY[name](x)
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for g, w in pairs:
            assert (g.shape, g.dtype) == (w.shape, w.dtype)


def test_a_numpy_scalar_receives_nothing() -> None:
    run = fuser.compile(lambda x: x * 2)
    for _ in range(12):
        with pytest.raises(FuserError, match="out= cannot be written"):
            run(np.array(1.0), out=np.float64(3))


# -- descriptions of arrays --------------------------------------------------------------------------
class Described:
    """What `jax.ShapeDtypeStruct` is."""

    def __init__(self, *shape: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(np.float32)


@pytest.mark.parametrize("value", [Described(4, 5), "f32[4, 5]"], ids=["object", "text"])
def test_a_description_is_planned_for_and_not_called_with(value: Any) -> None:
    run = fuser.compile(lambda x: x["a"] + 1)
    assert run.plan({"a": value}).graph.arguments[0].name == "x.a"
    assert run.warm({"a": value}).bytes_moved == 2 * 4 * 20
    for call in (run, run.check, run.report, run.reference):
        with pytest.raises(FuserError, match=r"`x\.a` is .*: it describes an array and is none") as caught:
            call({"a": value})
        assert "f.plan(...), f.warm(...)" in str(caught.value)


def test_dims_that_are_no_numbers_have_some_size() -> None:
    plan = fuser.compile(lambda x: x + 1).plan(Described(None, 5))
    assert plan.bytes_moved == fuser.compile(lambda x: x + 1).plan("f32[n, 5]").bytes_moved


@pytest.mark.parametrize("setting", [Described(4, 5), "f32[4, 5]"], ids=["object", "text"])
def test_a_setting_that_looks_like_a_description(setting: Any) -> None:
    run = fuser.compile(lambda x, like: x + len(getattr(like, "shape", "ab")), static_argnames=("like",))
    x = base(3)
    assert np.array_equal(run(x, setting), x + 2)
    assert run.plan(x, setting).bytes_moved == run.plan(x, like=setting).bytes_moved == 24


def test_containers_keep_their_kind_in_plans() -> None:
    counted = Counted(lambda pair, more: pair.mean * pair.spread + more["a"])
    more = OrderedDict(a=base(3))
    plan = counted.run.plan(Pair("f32[3]", "f32[3]"), OrderedDict(a="f32[3]"))
    assert plan.bytes_moved == 4 * 12
    counted.run(Pair(base(3), base(3)), more)
    assert counted.counts[0] == 1


def test_meta_tensors_are_descriptions() -> None:
    torch = pytest.importorskip("torch")
    run = fuser.compile(lambda x: x + 1)
    assert run.plan(torch.ones(4, 5, device="meta")).bytes_moved == 160
    strided = run.plan(torch.ones(4, 10, device="meta")[:, ::2])
    assert strided.size_class.layouts == run.plan(base(4, 10)[:, ::2]).size_class.layouts == ("s",)
