"""Rows over a cluster of blocks: how the blocks' partials become one result, in the fixed order.

In: what a block has folded of a row: whole segments, or in a larger cluster a part of one segment's lanes (the highest
bits of the lane number). Out: the row's fold, in every block. Every block sends its partial into the shared memory of
all others, and each folds them pairwise in rank order, which is the order of lanes, then of segments. Needs sm_90.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.loops import ClusterArrive, ClusterWait, Operand
from fuser.codegen.schedule.accumulate import Fold, State
from fuser.codegen.schedule.lower_reduce import Totals
from fuser.codegen.schedule.lower_resident import ResidentStages
from fuser.dtypes import BOOL, I32


class ClusterStages(ResidentStages):
    """Stages of which each block does its own segments, or the lanes that it has of one."""

    started = False

    def segment_number(self, turn: int) -> Operand:
        f = self.frame
        return f.add(f.mul(f.div(self.rows.rank, self.rows.split), self.turns), turn)

    def across(self, totals: Totals) -> Totals:
        """The partials of all blocks folded, one exchange for all folds. An exchange has scratch of its own: no block
        ever waits for another to have read it."""
        if not totals or self.schedule.cluster == 1:
            return totals
        b, size = self.frame.builder, self.schedule.cluster
        if not self.started:
            b.emit(ClusterWait())
            self.started = True
        thread = b.special("thread")
        sends = b.apply("less", (thread, b.literal(size, I32)), BOOL)
        places = [[b.alloc("of_block", t, size, "shared") for t in fold.dtypes] for fold, _ in totals]
        for names, (_, (state,)) in zip(places, totals, strict=True):
            for name, value in zip(names, state, strict=True):
                b.store_remote(name, self.rows.rank, value, thread, sends)
        b.emit(ClusterArrive())
        b.emit(ClusterWait())
        mine = b.apply("trunc_rem", (thread, b.literal(size, I32)), I32)
        return [(fold, [self._folded(fold, names, mine)]) for names, (fold, _) in zip(places, totals, strict=True)]

    def _folded(self, fold: Fold, names: Sequence[str], mine: Operand) -> State:
        """A partial a lane, folded by shuffles in every warp."""
        b = self.frame.builder
        held = fold.declare(b, fold.row.name, tuple(b.load(name, mine) for name in names))
        b.collective(fold.row.name, fold.operand, held, self.schedule.cluster)
        return held
