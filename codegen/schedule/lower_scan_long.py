"""Long scans on CUDA: a block a tile, the fold of all tiles before it from a fixed tree of their aggregates.

In: the body of a row scan whose rows are longer than `LONG`, its schedule. Out: one kernel that reads and writes every
element once. Blocks take tiles in the order of a ticket, so whom a block waits for has started. A tile's aggregate is
published at once; a tile with 31 tiles before it in its group of 32 also publishes the group's, and so on up. What
comes before a tile is: whole groups of groups, then whole groups, then tiles, each level folded pairwise over 32 lanes.
So the order depends on the length alone, and no value depends on which block was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser.codegen.loops import Kernel, Launch, Operand, flag_words
from fuser.codegen.schedule.accumulate import State
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_scan import WARP, Item, RowScan
from fuser.dtypes import BOOL, I32, I64
from fuser.hostexpr import HostExpr, call
from fuser.schedule import CudaSchedule

AT_ONCE = 4  # sub-tiles whose loads a thread has on the way together
LONG = 32768  # elements up to which one block scans a row tile by tile


def separable(body: Body) -> bool:
    """Whether what is stored needs of the scanned elements only the scan itself, so that prefixes alone may wait."""
    (stage,) = body.stages
    (site,) = stage.reduces
    later, before = stage.loop.needed([s.step for s in stage.stores]), stage.loop.needed([site.step])
    return not any(x and y for x, y in zip(later, before, strict=True))


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a scan along long rows."""
    writer = LongScan(frame, body, schedule)
    writer.write()
    return frame.builder.finish(Launch((writer.grid, 1), schedule.threads, schedule.min_blocks))


@dataclass(frozen=True)
class Level:
    """Aggregates of 32^k tiles, `count` a row: where their components are published."""

    count: HostExpr
    flags: tuple[str, ...]


