"""One row on the CPU: a stage's reductions and stores along the reduced axes of one parallel point.

In: a stage, the loop variables of the row, results of earlier stages. Out: statements. The reduced index
runs in shares of rounds of lanes (see `fuser.order`): full rounds are vector loops over all lanes, the last round of
a share is masked. Where the reduced axes are not walked as one, rounds stop at the ends of the innermost
axis ("runs"), so that every vector is contiguous; an element's lane does not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.llvm.host import host
from fuser.codegen.loops import Operand
from fuser.codegen.schedule.axes import Axis, count
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.cpu_ahead import Ahead, crossing_of
from fuser.codegen.schedule.cpu_keep import SPARE, Keep, plan_keeps
from fuser.codegen.schedule.cpu_state import Folds, Stack, levels_of, once, rows_of
from fuser.codegen.schedule.cpu_sweep import Results, Sweep, Walk
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.pieces import cut
from fuser.graph import Graph
from fuser.hostexpr import HostExpr, lit
from fuser.order import Order
from fuser.record import dataclass

BLOCK = 128  # elements of a row that a band takes together where an operand is read across rows
POSITION_VECTORS = 4
Visit = Callable[[IndexEmitter, Operand, Operand, "Operand | None", Operand], None]  # (indices, i, lane, guard, low)


@dataclass(frozen=True)
class Rows:
    """Writes stages of single rows. `orders` gives the reduction order for an operand's bytes.

    ahead: rows, and their width, of copies of operands that are read across reduced axes (no rows: there are none).
    keeps, arrays: what stages save for later ones (none where a stage is a kernel of its own).
    """

    graph: Graph
    frame: Frame
    body: Body
    orders: Callable[[int], Order]
    ahead: tuple[int, int] = (0, 0)
    keeps: tuple[Keep, ...] = ()
    arrays: tuple[str, ...] = ()

    @property
    def walk(self) -> Walk:
        return Walk(self.frame)

    @property
    def inner(self) -> HostExpr:
        """Extent of the innermost reduced axis: the length of a run."""
        return self.body.reduced[-1].extent if self.body.reduced else lit(1)

    @property
    def run_length(self) -> HostExpr:
        """Elements of a run of a band: the innermost reduced axis, or a block of the only one."""
        return self.inner if len(self.body.reduced) > 1 else lit(BLOCK)

    @property
    def runs(self) -> HostExpr:
        """Runs of a row."""
        return count(self.body.reduced[:-1])

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.body.reduced)

    def keeping(self, capacity: int) -> Rows:
        """These rows with arrays for values that later stages need again."""
        keeps = plan_keeps(self.body, capacity)
        pairs = zip(self.body.stages, keeps, strict=True)
        dtypes = {n: s.loop.steps[k].dtype for s, keep in pairs for k, n in keep.saves.items()}
        size = capacity + SPARE
        arrays = [self.frame.builder.alloc("kept", dtypes[n], size, "register") for n in sorted(dtypes)]
        return replace(self, keeps=keeps, arrays=tuple(arrays))

    def sweep(self, stage: StageBody) -> Sweep:
        """The stage's loop program, with what it keeps."""
        number = next(k for k, s in enumerate(self.body.stages) if s is stage)
        keep = self.keeps[number] if self.keeps else Keep()
        return Sweep(self.frame, stage.loop, keep=keep, arrays=self.arrays)

    # -- stages ------------------------------------------------------------------------------------
    def stage(self, stage: StageBody, row: IndexEmitter, results: Results) -> dict[tuple[int, int], Operand]:
        """The whole stage at one row; gives all results known after it."""
        found = dict(results)
        if stage.reduces:
            order = self.order_of(stage)
            totals = self.shares(stage, row, results, lit(0), order.segments)
            found.update(totals.finish(self.walk.operand(0), self.body.length))
        elif stage.stores:
            self.elements(stage, row, results)
        self.row_stores(stage, row, found)
        return found

    def order_of(self, stage: StageBody) -> Order:
        """The fixed order; for the position of the best element, which no order changes, with lanes enough to hide the
        three dependent steps that it takes."""
        fixed = self.orders(max(r.operand.bytes for r in stage.reduces))
        if not all(row.uses_index for row in rows_of(self.graph, stage.reduces)):
            return fixed
        return replace(fixed, lanes=max(fixed.lanes, POSITION_VECTORS * host().vector_bytes // 4))

    def row_stores(self, stage: StageBody, row: IndexEmitter, results: Results) -> None:
        if stage.row_stores:
            sweep = Sweep(self.frame, stage.row)
            sweep.store(stage.row_stores, row, sweep.element(row, results))

    def elements(self, stage: StageBody, row: IndexEmitter, results: Results) -> None:
        """Stores along the row, in no particular order: vector loops over runs."""
        sweep = self.sweep(stage)
        sweep.hoist(row, results, self.variables)
        outer, walk = self.body.reduced[:-1], self.walk
        if not self.body.reduced:
            sweep.store(stage.stores, row, sweep.element(row, results))
            return
        if not outer:
            self.run_elements(stage, sweep, row, results, walk.operand(0))
            return
        with walk.loop("run", 0, walk.operand(self.runs)) as q:
            self.run_elements(stage, sweep, walk.place(row, outer, q), results, q)

    def run_elements(self, stage: StageBody, sweep: Sweep, at: IndexEmitter, results: Results, q: Operand) -> None:
        """The stores of run number `q`; `at` binds all axes but the innermost."""
        walk = self.walk
        base = walk.op("multiply", q, self.inner)
        pieces = cut(self.body.reduced[-1], (stage,), self.body.ranges)
        if pieces is None:
            self._elements_of(stage, sweep, at, results, base, self.body.reduced[-1])
            return
        parts = pieces.stage(stage)
        with walk.loop("piece", 0, walk.operand(pieces.piece.extent)) as k:
            here = IndexEmitter(at.builder, {**at.bindings, pieces.piece.name: k}, pieces.ranges, at.dtype)
            inside = replace(sweep, program=parts.loop, known=dict(sweep.known))
            inside.hoist(here, results, [pieces.within.name])
            start = walk.op("add", base, walk.op("multiply", k, pieces.within.extent))
            self._elements_of(parts, inside, here, results, start, pieces.within)

    def _elements_of(
        self, stage: StageBody, sweep: Sweep, at: IndexEmitter, results: Results, base: Operand, axis: Axis
    ) -> None:
        """The stores along one axis; its elements are the row's from number `base` on."""
        walk = self.walk
        with walk.loop("i", 0, walk.operand(axis.extent), kind="vector") as i:
            place = at.bound(**{axis.name: i})
            values = sweep.element_of_row(place, results, walk.op("add", base, i))
            sweep.store(stage.stores, place, values)

    # -- shares ------------------------------------------------------------------------------------
    def shares(
        self, stage: StageBody, row: IndexEmitter, results: Results, first: Operand | HostExpr, number: int
    ) -> Folds:
        """State arrays of one place with the combined shares `first` to `first + number` (a power of two)."""
        order, walk = self.order_of(stage), self.walk
        lanes = Folds(walk, rows_of(self.graph, stage.reduces), stage.reduces, order.lanes, share=True)
        sweep = self.sweep(stage)
        sweep.hoist(row, results, self.variables)
        if order.segments == 1:
            low, high = walk.operand(0), walk.operand(self.body.length)
            ahead = self._ahead(stage, sweep, low, high)
            return self._share(lanes, sweep, stage, row, results, low, high, ahead).widened(low)
        total = lanes.sized(1, "total")
        stack = Stack(walk, total, levels_of(number), once(walk))
        share = walk.operand(lit(1) * order.share(self.body.length))
        ahead = None
        if self.ahead[0]:
            begin = walk.least(walk.op("multiply", first, share), self.body.length)
            end = walk.least(walk.op("add", begin, walk.op("multiply", share, number)), self.body.length)
            ahead = self._ahead(stage, sweep, begin, end)
        with walk.loop("share", 0, number) as s:
            low, high = walk.share(walk.op("add", first, s), share, self.body.length)
            done = self._share(lanes, sweep, stage, row, results, low, high, ahead)
            total.copy(walk.operand(0), done, walk.operand(0), low)
            if number > 1:
                stack.push(walk.op("add", s, 1))
        return total

    def _share(
        self,
        lanes: Folds,
        sweep: Sweep,
        stage: StageBody,
        row: IndexEmitter,
        results: Results,
        low: Operand,
        high: Operand,
        ahead: Ahead | None,
    ) -> Folds:
        lanes.clear_all(lanes.size)
        visit = self.visit(lanes, sweep, stage, results)
        if len(self.body.reduced) > 1:
            first, last = self.runs_of(low, high)
            with self.walk.loop("run", first, last) as q:
                at = self.walk.place(row, self.body.reduced[:-1], q)
                if ahead is not None:
                    ahead.reach(q, at)
                self.run(at, q, low, high, lanes.size, visit)
        else:
            self._rounds(row, low, high, lanes.size, visit)
        return lanes.tree()

    def _ahead(self, stage: StageBody, sweep: Sweep, low: Operand, high: Operand) -> Ahead | None:
        """Copies for the elements `low` to `high`, where the stage has operands for that."""
        if not self.ahead[0] or not crossing_of(self.body, stage):
            return None
        ahead = Ahead(self.walk, self.body, stage, self.ahead, self.runs_of(low, high))
        ahead.use(sweep)
        return ahead

    def visit(self, lanes: Folds, sweep: Sweep, stage: StageBody, results: Results) -> Visit:
        """What is done at an element of a stage that reduces: fold it into its lane, and store what is stored."""

        def visit(at: IndexEmitter, i: Operand, lane: Operand, guard: Operand | None, low: Operand) -> None:
            sweep.guard = guard
            values = sweep.element_of_row(at, results, i)
            lanes.absorb(lane, values, lanes.within(i, low), guard)
            sweep.store(stage.stores, at, values)
            sweep.guard = None

        return visit

    def _rounds(self, row: IndexEmitter, low: Operand, high: Operand, lanes: int, visit: Visit) -> None:
        """Reduced axes walked as one: full rounds, then what is left of the share under a mask."""
        walk, b = self.walk, self.frame.builder
        full = walk.op("multiply", walk.op("trunc_div", walk.op("subtract", high, low), lanes), lanes)
        end = walk.op("add", low, full)
        with walk.loop("round", low, end, lanes) as start, walk.loop("l", 0, lanes, kind="vector") as lane:
            i = walk.op("add", start, lane)
            visit(self._at(row, i), i, lane, None, low)
        with b.branch(walk.holds("less", end, high)), walk.loop("l", 0, lanes, kind="vector") as lane:
            i = walk.op("add", end, lane)
            visit(self._at(row, i), i, lane, walk.holds("less", i, high), low)

    def _at(self, row: IndexEmitter, i: Operand) -> IndexEmitter:
        return row.bound(**{self.variables[-1]: i}) if self.variables else row

    def runs_of(self, low: Operand, high: Operand) -> tuple[Operand, Operand]:
        """The runs that a share touches: the first, and one past the last; none where runs are empty."""
        walk = self.walk
        inner = walk.op("max_num", walk.operand(self.run_length), 1)  # an axis of no elements divides nothing
        last = walk.op("trunc_div", walk.op("add", high, walk.op("subtract", inner, 1)), inner)
        return walk.op("trunc_div", low, inner), last

    def run(self, at: IndexEmitter, q: Operand, low: Operand, high: Operand, lanes: int, visit: Visit) -> None:
        """Run number `q` as far as it is in the share: a round that it covers is written without a mask, one at its
        edges with it. `at` binds all axes but the innermost."""
        walk, b = self.walk, self.frame.builder
        inner = walk.operand(self.run_length)
        base = walk.op("multiply", q, inner)
        first = base if len(self.body.reduced) > 1 else walk.operand(0)  # where the innermost axis is 0
        start = walk.op("max_num", low, base)
        stop = walk.least(high, walk.op("add", base, inner))
        lead = walk.op("trunc_rem", walk.op("subtract", start, low), lanes)
        with walk.loop("round", walk.op("subtract", start, lead), stop, lanes) as begin:
            end = walk.op("add", begin, lanes)
            whole = walk.both(walk.holds("greater_equal", begin, start), walk.holds("less_equal", end, stop))
            with b.branch(whole), walk.loop("l", 0, lanes, kind="vector") as lane:
                i = walk.op("add", begin, lane)
                visit(self._at(at, walk.op("subtract", i, first)), i, lane, None, low)
            with b.otherwise(), walk.loop("l", 0, lanes, kind="vector") as lane:
                i = walk.op("add", begin, lane)
                inside = walk.both(walk.holds("greater_equal", i, start), walk.holds("less", i, stop))
                visit(self._at(at, walk.op("subtract", i, first)), i, lane, inside, low)
