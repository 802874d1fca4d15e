"""Row and column results from one read, on CUDA: whole rows go by, and their columns are added up on the way.

In: a body of row reductions some of whose stages also reduce across rows. Out: two kernels. In the first, a team of
threads takes a *strip*, the rows of one lane of one share of the fixed order down the columns, one after another. Each
row is a resident row (`lower_resident.py`): every thread has the same columns of all of them, does with the row what a
row kernel would, and adds its elements to the states of its columns, in registers, in the order of rows. At its end a
strip leaves these states in a workspace. The second kernel combines the strips of each column pairwise from the low
bits, which is what `fuser.order` asks of lanes and then of shares, and stores what depends on that.

So a column's bits are those of a kernel that reduces columns alone: lane l of share s holds elements s*share + l + 8k
in increasing k, whoever adds them up. Teams of a block take neighbouring lanes of one share, and so go through their
rows together.

Where rows are whole vectors they come through shared memory (`ring.py`), the next few on their way while one is worked
on. What every row reads alike (weights) is loaded once a strip where registers allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.program import Fetch
from fuser.codegen.schedule.accumulate import Accumulator, State, folds_of, start
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.exchange import SHARED_LIMIT, bytes_needed
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import ColumnTeams, RowTeams
from fuser.codegen.schedule.lower_reduce import Pass
from fuser.codegen.schedule.lower_resident import ResidentStages, Slot
from fuser.codegen.schedule.lower_split import Partials, SplitStages
from fuser.codegen.schedule.ring import Ring, copied
from fuser.codegen.schedule.tile import Tile, Values
from fuser.dtypes import DType
from fuser.schedule import CudaSchedule

ACROSS = 32  # columns side by side in the second kernel
MEMBERS = 32  # threads that combine the strips of a column


def lower(frame: Frame, second: Frame, body: Body, schedule: CudaSchedule) -> tuple[Kernel, Kernel]:
    """The kernels of a group of reductions along and across rows, each in a frame of its own."""
    down = body.down
    partials = _workspaces(frame, down, schedule)
    MarginStages(frame, body, schedule, Strips(frame, body, schedule)).write(partials)
    blocks = -(-strips(schedule) * schedule.threads_per_row // schedule.threads)
    first = frame.builder.finish(Launch((blocks, 1), schedule.threads, schedule.min_blocks))
    return first, _combine(second, down, schedule)


def strips(schedule: CudaSchedule) -> int:
    """Into how many strips the order of the reductions across rows cuts them: a lane of a share each."""
    return schedule.down.lanes * schedule.down.segments


def _workspaces(frame: Frame, down: Body, schedule: CudaSchedule) -> list[Partials]:
    """Of each reduction across rows, an array of [strip, column] for each component of its state. Both kernels make
    them first thing, and so by the same names."""
    size = down.rows * strips(schedule)

    def buffer(t: DType) -> str:
        return frame.builder.buffer("partial", t, "workspace", None, size)

    return [Partials(f, tuple(map(buffer, f.dtypes))) for f in folds_of(frame.graph, down.stages[0].reduces)]


class Strips(RowTeams):
    """Rows of strips. A team's strip is its number in the grid; which row of it the team is at is told by `enter`."""

    alone: bool  # whether a block has one strip

    def place(self, per_block: int) -> None:
        f = self.frame
        self.alone, self.first = per_block == 1, self._first()
        self.leader = self.first
        self.strip = f.block() if self.alone else self.number
        # a block of one warp may have teams for more strips than there are
        self.exists = f.less(self.strip, strips(self.schedule)) if per_block > strips(self.schedule) else None
        self.row, self.point = f.indices(self.body.ranges), self.number

    def enter(self, point: Operand, valid: Operand | None) -> None:
        """The team's next row, which exists where `valid` holds (None: surely)."""
        self.point, self.valid = point, valid
        self.row = self.at_point(point)
        self.leader = self.frame.both(self.first, valid)


