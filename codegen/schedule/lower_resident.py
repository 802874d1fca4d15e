"""Resident rows on CUDA: a thread keeps its part of a row in registers from stage to stage.

In: a body whose stages read the same elements more than once, a row schedule with a capacity. Out: one kernel that
reads each of those elements once. Its loops are unrolled, because registers have no addresses: a *slot* is one tile of
the row that a thread holds. `reuse` says what is kept: raw elements, or values computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import field, replace

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Launch, Operand, Var
from fuser.codegen.program import Apply, Fetch, Step
from fuser.codegen.schedule.accumulate import Accumulator, Fold, Halves, State, folds_of, start, start_halves
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams, Tiles
from fuser.codegen.schedule.lower_reduce import Pass, Stages, Totals
from fuser.codegen.schedule.measures import LANE_STEPS
from fuser.codegen.schedule.reuse import Reuse, StageReuse, plan
from fuser.codegen.schedule.tile import Tile, Values
from fuser.dtypes import BF16, F32
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

LINE_BYTES = 128  # of a cache line
EARLY = 4  # values of a row, at most, that are loaded before its reductions: a register or two each
FRESH_BYTES = 64  # of loads that a thread has on their way in a stage after the first


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of row reductions over resident rows."""
    rows = RowTeams(frame, body, schedule)
    apart = may_be_whole(frame, body, schedule)
    if apart:
        share_scratch(frame, body, rows)
    write_rows(frame, body, schedule, lambda whole: ResidentStages(frame, body, schedule, rows, whole), apart)
    return frame.builder.finish(Launch((RowTeams.grid(body, schedule), 1), schedule.threads, schedule.min_blocks))


def share_scratch(frame: Frame, body: Body, rows: RowTeams) -> None:
    """Scratch of the team's folds before the branch whose both sides use it."""
    rows.reserve([folds_of(frame.graph, stage.reduces) for stage in body.stages])


def write_rows(
    frame: Frame, body: Body, schedule: CudaSchedule, make: Callable[[bool], ResidentStages], apart: bool
) -> None:
    """All stages, by a writer that is made here. apart: rows as long as the kernel holds have code of their own."""
    if not apart:
        write_stages(make(False))
        return
    # The compiler lays out the second of two branches first (NVRTC 13): that of whole rows, next to what is before both
    # (one H200: softmax of 1024 bf16 columns, 8 MB 4.89 -> 4.81 us, 64 KB 1.76 -> 1.73).
    shorter = frame.less(frame.host(body.length), frame.number(schedule.capacity))
    with frame.builder.branch(shorter, uniform=True):
        write_stages(make(False))
    with frame.builder.otherwise():
        write_stages(make(True))


def may_be_whole(frame: Frame, body: Body, schedule: CudaSchedule) -> bool:
    """Whether the longest rows that a kernel is valid for get code of their own, of which no slot has a condition. A
    condition costs more than itself: what is computed under it in one stage is computed again in the next, and loads
    wait for each other (softmax of 512 bf16 columns: 361 instructions for 32 elements instead of 518; one H200: 271 ->
    252 us, four statistics of 4096 f32 columns 268 -> 238)."""
    steps = sum(sum(stage.needed) for stage in reuse_of(body).stages)
    if schedule.order.segments > 1 or 2 * schedule.capacity // schedule.threads_per_row * steps > LANE_STEPS:
        return False
    return frame.alignment.divides(min(schedule.capacity, 2), body.length)  # else the class has no such long rows


def packed_source(fold: Fold, steps: Sequence[Step]) -> Fetch | None:
    """Whose bf16 elements a maximum is of, where nothing is done to them but a cast."""
    cast = steps[fold.site.step]
    if fold.row.name != "max" or fold.operand != F32 or not isinstance(cast, Apply) or cast.op != "cast":
        return None
    source = steps[cast.args[0]]
    return source if isinstance(source, Fetch) and source.dtype == BF16 else None


def write_stages(writer: ResidentStages) -> None:
    """All stages of a row: what can be asked for at once, then one after another."""
    writer.prefetch()
    for stage in writer.body.stages:
        writer.load_early(stage)
    for k, stage in enumerate(writer.body.stages):
        writer.current = k
        writer.stage(stage)


def reuse_of(body: Body) -> Reuse:
    """What the stages' loops share."""
    return plan([s.loop for s in body.stages], frozenset(a.name for a in body.reduced))


