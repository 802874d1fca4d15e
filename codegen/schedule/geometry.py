"""Which thread holds which element of a reduction: rows (inner) and columns (outer) on CUDA.

In: thread and block numbers, a schedule. Out: for a round (the elements of one pass over all lanes) the loop
variables of every lane that a thread holds, and the fold of its lanes over its team. Everything else about reductions
is the same for rows and columns and lives in `lower_reduce.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fuser.codegen.indices import IndexEmitter, TileLane
from fuser.codegen.loops import Operand, Var
from fuser.codegen.schedule.accumulate import Accumulator, Fold, Halves, State, assign
from fuser.codegen.schedule.axes import Axis, count, split
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.exchange import Exchange, near_members
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.regroup import Regroup
from fuser.codegen.scopes import fold_together
from fuser.dtypes import BOOL
from fuser.hostexpr import HostExpr, call, lit, sym
from fuser.proofs import Ranges
from fuser.schedule import CudaSchedule

Tiles = list[tuple[Var, ...]]  # a state for each group of lanes that a thread has
POINT = "point"  # symbol of a linear position in the parallel or reduced space


class Geometry(Protocol):
    """Rows or columns. A thread holds `groups` tiles of `width` lanes a round; `variable` runs along a tile.

    neighbours: lanes of a tile are neighbours along `variable`, lane 0 at a multiple of the width. folds_tile: lanes of
    a tile belong to one reduction (rows), or each to its own (columns). member: this thread's number in its team.
    segment: which of the segments that a team folds at once is this thread's (None: there is one). leader: whether this
    thread stores what is one a parallel point. valid: whether its parallel points exist (None: always). point: number
    of lane 0's parallel point.
    """

    variable: str
    width: int
    groups: int
    folds_tile: bool
    member: Operand
    segment: Operand | None
    leader: Operand
    valid: Operand | None
    point: Operand

    @property
    def neighbours(self) -> bool: ...

    def reserve(self, groups: Sequence[Sequence[Fold]]) -> None:
        """Makes room for folding these sets of reductions, one set at a time."""
        ...

    def positions(self, base: Operand) -> list[Operand]:
        """Reduced position of lane 0 of each tile in the round that starts at `base`."""
        ...

    def lanes(self, position: Operand) -> list[IndexEmitter]:
        """Loop variables of every lane of the tile at a reduced position."""
        ...

    def lane_rows(self) -> list[IndexEmitter]:
        """Parallel variables of every lane whose results differ (one entry for rows)."""
        ...

    def lanes_of(self, fold: Fold) -> int:
        """Lanes of a reduction that a thread keeps apart."""
        ...

    def fold(self, accumulators: Sequence[Accumulator]) -> list[list[State]]:
        """Each accumulator's lanes folded over the team: one state (rows) or one a lane (columns)."""
        ...

    def across_team(self, parts: Sequence[tuple[Fold, list[State]]], width: int) -> list[list[State]]:
        """States of the first `width` members of every team folded, for each result lane of each fold."""
        ...


def bind_axes(
    frame: Frame, ranges: Ranges, axes: Sequence[Axis], position: Operand, extent: HostExpr
) -> dict[str, Operand]:
    """The axes' variables at a row-major position below `extent`."""
    known = Ranges({**ranges.extents, POINT: extent})
    at = frame.indices(known, **{POINT: position})
    values = [at.value(known.simplify(e)) for e in split(sym(POINT), axes)]
    return {a.name: v for a, v in zip(axes, values, strict=True)}


