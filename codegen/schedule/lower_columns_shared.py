"""Tall columns in shared memory on CUDA: what several stages read of a tile of columns waits there.

In: a body of several stages down columns, a column schedule that says `parked`. Out: one kernel that reads the columns
once. A cluster of blocks shares a tile of columns, each block the rows of some segments of the order; their partials
meet in the shared memory of all, folded in rank order, which is the order of segments. Whole vectors arrive by
asynchronous copies, all under way from the start. A thread reads back only what it parked itself, so no barrier is
needed for that. Needs sm_90 where a cluster has more than one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import ClusterWait, Kernel, Launch, Operand, Receive
from fuser.codegen.program import Fetch
from fuser.codegen.schedule.accumulate import Fold, State
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.exchange import FEW_BLOCKS
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import ColumnTeams, bind_axes, column_axis
from fuser.codegen.schedule.lower_cluster import Exchange, as_dtype, mailed, open_exchanges
from fuser.codegen.schedule.lower_reduce import Pass, Stages, Totals
from fuser.codegen.schedule.lower_resident import LINE_BYTES
from fuser.codegen.schedule.parking import LEAST_COPY
from fuser.codegen.schedule.ring import MOST_COPY
from fuser.codegen.schedule.tile import Loads, Tile
from fuser.dtypes import I32
from fuser.proofs import GATHERED
from fuser.record import dataclass
from fuser.schedule import CudaSchedule


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of column reductions whose columns wait in shared memory."""
    span = schedule.threads // schedule.threads_per_row * schedule.vector
    exchanges = open_exchanges(frame, body, schedule.cluster, span)
    writer = ParkedColumns(frame, body, schedule, ColumnTeams(frame, body, schedule), exchanges)
    for stage in body.stages:
        writer.stage(stage)
    launch = Launch((ColumnTeams.grid(body, schedule), 1), schedule.threads, schedule.min_blocks)
    return frame.builder.finish(Launch(launch.grid, launch.block, launch.min_blocks, cluster=schedule.cluster))


def parked_loads(body: Body) -> tuple[Fetch, ...]:
    """The loads of the first stage that a later one makes again: each element of a column that it walks down."""
    first, *later = [_walking(body, stage) for stage in body.stages]
    return tuple(f for f in first if any(f in found for found in later))


def copied(body: Body, alignment: Alignment, width: int) -> bool:
    """Whether asynchronous copies can make all of them: they are elements or whole vectors of at least 4 bytes."""
    inner, loads = column_axis(body).name, parked_loads(body)
    whole = all(width == 1 or alignment.whole(width, f.index[0], inner) for f in loads)
    return whole and all(width * f.dtype.bytes >= LEAST_COPY for f in loads)


