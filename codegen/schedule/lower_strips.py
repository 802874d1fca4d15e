"""Pointwise groups on CUDA whose threads take several values of outer axes: strips of rows.

In: a pointwise body of at least two axes and its schedule. Out: one kernel. A thread takes one vector along the
innermost axis at `strip` neighbouring values of the axis before it, so that what does not depend on that axis (a row of
weights, a rotation's angles) is loaded once for all of them, and its place is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.indices import IndexEmitter, TileLane
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.schedule.axes import Axis, count
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import bind_axes
from fuser.codegen.schedule.tile import Tile
from fuser.errors import InternalError
from fuser.hostexpr import HostExpr, call
from fuser.schedule import CudaSchedule


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a pointwise group in strips."""
    writer = _Strips(frame, body, schedule)
    writer.write()
    grid = call("//", writer.total + (schedule.threads - 1), schedule.threads)
    return frame.builder.finish(Launch((grid, 1), schedule.threads, schedule.min_blocks))


class _Strips:
    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        self.frame, self.body, self.schedule = frame, body, schedule
        (self.stage,) = body.stages
        self._require(len(body.parallel) > 1, "rows and columns, and it has one axis")
        self.down, self.inner = body.parallel[-2:]
        self._require(frame.alignment.divides(schedule.vector, self.inner.extent), "rows of whole vectors")
        self.strips = [
            *body.parallel[:-2],
            Axis(self.down.name, _ceil(self.down.extent, schedule.strip)),
            Axis(self.inner.name, call("//", self.inner.extent, schedule.vector)),
        ]
        self.total = count(self.strips)  # of threads that have one

    def _require(self, holds: bool, what: str) -> None:
        """A schedule may be given by hand."""
        if not holds:
            raise InternalError(f"strips of `{self.frame.group.name}` need {what}", "schedule-kind")

    def write(self) -> None:
        f, s = self.frame, self.schedule
        position = f.add(f.mul(f.block(), s.threads), f.thread())
        with f.builder.branch(f.less(position, f.host(self.total))):
            bound = bind_axes(f, self.body.ranges, self.strips, position, self.total)
            first = f.mul(bound.pop(self.inner.name), s.vector)
            top = f.mul(bound.pop(self.down.name), s.strip)
            outer = f.indices(self.body.ranges, **bound)
            rows = [f.add(top, u) for u in range(s.strip)]
            places = [self._lanes(outer.bound(**{self.down.name: row}), first) for row in rows]
            self._compute(places, [self._exists(row) if u else None for u, row in enumerate(rows)])

    def _lanes(self, outer: IndexEmitter, first: Operand) -> list[IndexEmitter]:
        lanes = range(self.schedule.vector)
        return [outer.in_lane(self.inner.name, TileLane(first, j, len(lanes))) for j in lanes]

    def _exists(self, row: Operand) -> Operand | None:
        """Whether a row that is not a strip's first exists; None where all strips are whole."""
        if self.frame.alignment.divides(self.schedule.strip, self.down.extent):
            return None
        return self.frame.less(row, self.frame.host(self.down.extent))

    def _compute(self, places: Sequence[list[IndexEmitter]], exists: Sequence[Operand | None]) -> None:
        """All loads of a thread, then its vectors one after another."""
        name, width = self.inner.name, self.schedule.vector
        tiles = [Tile(self.frame, self.stage.loop, frozenset({name}), name, width, valid=valid) for valid in exists]
        varies = self.stage.loop.dependent(frozenset({self.down.name}))
        shared = {k: tiles[0].load_step(k, places[0]) for k in tiles[0].loadable if not varies[k]}
        loads = [
            {k: shared[k] if k in shared else t.load_step(k, lanes, t.valid) for k in t.loadable}
            for t, lanes in zip(tiles, places, strict=True)
        ]
        for tile, lanes, loaded in zip(tiles, places, loads, strict=True):
            values: list[dict[int, Operand]] = []
            for j, at in enumerate(lanes):
                values.append(tile.evaluate(j, at, loaded, {}, {}, values[0] if values else None))
            tile.store(self.stage.stores, lanes, values, tile.valid)


def _ceil(extent: HostExpr, step: int) -> HostExpr:
    return extent if step == 1 else call("//", extent + (step - 1), step)
