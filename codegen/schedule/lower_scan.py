"""Scans on CUDA: tiles of a row or column in order, each scanned by all its threads together.

In: the body of a scan group, its schedule. Out: one kernel. The order of every scan: a thread folds its `items`
neighbours in order; the exclusive prefixes of threads come from pairwise folds over the thread's number (rows: warp by
warp; columns: over the lane); what came before the tile is combined in from the left. It depends on the
length's bucket only. Positions count from the end for a reversed scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.evaluate import Lane
from fuser.codegen.expand_collectives import commutes
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import WARP, Kernel, Launch, Operand
from fuser.codegen.schedule.accumulate import State, assign, folds_of
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import ColumnTeams, RowTeams, bind_axes, column_axis
from fuser.codegen.schedule.tile import Tile
from fuser.dtypes import BOOL
from fuser.graph import ScanAttrs
from fuser.hostexpr import HostExpr
from fuser.schedule import CudaSchedule

ITEMS = 4  # neighbours that are folded in order, part of the order of every scan
LINE_BYTES = 128
Item = tuple[IndexEmitter, dict[int, Operand], State]  # loop variables, operand's steps, inclusive prefix in its thread


def lower(frame: Frame, body: Body, schedule: CudaSchedule, columns: bool) -> Kernel:
    """The kernel of a scan group; `columns`: neighbouring threads hold neighbouring columns."""
    writer: RowScan | ColumnScan = (ColumnScan if columns else RowScan)(frame, body, schedule)
    writer.write()
    return frame.builder.finish(Launch((writer.grid, 1), schedule.threads, schedule.min_blocks))


class _Scan:
    """What row and column scans share: evaluating items, prefixes within a thread, storing."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        self.frame, self.body, self.schedule = frame, body, schedule
        (self.stage,) = body.stages
        (self.site,) = self.stage.reduces
        (self.fold,) = folds_of(frame.graph, self.stage.reduces)
        attrs = frame.graph.by_id[self.site.node].attrs
        assert isinstance(attrs, ScanAttrs)
        self.attrs = attrs
        self.operand_steps = self.stage.loop.needed([self.site.step])
        self.run = schedule.unroll  # neighbours that a thread folds in order
        self.identity = self.fold.identity(frame.builder)

    def place(self, row: IndexEmitter, position: Operand) -> IndexEmitter:
        """Loop variables at a position of the scan's own order."""
        f = self.frame
        if self.attrs.reverse:
            position = f.builder.apply("subtract", (f.host(self.body.length - 1), position), f.index)
        bound = bind_axes(f, self.body.ranges, self.body.reduced, position, self.body.length)
        return row.bound(**bound)

    def combine(self, x: State, y: State) -> State:
        return self.fold.combine(self.frame.builder, x, y)

    def select(self, condition: Operand, yes: State, no: State) -> State:
        b = self.frame.builder
        return tuple(b.apply("where", (condition, x, y), x.dtype) for x, y in zip(yes, no, strict=True))

    def items(
        self, lanes: Sequence[IndexEmitter], exists: Sequence[Operand], loads: dict[int, tuple[Operand, ...]]
    ) -> list[Item]:
        """Neighbouring elements of one thread with their prefixes, which begin anew every `run`; what does not exist
        counts as the identity."""
        b, out = self.frame.builder, list[Item]()
        lane = Lane(self.stage.loop, b, self.frame.loader(self.stage.loop, exists[0]))
        for j, at in enumerate(lanes):
            here = at.bound()
            values = lane.run(here, {}, {k: v[j] for k, v in loads.items()}, self.operand_steps)
            lifted = self.fold.lift(b, values[self.site.step], self.frame.number(0))
            state = self.select(exists[j], lifted, self.identity)
            out.append((here, values, self.combine(out[-1][2], state) if j % self.run else state))
        return out

    def finish(
        self, items: Sequence[Item], exists: Sequence[Operand], befores: Sequence[State],
        only: Sequence[bool] | None = None,
    ) -> list[dict[int, Operand]]:  # fmt: skip
        """Every step of each item (of those in `only`), given the fold of all that comes before each run."""
        b, out, previous = self.frame.builder, [], befores[0]
        for j, ((at, values, prefix), here) in enumerate(zip(items, exists, strict=True)):
            before = befores[j // self.run]
            previous = previous if j % self.run else before
            lane = Lane(self.stage.loop, b, self.frame.loader(self.stage.loop, here))
            inclusive = self.combine(before, prefix)
            result = previous if self.attrs.exclusive else inclusive
            out.append(lane.run(at, {(self.site.node, 0): result[0]}, values, only))
            previous = inclusive
        return out

    def _butterfly(self, totals: Sequence[State], width: int, member: Operand) -> tuple[list[State], State]:
        """Exclusive prefixes of this thread's totals and the fold of all, over `width` totals of neighbouring threads,
        pairwise from the low bits."""
        f, b, bit, count = self.frame, self.frame.builder, 1, len(totals)
        prefixes, folds = [self.identity] * count, list(totals)
        while bit < count:  # both of a pair are this thread's
            for j in range(count):
                if j & bit:
                    prefixes[j] = self.combine(folds[j // (2 * bit) * 2], prefixes[j])
            folds = [self.combine(x, y) for x, y in zip(folds[::2], folds[1::2], strict=True)]
            bit *= 2
        (total,) = folds
        symmetric = commutes(self.fold.row, list(total))  # both lanes of a pair then compute the same
        while bit < width:
            other: State = tuple(b.shuffle(v, bit // count) for v in total)
            low_bit = b.apply("bitwise_and", (member, f.number(bit // count)), f.index)
            upper = b.apply("not_equal", (low_bit, f.number(0)), BOOL)
            prefixes = [self.select(upper, self.combine(other, prefix), prefix) for prefix in prefixes]
            both = self.combine(total, other)
            total = both if symmetric else self.select(upper, self.combine(other, total), both)
            bit *= 2
        return prefixes, total


class RowScan(_Scan):
    """A team a row: `vector` items a thread, `unroll` tiles on the way together. A thread that takes several runs of
    `ITEMS` counts as so many threads of the order, the first levels of which it folds by itself."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule, rows: RowTeams | None = None) -> None:
        super().__init__(frame, body, schedule)
        self.rows = rows or RowTeams(frame, body, schedule)
        self.grid: HostExpr = RowTeams.grid(body, schedule)
        self.team, self.width = schedule.threads_per_row, schedule.vector
        self.run = min(self.width, ITEMS)
        self.runs = self.width // self.run  # of a thread
        self.tile_elements = self.team * self.width
        self.span = self.tile_elements * schedule.unroll  # of a round
        self.whole = frame.alignment.divides(self.width, body.length) and not self.attrs.reverse
        self.whole = self.whole and len(body.reduced) <= 1
        self.lanes = WARP // self.runs  # threads that fold 32 runs
        self.warps = schedule.threads // self.lanes
        self.scratch = [
            frame.builder.alloc("totals", t, self.warps * schedule.unroll, "shared") if self.team > self.lanes else ""
            for t in self.fold.dtypes
        ]

    def write(self) -> None:
        f, b = self.frame, self.frame.builder
        carry = self.fold.declare(b, "carry", self.identity)
        rounds = self.schedule.capacity > self.span
        if self.schedule.ahead and not rounds:
            self._ask(None)
        with b.loop("base", f.number(0), f.host(self.body.length), self.span) as base:
            if self.schedule.ahead and rounds:
                self._ask(base)
            tiles = [self._tile(f.add(base, g * self.tile_elements)) for g in range(self.schedule.unroll)]
            groups = [self.items(*tile) for tile in tiles]
            prefixes = self._across(groups)
            for (lanes, exists, _), items, (exclusives, total) in zip(tiles, groups, prefixes, strict=True):
                values = self.finish(items, exists, [self.combine(carry, e) for e in exclusives])
                self._store(lanes, exists, values)
                assign(b, carry, self.combine(carry, total))

    def _ask(self, base: Operand | None) -> None:
        """Asks for what comes `ahead` rows (base: rounds of a row, from this one on) later: memory then has work while
        a block folds, and the loads find it in the L2."""
        f, b, far = self.frame, self.frame.builder, self.schedule.ahead
        n, span = f.host(self.body.length), min(self.span, self.schedule.capacity)
        comes: Operand | None
        if base is None:
            later, first, stop = f.add(self.rows.point, far), f.number(0), n
            comes = f.less(later, f.host(self.body.rows))
            row = self.rows.at_point(b.apply("where", (comes, later, self.rows.point), f.index))  # stays in range
        else:
            row, comes, first = self.rows.row, self.rows.valid, f.add(base, far * span)
            stop = f.least(f.add(first, span), n)
        names, program = {a.name for a in self.body.reduced}, self.stage.loop
        along = (program.fetch(k) for k in program.fetches if not names.isdisjoint(program.symbols(k)))
        for fetch in dict.fromkeys(along):
            line = LINE_BYTES // fetch.dtype.bytes
            for k in range(0, span, line * self.team):
                position = f.add(first, f.add(f.mul(self.rows.member, line), k))
                inside = f.both(f.less(position, stop), comes)
                b.prefetch(f.buffer_of(fetch), self.place(row, position).value(fetch.index[0]), inside)

    def _tile(
        self, base: Operand, wanted: Sequence[bool] | None = None
    ) -> tuple[list[IndexEmitter], list[Operand], dict[int, tuple[Operand, ...]]]:
        """This thread's lanes of the tile at `base`, whether they exist, and their loads (of the `wanted` steps)."""
        f, n = self.frame, self.frame.host(self.body.length)
        first = f.add(base, f.mul(self.rows.member, self.width))
        lanes = [self.place(self.rows.row, f.add(first, j)) for j in range(self.width)]
        ends = [f.less(first if self.whole else f.add(first, j), n) for j in range(self.width)]
        exists = [f.both(e, self.rows.valid) for e in ends]
        return lanes, exists, self._loads(lanes, exists, wanted)

    def _loads(
        self, lanes: Sequence[IndexEmitter], exists: Sequence[Operand], wanted: Sequence[bool] | None
    ) -> dict[int, tuple[Operand, ...]]:
        """All (of the `wanted` steps) that can be loaded before the rest is computed, one operand a lane."""
        names = frozenset(a.name for a in self.body.reduced)
        along = self.body.reduced[-1].name if self.whole and self.body.reduced else None
        tile = Tile(self.frame, self.stage.loop, names, along, self.width)
        loaded = [k for k in tile.loadable if wanted is None or wanted[k]]
        if self.whole:
            return {k: tile.load_step(k, lanes, exists[0]) for k in loaded}
        single = Tile(self.frame, self.stage.loop, names, None, 1)
        return {k: tuple(single.load_step(k, [at], e)[0] for at, e in zip(lanes, exists, strict=True)) for k in loaded}

    def _store(
        self, lanes: Sequence[IndexEmitter], exists: Sequence[Operand], values: list[dict[int, Operand]]
    ) -> None:
        names = frozenset(a.name for a in self.body.reduced)
        if self.whole:
            along = self.body.reduced[-1].name if self.body.reduced else None
            Tile(self.frame, self.stage.loop, names, along, self.width).store(
                self.stage.stores, lanes, values, exists[0]
            )
            return
        for at, mine, e in zip(lanes, values, exists, strict=True):
            Tile(self.frame, self.stage.loop, names, None, 1).store(self.stage.stores, [at], [mine], e)

    # -- over the team -----------------------------------------------------------------------------
    def _across(self, tiles: Sequence[Sequence[Item]]) -> list[tuple[list[State], State]]:
        """For each tile: the fold of what comes before each run of this thread, and of all of the team."""
        totals = [[prefix for _, _, prefix in items[self.run - 1 :: self.run]] for items in tiles]
        inside = [self._butterfly(t, min(self.team * self.runs, WARP), self.rows.member) for t in totals]
        return inside if self.team <= self.lanes else self._over_warps(inside)

    def _over_warps(self, inside: Sequence[tuple[list[State], State]]) -> list[tuple[list[State], State]]:
        """Groups of 32 runs of a team in order: their totals meet in shared memory."""
        f, b = self.frame, self.frame.builder
        thread = f.thread()
        warp, lane = f.div(thread, self.lanes), f.rem(thread, self.lanes)
        with b.branch(b.apply("equal", (lane, f.number(0)), BOOL)):
            for g, (_, total) in enumerate(inside):
                for name, value in zip(self.scratch, total, strict=True):
                    b.store(name, f.add(warp, g * self.warps), value)
        b.barrier()
        per_team = self.team // self.lanes
        mine, first = f.rem(warp, per_team), f.mul(f.div(warp, per_team), per_team)
        out = []
        for g, (prefixes, _) in enumerate(inside):
            before, total = self.identity, self.identity
            for w in range(per_team):
                at = f.add(first, w + g * self.warps)
                part: State = tuple(b.load(name, at) for name in self.scratch)
                earlier = f.less(f.number(w), mine)
                before = self.select(earlier, self.combine(before, part), before)
                total = self.combine(total, part) if w else part
            out.append(([self.combine(before, prefix) for prefix in prefixes], total))
        b.barrier()
        return out


class ColumnScan(_Scan):
    """A team a column tile: `unroll` neighbouring rows a thread, `threads_per_row` threads down the column."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        super().__init__(frame, body, schedule)
        self.columns = ColumnTeams(frame, body, schedule)
        self.grid: HostExpr = ColumnTeams.grid(body, schedule)
        self.team, self.width, self.rows = schedule.threads_per_row, schedule.vector, schedule.unroll
        self.across = schedule.threads // self.team
        columns = self.across * self.width
        alloc = frame.builder.alloc
        dtypes = self.fold.dtypes if self.team > 1 else ()
        self.before = [alloc("before", t, columns * (self.team + 1), "shared") for t in dtypes]
        self.totals = [alloc("totals", t, columns, "shared") for t in dtypes]

    def write(self) -> None:
        f, b = self.frame, self.frame.builder
        carries = [self.fold.declare(b, "carry", self.identity) for _ in range(self.width)]
        rows = self.columns.lane_rows()
        with b.loop("base", f.number(0), f.host(self.body.length), self.team * self.rows) as base:
            self._ask(base)
            first = f.add(base, f.mul(self.columns.member, self.rows))
            places = [f.add(first, i) for i in range(self.rows)]
            exists = [f.both(f.less(p, f.host(self.body.length)), self.columns.valid) for p in places]
            lanes = [[self.place(row, p) for row in rows] for p in places]
            tile = Tile(f, self.stage.loop, frozenset({self.columns.variable}), self.columns.variable, self.width)
            loads = [{k: tile.load_step(k, at, e) for k in tile.loadable} for at, e in zip(lanes, exists, strict=True)]
            columns = [
                self.items([at[c] for at in lanes], exists, {k: tuple(x[k][c] for x in loads) for k in tile.loadable})
                for c in range(self.width)
            ]
            prefixes = self._across([items[-1][2] for items in columns])
            done = []
            for items, carry, (exclusive, total) in zip(columns, carries, prefixes, strict=True):
                done.append(self.finish(items, exists, [self.combine(carry, exclusive)]))
                assign(b, carry, self.combine(carry, total))
            for i, (at, e) in enumerate(zip(lanes, exists, strict=True)):
                tile.store(self.stage.stores, at, [column[i] for column in done], e)

    def _ask(self, base: Operand) -> None:
        """Asks for the tile `ahead` tiles further down: memory then has work while a block folds, and the loads find it
        in the L2."""
        f, b, far, thread = self.frame, self.frame.builder, self.schedule.ahead, self.frame.thread()
        if not far:
            return
        names, program, n = {a.name for a in self.body.reduced}, self.stage.loop, f.host(self.body.length)
        down = (program.fetch(k) for k in program.fetches if not names.isdisjoint(program.symbols(k)))
        span, rows = self.across * self.width, self.team * self.rows  # of a tile
        for fetch in dict.fromkeys(down):
            line = min(LINE_BYTES // fetch.dtype.bytes, span)
            column = f.add(self.columns.first_column, f.mul(f.rem(thread, span // line), line))
            in_width = f.less(column, f.host(column_axis(self.body).extent))
            for k in range(0, rows, self.schedule.threads // (span // line)):
                step = f.add(f.div(thread, span // line), k)
                place = f.add(f.add(base, far * rows), step)
                inside = f.both(f.both(f.less(step, rows), f.less(place, n)), in_width)
                place = b.apply("where", (inside, place, f.number(0)), f.index)  # stays in range
                at = self.place(self.columns.row.bound(**{self.columns.variable: column}), place)
                b.prefetch(f.buffer_of(fetch), at.value(fetch.index[0]), inside)

    def _across(self, totals: Sequence[State]) -> list[tuple[State, State]]:
        """For each column: the fold of the lanes above this one, and of all lanes.

        The lanes' totals cross shared memory, so that the lanes of a column meet in neighbouring threads and fold as
        those of a row do.
        """
        f, b = self.frame, self.frame.builder
        if self.team == 1:
            return [(self.identity, t) for t in totals]
        thread = f.thread()
        column = f.mul(f.rem(thread, self.across), self.width)
        self._put(self.before, [self._at(f.add(column, c), self.columns.member) for c in range(self.width)], totals)
        b.barrier()
        first, lane = f.mul(f.div(thread, self.team), self.width), f.rem(thread, self.team)
        leader = b.apply("equal", (lane, f.number(0)), BOOL)
        for c in range(self.width):
            here = f.add(first, c)
            (exclusive,), total = self._butterfly([self._get(self.before, self._at(here, lane))], self.team, lane)
            self._put(self.before, [self._at(here, lane)], [exclusive])
            self._put(self.totals, [here], [total], leader)
        b.barrier()
        return [
            (self._get(self.before, self._at(at, self.columns.member)), self._get(self.totals, at))
            for at in (f.add(column, c) for c in range(self.width))
        ]

    def _put(
        self, names: Sequence[str], places: Sequence[Operand], states: Sequence[State], mask: Operand | None = None
    ) -> None:
        for at, state in zip(places, states, strict=True):
            for name, value in zip(names, state, strict=True):
                self.frame.builder.store(name, at, value, mask)

    def _get(self, names: Sequence[str], at: Operand) -> State:
        return tuple(self.frame.builder.load(name, at) for name in names)

    def _at(self, column: Operand, member: Operand) -> Operand:
        """Where a lane of a column lies: lanes together, columns one word further apart than their lanes."""
        return self.frame.add(self.frame.mul(column, self.team + 1), member)
