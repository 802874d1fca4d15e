"""The body of a group: programs, addresses and loop axes of every stage, before any schedule.

In: a group over one space, the layouts of the arguments. Out: a `Body`: collapsed axes, for each stage
the program of its loop and of its per-row stores, with one element offset a load or store. It knows neither threads
nor vectors, so that the schedules of both targets start from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from fuser.codegen.evaluate import Tracer
from fuser.codegen.program import Fetch, Program
from fuser.codegen.schedule.axes import Axis, axes_of, collapse, count
from fuser.dtypes import DType
from fuser.graph import Graph, InputAttrs, Node
from fuser.group import Group, Reducer, Stage, Store
from fuser.hostexpr import Dim, HostExpr, lit, sym
from fuser.indexmap import Index, contiguous_strides, offset
from fuser.keys import Layout, stride_symbol
from fuser.proofs import Ranges
from fuser.record import dataclass

Layouts = Sequence[Layout]  # one an argument of the graph
PassKey = Callable[[Node], object]  # reducers with equal keys may share a loop


@dataclass(frozen=True)
class StoreSite:
    """A value (step of a program) stored as a node's element at `offset`."""

    node: int
    step: int
    offset: HostExpr
    dtype: DType


@dataclass(frozen=True)
class ReduceSite:
    """A reduction node fed by a step of the loop's program; `operand` is the dtype of its elements."""

    node: int
    step: int
    operand: DType


@dataclass(frozen=True)
class StageBody:
    """One pass: `loop` runs over parallel and reduced axes, `row` over parallel axes once `loop` is done."""

    loop: Program
    reduces: tuple[ReduceSite, ...]
    stores: tuple[StoreSite, ...]
    row: Program
    row_stores: tuple[StoreSite, ...]

    @property
    def has_loop(self) -> bool:
        return bool(self.reduces or self.stores)


@dataclass(frozen=True)
class Body:
    """All stages over collapsed axes. `ranges` knows the extents of all loop variables."""

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    stages: tuple[StageBody, ...]

    @cached_property
    def ranges(self) -> Ranges:
        return Ranges({a.name: a.extent for a in (*self.parallel, *self.reduced)})

    @cached_property
    def rows(self) -> HostExpr:
        return count(self.parallel)

    @cached_property
    def length(self) -> HostExpr:
        return count(self.reduced)

    @property
    def programs(self) -> Iterator[Program]:
        for s in self.stages:
            yield s.loop
            yield s.row

    @property
    def sites(self) -> Iterator[StoreSite]:
        for s in self.stages:
            yield from s.stores
            yield from s.row_stores


def strides(graph: Graph, node: int, layouts: Layouts) -> tuple[Dim, ...]:
    """Strides of a node's memory in elements: symbols for a strided argument, C order for all else."""
    n = graph.by_id[node]
    if isinstance(n.attrs, InputAttrs) and layouts[n.attrs.position] == "s":
        return tuple(sym(stride_symbol(n.attrs.position, k)) for k in range(n.rank))
    return contiguous_strides(n.shape)


def analyse(graph: Graph, group: Group, layouts: Layouts, pass_key: PassKey | None = None, space: int = 0) -> Body:
    """The body of one space of a group. `pass_key` splits a stage whose reducers cannot share a loop."""
    s = group.spaces[space]
    parallel, reduced = axes_of("p", s.parallel), axes_of("r", s.reduced)
    builder = _BodyBuilder(graph, group, layouts, Ranges({a.name: a.extent for a in (*parallel, *reduced)}))
    stages = tuple(builder.stage(part) for stage in group.stages[space] for part in _passes(graph, stage, pass_key))
    return collapsed(Body(parallel, reduced, stages))


def analyse_scan(graph: Graph, group: Group, layouts: Layouts) -> Body:
    """The body of a scan group: the scan's operand is its only "reduction"."""
    assert group.scan is not None
    ((stage,),) = group.stages
    return analyse(graph, replace(group, stages=((replace(stage, reducers=(group.scan,)),),)), layouts)


