"""How much a CUDA kernel has on the way together: vectors, rounds and rows in flight a thread, segments a block.

In: a group's measures and how its threads are laid out so far. Out: numbers of a schedule; none of them is part of a
reduction's order. Its own file because all of them answer one question: what covers the memory's latency.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.codegen.schedule.measures import BLOCK, LANE_STEPS, Measures
from fuser.order import Order
from fuser.schedule import CudaSchedule

AHEAD = 48 << 10  # bytes an SM of rows that are asked for before their turn, each held by one block
LONE_ROWS, LONE_BLOCK = 32, 128  # rows of columns of which a thread has all lanes, at most; threads of their blocks
LONE_REGISTERS = 64  # of what such a thread loads together, and of its states
BLOCK_BYTES = 256 << 10  # that a block of a split reduction takes in turns
CLUSTER, CLUSTER_BYTES = 8, 64 << 10  # blocks that take a row together although one could, and its least bytes
HELD_BYTES = 128  # of such a row in a thread's registers
SLOT_BYTES = 16 << 10  # of slots for the partials of a small split reduction; a quarter of a device's lasting zeros
SMALL_COLUMNS = 1 << 20  # elements of columns, fewer than a warp's, that take the layout of wider ones
LONG_VECTORS = 8192  # elements of a row
BESIDE_READ = 24  # registers of a row kernel that stores no rows, besides what it holds


class InFlight(Measures):
    """Measures, and what covers the memory's latency."""

    def _unroll(self, vector: int, total: int) -> int:
        """Vectors in flight a thread: enough bytes on the way to cover the memory's latency (`Device.inflight`)."""
        streams = [p.fetch(k).dtype.bytes * vector for p in self.body.programs for k in self._streams(p)]
        if not streams:
            return 1
        wanted = -(-self.device.inflight // (self.device.threads * sum(streams)))
        unroll = 1
        while unroll < min(wanted, 8) and unroll * vector * self._steps() < LANE_STEPS // 2:
            unroll *= 2
        while unroll > 1 and total < unroll * vector * BLOCK * self.device.sms * 2:
            unroll //= 2
        return unroll

    def _spread(self, vector: int, team: int, fixed: Order, length: int, rows: int) -> tuple[int, int]:
        """(elements, threads a row): twice the threads with half the elements where rows of halves, of several stages
        and several vectors a thread, all run at once and leave half of the device's threads unused, so that each thread
        is done sooner (one H200: softmax of 1024 bf16 columns, 512 rows 5.4 -> 5.2 us, 4096 rows 9.0 -> 8.8). Once more
        where there are three stages and three quarters of the threads stay unused: 32 rows of that softmax 1.70 ->
        1.64, 512 rows 1.98 -> 1.96, 1024 rows 2.38 -> 2.45; layer norm of 256 rows 2.84 -> 2.50; but root mean square
        norm, of two stages, of 128 rows 1.83 -> 1.88. Indices of several reduced axes would cost more than that."""
        several = len(self.body.stages) > 1 and team * vector == fixed.lanes and length >= 4 * fixed.lanes
        several = several and vector == 8  # f32 stays with one kernel a length
        device, again = self.device.sms * self.device.threads, len(self.body.stages) > 2 and len(self.body.reduced) == 1
        for threads in (device, device // 4) if again else (device,):
            if several and team <= 64 and vector > 1 and rows * team * 2 <= threads:
                vector, team = vector // 2, team * 2
        return vector, team

    def _ahead(self, rows: int, team: int, vector: int, length: int) -> int:
        """Rows ahead that blocks ask for, where rows of several stages are stored: a block that computes leaves memory
        idle. Long vectors do where there are more rows than run at once (1000 rows of 8192 f32: 17.9 us, asking 19.4);
        for others that is no reason for another kernel (256 rows of 4096 f32: 6.3, asking 6.4). 6 MiB together, of
        which four lose nothing but half a percent; of 13 MiB the L2 loses some. One H200: rmsnorm of 4096 bf16 256 ->
        250 us, add and rmsnorm of 8192 515 -> 502, at 13 MiB 519, at 17 589; four statistics of a row, which are only
        read, 238 -> 250."""
        stages, at_once = self.body.stages, self.device.sms * self.device.threads
        if len(stages) < 2 or len(self.body.reduced) > 1 or not any(s.stores for s in stages):
            return 0
        if vector > 1 and length >= LONG_VECTORS and rows * team <= at_once:
            return 0
        element = sum(f.dtype.bytes for f in reuse_of(self.body).stages[0].raw.values())
        return max(AHEAD * self.device.sms // (length * element), 1)

    def _read_blocks(self, threads: int, held: int) -> int:
        """Blocks an SM that rows of several stages need which are only read: twice the bytes that memory needs on the
        way, since blocks compute too; fewer where registers do not allow it. (One H200: cross-entropy of 4096 f32 with
        four blocks 156 us, with five 129.)"""
        stages = self.body.stages
        if len(stages) < 2 or any(s.stores for s in stages):
            return 1
        fits = self.device.occupancy(held // 4 + BESIDE_READ, threads) // threads
        return max(min(2 * self.device.inflight // (held * threads), fits), 1)

    def _vectors_in_flight(self, chosen: CudaSchedule, blocks: int) -> int:
        """Rounds of a share that a thread has on the way together: 128 bytes, and 256 where the blocks leave the device
        mostly idle, so that all that is left to hide latency is the thread itself (one H200: the sum of |x| over 64 KB
        5.9 -> 4.7 us, 1 MB 7.9 -> 6.2, 8 MB 9.7 -> 8.6, 1 GB of bf16 138 -> 134)."""
        element = self._element_bytes()
        groups = chosen.order.lanes // (chosen.threads_per_row * chosen.vector * chosen.sharers)
        width, rounds = groups * chosen.vector, chosen.capacity // (chosen.order.segments * chosen.order.lanes)
        states = chosen.order.lanes // chosen.threads_per_row * self._state_registers(narrow=self.bits == 32)
        few, unroll = self._few(blocks, chosen), chosen.unroll
        if groups > 1 and not few:
            return unroll  # their accumulators take the registers
        while (
            unroll * 2 <= rounds
            and unroll * 2 * width * element <= (256 if few else 128)
            and unroll * 2 * width * element // 4 + states <= (96 if few else 64)
            and unroll * 2 * width * self._steps() <= LANE_STEPS
        ):
            unroll *= 2
        return unroll

    def _sharers(self, chosen: CudaSchedule, rows: int) -> int:
        """Blocks that share a segment, each with some of the groups of lanes that a thread would have: where there are
        fewer segments than multiprocessors (one H200: the sum of |x| over 1 MB 2.92 -> 2.69 us)."""
        groups = chosen.order.lanes // (chosen.threads_per_row * chosen.vector)
        sharers, alone = 1, chosen.threads == chosen.threads_per_row
        while alone and sharers < groups and rows * chosen.order.segments * sharers * 2 <= self.device.sms:
            sharers *= 2
        return sharers

    def _narrow(self, vector: int, across: int, fixed: Order) -> tuple[int, int]:
        """(elements, threads side by side) of columns that leave most of the device's threads unused: 4 bytes a thread,
        128 a warp, so that the device has more threads to wait with and each has all its rows on the way (one H200:
        256 rows of 1024 f32 2.41 -> 1.79 us)."""
        return (max(vector // 4, 1), 32) if vector > 1 and self._few_threads(fixed, vector) else (vector, across)

    def _lone(self, vector: int, fixed: Order, length: int, single: bool) -> int:
        """Rounds of loads of a thread that has all lanes of its columns, and so waits for no other: where columns are
        short, and few or no vectors (one H200: 16 rows of 1024 f32 1.51 -> 1.40 us, 30 of 200,001 12.0 -> 9.8, 8 of
        2,000,001 61 -> 19.8). 0 where they are not, or take the registers."""
        if length > LONE_ROWS or not (single or self._few_threads(fixed)):
            return 0
        rounds = max(length // fixed.lanes, 1)
        loaded = sum(p.fetch(k).dtype.bytes for p in self.body.programs for k in self._streams(p)) * rounds
        each = vector * (loaded // 4 + self._state_registers())
        return rounds if fixed.lanes * each <= LONE_REGISTERS else 0

    def _coarse(self, length: int) -> bool:
        """Whether columns that are no vectors take a layout for any number of them: a warp's at least, or few."""
        wide = bool(self.body.parallel) and self._representative(self.body.parallel[-1].extent) >= self.device.warp
        return wide or self._representative(self.body.rows) * length <= SMALL_COLUMNS

    def _few_threads(self, fixed: Order, vector: int = 1) -> bool:
        """Whether columns of one segment, a thread for each lane of so many of them, leave most threads unused."""
        threads = self._representative(self.body.rows) // vector * fixed.lanes
        return fixed.segments == 1 and threads <= self.device.sms * BLOCK

    def _element_bytes(self) -> int:
        """Bytes that are loaded for an element of a row."""
        reduced = {a.name for a in self.body.reduced}
        walks = [(p, k) for p in self.body.programs for k in p.fetches if not p.symbols(k).isdisjoint(reduced)]
        return sum(p.fetch(k).dtype.bytes for p, k in walks)

    def _few(self, blocks: int, chosen: CudaSchedule) -> bool:
        """Whether they leave most of the device's threads unused."""
        return blocks * chosen.threads <= self.device.sms * BLOCK

    def _over_cluster(self, chosen: CudaSchedule, rows: int) -> CudaSchedule | None:
        """Few long rows of one stage, each in the registers of a cluster's blocks: one multiprocessor alone takes half
        a microsecond to load 64 KB (one H200: the sum of |x| over so much 1.86 -> 1.63 us, over 48 KB that a thread has
        in rounds of different lengths 2.58 -> 1.62, 16 such sums 1.96 -> 1.87; 64 of them, for which there are
        multiprocessors for two blocks each, 2.57 -> 2.66). None where that does not fit."""
        lanes, element = chosen.order.lanes, self._element_bytes()
        long = len(self.body.reduced) == 1 and chosen.order.segments == 1 and chosen.capacity * element >= CLUSTER_BYTES
        fits = self.device.cluster >= CLUSTER and rows * CLUSTER <= self.device.sms and chosen.vector > 1
        team = min(lanes // (chosen.vector * CLUSTER), chosen.threads_per_row)
        if not (long and fits) or team < LONE_BLOCK:
            return None
        elements = chosen.capacity // (team * CLUSTER)
        if elements * element > HELD_BYTES or elements * self._steps() > LANE_STEPS:
            return None
        return replace(chosen, resident=True, cluster=CLUSTER, threads=team, threads_per_row=team)

    def _turns(self, chosen: CudaSchedule, blocks: int) -> int:
        """Segments a block folds in turn: what a block costs at its end is spread over them, up to 256 KiB, while a
        dozen blocks an SM remain (one H200: 2^28 bf16 123.4 -> 121.5 us)."""
        turns = 1
        levels = 12 // self._state_registers()  # of the fold over turns, each in registers of its own
        segments, held = chosen.order.segments, chosen.capacity // chosen.order.segments * self._element_bytes()
        while (
            turns < min(8, 1 << levels, segments // 2)
            and turns * 2 * held <= BLOCK_BYTES
            and max(blocks, 1) * segments // (turns * 2) >= 12 * self.device.sms
        ):
            turns *= 2
        return turns

    def _slots(self, chosen: CudaSchedule, rows: int) -> bool:
        """Whether partials are so few that each has a thread that waits for it: no block then waits for its partial and
        its ticket to arrive (one H200: the sum of |x| over 1 MB 2.69 -> 2.41 us, over 8 MB 4.62 -> 4.35)."""
        parts = chosen.order.segments // chosen.turns * chosen.sharers
        lone = chosen.threads == chosen.threads_per_row
        return lone and parts <= chosen.threads and rows * parts * self._state_registers() * 8 <= SLOT_BYTES

    def _rows_in_flight(self, rows: int, vector: int, threads: int) -> int:
        """Rows (of `rows` that a thread has) on the way together: 4, more where too few threads run to keep the memory
        busy, up to 256 bytes and 32 rows."""
        element = sum(p.fetch(k).dtype.bytes for p in self.body.programs for k in self._streams(p))
        unroll = 4
        while (
            unroll < 32
            and unroll * 2 * vector * max(element, 1) <= 256
            and unroll * 2 * vector * self._steps() <= LANE_STEPS
            and threads * vector * element * unroll < self.device.inflight * self.device.sms
        ):
            unroll *= 2
        if vector == 1:  # two layouts, so that few kernels serve all numbers of columns
            unroll = 8 if unroll <= 8 else 32
        return max(min(unroll, rows), 1)
