"""CUDA schedules of groups with reductions along rows and across them, by formula: threads a row, strips a block, rows
on their way.

In: the measures of a group. Out: `Mixed`, whose `mixed` is the schedule that `lower_margins.py` lowers. Its own file
because such a kernel is bound by other things than one of rows: the order down the columns fixes how many strips there
are, and each thread holds the states of its columns all the while.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from fuser.codegen.program import Fetch
from fuser.codegen.schedule.accumulate import folds_of
from fuser.codegen.schedule.cuda_pointwise import Pointwise
from fuser.codegen.schedule.lower_margins import strips
from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.codegen.schedule.ring import copied
from fuser.schedule import CudaSchedule

ELEMENTS = 16  # of a row that a thread has, where a block's threads allow
LEAST_THREADS, MOST_THREADS = 128, 1024
BESIDE = 30  # registers besides what is held of rows and columns
MOST_ROWS = 8  # that a ring holds
FLYING = 2  # times the bytes on their way that memory needs: a row's stages take their time
STATIC = 2 << 10  # bytes of shared memory beside the ring, and what the system takes of it for a block


def weaker(schedule: CudaSchedule) -> CudaSchedule | None:
    """What to try where a kernel spills: fewer blocks an SM, less held from row to row, fewer elements a thread."""
    if schedule.min_blocks > 1:
        return replace(schedule, min_blocks=schedule.min_blocks - 1)
    if schedule.weights:
        return replace(schedule, weights=False)
    if schedule.copies and not schedule.parked:
        return replace(schedule, parked=True)
    team = schedule.threads_per_row * 2
    vector = min(schedule.vector, schedule.order.lanes // team)
    if vector == 0 or team > MOST_THREADS:
        return None
    return replace(schedule, threads_per_row=team, threads=max(schedule.threads, team), vector=vector)


class Mixed(Pointwise):
    """Measures that choose."""

    def mixed(self) -> CudaSchedule:
        length, fixed = self._order()
        _, down = self._shared_order(self.group.across)
        axis = self.body.reduced[-1]
        vector = min(self._vector(axis), fixed.lanes)
        vector = self._dividing(vector, axis.extent) if len(self.body.reduced) > 1 else vector
        vector = self._fewer(vector, 1 << 30) if self._any_whole(vector, axis) else 1
        team = min(max(length // ELEMENTS, 32), MOST_THREADS, fixed.lanes)
        vector = min(vector, fixed.lanes // team)
        chosen = replace(self._schedule("mixed", team, vector, 1, team, fixed, length), resident=True, down=down)
        chosen = replace(chosen, threads=max(team * self._together(chosen), self.device.warp))
        return self._filled(chosen)

    def _together(self, chosen: CudaSchedule) -> int:
        """Strips a block: some of one share where rows are short, but blocks for all of the device."""
        together = 1
        while (
            together < chosen.down.lanes
            and together * 2 * chosen.threads_per_row <= LEAST_THREADS
            and strips(chosen) >= together * 2 * self.device.sms
        ):
            together *= 2
        return together

    def _filled(self, chosen: CudaSchedule) -> CudaSchedule:
        """With blocks an SM, the rows that each has on its way, and what it holds besides."""
        brought = copied(self.body, self.alignment, chosen.vector) if self.device.copies else frozenset()
        row = sum(f.dtype.bytes for f in brought) * chosen.capacity * chosen.threads // chosen.threads_per_row
        elements = chosen.capacity // chosen.threads_per_row
        needs = elements * (self._states + self._loaded) + BESIDE
        weights = needs + elements * self._weights <= self.device.registers // (2 * chosen.threads)
        needs += elements * self._weights if weights else 0
        blocks = self._blocks(chosen, int(needs), 2 * row)
        chosen = replace(chosen, min_blocks=blocks, weights=weights and self._weights > 0)
        if not row or 2 * row + STATIC > self.device.shared_block:
            return chosen
        room = (self.device.shared_block // blocks - STATIC) // row
        wanted = 1 - (-FLYING * self.device.inflight // (blocks * row))
        return replace(chosen, copies=True, unroll=min(max(wanted, 2), room, MOST_ROWS))

    def _blocks(self, chosen: CudaSchedule, needs: int, shared: int) -> int:
        """Blocks an SM for which there are registers and shared memory: as many as make whole waves, or nearly so."""
        count = max(strips(chosen) * chosen.threads_per_row // chosen.threads, 1)
        best, most = 1, 0.0
        for k in range(1, 9):
            threads = k * chosen.threads
            if threads > self.device.threads or threads * needs > self.device.registers:
                break
            if k > 1 and k * (shared + STATIC) > self.device.shared_block:
                break
            waves = -(-count // (k * self.device.sms))
            full = count / (waves * k * self.device.sms)
            if full >= most - 0.02 or waves == 1:
                best, most = k, max(most, full)
            if waves == 1:
                break
        return best

    # -- registers of one element --------------------------------------------------------------------
    @cached_property
    def _states(self) -> float:
        """Of the states of its column."""
        sites = [site for stage in self.body.stages for site in stage.across]
        return sum(-(-t.bytes // 4) for fold in folds_of(self.graph, sites) for t in fold.dtypes)

    @cached_property
    def _loads(self) -> frozenset[Fetch]:
        return frozenset(f for stage in reuse_of(self.body).stages for f in stage.raw.values())

    @cached_property
    def _weights(self) -> float:
        """Of what all rows read alike."""
        rows = {a.name for a in self.body.parallel}
        return sum(f.dtype.bytes for f in self._loads if rows.isdisjoint(f.index[0].symbols)) / 4

    @cached_property
    def _loaded(self) -> float:
        """Of the row's own loads."""
        return sum(f.dtype.bytes for f in self._loads) / 4 - self._weights
