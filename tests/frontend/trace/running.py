"""Trace a function, evaluate its graph with the reference, and compare everything with plain NumPy.

In: a function and arguments. Out: what the traced program returns and stores. The loop over `NeedsStatic` is what a
call does: scalars and dims that Python asked for become static.
"""

import copy
import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser import dtypes, trees
from fuser.construct.common import NeedsStatic
from fuser.frontend import capture
from fuser.frontend.trace import trace
from fuser.graph import Graph
from fuser.hostexpr import HostExpr, sym
from fuser.interpreter import evaluate
from fuser.specs import ArraySpec, ScalarSpec, Spec, StaticSpec


@dataclass
class Traced:
    """A graph with the values it was traced for."""

    graph: Graph
    leaves: list[Any]
    env: dict[str, Any]
    specialized: set[str] = field(default_factory=set)


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic))


def _spec(name: str, leaf: Any, static: set[str], env: dict[str, Any]) -> Spec:
    if is_array(leaf):
        dims: list[int | HostExpr] = []
        for axis, d in enumerate(leaf.shape):
            symbol = f"{name}.{axis}"
            env[symbol] = d
            dims.append(d if d in (0, 1) or symbol in static else sym(symbol))
        dtype = dtypes.find(leaf.dtype)
        assert dtype is not None
        return ArraySpec(dtype, tuple(dims))
    if type(leaf) in (int, float) and f"={name}" not in static:
        env[f"={name}"] = leaf
        return ScalarSpec("int" if type(leaf) is int else "float")
    return StaticSpec(leaf)


def traced(fn: Any, *args: Any, **kwargs: Any) -> Traced:
    """Trace for these arguments, specialising on demand; dims static where a guard fails for them."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    leaves, tree = trees.flatten(dict(bound.arguments))
    names = trees.leaf_names(tree)
    static: set[str] = set()
    while True:
        env: dict[str, Any] = {}
        specs = [_spec(n, v, static, env) for n, v in zip(names, leaves, strict=True)]
        try:
            graph = trace(fn, names, specs, tree)
        except NeedsStatic as need:
            if need.expr.symbols <= static:
                raise  # asked for twice: never to be had
            static |= need.expr.symbols
            continue
        if all(g.holds(env) for g in graph.guards):
            return Traced(graph, leaves, env, static)
        static |= {s for s in env if not s.startswith("=")}


def run(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What the traced program returns; effects are written into the arrays given."""
    t = traced(fn, *args, **kwargs)
    arrays = [v for v in t.leaves if is_array(v)] + list(capture.captured_arrays(fn, t.graph))
    outputs, effects = evaluate(t.graph, [np.array(a) for a in arrays], t.env)
    for effect, value in zip(t.graph.effects, effects, strict=True):
        arrays[effect.argument][...] = value
    finished = [np.array(o)[()] if np.ndim(o) == 0 else o for o in outputs]
    return trees.rebuild(t.graph.output_tree, finished, t.env)


def assert_same(got: Any, wanted: Any, what: str) -> None:
    """Equal nesting, types, dtypes, shapes and values (libraries may differ in the last bits of a function)."""
    got_leaves, got_tree = trees.flatten(got, is_leaf=lambda v: False)
    leaves, tree = trees.flatten(wanted, is_leaf=lambda v: False)
    assert got_tree == tree, what
    for g, w in zip(got_leaves, leaves, strict=True):
        if is_array(w):
            assert np.asarray(g).dtype == w.dtype, f"{what}: {np.asarray(g).dtype} for {w.dtype}"
            assert np.shape(g) == w.shape, f"{what}: {np.shape(g)} for {w.shape}"
            tolerance = 1e-5 if w.dtype == np.float32 else 1e-2 if w.dtype == np.float16 else 1e-12
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance, err_msg=what)
        else:
            assert type(g) is type(w), f"{what}: {g!r} for {w!r}"
            assert g == w or (g != g and w != w), f"{what}: {g!r} for {w!r}"


def check(fn: Any, *args: Any, **kwargs: Any) -> None:
    """The traced program does to its arguments and returns what NumPy does and returns."""
    mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with np.errstate(all="ignore"):
        wanted = fn(*theirs[0], **theirs[1])
        got = run(fn, *mine[0], **mine[1])
    assert_same(got, wanted, getattr(fn, "__name__", "result"))
    for k, (m, t) in enumerate(zip(trees.flatten(list(mine[0]))[0], trees.flatten(list(theirs[0]))[0], strict=True)):
        if is_array(t):
            assert_same(m, t, f"argument {k}")
