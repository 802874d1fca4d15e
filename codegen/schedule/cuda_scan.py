"""CUDA schedules of running folds by formula: along rows, down columns, over many blocks.

In: the measures of a group. Out: `Scans`, whose `scan` is the schedule. Its own file because a scan's tiles are part of
its order, so that what is free to choose is little and unlike other kinds: what is on the way, and blocks.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.codegen.schedule import lower_scan_long
from fuser.codegen.schedule.flight import InFlight
from fuser.codegen.schedule.lengths import length_bucket
from fuser.codegen.schedule.measures import BLOCK
from fuser.codegen.schedule.parking import AHEAD
from fuser.order import Order
from fuser.schedule import CudaSchedule

COLUMN_ITEMS = 4  # neighbouring rows a thread of a scan down columns


class Scans(InFlight):
    """Measures that choose."""

    def scan(self) -> CudaSchedule:
        """Rows: 4 elements a thread whatever the dtype, tiles of up to 1024 elements, 4 on the way; long rows a block
        for each 4 or 8 tiles. Columns: 4 rows a thread, up to 32 threads down a column, 256 bytes of a row
        (128: 11% slower on H200). The order follows from the length (and the state's size) alone."""
        length = length_bucket(self.graph, self.size_class, self.body.length)
        if self.group.space.inner:
            team = min(max(length // 4, 1), BLOCK)
            if length > lower_scan_long.LONG:
                together = 8 if self._state_registers() == 1 else 4
                long = self._schedule("scan", BLOCK, 4, together, BLOCK, Order(BLOCK * 4 * together), length)
                return self._waiting(long)
            together = max(min(4, length // (team * 4)), 1)
            vector = self._wide(team * 4) if together <= 2 else 4
            chosen = self._schedule("scan", BLOCK, vector, together, team * 4 // vector, Order(team * 4), length)
            loaded = sum(p.fetch(k).dtype.bytes for p in self.body.programs for k in self._streams(p))
            if not loaded:
                return chosen
            # H200, 8 KB rows of bf16: 67% of a copy; 88% asking for rows ahead, 96% with the fourth block of an SM too;
            # 32 KB rows, a round ahead: 83, 95, 99%.
            rows = AHEAD * self.device.sms // (length * loaded) if length <= chosen.order.lanes * together else 1
            return replace(chosen, ahead=max(rows, 1), min_blocks=4 if self._plain() and loaded <= 2 else 1)
        axes = self.body.parallel
        vector = min(self._dividing(self._vector(axes[-1]), axes[-1].extent) if axes else 1, 4)
        team = min(max(length // COLUMN_ITEMS, 1), 32)
        across = max(512 // team, 16 if vector > 1 else 32)
        chosen = self._schedule("scan", across * team, vector, COLUMN_ITEMS, team, Order(team * COLUMN_ITEMS), length)
        blocks = 2 if self._plain() else 1  # 64 registers: one loads, another folds, stores
        return replace(chosen, min_blocks=blocks, ahead=self._tiles_ahead(chosen, 2))

    def _tiles_ahead(self, chosen: CudaSchedule, blocks: int) -> int:
        """Tiles further down that a block asks for: as many as the L2 keeps until their turn. (One H200, bf16 of 16384
        rows: 74% of a copy, 92 asking for the next tile, 77 for the one after; f32, which has as much on its way as
        two tiles of bf16: 95, 87 asking for the next.)"""
        element = sum(p.fetch(k).dtype.bytes for p in self.body.programs for k in self._streams(p))
        tile = chosen.threads * chosen.vector * chosen.unroll * element
        return min(AHEAD // (blocks * tile), 1) if tile else 0

    def _wide(self, lanes: int) -> int:
        """Elements of a tile that a thread takes: 4, the run of the order, and two runs of halves, which it loads and
        stores together and folds for fewer instructions. (One H200, bf16: rows of 256 93 -> 98% of a copy, of 1024 83
        -> 97, of 2048 92 -> 97; longer ones take the registers.)"""
        axis = self.body.reduced[-1] if len(self.body.reduced) == 1 else None
        whole = axis is not None and self.alignment.divides(8, axis.extent) and self._vector(axis) == 8
        return 8 if whole and lanes >= 8 else 4

    def _plain(self) -> bool:
        """Whether a state and a step take few registers."""
        return self._state_registers() == 1 and self._steps() < 16

    def _waiting(self, long: CudaSchedule) -> CudaSchedule:
        """A long scan whose tiles wait in shared memory. Where there are several for each block that fits the device,
        blocks take them in turn, three an SM (one H200: the scan of 2^28 f32 715 -> 602 us)."""
        held = BLOCK * 4 * long.unroll * self._state_bytes()  # of a tile
        blocks = min(self.device.shared_block // (2 * held + 2048), 3)
        workers = blocks * self.device.sms
        tiles = self._representative(self.body.rows) * max(long.capacity // (BLOCK * 4 * long.unroll), 1)
        if blocks > 1 and tiles >= 4 * workers:
            return replace(long, parked=True, min_blocks=blocks, workers=workers)
        flying = BLOCK * 4 * 16  # bytes a block has on the way
        four = 3 * flying <= self.device.inflight and 4 * (held + 1024) <= self.device.shared_block
        return replace(long, parked=True, min_blocks=4 if four else 2)  # 64 registers, which not every target keeps to