class MarginStages(ResidentStages):
    """The stages of one row after another; `columns` holds the states of this thread's columns, by stage."""

    rows: Strips
    columns: list[list[Accumulator]]
    places: list[Slot]

    def begin(self) -> None:
        """Where this thread's elements of any row are, and the ring that rows come through."""
        assert isinstance(self.geometry, Strips)
        self.rows, self.places = self.geometry, self._slots()
        brought = copied(self.body, self.frame.alignment, self.rows.width) if self.schedule.copies else frozenset()
        places = [(s.position, s.exists[0] if s.exists else None) for s in self.places]
        self.ring = Ring(self.frame, self.rows, self.schedule, brought, places)
        self.weights: list[dict[Fetch, tuple[Operand, ...]]] = [{} for _ in self.places]

    def write(self, partials: Sequence[Partials]) -> None:
        f, b, rows, down = self.frame, self.frame.builder, self.rows, self.schedule.down
        share, n, segment = f.host(down.share(self.body.rows)), f.host(self.body.rows), f.div(rows.strip, down.lanes)
        base = f.mul(segment, share)
        first, stop = f.add(base, f.rem(rows.strip, down.lanes)), f.least(f.add(base, share), n)
        held = [first] * (len(self.places) * rows.width)
        self.columns = [
            [start(b, fold, held) for fold in folds_of(f.graph, stage.across)] for stage in self.body.stages
        ]
        self._load_weights()
        for k in range(self.ring.ahead):
            self._fill(f.number(k), f.add(first, k * down.lanes), stop, first)
        with b.loop("row", first if rows.alone else f.number(0), stop if rows.alone else share, down.lanes) as at:
            row = at if rows.alone else f.add(first, at)
            self.ring.wait()
            self._fill(self.ring.behind, f.add(row, self.ring.ahead * down.lanes), stop, row)
            rows.enter(row, None if rows.alone else f.both(f.less(row, stop), rows.exists))
            self._row()
            self.ring.turn()
        self.ring.end()
        self._leave(partials)

    def _load_weights(self) -> None:
        """What the rows read alike, held from row to row."""
        rows = {a.name for a in self.body.parallel}
        for stage, reuse in zip(self.body.stages if self.schedule.weights else (), self.reuse, strict=False):
            tile = self.tile(stage.loop)
            for step, fetch in reuse.raw.items():
                for slot, held in zip(self.places, self.weights, strict=True):
                    if rows.isdisjoint(stage.loop.symbols(step)) and fetch not in held:
                        held[fetch] = super()._load_slot(tile, step, slot)

    def _fill(self, turn: Operand, row: Operand, stop: Operand, instead: Operand) -> None:
        """Starts to copy a row, if it exists. instead: one whose addresses are surely in range."""
        f, b = self.frame, self.frame.builder
        if not self.ring.ahead:
            return
        exists = f.both(f.less(row, stop), self.rows.exists)
        at = self.rows.at_point(b.apply("where", (exists, row, instead), f.index))
        self.ring.fill(turn, at, f.host(self.body.length), exists)

    def _row(self) -> None:
        self.slots = [
            replace(s, lanes=tuple(self.rows.lanes(s.position)), raw=dict(held), values={})
            for s, held in zip(self.places, self.weights, strict=True)
        ]
        self._load(0)
        self.results[0].clear()
        for k, stage in enumerate(self.body.stages):
            self.current = k
            self.stage(stage)
            for slot in self.slots if self.schedule.parked else ():
                for fetch in self.ring.arrays:
                    slot.raw.pop(fetch, None)

    def _load_slot(self, tile: Tile, step: int, slot: Slot) -> tuple[Operand, ...]:
        fetch = tile.program.fetch(step)
        if fetch not in self.ring.arrays:
            return super()._load_slot(tile, step, slot)
        exists = self.frame.masked(slot.exists[0] if slot.exists else None, self.rows.valid)
        return self.ring.take(fetch, slot.position, self.rows.width, exists)

    def _lanes(self, p: Pass, slot: Slot, lanes: range) -> list[Values]:
        """The row's own work, then each element joins its column."""
        out, g, b = super()._lanes(p, slot, lanes), self.geometry, self.frame.builder
        joining = self.columns[self.current]
        with b.branch(g.valid) if g.valid is not None and joining else nullcontext():
            for j, values in zip(lanes, out, strict=True):
                for a in joining:
                    a.add(b, slot.number * g.width + j, values[a.fold.site.step], self.rows.point)
        return out

    # -- the end of a strip ------------------------------------------------------------------------
    def _leave(self, partials: Sequence[Partials]) -> None:
        """Every column's states, in the strip's row of the workspaces."""
        f, width = self.frame, self.geometry.width
        row = f.mul(self.rows.strip, f.host(self.body.length))
        states = [a for some in self.columns for a in some]
        for slot in self.places:
            place = f.add(row, slot.position)
            for lanes, guard in slot.guards():
                for partial, a in zip(partials, states, strict=True):
                    found = [a.fold.widen(a.lanes[slot.number * width + j], f.builder) for j in lanes]
                    self._store(partial, f.add(place, lanes[0]), found, f.masked(guard, self.rows.exists))

    def _store(self, partial: Partials, place: Operand, states: Sequence[State], guard: Operand | None) -> None:
        b = self.frame.builder
        whole = len(states) if self.frame.alignment.divides(len(states), self.body.length) else 1
        for buffer, values in zip(partial.buffers, zip(*states, strict=True), strict=True):
            step = min(16 // values[0].dtype.bytes, whole)
            for k in range(0, len(values), step):
                b.store_vec(buffer, self.frame.add(place, k), values[k : k + step], guard)


# -- the second kernel -----------------------------------------------------------------------------
def _combine(frame: Frame, down: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel that combines strips: neighbouring threads have neighbouring columns."""
    partials, count = _workspaces(frame, down, schedule), strips(schedule)
    team = min(MEMBERS, count)
    while team > 1 and _exchanged(partials, ACROSS * team) > SHARED_LIMIT:
        team //= 2
    columns = replace(
        schedule, kind="columns", threads=ACROSS * team, vector=1, unroll=1, threads_per_row=team, order=schedule.down,
        resident=False, copies=False, min_blocks=1,
    )  # fmt: skip
    CombineStages(frame, down, columns, ColumnTeams(frame, down, columns)).combine(partials)
    return frame.builder.finish(Launch((ColumnTeams.grid(down, columns), 1), columns.threads))


def _exchanged(partials: Sequence[Partials], points: int) -> int:
    return bytes_needed([p.fold.dtypes for p in partials], points)


class CombineStages(SplitStages):
    """The end of a split reduction, in a launch of its own."""

    @property
    def parts(self) -> int:
        return strips(self.schedule)

    def combine(self, partials: Sequence[Partials]) -> None:
        self._epilogue(partials, self.body.stages)
