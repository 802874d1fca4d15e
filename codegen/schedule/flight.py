"""How much a CUDA kernel has on the way together: vectors, rounds and rows in flight a thread, segments a block.

In: a group's measures and how its threads are laid out so far. Out: numbers of a schedule; none of them is part of a
reduction's order. Its own file because all of them answer one question: what covers the memory's latency.
"""

from __future__ import annotations

from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.codegen.schedule.measures import BLOCK, LANE_STEPS, Measures
from fuser.order import Order
from fuser.schedule import CudaSchedule

AHEAD = 48 << 10  # bytes an SM of rows that are asked for before their turn, each held by one block


class InFlight(Measures):
    """Measures, and what covers the memory's latency."""

    def _unroll(self, vector: int, total: int) -> int:
        """Vectors in flight a thread: enough bytes on the way to cover the memory's latency (hopper.md)."""
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
        """(elements, threads a row): twice the threads with half the elements where rows of several stages and several
        vectors a thread all run at once and leave half of the device's threads unused, so that each thread is done
        sooner (one H200: softmax of 1024 bf16 columns, 512 rows 5.4 -> 5.2 us, 4096 rows 9.0 -> 8.8)."""
        idle = rows * team * 2 <= self.device.sms * self.device.threads
        whole = team * vector == fixed.lanes and team <= 64 and length >= 4 * fixed.lanes
        if len(self.body.stages) > 1 and idle and whole and vector > 1:
            return vector // 2, team * 2
        return vector, team

    def _ahead(self, rows: int, team: int, length: int) -> int:
        """Rows ahead that blocks ask for, where rows of several stages are stored and there are more of them than run
        at once: a block that computes leaves memory idle. 6 MiB together, of which four lose nothing but half a
        percent; of 13 MiB the L2 loses some. One H200: rmsnorm of 4096 bf16 256 -> 250 us, add and rmsnorm of 8192 515
        -> 502, at 13 MiB 519, at 17 589; four statistics of a row, which are only read, 238 -> 250."""
        stages, at_once = self.body.stages, self.device.sms * self.device.threads
        if len(stages) < 2 or len(self.body.reduced) > 1 or rows * team <= at_once or not any(s.stores for s in stages):
            return 0
        element = sum(f.dtype.bytes for f in reuse_of(self.body).stages[0].raw.values())
        return max(AHEAD * self.device.sms // (length * element), 1)

    def _vectors_in_flight(self, chosen: CudaSchedule, blocks: int) -> int:
        """Rounds of a share that a thread has on the way together: 128 bytes, and 256 where the blocks leave the device
        mostly idle, so that all that is left to hide latency is the thread itself (one H200: the sum of |x| over 64 KB
        5.9 -> 4.7 us, 1 MB 7.9 -> 6.2, 8 MB 9.7 -> 8.6, 1 GB of bf16 138 -> 134)."""
        reduced = {a.name for a in self.body.reduced}
        walks = [(p, k) for p in self.body.programs for k in p.fetches if not p.symbols(k).isdisjoint(reduced)]
        element = sum(p.fetch(k).dtype.bytes for p, k in walks)
        groups = chosen.order.lanes // (chosen.threads_per_row * chosen.vector)
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

    def _few(self, blocks: int, chosen: CudaSchedule) -> bool:
        """Whether they leave most of the device's threads unused."""
        return blocks * chosen.threads <= self.device.sms * BLOCK

    def _turns(self, fixed: Order, blocks: int) -> int:
        """Segments a block folds in turn: what a block costs at its end is spread over them, 16 blocks an SM remain."""
        turns = 1
        levels = 12 // self._state_registers()  # of the fold over turns, each in registers of its own
        while turns < min(8, 1 << levels) and max(blocks, 1) * fixed.segments // (turns * 2) >= 16 * self.device.sms:
            turns *= 2
        return turns

    def _rows_in_flight(self, rows: int, vector: int, threads: int) -> int:
        """Rows (of `rows` that a thread has) on the way together: 4, more where too few threads run to keep the memory
        busy, and 64 bytes more of registers each time."""
        element = sum(p.fetch(k).dtype.bytes for p in self.body.programs for k in self._streams(p))
        unroll = 4
        while (
            unroll < 16
            and unroll * 2 * vector * max(element, 1) <= 256
            and unroll * 2 * vector * self._steps() <= LANE_STEPS
            and threads * vector * element * unroll < self.device.inflight * self.device.sms
        ):
            unroll *= 2
        return max(min(unroll, rows), 1)
