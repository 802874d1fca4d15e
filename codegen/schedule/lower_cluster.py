"""Rows over a cluster of blocks: how the blocks' partials become one result, in the fixed order.

In: what a block has folded of a row: whole segments, or in a larger cluster a part of one segment's lanes (the highest
bits of the lane number). Out: the row's fold, in every block. Every block sends its partial into the shared memory of
all others, and each folds them pairwise in rank order, which is the order of lanes, then of segments. Mail counts its
own bytes, so that no exchange waits for other memory: a barrier of the cluster that orders memory also empties the
first-level cache of weights. Needs sm_90.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import ClusterArrive, ClusterWait, Kernel, Launch, Mailbox, Operand, Receive
from fuser.codegen.schedule.accumulate import Fold, State, folds_of
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_reduce import Pass, Totals
from fuser.codegen.schedule.lower_resident import ResidentStages, packed_source, share_scratch, write_rows
from fuser.dtypes import I32, DType
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

LEAST_MAIL = 4  # bytes of a value on its way; narrower ones travel as i32


@dataclass(frozen=True)
class Exchange:
    """A stage's mailbox, and for each of its reductions an array a component with a place for every block."""

    box: str
    places: tuple[tuple[str, ...], ...]


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of row reductions whose rows are held in registers, of a cluster or of one block."""
    return lower_by(ClusterStages, frame, body, schedule, stays_packed(frame, body))


def lower_by(
    kind: type[ClusterStages], frame: Frame, body: Body, schedule: CudaSchedule, apart: bool = False
) -> Kernel:
    """The kernel whose stages a class of writers makes. apart: rows as long as it holds have code of their own."""
    exchanges, rows = open_exchanges(frame, body, schedule.cluster), RowTeams(frame, body, schedule)

    if apart:
        share_scratch(frame, body, rows)

    def make(whole: bool) -> ClusterStages:
        writer = kind(frame, body, schedule, rows, whole)
        writer.exchanges = exchanges
        return writer

    write_rows(frame, body, schedule, make, apart)
    grid = RowTeams.grid(body, schedule)
    launch = Launch((grid, 1), schedule.threads, schedule.min_blocks, cluster=schedule.cluster)
    return frame.builder.finish(launch)


def stays_packed(frame: Frame, body: Body) -> bool:
    """Whether no stage unpacks elements that a later one unpacks again, and that a compiler would hold from one to the
    other: two stages, the first of which takes maxima of bf16 as they are. Then rows need no branch between stages, and
    no condition a slot (one H200, cross-entropy of 131072 bf16 columns: 152 -> 136 us)."""
    first = body.stages[0]
    folds = folds_of(frame.graph, first.reduces)
    return len(body.stages) == 2 and all(packed_source(fold, first.loop.steps) for fold in folds)


def open_exchanges(frame: Frame, body: Body, cluster: int, points: int = 1) -> dict[int, Exchange]:
    """What the stages of a cluster's kernel exchange, by stage: `points` states a block. Written before all else, and
    announced to the cluster."""
    b, found = frame.builder, dict[int, Exchange]()
    for k, stage in enumerate(body.stages if cluster > 1 else ()):
        folds = folds_of(frame.graph, stage.reduces)
        if not folds:
            continue
        places = tuple(
            tuple(b.alloc("of_block", mailed(t), cluster * points, "shared") for t in fold.dtypes) for fold in folds
        )
        box = b.fresh("box")
        b.emit(Mailbox(box, cluster * points * sum(mailed(t).bytes for fold in folds for t in fold.dtypes)))
        found[k] = Exchange(box, places)
    if cluster > 1:
        b.emit(ClusterArrive())
    return found


def mailed(t: DType) -> DType:
    """What a value of a dtype travels as."""
    return t if t.bytes >= LEAST_MAIL else I32


def as_dtype(b: KernelBuilder, value: Operand, t: DType) -> Operand:
    """A value in another dtype that holds it."""
    return value if value.dtype == t else b.apply("cast", (value,), t)


class ClusterStages(ResidentStages):
    """Stages of which each block does its own segments, or the lanes that it has of one."""

    exchanges: dict[int, Exchange]
    started = False

    def _turn(self, p: Pass, turn: int) -> None:
        """Slots need no condition where the segment has as many elements as it can have: a condition a slot costs a
        sixth of a softmax's instructions. The stages' branches also keep a compiler from holding elements unpacked
        from one stage to the next."""
        b, f, slots = self.frame.builder, self.frame, [s for s in self.slots if s.turn == turn]
        if not slots[-1].exists or self.reuse[self.current].kept:
            return super()._turn(p, turn)
        first, stop = self.bounds(self.segment_number(turn))
        with b.branch(f.less(f.add(first, self.schedule.capacity // self.segments - 1), stop), uniform=True):
            self._some_at_a_time(p, [replace(s, exists=(), raw=dict(s.raw)) for s in slots])
        with b.otherwise():
            self._some_at_a_time(p, [replace(s, raw=dict(s.raw)) for s in slots])
        return None

    def segment_number(self, turn: int) -> Operand:
        f = self.frame
        return f.add(f.mul(f.div(self.rows.rank, self.rows.split), self.turns), turn)

    def across(self, totals: Totals) -> Totals:
        """The partials of all blocks folded, one exchange for all folds. An exchange has scratch of its own: no block
        ever waits for another to have read it."""
        if not totals or self.schedule.cluster == 1:
            return totals
        b, f, size = self.frame.builder, self.frame, self.schedule.cluster
        if not self.started:
            b.emit(ClusterWait())
            self.started = True
        thread, exchange = b.special("thread"), self.exchanges[self.current]
        sends = f.less(f.thread(), size)
        for names, (_, (state,)) in zip(exchange.places, totals, strict=True):
            for name, value in zip(names, state, strict=True):
                sent = as_dtype(b, value, mailed(value.dtype))
                b.send(name, self.rows.rank, sent, thread, exchange.box, sends)
        b.emit(Receive(exchange.box))
        mine = b.apply("trunc_rem", (thread, b.literal(size, I32)), I32)
        pairs = zip(exchange.places, totals, strict=True)
        return [(fold, [self._folded(fold, names, mine)]) for names, (fold, _) in pairs]

    def _folded(self, fold: Fold, names: Sequence[str], mine: Operand) -> State:
        """A partial a lane, folded by shuffles in every warp."""
        b = self.frame.builder
        state = tuple(as_dtype(b, b.load(name, mine), t) for name, t in zip(names, fold.dtypes, strict=True))
        held = fold.declare(b, fold.row.name, state)
        b.collective(fold.row.name, fold.operand, held, self.schedule.cluster)
        return held
