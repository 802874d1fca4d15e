"""Long scans on CUDA: tile by tile, the fold of all tiles before one from a fixed tree of their aggregates.

In: the body of a row scan whose rows are longer than `LONG`, its schedule. Out: one kernel that reads and writes every
element once, with a block a tile; `lower_scan_turns` has the one whose blocks take tiles in turn. Tiles are taken in
the order of a ticket, so whom a block waits for has started. A tile's aggregate is published at once; a tile with 31
tiles before it in its group of 32 also publishes the group's, and so on up. What comes before a tile is: whole groups
of groups, then whole groups, then tiles, each level folded pairwise over 32 lanes. So the order depends on the length
alone, and no value depends on which block was faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.loops import WARP, Kernel, Launch, Operand
from fuser.codegen.schedule.accumulate import State
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_scan import Item, RowScan
from fuser.codegen.storage import flag_words
from fuser.dtypes import BOOL, I32, I64
from fuser.hostexpr import HostExpr, call
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

AT_ONCE = 4  # sub-tiles whose loads a thread has on the way together
LONG = 32768  # elements up to which one block scans a row tile by tile


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
        self.span = schedule.threads_per_row * schedule.vector * schedule.unroll
        self.tiles = call("//", body.length + (self.span - 1), self.span)
        self.all_tiles: HostExpr = body.rows * self.tiles
        b = frame.builder
        self.drawn = b.buffer("drawn", I32, "counter", None, 1)
        self.number = b.alloc("number", I32, 1, "shared")
        self.leader = b.apply("equal", (frame.thread(), frame.number(0)), BOOL)
        self.point, self.tile = frame.number(0), frame.number(0)
        super().__init__(frame, body, schedule, self._begin(frame, body, schedule))
        self.grid = self._blocks()
        self.levels = self._levels()
        self.places = self._allocate()

    def _begin(self, frame: Frame, body: Body, schedule: CudaSchedule) -> RowTeams:
        """The geometry of the tile that the block's first ticket says."""
        return self._enter(frame, body, schedule, self._draw(frame, self.all_tiles))

    def _blocks(self) -> HostExpr:
        return self.all_tiles

    def _enter(self, frame: Frame, body: Body, schedule: CudaSchedule, number: Operand) -> RowTeams:
        """The geometry of tile `number` of all rows, which becomes the current one."""
        tiles = frame.host(self.tiles)
        self.point, self.tile = frame.div(number, tiles), frame.rem(number, tiles)
        return RowTeams(frame, body, schedule, self.point)

    def _draw(self, frame: Frame, tickets: HostExpr) -> Operand:
        """The number of a ticket that the whole block shares; `tickets` are taken in all."""
        b = frame.builder
        with b.branch(b.apply("equal", (b.special("thread"), b.literal(0, I32)), BOOL)):
            b.store(self.number, 0, b.ticket(self.drawn, 0, b.scalar(tickets - 1, I32), ordered=False))
        b.barrier()
        return b.apply("cast", (b.load(self.number, 0),), frame.index)

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
        subtiles = self._subtiles()
        prefixes = self._across([items for _, items in subtiles])
        self._announce([total for _, total in prefixes])
        before = self._before()
        only = self.stage.loop.needed([s.step for s in self.stage.stores])
        for g, ((exists, items), (exclusives, here)) in enumerate(zip(subtiles, prefixes, strict=True)):
            befores = [self.combine(before, exclusive) for exclusive in exclusives]
            values = self.finish(self._fetched(g, items, exists, only), exists, befores, only)
            self._store([at for at, _, _ in items], exists, values)
            before = self.combine(before, here)

    def _subtiles(self) -> list[tuple[list[Operand], list[Item]]]:
        """The items of all sub-tiles, `AT_ONCE` of them loaded together."""
        f, out = self.frame, list[tuple[list[Operand], list[Item]]]()
        base = f.mul(self.tile, self.span)
        for first in range(0, self.schedule.unroll, AT_ONCE):
            some = range(first, min(first + AT_ONCE, self.schedule.unroll))
            tiles = [self._tile(f.add(base, g * self.tile_elements), self.operand_steps) for g in some]
            out += [(exists, self.items(lanes, exists, loads)) for lanes, exists, loads in tiles]
            for g in some:
                self._park(g, out[g][1])
        return out

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

    def _fetched(self, g: int, items: list[Item], exists: Sequence[Operand], only: Sequence[bool]) -> list[Item]:
        """The items with their prefixes, and with what the stores need besides: loaded now, again where the fold
        needed it too, which finds it in the L2."""
        known = self.operand_steps if not self.places else [False] * len(only)
        missing = [later and not before for later, before in zip(only, known, strict=True)]
        loads = self._loads([at for at, _, _ in items], exists, missing)
        late = [{k: v[j] for k, v in loads.items()} for j in range(len(items))]
        if not self.places:
            return [(at, {**values, **mine}, p) for (at, values, p), mine in zip(items, late, strict=True)]
        parts = [
            [v for j in range(0, self.width, p) for v in self.frame.builder.load_vec(name, self._place(g, j, p), p)]
            for name, p in self.places
        ]
        return [
            (at, mine, tuple(part[j] for part in parts))
            for j, ((at, _, _), mine) in enumerate(zip(items, late, strict=True))
        ]

    def _place(self, g: int, j: int, piece: int) -> Operand:
        """Where a thread's element `j` of sub-tile `g` waits: neighbours' pieces lie side by side."""
        f = self.frame
        row = (g * (self.width // piece) + j // piece) * self.schedule.threads
        return f.mul(f.add(f.thread(), row), piece)

    # -- other tiles -------------------------------------------------------------------------------
    def _announce(self, totals: Sequence[State]) -> None:
        """Publishes the aggregate of the sub-tiles' totals, and those of the groups that the tile is the last of."""
        f, b = self.frame, self.frame.builder
        aggregate, *more = totals
        for total in more:
            aggregate = self.combine(aggregate, total)
        at, publisher, last = self.tile, self.leader, f.less(f.thread(), WARP)
        for k, level in enumerate(self.levels):
            digit, group = f.rem(at, WARP), f.div(at, WARP)
            self._publish(level, at, aggregate, publisher)
            if k + 1 == len(self.levels):
                break
            ends = b.apply("equal", (digit, f.number(WARP - 1)), BOOL)
            last, publisher = f.both(last, ends), f.both(publisher, ends)
            lane = f.rem(f.thread(), WARP)
            others = self._read(level, group, f.both(last, f.less(lane, WARP - 1)))
            mine = b.apply("equal", (lane, f.number(WARP - 1)), BOOL)
            aggregate = self._over_lanes(self.select(mine, aggregate, others))
            at = group

    def _before(self) -> State:
        """The fold of all tiles of the row before this one, in every thread of the block: a warp a level, so that no
        level waits for another."""
        f, b, at = self.frame, self.frame.builder, self.tile
        warp, lane, mine = f.div(f.thread(), WARP), f.rem(f.thread(), WARP), self.identity
        shared = [[b.alloc("before", t, 1, "shared") for t in self.fold.dtypes] for _ in self.levels]
        here = [b.apply("equal", (warp, f.number(k)), BOOL) for k in range(len(self.levels))]
        for level, its in zip(self.levels, here, strict=True):
            earlier = f.both(f.less(lane, f.rem(at, WARP)), its)
            mine = self.select(earlier, self._read(level, f.div(at, WARP), earlier), mine)
            at = f.div(at, WARP)
        folded = self._over_lanes(mine)
        first = b.apply("equal", (lane, f.number(0)), BOOL)
        for names, its in zip(shared, here, strict=True):
            for name, value in zip(names, folded, strict=True):
                b.store(name, 0, value, f.both(its, first))
        b.barrier()
        parts: list[State] = [tuple(b.load(name, 0) for name in names) for names in shared]
        found = parts.pop()
        while parts:
            found = self.combine(found, parts.pop())
        return found

    def _publish(self, level: Level, at: Operand, aggregate: State, mask: Operand) -> None:
        f = self.frame
        place = f.add(f.mul(self.point, f.host(level.count)), at)
        for flags, value in zip(level.flags, aggregate, strict=True):
            f.builder.publish(flags, place, value, mask)

    def _read(self, level: Level, group: Operand, mask: Operand) -> State:
        """What each lane's member of a group of 32 published, where `mask` holds; else the identity."""
        f, b = self.frame, self.frame.builder
        place = f.add(f.add(f.mul(self.point, f.host(level.count)), f.mul(group, WARP)), f.rem(f.thread(), WARP))
        pairs = zip(level.flags, self.fold.dtypes, strict=True)
        return self.select(mask, tuple(b.wait_for(name, place, t, mask) for name, t in pairs), self.identity)

    def _over_lanes(self, state: State) -> State:
        held = self.fold.declare(self.frame.builder, "level", state)
        self.frame.builder.collective(self.fold.row.name, self.fold.operand, held, WARP)
        return held
