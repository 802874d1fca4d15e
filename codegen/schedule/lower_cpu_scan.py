"""Scans on CPUs: each row folded in order, as NumPy does; many columns side by side where another axis is scanned.

In: graph and group of a scan. Out: one kernel. There is one order, first to last (last to first where the scan is
reversed), so neither threads nor vectors can change a result.
"""

from __future__ import annotations

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.schedule.axes import count
from fuser.codegen.schedule.body import Layouts, ReduceSite, StageBody, analyse_scan
from fuser.codegen.schedule.cpu_parts import CpuParts, peel
from fuser.codegen.schedule.cpu_state import Folds
from fuser.codegen.schedule.cpu_sweep import Sweep, Walk
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.lower_cpu_fused import tile_columns
from fuser.graph import Graph, ScanAttrs
from fuser.group import Group
from fuser.hostexpr import lit
from fuser.optable import table
from fuser.optable.base import Scan
from fuser.record import dataclass
from fuser.schedule import CpuSchedule


def lower(graph: Graph, group: Group, schedule: CpuSchedule, layouts: Layouts) -> Kernel:
    """The kernel of a scan group."""
    assert group.scan is not None
    body = analyse_scan(graph, group, layouts)
    writer = _Scan(CpuParts(graph, group, schedule, layouts, body), group.scan.node)
    return writer.columns() if not group.space.inner and body.parallel else writer.rows()


@dataclass(frozen=True)
class _Scan:
    """Writes the fold of one group; its body has the scan's operand as its only "reduction"."""

    parts: CpuParts
    node: int

    @property
    def attrs(self) -> ScanAttrs:
        attrs = self.parts.graph.by_id[self.node].attrs
        assert isinstance(attrs, ScanAttrs)
        return attrs

    @property
    def stage(self) -> StageBody:
        (stage,) = self.parts.body.stages
        return stage

    def rows(self) -> Kernel:
        """An iteration is a row."""

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            folds = self._folds(walk, 1)
            folds.clear(walk.operand(0))
            with walk.loop("i", 0, walk.operand(self.parts.body.length)) as i:
                at = walk.place(self.parts.at_row(frame, it), self.parts.body.reduced, self._position(walk, i))
                self._step(frame, folds, walk.operand(0), at)

        return self.parts.kernel(self.parts.body.rows, self.parts.schedule.grain, write)

    def columns(self) -> Kernel:
        """An iteration is a tile of columns."""
        tiles = self.parts.tiles(self.parts.schedule.tile)

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            outer, tile = peel(walk, it, [lit(0), tiles])
            columns, row = tile_columns(self.parts, frame, tile), self.parts.at_outer(frame, outer)
            folds = self._folds(walk, self.parts.schedule.tile)
            columns.every(folds.clear)
            with walk.loop("i", 0, walk.operand(self.parts.body.length)) as i:
                at = walk.place(row, self.parts.body.reduced, self._position(walk, i))
                columns.each(lambda j: self._step(frame, folds, j, columns.at_column(at, j)))

        return self.parts.kernel(count(self.parts.outer) * tiles, self.parts.schedule.grain, write)

    def _folds(self, walk: Walk, size: int) -> Folds:
        row = table().known[self.parts.graph.by_id[self.node].op]
        assert isinstance(row, Scan)
        return Folds(walk, [table().reduction(row.reduction)], self.stage.reduces, size)

    def _position(self, walk: Walk, i: Operand) -> Operand:
        if not self.attrs.reverse:
            return i
        return walk.op("subtract", walk.operand(self.parts.body.length - 1), i)

    def _step(self, frame: Frame, folds: Folds, place: Operand, at: IndexEmitter) -> None:
        """One element: fold it in and store what depends on the prefix."""
        (fold,) = folds.folds
        site: ReduceSite = fold.site
        sweep = Sweep(frame, self.stage.loop)
        after = self.stage.loop.dependent(frozenset(), True)
        known = sweep.element(at, {}, only=[not later for later in after])
        (before,) = folds.load(fold, place)
        folds.absorb(place, known, folds.walk.operand(0), None)
        (now,) = folds.load(fold, place)
        sweep.known = known
        prefix = before if self.attrs.exclusive else now
        sweep.store(self.stage.stores, at, sweep.element(at, {(site.node, 0): prefix.value}))