class RowTeams:
    """`threads_per_row` consecutive threads share a row; tiles lie along the innermost reduced axis."""

    folds_tile = True

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule, block: Operand | None = None) -> None:
        """block: which block this counts as (None: its own number in the grid)."""
        self.frame, self.body, self.schedule = frame, body, schedule
        self.team = schedule.threads_per_row
        self.width = schedule.vector
        # blocks that share a segment's lanes: of a cluster, or of the parts of a split (grid y)
        self.split = max(schedule.cluster // schedule.order.segments, 1) * schedule.sharers
        self.groups = schedule.order.lanes // (self.team * self.width * self.split)
        self.variable = body.reduced[-1].name if body.reduced else "r"
        per_block = schedule.threads // self.team
        thread = frame.thread()
        self.member = frame.rem(thread, self.team)
        self.segment: Operand | None = None
        block = frame.block() if block is None else block
        self.rank = frame.rem(block, schedule.cluster)  # which of the blocks that share a row
        block = frame.div(block, schedule.cluster)
        self.number = frame.add(frame.mul(block, per_block), frame.div(thread, self.team))
        self.valid: Operand | None = None
        self.place(per_block)
        self.regroup = Regroup(frame, self.member, self.team, self.groups, schedule.threads, self.joins)

    def place(self, per_block: int) -> None:
        """The team's row is the one of its own number in the grid."""
        f, b, cluster = self.frame, self.frame.builder, self.schedule.cluster
        self.point = self.number
        self.valid = f.less(self.point, f.host(self.body.rows)) if per_block > 1 else None
        self.row = self.at_point(self.point)
        first = self._first()
        alone = b.apply("equal", (self.rank, f.number(0)), BOOL) if cluster > 1 else None
        self.leader = f.both(f.both(first, self.valid), alone)

    def _first(self) -> Operand:
        """Whether this thread is the first of its team."""
        return self.frame.builder.apply("equal", (self.member, self.frame.number(0)), BOOL)

    @staticmethod
    def grid(body: Body, schedule: CudaSchedule) -> HostExpr:
        per_block = schedule.threads // schedule.threads_per_row
        return call("//", body.rows + (per_block - 1), per_block) * schedule.cluster

    def reserve(self, groups: Sequence[Sequence[Fold]]) -> None:
        self.regroup.reserve(groups)

    def positions(self, base: Operand) -> list[Operand]:
        f = self.frame
        first = f.add(base, f.mul(self.member, self.width))
        if self.split > 1:  # the highest bits of the lane number are the block's
            block = f.block_y() if self.schedule.sharers > 1 else self.rank
            first = f.add(first, f.mul(f.rem(block, self.split), self.groups * self.team * self.width))
        return [f.add(first, g * self.team * self.width) for g in range(self.groups)]

    def at_point(self, point: Operand) -> IndexEmitter:
        """The parallel variables of a row by its number."""
        bound = bind_axes(self.frame, self.body.ranges, self.body.parallel, point, self.body.rows)
        return self.frame.indices(self.body.ranges, **bound)

    def lanes(self, position: Operand) -> list[IndexEmitter]:
        return self.tile_at(self.row, position)

    def tile_at(self, row: IndexEmitter, position: Operand) -> list[IndexEmitter]:
        """Loop variables of every lane of the tile at a position in some row."""
        f, reduced = self.frame, self.body.reduced
        if len(reduced) <= 1:
            return self._tile(row, position)
        points = [position] if self.neighbours else [f.add(position, j) for j in range(self.width)]
        found = [bind_axes(f, self.body.ranges, reduced, p, self.body.length) for p in points]
        if self.neighbours:
            return self._tile(row.bound(**found[0]), found[0][self.variable])
        return [row.bound(**b) for b in found]

    def _tile(self, at: IndexEmitter, first: Operand) -> list[IndexEmitter]:
        return [at.in_lane(self.variable, TileLane(first, j, self.width)) for j in range(self.width)]

    @property
    def neighbours(self) -> bool:
        """A tile never crosses an end of the innermost reduced axis."""
        return len(self.body.reduced) <= 1 or self.frame.alignment.divides(self.width, self.body.reduced[-1].extent)

    def lane_rows(self) -> list[IndexEmitter]:
        return [self.row]

    def fold(self, accumulators: Sequence[Accumulator]) -> list[list[State]]:
        """Tiles in the thread, then over the team, then the thread's groups: lane numbers from the low bits up."""
        return self.over_team([a.fold for a in accumulators], [self.tiles(accumulators)])

    def lanes_of(self, fold: Fold) -> int:
        """Lanes of a fold that a thread keeps apart: of one that is joined in the thread, those of a tile."""
        return self.width if self.joins(fold) else self.groups * self.width

    def joins(self, fold: Fold) -> bool:
        """Whether a thread joins all its lanes of a fold as they come. Rows in shared memory have few warps an SM to
        hide a chain of comparisons behind: there the lanes stay apart (argmax of 16,384 f32: 235 us apart, 300 us
        joined on an H200)."""
        return fold.unordered and not self.schedule.parked

    def tiles(self, accumulators: Sequence[Accumulator | Halves]) -> list[Tiles]:
        """Each accumulator's tiles folded in the thread: a state a group, one of all groups where order is free."""
        b, w = self.frame.builder, self.width
        return [[a.folded(b, range(k, k + w)) for k in range(0, self.lanes_of(a.fold), w)] for a in accumulators]

    def over_team(self, folds: Sequence[Fold], turns: Sequence[Sequence[Tiles]]) -> list[list[State]]:
        """For each fold its tiles of some turns folded over the team, then over groups, then over turns.

        The collectives come one after another, so that they share a barrier.
        """
        found = dict[int, list[State]]()
        for some in self.regroup.split(folds):
            parts = [[turn[k] for k in some] for turn in turns]
            found.update(zip(some, self._over_team([folds[k] for k in some], parts), strict=True))
        return [found[k] for k in range(len(folds))]

    def _over_team(self, folds: Sequence[Fold], turns: Sequence[Sequence[Tiles]]) -> list[list[State]]:
        b = self.frame.builder
        if self.regroup.suits(folds):
            regrouped = list[Sequence[Tiles]]()
            for tiles in turns:
                if regrouped:
                    b.barrier()  # the turn before is read
                states = self.regroup.neighbours(list(zip(folds, tiles, strict=True)))
                regrouped.append([[state] for state in states])
            turns = regrouped
        parts = [[state for turn in turns for state in turn[k]] for k in range(len(folds))]
        for fold, states in zip(folds, parts, strict=True):
            if self.joins(fold) and len(states) > 1:
                assign(b, states[0], fold.tree(b, states))
                del states[1:]
            if fold_together(len(states), self.team):
                b.collective(fold.row.name, fold.operand, [v for state in states for v in state], self.team)
                del states[1:]
                continue
            for state in states:
                b.collective(fold.row.name, fold.operand, state, self.team)
        return [[f.widen(f.tree(b, states), b)] for f, states in zip(folds, parts, strict=True)]

    def across_team(self, parts: Sequence[tuple[Fold, list[State]]], width: int) -> list[list[State]]:
        return [[self._one(fold, state, width) for state in states] for fold, states in parts]

    def _one(self, fold: Fold, state: State, width: int) -> State:
        held = fold.declare(self.frame.builder, fold.row.name, state)
        self.frame.builder.collective(fold.row.name, fold.operand, held, width)
        return held


class ColumnTeams:
    """Tiles lie along the innermost parallel axis; the `threads_per_row` members of a team share a column tile.

    A team has the order's lanes, times the segments that it folds at once (members of one segment are neighbours). A
    team of one thread has all lanes itself, a group each.
    """

    folds_tile = False

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        self.frame, self.body, self.schedule = frame, body, schedule
        self.width = schedule.vector
        self.team = schedule.threads_per_row
        self.across = schedule.threads // self.team  # column tiles a block
        f, inner = frame, column_axis(body)
        self.variable = inner.name
        thread = f.thread()
        self.member = f.div(thread, self.across)
        lanes = schedule.order.lanes
        self.groups = lanes if self.team == 1 else 1
        self.lane = f.rem(self.member, lanes)
        self.segment = f.div(self.member, lanes) if self.team > lanes else None
        self.rank = f.rem(f.block(), schedule.cluster)  # which of the blocks that share a column tile
        outer, tile = self.tile_at(f.div(f.block(), schedule.cluster))
        self.first_column = f.mul(f.mul(tile, self.across), self.width)  # of the block
        first = f.mul(f.add(f.mul(tile, self.across), f.rem(thread, self.across)), self.width)
        self.valid: Operand | None = f.less(first, f.host(inner.extent))
        self.point = f.add(f.mul(outer, f.host(inner.extent)), first)
        self.row = self.at(outer, first)
        lead = f.builder.apply("equal", (self.member, f.number(0)), BOOL)
        alone = f.builder.apply("equal", (self.rank, f.number(0)), BOOL) if schedule.cluster > 1 else None
        self.leader = f.both(f.both(lead, self.valid), alone)
        near = near_members(self.across, schedule.cluster) if schedule.parked else 1
        self.exchange = Exchange(frame, f.rem(thread, self.across), self.across, self.team, self.width, near)

    def tile_at(self, number: Operand) -> tuple[Operand, Operand]:
        """(point of the outer axes, tile along the columns) of a column tile by its number."""
        f = self.frame
        if len(self.body.parallel) <= 1:
            return f.number(0), number
        tiles = f.host(column_blocks(self.body, self.schedule))
        return f.div(number, tiles), f.rem(number, tiles)

    def at(self, outer: Operand, column: Operand) -> IndexEmitter:
        """The parallel variables of a column."""
        f, others = self.frame, self.body.parallel[:-1]
        bound = bind_axes(f, self.body.ranges, others, outer, count(others))
        return f.indices(self.body.ranges, **bound, **{self.variable: column})

    @staticmethod
    def grid(body: Body, schedule: CudaSchedule) -> HostExpr:
        return count(body.parallel[:-1]) * column_blocks(body, schedule) * schedule.cluster

    @property
    def neighbours(self) -> bool:
        return True

    def reserve(self, groups: Sequence[Sequence[Fold]]) -> None:
        if self.team > 1:
            self.exchange.reserve(groups)

    def positions(self, base: Operand) -> list[Operand]:
        first = base if self.team == 1 else self.frame.add(base, self.lane)
        return [self.frame.add(first, g) for g in range(self.groups)]

    def lanes_of(self, fold: Fold) -> int:
        return self.width if fold.unordered else self.groups * self.width

    def lanes(self, position: Operand) -> list[IndexEmitter]:
        found = bind_axes(self.frame, self.body.ranges, self.body.reduced, position, self.body.length)
        return [at.bound(**found) for at in self.lane_rows()]

    def lane_rows(self) -> list[IndexEmitter]:
        first = self.row.bindings[self.variable]
        return [self.row.in_lane(self.variable, TileLane(first, j, self.width)) for j in range(self.width)]

    def fold(self, accumulators: Sequence[Accumulator]) -> list[list[State]]:
        b = self.frame.builder
        parts = [(a.fold, [a.fold.widen(lane, b) for lane in self._columns(a)]) for a in accumulators]
        return self.across_team(parts, self.team)

    def _columns(self, a: Accumulator) -> list[State]:
        """A state a column: the lanes that a thread has of each, folded."""
        if len(a.lanes) == self.width:
            return list(a.lanes)
        return [a.folded(self.frame.builder, range(j, len(a.lanes), self.width)) for j in range(self.width)]

    def across_team(self, parts: Sequence[tuple[Fold, list[State]]], width: int) -> list[list[State]]:
        return [states for _, states in parts] if width == 1 else self.exchange.fold(parts, self.member, width)


def column_axis(body: Body) -> Axis:
    """The parallel axis that neighbouring threads walk along."""
    return body.parallel[-1] if body.parallel else Axis("p", lit(1))


def column_blocks(body: Body, schedule: CudaSchedule) -> HostExpr:
    """Blocks along the innermost parallel axis."""
    span = schedule.threads // schedule.threads_per_row * schedule.vector
    return call("//", column_axis(body).extent + (span - 1), span)
