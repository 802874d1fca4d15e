"""A band of rows on the CPU: neighbouring rows whose elements lie in short runs, taken run by run together.

In: a stage, the loop variables of the band, results of earlier stages (arrays of the band's rows). Out: statements.
Where reduced axes lie on both sides of a parallel one (a sum over axes 0 and 2), the runs of one row are far apart, and
those of neighbouring rows are next to each other: walking run by run through a band reads memory in order. Every row is
added exactly as it would be alone (`fuser.order`); its lanes wait in an array while the other rows have their turn.
An operand that is contiguous across rows (a transposed one) is read block by block of each of its lines.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.codegen.evaluate import mask_operand
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Operand
from fuser.codegen.program import Program
from fuser.codegen.schedule.body import StageBody
from fuser.codegen.schedule.cpu_rows import BLOCK, Rows
from fuser.codegen.schedule.cpu_state import Folds, ResultArrays, Stack, levels_of, places, results_at, rows_of
from fuser.codegen.schedule.cpu_sweep import Results, Staged, Walk, crossing
from fuser.hostexpr import HostExpr, lit
from fuser.record import dataclass


@dataclass(frozen=True)
class Band:
    """Writes stages of at most `height` rows: `first` to `first + count` along the innermost parallel axis."""

    rows: Rows
    height: int
    first: Operand
    count: Operand

    @property
    def walk(self) -> Walk:
        return self.rows.walk

    def at_row(self, indices: IndexEmitter, p: Operand) -> IndexEmitter:
        """`indices` at row `p` of the band."""
        return indices.bound(**{self.rows.body.parallel[-1].name: self.walk.op("add", self.first, p)})

    def results_at(self, program: Program, arrays: ResultArrays, p: Operand) -> Results:
        """The results that a program reads, for row `p`."""
        return results_at(self.rows.frame.builder, program, arrays, p)

    def each(self, body: Callable[[Operand], None]) -> None:
        """`body` for every row."""
        with self.walk.loop("p", 0, self.count) as p:
            body(p)

    def stage(self, stage: StageBody, outer: IndexEmitter, results: ResultArrays) -> ResultArrays:
        """The whole stage for the band; gives all results known after it."""
        found = dict(results)
        if stage.reduces:
            total = self.shares(stage, outer, results, lit(0), self.rows.order_of(stage).segments)
            found.update(total.finish_all(self.each, self.rows.body.length))
        elif stage.stores:
            self._elements(stage, outer, results)
        if stage.row_stores:
            with self.walk.loop("p", 0, self.count) as p:
                self.rows.row_stores(stage, self.at_row(outer, p), self.results_at(stage.row, found, p))
        return found

    def _elements(self, stage: StageBody, outer: IndexEmitter, results: ResultArrays) -> None:
        """Stores along the rows, in no particular order."""
        rows, walk = self.rows, self.walk
        axes = rows.body.reduced[:-1]
        with walk.loop("run", 0, walk.operand(rows.runs)) as q:
            at = walk.place(outer, axes, q)
            with walk.loop("p", 0, self.count) as p:
                here, known = self.at_row(at, p), self.results_at(stage.loop, results, p)
                sweep = rows.sweep(stage)
                sweep.hoist(here, known, rows.variables)
                rows.run_elements(stage, sweep, here, known, q)

    # -- shares ------------------------------------------------------------------------------------
    def shares(
        self, stage: StageBody, outer: IndexEmitter, results: ResultArrays, first: Operand | HostExpr, number: int
    ) -> Folds:
        """State arrays of the band's rows with the combined shares `first` to `first + number` (a power of two)."""
        rows, walk = self.rows, self.walk
        order = rows.order_of(stage)
        lanes = Folds(walk, rows_of(rows.graph, stage.reduces), stage.reduces, order.lanes, share=True)
        waiting = lanes.sized(self.height * order.lanes, "waiting", share=True)
        total = lanes.sized(self.height, "total")
        states, length = (lanes, waiting, total), walk.operand(rows.body.length)
        share = walk.operand(lit(1) * order.share(rows.body.length))
        stack = Stack(walk, total, levels_of(number), places(walk, self.height)) if number > 1 else None
        with walk.loop("share", 0, number) as s:
            self._share(stage, outer, results, states, *walk.share(walk.op("add", first, s), share, length))
            if stack is not None:
                stack.push(walk.op("add", s, 1))
        return total

    def _share(
        self,
        stage: StageBody,
        outer: IndexEmitter,
        results: ResultArrays,
        states: tuple[Folds, Folds, Folds],
        low: Operand,
        high: Operand,
    ) -> None:
        """One share of every row of the band, into its place of the third of `states`."""
        rows, walk = self.rows, self.walk
        lanes, waiting, total = states
        waiting.clear_all(lanes.size)
        first, last = rows.runs_of(low, high)
        with walk.loop("run", first, last) as q:
            at = walk.place(outer, rows.body.reduced[:-1], q)
            staged = self._staged(stage, at, walk.op("multiply", q, rows.run_length), high)
            with walk.loop("p", 0, self.count) as p:
                here, known = self.at_row(at, p), self.results_at(stage.loop, results, p)
                sweep = rows.sweep(stage)
                sweep.staged.update(staged)
                sweep.hoist(here, known, rows.variables)
                self._turn(lanes, waiting, p, to_lanes=True)
                rows.run(here, q, low, high, lanes.size, rows.visit(lanes, sweep, stage, known))
                self._turn(lanes, waiting, p, to_lanes=False)
        with walk.loop("p", 0, self.height) as p:
            self._turn(lanes, waiting, p, to_lanes=True)
            total.copy(p, lanes.tree(), walk.operand(0), low)

    def _staged(self, stage: StageBody, at: IndexEmitter, base: Operand, high: Operand) -> dict[int, Staged]:
        """Operands that are contiguous across the band's rows, copied to arrays of (row, element of the run)."""
        rows, walk, b = self.rows, self.walk, self.rows.frame.builder
        out: dict[int, Staged] = {}
        if len(rows.body.reduced) > 1:
            return out
        across, along = rows.body.parallel[-1].name, rows.body.reduced[-1].name

        def place(x: IndexEmitter) -> Operand:
            row = walk.op("multiply", walk.op("subtract", x.bindings[across], self.first), BLOCK)
            return walk.op("add", row, walk.op("subtract", x.bindings[along], base))

        stop = walk.least(high, walk.op("add", base, BLOCK))
        for step in crossing(stage.loop, rows.body.parallel[-1], rows.body.reduced[-1]):
            fetch = stage.loop.fetch(step)
            array = b.alloc("tile", fetch.dtype, self.height * BLOCK, "register")
            with walk.loop("column", base, stop) as j, walk.loop("p", 0, self.count, kind="vector") as p:
                here = self.at_row(at, p).bound(**{along: j})
                value = b.load(
                    rows.frame.buffer_of(fetch), here.value(fetch.index[0]), mask_operand(b, here, fetch.mask)
                )
                b.store(array, place(here), value)
            out[step] = (array, place)
        return out

    def _turn(self, lanes: Folds, waiting: Folds, p: Operand, to_lanes: bool) -> None:
        """Row `p`'s lanes from where they wait into registers, or back."""
        walk = self.walk
        base = walk.op("multiply", p, lanes.size)
        with walk.loop("l", 0, lanes.size, kind="vector") as lane:
            at = walk.op("add", base, lane)
            if to_lanes:
                lanes.copy(lane, waiting, at)
            else:
                waiting.copy(at, lanes, lane)
