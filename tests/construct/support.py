"""Run a construction on nodes as a call would be run: trace with symbolic dims, check, guard, evaluate, compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser.construct import elementwise
from fuser.construct.common import NeedsStatic
from fuser.dtypes import find
from fuser.graph import Builder, Graph, Node
from fuser.hostexpr import Dim, scalar_symbol, sym
from fuser.interpreter import evaluate
from fuser.text import print_graph
from fuser.textparse import parse_graph
from fuser.verify import verify

Build = Callable[..., Any]


def trace(build: Build, arrays: Sequence[Any], static: bool = False, scalars: Mapping[str, Any] | None = None) -> Graph:
    """The graph of `build(b, *nodes, **scalars)`; lengths above 1 are symbols unless `static`."""
    b = Builder("test")
    nodes = []
    for k, a in enumerate(arrays):
        dims: list[Dim] = [n if static or n <= 1 else sym(f"n{k}_{axis}") for axis, n in enumerate(a.shape)]
        dtype = find(a.dtype)
        assert dtype is not None
        nodes.append(b.argument(f"x{k}", dtype, tuple(dims)))
    exprs = {name: scalar_symbol(name, _kind(v)) for name, v in (scalars or {}).items()}
    return b.close(list(flatten(b, build(b, *nodes, **exprs))))


def _kind(value: Any) -> Any:
    return type(value).__name__


def flatten(b: Builder, value: Any) -> list[Node]:
    """The nodes of a (nested) result; host values become 0-d nodes."""
    if isinstance(value, tuple | list):
        return [n for v in value for n in flatten(b, v)]
    return [elementwise.as_node(b, value)]


def run(build: Build, *arrays: Any, scalars: Mapping[str, Any] | None = None) -> list[np.ndarray[Any, Any]]:
    """Results for arrays: symbolic first, static where a guard fails, as a call would. The text must round-trip."""
    given = [np.asarray(a) for a in arrays]
    values = {f"={k}": v for k, v in (scalars or {}).items()}
    env = {f"n{k}_{axis}": n for k, a in enumerate(given) for axis, n in enumerate(a.shape)} | values
    graph = _symbolic(build, given, env, scalars)
    if graph is None:
        graph = trace(build, given, static=True, scalars=scalars)
        assert all(g.holds(env) for g in graph.guards), [str(g) for g in graph.guards]
    assert verify(graph) == []
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    return evaluate(graph, given, env)[0]


def _symbolic(
    build: Build, arrays: Sequence[Any], env: Mapping[str, Any], scalars: Mapping[str, Any] | None
) -> Graph | None:
    """The graph with symbolic lengths, unless it needs one of them or a guard fails."""
    try:
        graph = trace(build, arrays, scalars=scalars)
    except NeedsStatic:
        return None
    return graph if all(g.holds(env) for g in graph.guards) else None


def same(build: Build, numpy: Build, *arrays: Any, tolerance: float = 0.0) -> None:
    """`build` on nodes and `numpy` on arrays agree in value, dtype and shape; bit for bit without a tolerance."""
    with np.errstate(all="ignore"):
        expected = [np.asarray(v) for v in _leaves(numpy(*arrays))]
    found = run(build, *arrays)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if tolerance:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, want)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [n for v in value for n in _leaves(v)]
    return [value]
