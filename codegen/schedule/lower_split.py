"""Split reductions on CUDA: some segments a block, the last block of a row or column tile combines the partials.

In: a body with one reducing stage, a schedule whose segments (or parts of their lanes) are spread over blocks. Out: one
kernel with room for the partials and a counter. Every partial is written before its block takes a ticket; the block
that draws the last ticket reads all of them and folds them pairwise in segment order, so which block comes last changes
nothing. Small inputs do not wait for that: a block takes its ticket when it starts, partials are published in slots,
and the block that started last waits for those of all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.loops import Kernel, Launch, Operand, Var
from fuser.codegen.schedule.accumulate import Carry, Fold, State, folds_of
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import ColumnTeams, RowTeams
from fuser.codegen.schedule.lower_reduce import Stages, Totals
from fuser.codegen.storage import flag_words
from fuser.dtypes import BOOL, I32, I64
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

AT_ONCE = 8  # partials that a thread of the last block has on the way together


def lower(frame: Frame, body: Body, schedule: CudaSchedule, columns: bool) -> Kernel:
    """The kernel of a group with one reducing stage, `parts` of it (grid y) for each block of rows or columns."""
    kind: type[RowTeams] | type[ColumnTeams] = ColumnTeams if columns else RowTeams
    writer = SplitStages(frame, body, schedule, kind(frame, body, schedule))
    grid = kind.grid(body, schedule)
    counter = frame.builder.buffer("arrived", I32, "counter", None, grid)
    writer.write(counter)
    return frame.builder.finish(Launch((grid, writer.parts), schedule.threads, schedule.min_blocks))


@dataclass(frozen=True)
class Partials:
    """The workspace (or slots) of one fold: an array of [parts, parallel points] for each component of its state."""

    fold: Fold
    buffers: tuple[str, ...]


class SplitStages(Stages):
    """Stages whose one reducing stage is spread over blocks: each takes `schedule.turns` turns over the segments.

    Each block leaves one partial: `parts` of them a row.
    """

    @property
    def parts(self) -> int:
        return self.segments // (self.at_once * self.schedule.turns) * self.schedule.sharers

    def write(self, counter: str) -> None:
        first, *later = self.body.stages
        b = self.frame.builder
        part = self.frame.block_y()
        folds = folds_of(self.frame.graph, first.reduces)
        partials = [self._workspace(fold) for fold in folds]
        turns = self.schedule.turns
        turn = self.frame.mul(self.frame.div(part, self.schedule.sharers), turns)
        number = self._started(counter) if self.schedule.slots else None
        totals = self.turns_in_order(self.prepare(first), folds, turn, turns)
        flag = b.alloc("last", I32, 1, "shared")
        with b.branch(self.geometry.leader):
            for (_, states), partial in zip(totals, partials, strict=True):
                self._write(partial, part, states)
            if self._lone_leader:
                b.store(flag, 0, self._done(counter) if number is None else number)
        if not self._lone_leader:
            b.barrier()
            with b.branch(self._first_thread):
                b.store(flag, 0, self._done(counter) if number is None else number)
        b.barrier()
        is_last = b.apply("equal", (b.load(flag, 0), b.literal(self.parts - 1, I32)), BOOL)
        with b.branch(is_last, uniform=True):
            self._epilogue(partials, (first, *later))

    def _epilogue(self, partials: Sequence[Partials], stages: Sequence[StageBody]) -> None:
        self.finish(self._combined(partials))
        for stage in stages:
            self.row_stores(stage)

    def _workspace(self, fold: Fold) -> Partials:
        size = self.body.rows * self.parts
        b = self.frame.builder
        if self.schedule.slots:
            sized = [size * flag_words(t) for t in fold.dtypes]
            return Partials(fold, tuple(b.buffer("partial", I64, "slots", None, n) for n in sized))
        return Partials(fold, tuple(b.buffer("partial", t, "workspace", None, size) for t in fold.dtypes))

    def _place(self, part: Operand, lane: int) -> Operand:
        """Where a block's partial of a result lane lies."""
        f = self.frame
        return f.add(f.mul(part, f.host(self.body.rows)), f.add(self.geometry.point, lane))

    def _write(self, partial: Partials, part: Operand, states: Sequence[State]) -> None:
        for lane, state in enumerate(states):
            for buffer, value in zip(partial.buffers, state, strict=True):
                b, place = self.frame.builder, self._place(part, lane)
                (b.publish if self.schedule.slots else b.store)(buffer, place, value)

    @property
    def _lone_leader(self) -> bool:
        """Whether one thread writes all partials of a block: its ticket then needs no barrier before it."""
        return isinstance(self.geometry, RowTeams) and self.schedule.threads == self.schedule.threads_per_row

    @property
    def _first_thread(self) -> Operand:
        b = self.frame.builder
        return b.apply("equal", (b.special("thread"), b.literal(0, I32)), BOOL)

    def _done(self, counter: str) -> Operand:
        """The number of this block among those of its grid column, in the order in which they are done."""
        b = self.frame.builder
        return b.ticket(counter, b.special("block"), self.parts - 1)

    def _started(self, counter: str) -> Var:
        """The number in the order in which they start, in the first thread: asked for before the loads, so that nobody
        waits for it. Whoever starts last may wait for all others, which publish without waiting for anyone."""
        b = self.frame.builder
        number = b.mutable("number", b.literal(0, I32))
        with b.branch(self._first_thread):
            b.assign(number, b.ticket(counter, b.special("block"), self.parts - 1, ordered=False))
        return number

    def _combined(self, partials: Sequence[Partials]) -> Totals:
        """All partials folded: a run of consecutive parts a team member, then over the team."""
        width = min(self.schedule.threads_per_row, self.parts)
        parts = [(p.fold, [self._run(p, lane, width) for lane in range(len(self.results))]) for p in partials]
        folded = self.geometry.across_team(parts, width)
        return [(p.fold, states) for p, states in zip(partials, folded, strict=True)]

    def _run(self, partial: Partials, lane: int, width: int) -> State:
        """The fold of this member's parts; members at or beyond `width` hold nothing."""
        f, b, run = self.frame, self.frame.builder, self.parts // width
        member = f.less(self.geometry.member, width) if width < self.schedule.threads_per_row else None
        mask, first = f.masked(member, self.geometry.valid), f.mul(self.geometry.member, run)
        if run <= AT_ONCE:
            return self._some(partial, lane, first, run, mask)
        carry = Carry(b, partial.fold, run // AT_ONCE)
        with b.loop("part", f.number(0), run // AT_ONCE) as part:
            start = f.add(first, f.mul(part, AT_ONCE))
            carry.push(part, self._some(partial, lane, start, AT_ONCE, mask))
        return carry.total

    def _some(self, partial: Partials, lane: int, first: Operand, count: int, mask: Operand | None) -> State:
        """The fold of `count` consecutive parts."""
        b, places = self.frame.builder, [self._place(self.frame.add(first, k), lane) for k in range(count)]
        if self.schedule.slots:
            pairs = list(zip(partial.buffers, partial.fold.dtypes, strict=True))
            return partial.fold.tree(b, [tuple(b.wait_for(s, at, t, mask) for s, t in pairs) for at in places])
        states = [tuple(b.load(buffer, at, mask) for buffer in partial.buffers) for at in places]
        return partial.fold.tree(b, states)
