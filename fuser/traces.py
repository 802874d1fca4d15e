"""Traces and what is kept for each: plans by size class, bound programs by launch key.

In: prepared graphs with their guards, bound calls. Out: `Traced`, `classify` (the size class of a call), `launch_key`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

from fuser import keys, shapes
from fuser.graph import Graph, ReduceAttrs
from fuser.hostexpr import HostExpr, wrap
from fuser.keys import LaunchKey, Layout, SizeClass
from fuser.record import dataclass
from fuser.runtime.arrays import ArrayInfo, Family, Place, overlaps

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.plan import Plan
    from fuser.runtime.bound import BoundProgram


@dataclass(frozen=True)
class Launchable:
    """A bound program and where it runs."""

    program: BoundProgram
    family: Family
    place: Place


@dataclass
class Traced:
    """A prepared graph with the dims it holds for. static: dims that the trace took as numbers. tuned: the plans that
    were measured or taken up from a record."""

    graph: Graph
    static: Mapping[str, int]
    lengths: tuple[HostExpr, ...]
    plans: dict[tuple[SizeClass, str], Plan] = field(default_factory=dict)
    launches: dict[Any, Launchable] = field(default_factory=dict)
    tuned: set[tuple[SizeClass, str]] = field(default_factory=set)

    @cached_property
    def unit(self) -> int:
        """Elements that a row of whole vectors is a multiple of."""
        return keys.vector_unit(self.graph)

    def fits(self, env: Mapping[str, Any]) -> bool:
        return all(env[k] == v for k, v in self.static.items()) and all(g.holds(env) for g in self.graph.guards)


def may_store(traces: Mapping[Any, Sequence[Traced]]) -> bool:
    """Whether a call might store into an argument, as far as a function's traces tell."""
    return not traces or any(t.graph.effects for kept in traces.values() for t in kept)


SMALL = 8  # elements of a reduction that `passes.unroll` writes out
INDEX_32 = (1 << 31) - (1 << 27)  # kernels count a little past the last element before they stop


def reduced_lengths(graph: Graph) -> tuple[HostExpr, ...]:
    """Products of reduced dims: the lengths that fix reduction orders."""
    found: dict[HostExpr, None] = {}
    for n in graph.nodes:
        if isinstance(n.attrs, ReduceAttrs):
            operand = n.inputs[0].shape
            found[wrap(shapes.numel(operand[a] for a in n.attrs.axes))] = None
    return tuple(found)


def static_dims(graph: Graph, env: Mapping[str, Any], known: Mapping[str, int]) -> Mapping[str, int]:
    """The dims to trace as numbers: `known`, and those over which up to 8 elements are reduced of a value larger than
    any argument. Written out, such a reduction need not be stored (the distances of all pairs of points in space)."""
    largest = max((_count(shapes.evaluate(a.shape, env)) for a in graph.arguments), default=0)
    found = dict(known)
    for n in graph.nodes:
        if isinstance(n.attrs, ReduceAttrs):
            operand = n.inputs[0].shape
            dims = [operand[a] for a in n.attrs.axes]
            symbols = {d.value: int(env[d.value]) for d in dims if isinstance(d, HostExpr) and d.value in env}
            few = symbols and _count(shapes.evaluate(dims, env)) <= SMALL
            if few and _count(shapes.evaluate(operand, env)) > largest:
                found |= symbols
    return found


def classify(bound: Bound, traced: Traced) -> SizeClass:
    """The size class of a call."""
    env = bound.env
    dims = {k: v for k, v in env.items() if k in traced.graph.symbols}
    lengths = tuple(keys.length_bucket(length, env) for length in traced.lengths)
    plain: Layout = "c"
    captured = (plain,) * (len(traced.graph.arguments) - len(bound.infos))
    aligned = all(i.pointer % 16 == 0 for i in bound.infos if i.contiguous)
    biggest = max(((i.extent[1] - i.extent[0]) // i.dtype.bytes for i in bound.infos), default=0)
    wide = biggest >= INDEX_32 or _largest_node(traced.graph, env) >= INDEX_32
    layouts: tuple[Layout, ...] = (*bound.layouts, *captured)
    factors = keys.dim_factors(traced.unit, (a.shape for a in traced.graph.arguments), env)
    factors = tuple((name, factor) for name, factor in factors if name in dims)
    overlap = _overlap(bound, traced)
    return SizeClass(keys.dim_buckets(dims), lengths, layouts, aligned, 64 if wide else 32, factors, overlap)


def _overlap(bound: Bound, traced: Traced) -> bool:
    """Whether arrays of a call share memory while the program writes arguments: then none is written in place."""
    if not traced.graph.effects:
        return False
    return any(overlaps(a, b) for a, b in combinations(bound.infos, 2))


def launch_key(bound: Bound, traced: Traced, captured: Sequence[ArrayInfo]) -> LaunchKey:
    """Exact shapes, strides, alignment and device of a call."""
    arrays = tuple((i.shape, i.strides, i.pointer % 16) for i in (*bound.infos, *captured))
    return LaunchKey(arrays, (bound.family, bound.place, _overlap(bound, traced)))


def _largest_node(graph: Graph, env: Mapping[str, Any]) -> int:
    """Elements of the largest value in the graph."""
    sizes = {n.shape for n in graph.nodes}
    return max((_count(shapes.evaluate(s, env)) for s in sizes), default=0)


def _count(shape: Sequence[int]) -> int:
    total = 1
    for d in shape:
        total *= d
    return total
