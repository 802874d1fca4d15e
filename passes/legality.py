"""Can these operators be one kernel, and where is everything then? The exact rule, used by the search and by tests.

In: facts of a graph, the cores of a would-be group, which of them must be stored. Out: a `Group` with its space, stages
and store indices, or a `Refusal` with a reason code of `decision.REASONS`. Nothing about profit is decided here.

A group has one index space. With reductions, it is their operand's shape, split into parallel axes (kept) and reduced
ones; all of them must agree. Reducers are placed first; every stored value is then given the index at which it already
is computed on the way, or one that makes it read the same data, or its natural one. The group is legal if each store
covers its array exactly once and every use of a reduction's result is in its own row.

On CUDA a group of row reductions may also reduce the same points down its columns (`margins.py`): what needs those
results is stored once a column, and nothing else of the group may need them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field, replace

from fuser.graph import Graph, Node, OpaqueAttrs, ScanAttrs
from fuser.group import Group, Reducer, Space, Stage, Store
from fuser.hostexpr import HostExpr, lit, wrap
from fuser.passes.facts import Facts, is_reduction
from fuser.passes.margins import MOST_HELD, depends_on, held, margins_of
from fuser.passes.place import Placement, Spot, aligned_spot, full_shape, known_spot, natural_spot, space_of
from fuser.passes.walk import TooMany, Walk, Walker
from fuser.ranges import Extents
from fuser.record import dataclass
from fuser.shapes import numel

# Evaluations of a group's walk: deeper stencil pyramids are recomputed too often to be one kernel.
WALK_BUDGET, WALK_MEMBER = 4096, 4  # in all, and more for each member


@dataclass(frozen=True)
class Refusal:
    """Why a set of operators cannot be one kernel: a reason code, the node at fault, numbers."""

    reason: str
    node: int = -1
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)


def form(
    graph: Graph,
    members: Set[int],
    *,
    stored: Set[int] | None = None,
    facts: Facts | None = None,
    name: str = "",
) -> Group | Refusal:
    """The group that computes `members` (free nodes among them are ignored: they come along as needed).

    stored: members to write to memory; by default those that the caller sees or that another operator needs.
    """
    facts = facts or Facts(graph)
    cores = frozenset(m for m in members if m in facts.core_set)
    keep = frozenset(stored) if stored is not None else needed_outside(facts, cores)
    found = examine(facts, cores, keep)
    return found if isinstance(found, Refusal) else named(found.group, name or describe(facts, found.group))


@dataclass(frozen=True)
class Formed:
    """A legal group (not yet named) and where each of its values is computed."""

    group: Group
    walk: Walk
    extents: Extents


def examine(facts: Facts, cores: Set[int], stored: Set[int]) -> Formed | Refusal:
    """`form` for callers that also want the walk."""
    opaque = [m for m in cores if isinstance(facts.nodes[m].attrs, OpaqueAttrs)]
    if opaque:
        return _library(facts, opaque[0]) if len(cores) == 1 else Refusal("library", opaque[0])
    try:
        return _Former(facts, cores, stored).build()
    except TooMany:
        return Refusal("cost", numbers={"evaluations": _budget(cores)})


def _budget(cores: Set[int]) -> int:
    return WALK_BUDGET + WALK_MEMBER * len(cores)


def needed_outside(facts: Facts, cores: Set[int]) -> frozenset[int]:
    """Members that must be stored: results of the program, and what a core outside reads."""
    return frozenset(m for m in cores if m in facts.anchored or any(r not in cores for r in facts.readers.get(m, ())))


class _Former:
    """Places one group; `build` runs the steps in order."""

    def __init__(self, facts: Facts, cores: Set[int], stored: Set[int]) -> None:
        self.facts, self.cores, self.stored = facts, cores, stored
        order = [facts.nodes[m] for m in sorted(cores, key=facts.rank.__getitem__)]
        self.order = order
        self.reductions = [n for n in order if is_reduction(n)]
        self.scans = [n for n in order if isinstance(n.attrs, ScanAttrs)]
        self.levels: dict[int, int] = {}
        self.across: frozenset[int] = frozenset()

    def build(self) -> Formed | Refusal:
        if self.scans and (len(self.scans) > 1 or self.reductions):
            return Refusal("scan", self.scans[0].id)
        for space in self._spaces():
            if isinstance(space, Refusal):
                return space
            outcome = self._in_space(space)
            if not isinstance(outcome, Refusal):
                return outcome
        return outcome

    def _spaces(self) -> Iterator[Space | Refusal]:
        """The space of the reductions or of the scan; of a pointwise group, one a distinct stored shape."""
        if self.reductions or self.scans:
            yield space_of(self.reductions or self.scans) or self._margins()
            return
        ranked = sorted(
            (self.facts.nodes[s] for s in self.stored),
            key=lambda n: (-len(full_shape(n.shape)), self.facts.digests[n.id]),
        )
        shapes = dict.fromkeys(full_shape(n.shape) for n in ranked)
        for shape in list(shapes)[:3]:
            yield Space(shape)

    def _margins(self) -> Space | Refusal:
        """The space of reductions along rows and down columns, where a device's kernels can have both."""
        found = margins_of(self.reductions) if self.facts.across is not None else None
        if found is None:
            return Refusal("axes", self.reductions[-1].id)
        self.across = found.across
        return found.space

    def _in_space(self, space: Space) -> Formed | Refusal:
        extents = {f"p{k}": d for k, d in enumerate(space.parallel)}
        extents |= {f"r{k}": d for k, d in enumerate(space.reduced)}
        walker = Walker(self.facts, self.cores, extents, _budget(self.cores))
        placement = Placement(self.facts, space, walker, Walk(), self.across)
        reducers = [Reducer(n.id, placement.operand_index(n)) for n in self.reductions]
        walker.walk([(self.facts.nodes[r.node].inputs[0], r.index) for r in reducers], placement.walk)
        folded = [Reducer(n.id, placement.operand_index(n)) for n in self.scans]
        walker.walk([(self.facts.nodes[r.node], r.index) for r in folded], placement.walk)
        spots = self._place_stores(placement)
        if isinstance(spots, Refusal):
            return spots
        at_fault = self._misplaced(placement)
        if at_fault is not None:
            return Refusal("index", at_fault)
        if any(not self._follows(placement, r, spots) for r in folded):
            return Refusal("scan", folded[0].node)
        if self.across and (refusal := self._unfit(placement, spots)):
            return refusal
        return self._assemble(space, placement, reducers, folded, spots)

    def _place_stores(self, placement: Placement) -> dict[int, Spot] | Refusal:
        """A spot for every stored value, the surest first; consumers before producers, which they show the way."""
        left = [self.facts.nodes[s] for s in sorted(self.stored, key=self.facts.rank.__getitem__, reverse=True)]
        spots: dict[int, Spot] = {}
        for attempt in (known_spot, aligned_spot, natural_spot):
            for node in left:
                spot = known_spot(placement, node) or attempt(placement, node)
                if spot is not None:
                    spots[node.id] = spot
            left = [n for n in left if n.id not in spots]
        if left:
            count, rows = wrap(numel(left[0].shape)), placement.space.rows
            fits = count in (rows, rows * placement.space.length)
            return Refusal("index" if self.reductions and fits else "space", left[0].id)
        return spots

    def _misplaced(self, placement: Placement) -> int | None:
        """A reduction whose result is needed anywhere but in its own row."""
        for n in self.reductions:
            home = placement.result_index(n)
            flat: HostExpr | None = None
            for index in placement.walk.inside.get(n.id, ()):
                if index == home:
                    continue
                flat = flat if flat is not None else placement.flat(home, n.shape)
                if placement.flat(index, n.shape) != flat:
                    return n.id
        return None

    def _unfit(self, placement: Placement, spots: Mapping[int, Spot]) -> Refusal | None:
        """What keeps reductions down columns out of the group: something else than a value a column needs one of them,
        or a block cannot hold a row beside what it adds up."""
        later = depends_on(self.facts, self.order, self.across)
        for n in self.reductions:
            if any(r.source in later for r in self.facts.reads[n.id]):
                return Refusal("axes", n.id)
        for k, spot in spots.items():
            if k in later and not spot.per_column:
                return Refusal("axes", k)
        needs = held(self.facts, placement.walk, placement.space, self.across)
        if needs > MOST_HELD:
            return Refusal("width", self.reductions[-1].id, {"needs": needs, "limit": MOST_HELD})
        return None

    def _follows(self, placement: Placement, scan: Reducer, spots: Mapping[int, Spot]) -> bool:
        """Whether a running fold is read only where it is made, and stores walk memory as its operand does."""
        node = self.facts.nodes[scan.node]
        home = placement.flat(scan.index, node.shape)
        read = all(placement.flat(i, node.shape) == home for i in placement.walk.inside[node.id])
        return read and all(placement.flat(s.index, self.facts.nodes[k].shape) == home for k, s in spots.items())

    def _level(self, members: list[Node]) -> None:
        """How many rounds of reductions must be finished before each node can be evaluated."""
        for n in members:
            level = max((self.levels.get(i.id, 0) for i in n.inputs), default=0)
            self.levels[n.id] = level + 1 if is_reduction(n) else level

    def _assemble(
        self,
        space: Space,
        placement: Placement,
        reducers: list[Reducer],
        folded: list[Reducer],
        spots: Mapping[int, Spot],
    ) -> Formed | Refusal:
        nodes = self.facts.nodes
        used = sorted(k for k in placement.walk.inside.keys() | self.cores)
        if self.cores - placement.walk.inside.keys() - {n.id for n in self.reductions} - spots.keys():
            return Refusal("unconnected")
        self._level([nodes[k] for k in used])
        whole_rows = bool(self.scans) and space.length == lit(1)  # a scan stores at every position, if there is but one
        finished: dict[int, tuple[list[Reducer], list[Reducer]]] = {}  # of each round: along rows, across them
        written: dict[int, list[Store]] = {}
        for r in reducers:
            finished.setdefault(self.levels[r.node] - 1, ([], []))[r.node in self.across].append(r)
        for k in sorted(spots):
            spot, level = spots[k], self.levels[k]
            if spot.per_column:
                continue
            stage = max(level - 1, 0) if spot.per_row and self.reductions else level
            per_row = spot.per_row and not whole_rows
            written.setdefault(stage, []).append(Store(k, spot.index, per_row))
        stages = tuple(_stage(finished.get(k, ((), ())), written.get(k, ())) for k in sorted({*finished, *written}))
        columns = tuple(Store(k, spots[k].index, True) for k in sorted(spots) if spots[k].per_column)
        scan = folded[0] if folded else None
        inputs = tuple(sorted(placement.walk.memory))
        group = Group("", tuple(used), inputs, (space,), (stages,), scan=scan, column_stores=columns)
        return Formed(group, placement.walk, placement.walker.extents)


