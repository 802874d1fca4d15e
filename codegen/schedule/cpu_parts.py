"""What the lowerings of one CPU group share: graph, schedule, analysed body, and how a kernel is opened and closed.

In: a group with its schedule. Out: `Opened` kernels: a frame, its parallel loop's variable, helpers for the loop's
iteration space. Its own file because a group may become several kernels over the same body.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.axes import Axis
from fuser.codegen.schedule.body import Body, Layouts
from fuser.codegen.schedule.cpu_rows import Rows
from fuser.codegen.schedule.cpu_sweep import Walk, ceil_div
from fuser.codegen.schedule.frame import Frame
from fuser.graph import Graph
from fuser.group import Group
from fuser.hostexpr import HostExpr, lit
from fuser.order import AxisKind, Order, order
from fuser.record import dataclass
from fuser.schedule import CpuSchedule

NO_AXIS = Axis("p", lit(1))  # what a 0-d value iterates over


@dataclass(frozen=True)
class CpuParts:
    """A group on its way to CPU kernels."""

    graph: Graph
    group: Group
    schedule: CpuSchedule
    layouts: Layouts
    body: Body

    def order(self, itemsize: int) -> Order:
        """The fixed order of this group's reductions of operands of `itemsize` bytes."""
        return order(self.schedule.capacity, itemsize, self.axis_kind, "cpu")

    @property
    def axis_kind(self) -> AxisKind:
        return "inner" if self.group.space.inner else "outer"

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Parallel axes but the innermost."""
        return self.body.parallel[:-1]

    @property
    def inner(self) -> Axis:
        """The innermost parallel axis: what vectors run over where no axis is reduced, or an outer one is."""
        return self.body.parallel[-1] if self.body.parallel else NO_AXIS

    def kernel(self, trips: HostExpr, grain: int, write: Callable[[Frame, Operand], None], suffix: str = "") -> Kernel:
        """A kernel of one parallel loop of `trips` iterations; `write` writes iteration `it`."""
        frame = Frame(self.graph, self.group, self.layouts, 64, "cpu", Alignment(False))
        frame.builder.name += suffix
        frame.stream_from = self.schedule.stream
        with Walk(frame).loop("it", 0, Walk(frame).operand(trips), kind="parallel") as it:
            write(frame, it)
        return frame.builder.finish(Launch((trips, 1), 1, grain=max(grain, 1)))

    def rows(self, frame: Frame) -> Rows:
        ahead = (self.schedule.ahead, self.schedule.tile)
        return Rows(self.graph, frame, self.body, self.order, ahead)

    def at_row(self, frame: Frame, row: Operand) -> IndexEmitter:
        """Parallel axes at a row number."""
        return Walk(frame).place(frame.indices(self.body.ranges), self.body.parallel, row)

    def at_outer(self, frame: Frame, position: Operand) -> IndexEmitter:
        """Parallel axes but the innermost at a position over them."""
        return Walk(frame).place(frame.indices(self.body.ranges), self.outer, position)

    def tiles(self, width: int) -> HostExpr:
        """Tiles of the innermost parallel axis."""
        return ceil_div(self.inner.extent, width)


def peel(walk: Walk, position: Operand, counts: list[HostExpr]) -> list[Operand]:
    """The row-major index of `position` over the given counts (the first is not needed and may be anything)."""
    out: list[Operand] = []
    for n in reversed(counts[1:]):
        if n == lit(1):
            out.append(walk.operand(0))
            continue
        out.append(walk.op("trunc_rem", position, n))
        position = walk.op("trunc_div", position, n)
    return [position, *reversed(out)]