@dataclass(frozen=True)
class Slot:
    """A tile of the row in one thread, with what it holds: raw elements and values, one operand a lane.

    exists: a condition for each lane, or one for all; none where the slot is part of every row the kernel is valid for.
    """

    number: int
    turn: int
    group: int
    position: Operand
    lanes: tuple[IndexEmitter, ...]
    exists: tuple[Operand, ...]
    raw: dict[Fetch, tuple[Operand, ...]] = field(default_factory=dict)
    values: dict[int, list[Operand]] = field(default_factory=dict)

    def guards(self) -> list[tuple[range, Operand | None]]:
        """Runs of lanes that are computed together, and under which condition."""
        if len(self.exists) <= 1:
            return [(range(len(self.lanes)), self.exists[0] if self.exists else None)]
        return [(range(j, j + 1), e) for j, e in enumerate(self.exists)]


class ResidentStages(Stages):
    """Stages over unrolled slots."""

    def __init__(
        self, frame: Frame, body: Body, schedule: CudaSchedule, geometry: RowTeams, whole: bool = False
    ) -> None:
        """whole: rows are as long as the kernel holds."""
        super().__init__(frame, body, schedule, geometry)
        self.whole = whole
        self.rows, self.turns, self.current = geometry, max(self.segments // schedule.cluster, 1), 0
        self.meets = schedule.cluster > 1 and not schedule.parked  # in a cluster, with elements in registers
        self.reuse = reuse_of(body).stages
        self.slots: list[Slot] = []
        self.begin()

    def begin(self) -> None:
        """The slots of the row, and the first stage's loads."""
        self.slots = self._slots()
        self._load(0)

    def _slots(self) -> list[Slot]:
        f, s, found = self.frame, self.schedule, list[Slot]()
        share = max(s.capacity // self.segments, 1)
        surely = s.capacity if self.whole else s.capacity // 2 if self.segments == 1 else 0  # every valid row is longer
        for turn in range(self.turns):
            first, stop = f.number(0), f.host(self.body.length)
            if self.segments > 1:
                first, stop = self.bounds(self.segment_number(turn))
            for base in range(0, share, self.lanes):
                for group, position in enumerate(self.geometry.positions(f.add(first, base))):
                    exists = () if base + self.lanes <= surely else self._exists(position, stop)
                    lanes = tuple(self.geometry.lanes(position))
                    found.append(Slot(len(found), turn, group, position, lanes, exists))
        return found

    def _exists(self, position: Operand, stop: Operand) -> tuple[Operand, ...]:
        f = self.frame
        lanes = range(self.geometry.width) if self.element_guards else range(1)
        return tuple(f.less(f.add(position, j), stop) for j in lanes)

    # -- loads -------------------------------------------------------------------------------------
    def _load(self, stage: int) -> None:
        """All loads of a stage along the row."""
        if stage < len(self.reuse) and self.reuse[stage].raw:
            self._load_slots(stage, self.tile(self.body.stages[stage].loop), self.slots)

    def _load_slots(self, stage: int, tile: Tile, slots: Sequence[Slot]) -> None:
        """The loads of a stage that these slots do not hold yet."""
        for slot in slots:
            for step, fetch in self.reuse[stage].raw.items():
                if fetch not in slot.raw:
                    slot.raw[fetch] = self._load_slot(tile, step, slot)

    def _load_slot(self, tile: Tile, step: int, slot: Slot) -> tuple[Operand, ...]:
        f, valid = self.frame, self.geometry.valid
        if len(slot.exists) <= 1:
            return tile.load_step(step, slot.lanes, f.masked(slot.exists[0] if slot.exists else None, valid))
        single = replace(tile, width=1, along=None)
        loads = [
            single.load_step(step, [at], f.masked(e, valid)) for at, e in zip(slot.lanes, slot.exists, strict=True)
        ]
        return tuple(v for (v,) in loads)

    def prefetch(self) -> None:
        """Asks for this team's part of a row that comes `ahead` rows later: memory then has work while blocks compute,
        or those of a cluster wait for each other, and a row's loads find it in the L2."""
        f, b, body, far = self.frame, self.frame.builder, self.body, self.schedule.ahead
        if not far:
            return
        first, _ = self.bounds(self.segment_number(0))
        _, stop = self.bounds(self.segment_number(self.turns - 1))
        later = f.add(self.rows.point, far)
        comes = f.less(later, f.host(body.rows))
        row = self.rows.at_point(b.apply("where", (comes, later, self.rows.point), f.index))  # addresses stay in range
        for fetch in self.reuse[0].raw.values():
            line, split, team = LINE_BYTES // fetch.dtype.bytes, self.rows.split, self.rows.team
            thread = f.add(f.mul(f.rem(self.rows.rank, split), team), self.rows.member)
            most = self.schedule.capacity // self.schedule.cluster * split
            for k in range(0, most, line * team * split):
                position = f.add(first, f.add(f.mul(thread, line), k))
                place = self.rows.tile_at(row, position)[0].value(fetch.index[0])
                b.prefetch(f.buffer_of(fetch), place, f.both(comes, f.less(position, stop)))

    def load_early(self, stage: StageBody) -> None:
        """What is stored once a row may take loads that wait for no reduction (a label): they are on their way together
        with the row, not when all else of the block is done (one H200, cross-entropy of 32768 bf16 columns: 134 -> 128
        us). What these lead to, the logit at the label, is not: its address would keep a warp waiting (153)."""
        b, row = self.frame.builder, stage.row
        steps = [k for k in row.loaded_early([s.step for s in stage.row_stores]) if not row.steps[k].dtype.is_half]
        if not steps:
            return
        held = {k: b.mutable("early", b.literal(0, row.steps[k].dtype)) for k in steps[:EARLY]}
        with b.branch(self.geometry.leader):
            tile = replace(self.row_tile(stage), only=row.needed(list(held)))
            for k, (loaded, *_) in tile.load(self.geometry.lane_rows()).items():
                b.assign(held[k], loaded)
        b.settle(list(held.values()))
        self.early[stage] = held

    # -- stages ------------------------------------------------------------------------------------
    def totals(self, p: Pass, folds: Sequence[Fold]) -> Totals:
        """All segments, their partials combined pairwise: over the team at once, unless the indices of several axes
        leave no registers for the partials of every segment (batch norm of 128x256x56x56 bf16: 122 for 79)."""
        b, tiles, apart = self.frame.builder, list[list[Tiles]](), list[list[list[State]]]()
        for turn in range(self.turns):
            first = self.bounds(self.segment_number(turn))[0] if self.segments > 1 else self.frame.number(0)
            starts, paired = self.lane_starts(first), self.paired(folds)
            lanes = [self._lanes_of(f, starts, f in paired) for f in folds]
            halves = tuple((a, paired[a.fold]) for a in lanes if isinstance(a, Halves))
            accumulators = tuple(a for a in lanes if isinstance(a, Accumulator))
            self._turn(replace(p, accumulators=accumulators, halves=halves), turn)
            tiles.append(self.rows.tiles(lanes))
            if len(self.body.reduced) > 1:
                apart.append(self.rows.over_team(folds, [tiles.pop()]))
        self._ask_early()
        if apart:
            return self.across([(fold, [fold.tree(b, [t[k][0] for t in apart])]) for k, fold in enumerate(folds)])
        return self.across(list(zip(folds, self.rows.over_team(folds, tiles), strict=True)))

    def _lanes_of(self, fold: Fold, first: Sequence[Operand], paired: bool) -> Accumulator | Halves:
        """The lanes of a reduction that a thread keeps apart; first: where each of the thread's lanes begins."""
        b, count = self.frame.builder, self.rows.lanes_of(fold)
        return start_halves(b, fold, count) if paired else start(b, fold, first[:count])

    def _turn(self, p: Pass, turn: int) -> None:
        """The slots of one segment."""
        self._some_at_a_time(p, [s for s in self.slots if s.turn == turn])

    def _some_at_a_time(self, p: Pass, slots: Sequence[Slot]) -> None:
        """Slots, a few at a time: what only this stage loads is held no longer than it must be. Where partials meet in
        a cluster, the loads of the next few are on their way meanwhile."""
        together = self._together(self.current)
        for k in range(0, len(slots), together):
            self._load_slots(self.current, p.tile, slots[k : k + (2 if self.meets else 1) * together])
            if self.rows.width == 1:
                self._nested(p, slots[k : k + together])
                continue
            for slot in slots[k : k + together]:
                self._slot(p, slot)

    def _nested(self, p: Pass, slots: Sequence[Slot]) -> None:
        """Slots of one element. A row that ends before one ends before all that follow: each is within the condition of
        the one before, so that what a row lacks costs a branch, not a branch a slot (one H200: softmax of 4097 bf16
        119 -> 89 us, of 513 106 -> 89, of 4097 f32 151 -> 140)."""
        b, reuse = self.frame.builder, self.reuse[self.current]
        outlets = [self._outlets(p.stage, reuse, 1) if slot.exists else {} for slot in slots]
        with ExitStack() as inside:
            for slot, variables in zip(slots, outlets, strict=True):
                for guard in slot.exists:
                    inside.enter_context(b.branch(guard))
                (computed,) = self._lanes(p, slot, range(1))
                for step, number in reuse.kept.items():
                    slot.values[number] = list(variables.get(step, (computed[step],)))
                for step, (variable,) in variables.items():
                    b.assign(variable, computed[step])

    def _together(self, stage: int) -> int:
        """Slots of a stage whose loads are made together."""
        before = {f for reuse in self.reuse[: max(stage, 1)] for f in reuse.raw.values()}
        fresh = [f.dtype.bytes for f in self.reuse[stage].raw.values() if f not in before]
        room = FRESH_BYTES // 2 if self.meets or len(fresh) > 1 else FRESH_BYTES  # or they cost a block of an SM
        return max(room // max(sum(fresh) * self.geometry.width, 1), 1)

    def _ask_early(self) -> None:
        """The first loads that only the next stage makes are on their way while the blocks of a cluster meet, but no
        more: registers are few (one H200: root mean square norm of 262144 bf16 columns 265 -> 257 us, layer norm of
        65536 f32 290 -> 274; of rows that one block has the third block of an SM would have to go)."""
        stage = self.current + 1
        if self.meets and stage < len(self.reuse):
            some = [s for s in self.slots if not s.turn][: self._together(stage)]
            self._load_slots(stage, self.tile(self.body.stages[stage].loop), some)

    def paired(self, folds: Sequence[Fold]) -> dict[Fold, Fetch]:
        """The maxima of whole vectors that take their elements two a word, and the loads whose elements those are."""
        reuse, steps = self.reuse[self.current], self.body.stages[self.current].loop.steps
        if self.element_guards or self.rows.width % 2:
            return {}
        sources = {fold: packed_source(fold, steps) for fold in folds}
        return {fold: f for fold, f in sources.items() if f is not None and f in reuse.raw.values()}

    def segment_number(self, turn: int) -> Operand:
        """Which segment this block folds in a turn."""
        return self.frame.number(turn)

    def across(self, totals: Totals) -> Totals:
        """The partials of other blocks combined in; here one block has the whole row."""
        return totals

    def _slot(self, p: Pass, slot: Slot) -> None:
        """Every lane of a slot; values kept for later stages outlive the slot's condition in mutable variables."""
        b, reuse = self.frame.builder, self.reuse[self.current]
        for lanes, guard in slot.guards():
            outlets = {} if guard is None else self._outlets(p.stage, reuse, len(lanes))
            with nullcontext() if guard is None else b.branch(guard):
                computed = self._lanes(p, slot, lanes)
                for step, variables in outlets.items():
                    for var, values in zip(variables, computed, strict=True):
                        b.assign(var, values[step])
            for step, number in reuse.kept.items():
                slot.values.setdefault(number, []).extend(outlets.get(step) or [v[step] for v in computed])

    def _outlets(self, stage: StageBody, reuse: StageReuse, lanes: int) -> dict[int, Sequence[Var]]:
        b, steps = self.frame.builder, stage.loop.steps
        return {k: [b.mutable("kept", b.literal(0, steps[k].dtype)) for _ in range(lanes)] for k in reuse.kept}

    def _lanes(self, p: Pass, slot: Slot, lanes: range) -> list[Values]:
        """The steps of some lanes, accumulated and stored."""
        f, g, reuse = self.frame, self.geometry, self.reuse[self.current]
        tile = replace(p.tile if len(lanes) == g.width else p.single, valid=g.valid, only=reuse.needed)
        out: list[Values] = []
        for j in lanes:
            have = {k: slot.raw[x][j] for k, x in reuse.raw.items()}
            have.update((k, slot.values[n][j]) for k, n in reuse.taken.items())
            loads = {k: (v,) * len(slot.lanes) for k, v in have.items()}
            first = out[0] if out else None
            out.append(tile.evaluate(j, slot.lanes[j], loads, self.results[0], p.known[0], first))
            for a in p.accumulators:
                a.add(f.builder, slot.group * g.width + j, out[-1][a.fold.site.step], f.add(slot.position, j))
        for pairs, fetch in p.halves:
            for j in lanes[::2]:
                pairs.add(f.builder, slot.group * g.width + j, *slot.raw[fetch][j : j + 2])
        tile.store(p.stage.stores, [slot.lanes[j] for j in lanes], out, g.valid)
        return out
