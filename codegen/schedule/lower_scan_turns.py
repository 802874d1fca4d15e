"""Long scans on CUDA whose blocks take tiles in turn, so that memory is never idle while a block waits for others.

In: as `lower_scan_long`, a schedule with `workers`. Out: one kernel of at most so many blocks. A block has two tiles in
shared memory: it loads the next one and publishes its aggregate, and only then asks for the fold of what comes before
the one that it has had all the while, which by then is there. (Had it asked first, each tile would be published later
than those before it by a wait, and the waits would add up.) The order is that of a block a tile, to the bit.

Nobody waits in vain: a tile is published without waiting for any later one, and the holder of the earliest tile that is
not published yet runs.
"""

from __future__ import annotations

from fuser.codegen.loops import Kernel, Launch, Operand, Var
from fuser.codegen.schedule.accumulate import assign
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_scan_long import LongScan
from fuser.dtypes import BOOL
from fuser.hostexpr import HostExpr, call
from fuser.schedule import CudaSchedule

Held = list[tuple[Var, ...]]  # of each sub-tile: the fold before this thread's part


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a scan along long rows by `schedule.workers` blocks."""
    writer = TurnsScan(frame, body, schedule)
    writer.write()
    return frame.builder.finish(Launch((writer.grid, 1), schedule.threads, schedule.min_blocks))


class TurnsScan(LongScan):
    """See the module's docstring. half: which half of the shared arrays a tile is in."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        super().__init__(frame, body, schedule)
        self.half: Operand = frame.number(0)
        alloc = frame.builder.alloc
        self.sums = [alloc("sums", t, 2 * schedule.unroll, "shared") for t in self.fold.dtypes]
        self.later = self.stage.loop.needed([s.step for s in self.stage.stores])

    def _begin(self, frame: Frame, body: Body, schedule: CudaSchedule) -> RowTeams:
        return self._enter(frame, body, schedule, frame.number(0))

    def _blocks(self) -> HostExpr:
        return call("min", self.all_tiles, self.schedule.workers)

    def write(self) -> None:
        f, b = self.frame, self.frame.builder
        total = f.host(self.all_tiles)
        going, holding = b.mutable("going", b.literal(True, BOOL)), b.mutable("holding", b.literal(False, BOOL))
        current, half = b.mutable("current", f.number(0)), b.mutable("half", f.number(0))
        held, coming = self._states("held"), self._states("coming")
        with b.loop("turn", f.number(0), f.host(self.all_tiles + 1), going=going, uniform=True):
            b.barrier()  # all have read the number before
            number = self._draw(f, self.all_tiles + self.grid)  # every block draws one beyond the last tile
            exists = f.less(number, total)
            other = b.apply("subtract", (f.number(1), half), f.index)
            with b.branch(exists, uniform=True):
                self._prepare(number, other, coming)
            with b.branch(holding, uniform=True):
                self._complete(current, half, held)
            for before, next_before in zip(held, coming, strict=True):
                assign(b, before, next_before)
            assign(b, (current, half, holding, going), (number, other, exists, exists))

    def _states(self, name: str) -> Held:
        return [self.fold.declare(self.frame.builder, name, self.identity) for _ in range(self.schedule.unroll)]

    def _prepare(self, number: Operand, half: Operand, states: Held) -> None:
        """Loads a tile and publishes its aggregate; what is needed of it later goes to shared memory and `states`."""
        self.rows, self.half = self._enter(self.frame, self.body, self.schedule, number), half
        prefixes = self._across([items for _, items in self._subtiles()])
        for g, (before, ((exclusive,), here)) in enumerate(zip(states, prefixes, strict=True)):
            assign(self.frame.builder, before, exclusive)
            for name, value in zip(self.sums, here, strict=True):
                self.frame.builder.store(name, self._sum(g), value, self.leader)
        self._announce([total for _, total in prefixes])

    def _complete(self, number: Operand, half: Operand, states: Held) -> None:
        """Stores a tile that was prepared."""
        f = self.frame
        self.rows, self.half = self._enter(f, self.body, self.schedule, number), half
        before, base = self._before(), f.mul(self.tile, self.span)
        for g, exclusive in enumerate(states):
            lanes, exists, _ = self._tile(f.add(base, g * self.tile_elements), [False] * len(self.later))
            items = self._fetched(g, [(at, {}, ()) for at in lanes], exists, self.later)
            values = self.finish(items, exists, [self.combine(before, exclusive)], self.later)
            self._store([at for at, _, _ in items], exists, values)
            before = self.combine(before, tuple(self.frame.builder.load(name, self._sum(g)) for name in self.sums))

    def _sum(self, g: int) -> Operand:
        """Where the total of a sub-tile lies."""
        return self.frame.add(self.frame.mul(self.half, self.schedule.unroll), g)

    # -- two tiles in shared memory ----------------------------------------------------------------
    def _allocate(self) -> list[tuple[str, int]]:
        size = 2 * self.schedule.unroll * self.width * self.schedule.threads
        alloc = self.frame.builder.alloc
        return [
            (alloc("prefix", t, size, "shared", dynamic=True), min(16 // t.bytes, self.width)) for t in self.fold.dtypes
        ]

    def _place(self, g: int, j: int, piece: int) -> Operand:
        f, tile = self.frame, self.schedule.unroll * self.width * self.schedule.threads
        return f.add(super()._place(g, j, piece), f.mul(self.half, tile))
