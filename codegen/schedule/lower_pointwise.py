"""Pointwise groups on CUDA: one tile of elements a block, whole vectors in full blocks, single elements in the last.

In: a body without reduced axes and its schedule. Out: one kernel. A block covers `threads * unroll * vector`
consecutive elements in row-major order of the collapsed axes; a thread has `unroll` vectors in flight, a block apart.
"""

from __future__ import annotations

from fuser.codegen.indices import IndexEmitter, TileLane
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.schedule.axes import Axis, split
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.tile import Tile
from fuser.hostexpr import HostExpr, call, lit, sym
from fuser.proofs import Ranges
from fuser.schedule import CudaSchedule

POSITION = "position"  # the symbol of a linear position; bound to an operand, never printed
NO_AXIS = Axis("p", lit(1))  # what a 0-d value iterates over


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a pointwise group."""
    writer = _Pointwise(frame, body, schedule)
    writer.write()
    grid = call("//", writer.total + (writer.span - 1), writer.span)
    return frame.builder.finish(Launch((grid, 1), schedule.threads, schedule.min_blocks))


class _Pointwise:
    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        self.frame, self.schedule = frame, schedule
        self.axes = body.parallel or (NO_AXIS,)
        self.total = body.rows
        (self.stage,) = body.stages
        self.span = schedule.threads * schedule.unroll * schedule.vector  # elements a block
        self.ranges = Ranges({POSITION: self.total, **{a.name: a.extent for a in self.axes}})

    def write(self) -> None:
        b, f, s = self.frame.builder, self.frame, self.schedule
        block, thread = f.block(), f.thread()
        start = f.add(f.mul(block, self.span), thread)
        if self.span == s.threads:
            with b.branch(f.less(start, f.host(self.total))):
                self._elements(self._tile(1), [start])
            return
        with b.branch(f.less(block, f.host(call("//", self.total, self.span))), uniform=True):
            per_block = s.threads * s.unroll
            first = f.add(f.mul(block, per_block), thread)
            self._elements(self._tile(s.vector), [f.add(first, u * s.threads) for u in range(s.unroll)])
        with b.otherwise(), b.loop("element", start, f.host(self.total), s.threads) as element:
            self._elements(self._tile(1), [element])

    def _tile(self, width: int) -> Tile:
        inner = self.axes[-1].name
        return Tile(self.frame, self.stage.loop, frozenset({inner}), inner, width)

    def _elements(self, tile: Tile, positions: list[Operand]) -> None:
        """All vectors of a thread: every load first, then vector by vector and lane by lane."""
        places = [self._lanes(p, tile.width) for p in positions]
        loads = [tile.load(lanes) for lanes in places]
        for lanes, loaded in zip(places, loads, strict=True):
            values: list[dict[int, Operand]] = []
            for j, at in enumerate(lanes):
                values.append(tile.evaluate(j, at, loaded, {}, {}, values[0] if values else None))
            tile.store(self.stage.stores, lanes, values)

    def _lanes(self, position: Operand, width: int) -> list[IndexEmitter]:
        """Loop variables of every lane of the `position`-th vector in row-major order."""
        f, inner = self.frame, self.axes[-1]
        extents = [*self.axes[:-1], Axis(inner.name, _vectors(inner.extent, width))]
        at = f.indices(self.ranges, **{POSITION: position})
        values = [at.value(self.ranges.simplify(e)) for e in split(sym(POSITION), extents)]
        first = f.mul(values[-1], width)
        outer = f.indices(self.ranges, **{a.name: v for a, v in zip(self.axes[:-1], values[:-1], strict=True)})
        return [outer.in_lane(inner.name, TileLane(first, j, width)) for j in range(width)]


def _vectors(extent: HostExpr, width: int) -> HostExpr:
    return extent if width == 1 else call("//", extent, width)
