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
EMPTY = Program((), ())
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
    """One pass: `loop` runs over parallel and reduced axes, `row` over parallel axes once `loop` is done. across: what
    the loop's values also feed, reductions over the parallel axes."""

    loop: Program
    reduces: tuple[ReduceSite, ...]
    stores: tuple[StoreSite, ...]
    row: Program
    row_stores: tuple[StoreSite, ...]
    across: tuple[ReduceSite, ...] = ()

    @property
    def has_loop(self) -> bool:
        return bool(self.reduces or self.stores or self.across)


@dataclass(frozen=True)
class Body:
    """All stages over collapsed axes. `ranges` knows the extents of all loop variables. column, column_stores: what is
    stored once a point of the reduced axes, when the reductions across are done."""

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    stages: tuple[StageBody, ...]
    column: Program = EMPTY
    column_stores: tuple[StoreSite, ...] = ()

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
        yield self.column

    @property
    def sites(self) -> Iterator[StoreSite]:
        for s in self.stages:
            yield from s.stores
            yield from s.row_stores
        yield from self.column_stores

    @property
    def down(self) -> Body:
        """The same space the other way round: the reductions across as its only stage's, with nothing left to load."""
        across = tuple(site for s in self.stages for site in s.across)
        stage = StageBody(EMPTY, across, (), self.column, self.column_stores)
        return Body(self.reduced, self.parallel, (stage,))


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
    return collapsed(Body(parallel, reduced, stages, *builder.columns(group.column_stores)))


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
        reduces = [self._reduce(loop, r) for r in stage.reducers]
        across = [self._reduce(loop, r) for r in stage.across]
        stores = [self._store(loop, s) for s in stage.stores if not s.per_row]
        row_stores = [self._store(row, s) for s in stage.stores if s.per_row]
        return StageBody(
            self._addressed(loop.program()),
            tuple(reduces),
            tuple(stores),
            self._addressed(row.program()),
            tuple(row_stores),
            tuple(across),
        )

    def columns(self, stores: Sequence[Store]) -> tuple[Program, tuple[StoreSite, ...]]:
        """What is stored once a column, and where."""
        tracer = self._tracer()
        sites = tuple(self._store(tracer, s) for s in stores)
        return self._addressed(tracer.program()), sites

    def _reduce(self, loop: Tracer, r: Reducer) -> ReduceSite:
        operand = self.graph.by_id[r.node].inputs[0]
        return ReduceSite(r.node, loop.want(operand.id, r.index), operand.dtype)

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
    column = tuple(map_site(s, change) for s in body.column_stores)
    return Body(parallel, reduced, stages, body.column.map_indices(change), column)


def map_stage(s: StageBody, change: Callable[[HostExpr], HostExpr]) -> StageBody:
    """The stage with every index expression changed; steps keep their numbers."""
    return replace(
        s,
        loop=s.loop.map_indices(change),
        stores=tuple(map_site(x, change) for x in s.stores),
        row=s.row.map_indices(change),
        row_stores=tuple(map_site(x, change) for x in s.row_stores),
    )


def map_site(x: StoreSite, change: Callable[[HostExpr], HostExpr]) -> StoreSite:
    """A site with its address rewritten."""
    return replace(x, offset=change(x.offset))