def _passes(graph: Graph, stage: Stage, key: PassKey | None) -> tuple[Stage, ...]:
    """The stage as one pass a key of its reducers; loop stores go with the first, per-row stores with the last."""
    groups: dict[object, list[Reducer]] = {}
    for r in stage.reducers:
        groups.setdefault(key(graph.by_id[r.node]) if key else None, []).append(r)
    if len(groups) <= 1:
        return (stage,)
    parts = [Stage(tuple(rs)) for rs in groups.values()]
    parts[0] = replace(parts[0], stores=tuple(s for s in stage.stores if not s.per_row))
    parts[-1] = replace(parts[-1], stores=(*parts[-1].stores, *(s for s in stage.stores if s.per_row)))
    return tuple(parts)


class _BodyBuilder:
    """Traces stages; every index becomes one element offset."""

    def __init__(self, graph: Graph, group: Group, layouts: Layouts, ranges: Ranges) -> None:
        self.graph, self.group, self.layouts, self.ranges = graph, group, layouts, ranges
        self.in_place = dict(group.in_place)

    def stage(self, stage: Stage) -> StageBody:
        loop, row = self._tracer(), self._tracer()
        reduces = []
        for r in stage.reducers:
            operand = self.graph.by_id[r.node].inputs[0]
            reduces.append(ReduceSite(r.node, loop.want(operand.id, r.index), operand.dtype))
        stores = [self._store(loop, s) for s in stage.stores if not s.per_row]
        row_stores = [self._store(row, s) for s in stage.stores if s.per_row]
        return StageBody(
            self._addressed(loop.program()),
            tuple(reduces),
            tuple(stores),
            self._addressed(row.program()),
            tuple(row_stores),
        )

    def _tracer(self) -> Tracer:
        return Tracer(self.graph, self.group, self.ranges)

    def _store(self, tracer: Tracer, s: Store) -> StoreSite:
        node = self.graph.by_id[s.node]
        step = tracer.want(s.node, s.index, stored=True)
        position = self.in_place.get(s.node)
        target = s.node if position is None else self._argument(position)
        at = self.ranges.simplify(self._offset(target, s.index) if target is not None else lit(0))
        return StoreSite(s.node, step, at, node.storage)

    def _argument(self, position: int) -> int:
        """The input node of an argument that is stored in place; one that nobody reads is laid out like its value."""
        node = self.graph.inputs.get(position)
        return node.id if node is not None else next(n for n, p in self.in_place.items() if p == position)

    def _offset(self, node: int, index: Index) -> HostExpr:
        return offset(index, strides(self.graph, node, self.layouts))

    def _addressed(self, program: Program) -> Program:
        """Every load's index replaced by its element offset."""
        steps = tuple(
            replace(s, index=(self.ranges.simplify(self._offset(s.node, s.index)),)) if isinstance(s, Fetch) else s
            for s in program.steps
        )
        return replace(program, steps=steps)


def collapsed(body: Body) -> Body:
    """The body over merged axes, parallel and reduced ones apart."""
    expressions = [e for p in body.programs for e in p.expressions()]
    expressions += [e for p in body.programs for k in p.fetches for e in p.fetch(k).index]
    expressions += [s.offset for s in body.sites]
    parallel, first = collapse(body.parallel, expressions)
    reduced, second = collapse(body.reduced, expressions)
    merged = {**first, **second}
    if not merged:
        return body
    ranges = Ranges({a.name: a.extent for a in (*parallel, *reduced)})

    def change(e: HostExpr) -> HostExpr:
        return ranges.simplify(e.substitute(merged))

    stages = tuple(map_stage(s, change) for s in body.stages)
    return Body(parallel, reduced, stages)


def map_stage(s: StageBody, change: Callable[[HostExpr], HostExpr]) -> StageBody:
    """The stage with every index expression changed; steps keep their numbers."""

    def site(x: StoreSite) -> StoreSite:
        return replace(x, offset=change(x.offset))

    return StageBody(
        s.loop.map_indices(change),
        s.reduces,
        tuple(map(site, s.stores)),
        s.row.map_indices(change),
        tuple(map(site, s.row_stores)),
    )