def whole_copy(body: Body, alignment: Alignment, width: int) -> int:
    """Elements of a 16-byte copy where a thread's own of a row are fewer bytes and all loads can be made that way; else
    0."""
    inner, loads = column_axis(body), parked_loads(body)
    (whole, *others) = {MOST_COPY // f.dtype.bytes for f in loads} or {0}
    fits = not others and whole > width and alignment.divides(whole, inner.extent)
    return whole if fits and all(alignment.whole(whole, f.index[0], inner.name) for f in loads) else 0


def _walking(body: Body, stage: StageBody) -> tuple[Fetch, ...]:
    """Loads whose addresses follow the column and walk along it, at every point."""
    program, found = stage.loop, list[Fetch]()
    reduced, inner = {a.name for a in body.reduced}, column_axis(body).name
    for k in program.fetches:
        names = program.symbols(k)
        walks = inner in names and not names.isdisjoint(reduced) and not any(n.startswith(GATHERED) for n in names)
        if walks and not program.fetch(k).mask:
            found.append(program.fetch(k))
    return tuple(dict.fromkeys(found))


class ParkedColumns(Stages):
    """Stages of which each block of a cluster does its own segments."""

    def __init__(
        self,
        frame: Frame,
        body: Body,
        schedule: CudaSchedule,
        geometry: ColumnTeams,
        exchanges: Mapping[int, Exchange],
    ) -> None:
        super().__init__(frame, body, schedule, geometry)
        self.exchanges, self.current = exchanges, 0
        self.columns, self.size = geometry, schedule.cluster
        self.turns = self.segments // (self.at_once * self.size)
        self.tile_width = geometry.across * geometry.width
        places = schedule.capacity // self.size * self.tile_width
        self.places = {f: frame.builder.alloc("rows", f.dtype, places, "shared", True) for f in parked_loads(body)}
        self.filled = schedule.copies
        self.started = schedule.cluster == 1
        self.x = frame.mul(frame.rem(frame.thread(), geometry.across), geometry.width)
        self.first_turn = frame.mul(geometry.rank, self.turns)
        share = frame.host(schedule.order.share(body.length))
        self.first_row = frame.mul(frame.mul(self.first_turn, self.at_once), share)
        if schedule.copies:
            self._copy()
        else:
            self._prefetch()

    def _prefetch(self) -> None:
        """Asks for the block's rows of a tile of columns that comes `ahead` tiles later: memory then has work while
        blocks compute or wait for each other, and a tile's copies find it in the L2."""
        f, b, far = self.frame, self.frame.builder, self.schedule.ahead
        if not far:
            return
        later = f.add(f.div(f.block(), self.size), far)
        comes = f.less(later, f.host(ColumnTeams.grid(self.body, self.schedule) // self.size))
        tile = b.apply("where", (comes, later, f.number(0)), f.index)  # addresses stay in range
        for fetch in self.places:
            line = min(LINE_BYTES // fetch.dtype.bytes, self.tile_width)
            for at, inside in self._pieces(tile, line):
                b.prefetch(f.buffer_of(fetch), at.value(fetch.index[0]), f.both(comes, inside))

    def _pieces(self, tile: Operand, width: int) -> Iterator[tuple[IndexEmitter, Operand]]:
        """This thread's pieces of a tile, so many elements of a row each, and whether they exist: neighbouring threads
        have neighbouring ones, of a row and then of the next."""
        f, g, across = self.frame, self.columns, self.tile_width // width
        share = self.schedule.order.share(self.body.length) * (self.turns * self.at_once)
        stop = f.least(f.add(self.first_row, f.host(share)), f.host(self.body.length))
        outer, number = g.tile_at(tile)
        column = f.add(f.mul(number, self.tile_width), f.mul(f.rem(f.thread(), across), width))
        inside, at = f.less(column, f.host(column_axis(self.body).extent)), g.at(outer, column)
        first = f.add(self.first_row, f.div(f.thread(), across))
        for k in range(0, self.schedule.capacity // self.size, self.schedule.threads // across):
            row = f.add(first, k)
            found = bind_axes(f, self.body.ranges, self.body.reduced, row, self.body.length)
            yield at.bound(**found), f.both(f.less(row, stop), inside)

    def _copy(self) -> None:
        """All rows of the block, on the way together: a thread's own elements, or where these are fewer than 16 bytes,
        16 bytes whoever reads them, so that the block then meets."""
        b, width = self.frame.builder, whole_copy(self.body, self.frame.alignment, self.columns.width)
        if width:
            self._copy_pieces(width)
        else:
            self._copy_own()
        b.commit()
        self._prefetch()
        b.await_copies(0)
        if width:
            b.barrier()

    def _copy_pieces(self, width: int) -> None:
        """16 bytes a thread, whoever reads them (one H200: columns of 512 bf16 75 -> 85% of a copy, of the middle axis
        79 -> 94)."""
        f, b = self.frame, self.frame.builder
        tile, place = f.div(f.block(), self.size), f.mul(f.thread(), width)
        for k, (at, exists) in enumerate(self._pieces(tile, width)):
            target = f.add(place, k * self.schedule.threads * width)
            for fetch, name in self.places.items():
                source = at.value(fetch.index[0])
                b.copy(name, target, f.buffer_of(fetch), source, width, exists, predicated=True)

    def _copy_own(self) -> None:
        """Under branches where a few blocks share a tile (one H200, four of them for 2048 rows: 80% of a copy, 77
        without; one block or sixteen: no difference, or a gain)."""
        f, b, g, predicated = self.frame, self.frame.builder, self.columns, self.size == 1 or self.size > FEW_BLOCKS
        with b.loop("turn", f.number(0), self.turns) as turn:
            first, stop = self.bounds(f.add(self.first_turn, turn))
            start = f.add(first, g.lane)
            place = self._place(start)
            for k in range(0, self.schedule.capacity // self.segments, self.lanes):
                row = f.add(start, k)
                exists, at = f.both(f.less(row, stop), g.valid), g.lanes(row)[0]
                for fetch, name in self.places.items():
                    source, target = at.value(fetch.index[0]), f.add(place, k * self.tile_width)
                    b.copy(name, target, f.buffer_of(fetch), source, g.width, exists, predicated=predicated)

    def stage(self, stage: StageBody) -> None:
        super().stage(stage)
        self.filled = self.filled or stage.has_loop
        self.current += 1

    def totals(self, p: Pass, folds: Sequence[Fold]) -> Totals:
        if not folds or self.size == 1 or self.turns > 1:
            return self._across(self.turns_in_order(p, folds, self.first_turn, self.turns))
        accumulators = self.accumulated(p, folds, *self.bounds(self.first_turn))
        parts = [(a.fold, [a.fold.widen(lane, self.frame.builder) for lane in a.lanes]) for a in accumulators]
        states = self.columns.exchange.fold(parts, self.columns.member, self.columns.team, self._far(folds))
        return [(fold, found) for (fold, _), found in zip(parts, states, strict=True)]

    def load(self, tile: Tile, position: Operand, lanes: Sequence[IndexEmitter]) -> Loads:
        """All loads of a tile; those of parked elements from their places, once they have been loaded."""
        b, width, at = self.frame.builder, self.columns.width, self._place(position)
        steps = {k: self.places[x] for k in tile.loadable if (x := tile.program.fetch(k)) in self.places}
        if self.filled:
            return tile.load(lanes, {k: b.load_vec(name, at, width) for k, name in steps.items()})
        loads = tile.load(lanes)
        for k, name in steps.items():
            b.store_vec(name, at, loads[k])
        return loads

    def _place(self, position: Operand) -> Operand:
        """Where the thread's elements of a row lie: rows side by side."""
        f = self.frame
        row = f.builder.apply("subtract", (position, self.first_row), f.index)
        return f.add(f.mul(row, self.tile_width), self.x)

    # -- over the cluster --------------------------------------------------------------------------
    def _across(self, totals: Totals) -> Totals:
        """The partials of all blocks folded, where a block folds several turns first."""
        if not totals or self.size == 1:
            return totals
        far = self._far([fold for fold, _ in totals])
        states = self.columns.exchange.fold(totals, self.columns.member, 1, far)
        return [(fold, found) for (fold, _), found in zip(totals, states, strict=True)]

    def _far(self, folds: Sequence[Fold]) -> Blocks:
        """The meeting of a stage. It has scratch of its own: no block ever waits for another to have read it."""
        if not self.started:
            self.frame.builder.emit(ClusterWait())
            self.started = True
        return Blocks(self.frame, self.exchanges[self.current], folds, self.columns, self.size)


@dataclass(frozen=True)
class Blocks:
    """The blocks of a cluster, which share a tile of columns: `Far` of an exchange."""

    frame: Frame
    mail: Exchange
    folds: Sequence[Fold]
    columns: ColumnTeams
    size: int

    def send(self, part: int, lane: Operand, total: State) -> None:
        b, at = self.frame.builder, self._place(self.columns.rank, lane)
        for rank in range(self.size):
            for name, value in zip(self.mail.places[part], total, strict=True):
                b.send(name, at, as_dtype(b, value, mailed(value.dtype)), b.literal(rank, I32), self.mail.box)

    def receive(self) -> None:
        self.frame.builder.emit(Receive(self.mail.box))

    def folded(self, part: int, lane: Operand) -> State:
        b, fold, names = self.frame.builder, self.folds[part], self.mail.places[part]
        at = [self._place(self.frame.number(rank), lane) for rank in range(self.size)]
        parts = [[b.load(name, place) for name in names] for place in at]
        return fold.tree(b, [tuple(map(partial(as_dtype, b), part, fold.dtypes)) for part in parts])

    def _place(self, rank: Operand, lane: Operand) -> Operand:
        """Where a block's partial of a lane of this column thread lies."""
        f, across, width = self.frame, self.columns.across, self.columns.width
        column = f.mul(f.rem(f.thread(), across), width)
        return f.add(f.add(f.mul(rank, across * width), column), lane)