class LongScan(RowScan):
    """One tile of `unroll` sub-tiles a block."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        span = schedule.threads_per_row * schedule.vector * schedule.unroll
        self.tiles = call("//", body.length + (span - 1), span)
        grid = body.rows * self.tiles
        b = frame.builder
        self.drawn = b.buffer("drawn", I32, "counter", None, 1)
        number = b.apply("cast", (self._draw(frame, self.drawn, grid),), frame.index)
        self.point, self.tile = frame.div(number, frame.host(self.tiles)), frame.rem(number, frame.host(self.tiles))
        super().__init__(frame, body, schedule, RowTeams(frame, body, schedule, self.point))
        self.grid: HostExpr = grid
        self.span = span
        self.levels = self._levels()
        self.places = self._allocate()

    @staticmethod
    def _draw(frame: Frame, counter: str, grid: HostExpr) -> Operand:
        """The number of a ticket that the whole block shares."""
        b = frame.builder
        shared = b.alloc("number", I32, 1, "shared")
        with b.branch(b.apply("equal", (b.special("thread"), b.literal(0, I32)), BOOL)):
            b.store(shared, 0, b.ticket(counter, 0, b.scalar(grid - 1, I32)))
        b.barrier()
        return b.load(shared, 0)

    def _levels(self) -> list[Level]:
        b, found, reach = self.frame.builder, list[Level](), 1
        while not found or reach < self.schedule.capacity // self.span:
            count = call("//", self.tiles + (reach - 1), reach)
            size = self.body.rows * count
            flags = [b.buffer("aggregates", I64, "flags", None, size * flag_words(t)) for t in self.fold.dtypes]
            found.append(Level(count, tuple(flags)))
            reach *= WARP
        return found

    def write(self) -> None:
        f = self.frame
        base = f.mul(self.tile, self.span)
        subtiles: list[tuple[list[Operand], list[Item]]] = []
        for first in range(0, self.schedule.unroll, AT_ONCE):
            some = range(first, min(first + AT_ONCE, self.schedule.unroll))
            tiles = [self._tile(f.add(base, g * self.tile_elements)) for g in some]
            subtiles += [(exists, self.items(lanes, exists, loads)) for lanes, exists, loads in tiles]
            for g in some:
                self._park(g, subtiles[g][1])
        prefixes = self._across([items[-1][2] for _, items in subtiles])
        total = prefixes[0][1]
        for _, more in prefixes[1:]:
            total = self.combine(total, more)
        before = self._before(total)
        only = self.stage.loop.needed([s.step for s in self.stage.stores])
        for g, ((exists, items), (exclusive, here)) in enumerate(zip(subtiles, prefixes, strict=True)):
            values = self.finish(self._fetched(g, items), self.combine(before, exclusive), only)
            self._store([at for at, _, _ in items], exists, values)
            before = self.combine(before, here)

    # -- prefixes within a thread wait in shared memory, so that more blocks fit while some wait for others ------------
    def _allocate(self) -> list[tuple[str, int]]:
        """An array of [sub-tile, piece, thread, element] for each component of a state, with a piece's elements."""
        if not self.schedule.parked:
            return []
        size = self.schedule.unroll * self.width * self.schedule.threads
        alloc = self.frame.builder.alloc
        return [
            (alloc("prefix", t, size, "shared", dynamic=True), min(16 // t.bytes, self.width)) for t in self.fold.dtypes
        ]

    def _park(self, g: int, items: Sequence[Item]) -> None:
        for k, (name, piece) in enumerate(self.places):
            for j in range(0, self.width, piece):
                values = [prefix[k] for _, _, prefix in items[j : j + piece]]
                self.frame.builder.store_vec(name, self._place(g, j, piece), values)

    def _fetched(self, g: int, items: list[Item]) -> list[Item]:
        if not self.places:
            return items
        parts = [
            [v for j in range(0, self.width, p) for v in self.frame.builder.load_vec(name, self._place(g, j, p), p)]
            for name, p in self.places
        ]
        return [(at, {}, tuple(part[j] for part in parts)) for j, (at, _, _) in enumerate(items)]

    def _place(self, g: int, j: int, piece: int) -> Operand:
        """Where a thread's element `j` of sub-tile `g` waits: neighbours' pieces lie side by side."""
        f = self.frame
        row = (g * (self.width // piece) + j // piece) * self.schedule.threads
        return f.mul(f.add(f.thread(), row), piece)

    # -- other tiles -------------------------------------------------------------------------------
    def _before(self, aggregate: State) -> State:
        """The fold of all tiles of the row before this one, in every thread of the block."""
        f, b = self.frame, self.frame.builder
        thread = f.thread()
        leader = b.apply("equal", (thread, f.number(0)), BOOL)
        at, publisher, parts = self.tile, leader, list[State]()
        for k, level in enumerate(self.levels):
            digit, group = f.rem(at, WARP), f.div(at, WARP)
            self._publish(level, at, aggregate, publisher)
            before, aggregate = self._level(level, digit, group, aggregate, last=k + 1 == len(self.levels))
            parts.append(before)
            publisher = f.both(publisher, b.apply("equal", (digit, f.number(WARP - 1)), BOOL))
            at = group
        found = parts.pop()
        while parts:
            found = self.combine(found, parts.pop())
        shared = [b.alloc("before", t, 1, "shared") for t in self.fold.dtypes]
        for name, value in zip(shared, found, strict=True):
            b.store(name, 0, value, leader)
        b.barrier()
        return tuple(b.load(name, 0) for name in shared)

    def _publish(self, level: Level, at: Operand, aggregate: State, mask: Operand) -> None:
        f = self.frame
        place = f.add(f.mul(self.point, f.host(level.count)), at)
        for flags, value in zip(level.flags, aggregate, strict=True):
            f.builder.publish(flags, place, value, mask)

    def _level(self, level: Level, digit: Operand, group: Operand, own: State, last: bool) -> tuple[State, State]:
        """The fold of those before this one in its group of 32, and of the whole group where this is its last."""
        f, b = self.frame, self.frame.builder
        thread = f.thread()
        lane = f.rem(thread, WARP)
        earlier = f.both(f.less(lane, digit), f.less(thread, WARP))
        place = f.add(f.add(f.mul(self.point, f.host(level.count)), f.mul(group, WARP)), lane)
        dtypes = self.fold.dtypes
        read: State = tuple(b.wait_for(name, place, t, earlier) for name, t in zip(level.flags, dtypes, strict=True))
        others = self.select(earlier, read, self.identity)
        before = self._over_lanes(others)
        if last:
            return before, own
        mine = b.apply("equal", (lane, digit), BOOL)
        return before, self._over_lanes(self.select(mine, own, others))

    def _over_lanes(self, state: State) -> State:
        held = self.fold.declare(self.frame.builder, "level", state)
        self.frame.builder.collective(self.fold.row.name, self.fold.operand, held, WARP)
        return held