def _stage(finished: tuple[Iterable[Reducer], Iterable[Reducer]], written: Iterable[Store]) -> Stage:
    along, across = finished
    return Stage(tuple(along), tuple(written), tuple(across))


def _library(facts: Facts, opaque: int) -> Formed:
    """A library call, with the views that it takes as they are."""
    operands = tuple(dict.fromkeys(facts.nodes[opaque].inputs))
    views = [i for i in operands if i.op != "input" and i.id not in facts.core_set]
    inputs = tuple(dict.fromkeys(i.inputs[0].id if i in views else i.id for i in operands))
    members = tuple(sorted([*(i.id for i in views), opaque]))
    return Formed(Group("", members, inputs, (), (), library=opaque), Walk(), {})


def describe(facts: Facts, group: Group) -> str:
    """`softmax_rows_max_sum_store`: the program, the kind, the reductions, whether whole rows are stored."""
    if group.parts:
        kinds = {part.kind for part in group.parts}
        return "_".join([facts.graph.name, "batch", *(kinds if len(kinds) == 1 else ())])
    if group.library is not None:
        return f"{facts.graph.name}_{facts.nodes[group.library].op}"
    ops = list(dict.fromkeys(facts.nodes[r].op for r in group.reductions))[:3]
    if group.scan is not None:
        ops = [facts.nodes[group.scan.node].op]
    full = group.reductions and any(not s.per_row for s in group.stores)
    return "_".join([facts.graph.name, group.kind, *ops, *(["store"] if full else [])])


def named(group: Group, name: str) -> Group:
    """The group under a name that is an identifier."""
    return replace(group, name=re.sub(r"\W+", "_", name))
