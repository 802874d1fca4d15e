"""A tile of columns on the CPU: a stage's reductions and stores down the reduced axes, many columns side by side.

In: a stage, the loop variables of the tile, results of earlier stages (arrays of the tile's columns). Out: statements.
Vectors run across columns, which are contiguous; down the columns elements are added in order within a share, and
shares combine pairwise (`fuser.order`, kind "outer"). Several rows are taken in one go so that an accumulator is
loaded and stored once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Operand
from fuser.codegen.program import Program
from fuser.codegen.schedule.body import Body, StageBody, StoreSite
from fuser.codegen.schedule.cpu_state import Each, Folds, ResultArrays, Stack, levels_of, places, results_at, rows_of
from fuser.codegen.schedule.cpu_sweep import Results, Sweep, Walk, instructions
from fuser.codegen.schedule.frame import Frame
from fuser.graph import Graph
from fuser.hostexpr import HostExpr, lit
from fuser.order import Order
from fuser.record import dataclass

ROWS_AT_ONCE = 8
WRITTEN = 32.0  # instructions of all of them: where one row has many, loading its accumulator costs little beside them
COLUMN_LINE = 16  # columns that are done together where there may be fewer: no code for those that are left over


@dataclass(frozen=True)
class Columns:
    """Writes stages of tiles of at most `tile` columns, `first` to `first + count`."""

    graph: Graph
    frame: Frame
    body: Body
    order: Order
    tile: int
    first: Operand
    count: Operand

    @property
    def walk(self) -> Walk:
        return Walk(self.frame)

    @property
    def each(self) -> Each:
        """The tile's columns: for bodies that touch memory."""
        return places(self.walk, self.count)

    @property
    def every(self) -> Each:
        """The tile's columns and some beyond them, in whole lines: for bodies that touch nothing but its arrays."""
        walk = self.walk

        def run(body: Callable[[Operand], None]) -> None:
            with walk.loop("line", 0, self.count, COLUMN_LINE) as line:
                places(walk, COLUMN_LINE)(lambda j: body(walk.op("add", line, j)))

        return run

    def at_column(self, indices: IndexEmitter, j: Operand) -> IndexEmitter:
        return indices.bound(**{self.body.parallel[-1].name: self.walk.op("add", self.first, j)})

    def results_at(self, program: Program, arrays: ResultArrays, j: Operand) -> Results:
        """The results that a program reads, for column `j`."""
        return results_at(self.frame.builder, program, arrays, j)

    # -- stages ------------------------------------------------------------------------------------
    def stage(self, stage: StageBody, outer: IndexEmitter, results: ResultArrays) -> ResultArrays:
        """The whole stage for the tile; gives all results known after it."""
        found = dict(results)
        if stage.reduces:
            total = self.shares(stage, outer, results, lit(0), self.order.segments)
            found.update(self.finish(total))
        elif stage.stores:
            self.store_down(stage, outer, results, lit(0), self.body.length)
        self.row_stores(stage.row, stage.row_stores, outer, found)
        return found

    def finish(self, total: Folds) -> ResultArrays:
        """Result arrays from total states."""
        return total.finish_all(self.every, self.body.length)

    def row_stores(
        self, program: Program, sites: tuple[StoreSite, ...], outer: IndexEmitter, results: ResultArrays
    ) -> None:
        if not sites:
            return
        sweep = Sweep(self.frame, program)

        def write(j: Operand) -> None:
            at = self.at_column(outer, j)
            sweep.store(sites, at, sweep.element(at, self.results_at(program, results, j)))

        self.each(write)

    def store_down(
        self,
        stage: StageBody,
        outer: IndexEmitter,
        results: ResultArrays,
        low: Operand | HostExpr,
        high: Operand | HostExpr,
    ) -> None:
        """The values of a stage that reduces nothing, for rows `low` to `high`."""
        self._down(low, high, 1, lambda rows: self._store_rows(stage, outer, results, rows))

    def _store_rows(self, stage: StageBody, outer: IndexEmitter, results: ResultArrays, rows: list[Operand]) -> None:
        sweep = Sweep(self.frame, stage.loop)
        places = [self.walk.place(outer, self.body.reduced, r) for r in rows]

        def write(j: Operand) -> None:
            known = self.results_at(stage.loop, results, j)
            for place in places:
                at = self.at_column(place, j)
                sweep.store(stage.stores, at, sweep.element(at, known))

        self.each(write)

    # -- shares ------------------------------------------------------------------------------------
    def shares(
        self, stage: StageBody, outer: IndexEmitter, results: ResultArrays, first: Operand | HostExpr, count: int
    ) -> Folds:
        """State arrays of the tile with the combined shares `first` to `first + count` (a power of two)."""
        walk, order = self.walk, self.order
        total = Folds(walk, rows_of(self.graph, stage.reduces), stage.reduces, self.tile, "total")
        if order.segments == 1:
            self._share(total, stage, outer, results, walk.operand(0), walk.operand(self.body.length))
            return total
        stack = Stack(walk, total, levels_of(count), self.every)
        share = walk.operand(lit(1) * order.share(self.body.length))
        with walk.loop("share", 0, count) as s:
            bounds = walk.share(walk.op("add", first, s), share, self.body.length)
            self._share(total, stage, outer, results, *bounds)
            if count > 1:
                stack.push(walk.op("add", s, 1))
        return total

    def _share(
        self, total: Folds, stage: StageBody, outer: IndexEmitter, results: ResultArrays, low: Operand, high: Operand
    ) -> None:
        zero = self.walk.operand(0)
        share = total.sized(self.tile, "share", share=True) if total.uses_index else total
        self.every(lambda j: share.clear(j, zero))

        def rows(positions: list[Operand]) -> None:
            places = [self.walk.place(outer, self.body.reduced, r) for r in positions]
            sweep = Sweep(self.frame, stage.loop)

            def write(j: Operand) -> None:
                known = self.results_at(stage.loop, results, j)
                for place, i in zip(places, positions, strict=True):
                    at = self.at_column(place, j)
                    values = sweep.element(at, known)
                    share.absorb(j, values, share.within(i, low), None)
                    sweep.store(stage.stores, at, values)

            self.each(write)

        cost = max(instructions(stage.loop, (a.name for a in self.body.reduced)), 1.0)
        self._down(low, high, 1 << (int(min(max(WRITTEN / cost, 1), ROWS_AT_ONCE)).bit_length() - 1), rows)
        if share is not total:
            self.every(lambda j: total.copy(j, share, j, low))

    def _down(
        self, low: Operand | HostExpr, high: Operand | HostExpr, at_once: int, rows: Callable[[list[Operand]], None]
    ) -> None:
        """Rows in order, `at_once` in a go while there are as many."""
        walk = self.walk
        start, stop = walk.operand(low), walk.operand(high)
        if at_once > 1:
            whole = walk.op("multiply", walk.op("trunc_div", walk.op("subtract", stop, start), at_once), at_once)
            middle = walk.op("add", start, whole)
            with walk.loop("row", start, middle, at_once) as r:
                rows([walk.op("add", r, k) for k in range(at_once)])
            start = middle
        with walk.loop("row", start, stop) as r:
            rows([r])
