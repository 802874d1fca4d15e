"""Which long rows wait in shared memory (or in a cluster's registers), what they take, and the blocks that share a row.

In: a body of several stages; the row's length, the device. Out: `Parking` (what waits where), and `Fit` (threads,
cluster, blocks an SM, slots in flight). Its own file because the chooser and the lowering must agree on it.
"""

from __future__ import annotations

from fuser.codegen.program import Fetch
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.device import Device
from fuser.dtypes import DType
from fuser.order import Order
from fuser.record import dataclass

Key = Fetch | int  # a load, or the number of a kept value
LEAST_COPY = 4  # bytes of an asynchronous copy
HELD = 64  # half elements of a row that a thread of a cluster holds in registers: 32 of them
HELD_F32, MOST_F32 = 32, 8  # elements of f32, and the blocks that hold a row of them together at most
HELD_BLOCKS = 4  # such blocks of 256 threads an SM: 64 registers a thread
AHEAD = 32 << 10  # bytes an SM of rows that are asked for before their turn
BESIDE = 2 << 10  # bytes of shared memory for exchanges, and what the system takes of it for a block


@dataclass(frozen=True)
class Parking:
    """Arrays of one element type each, and which of them a key waits in; `bytes_kept` an element of the row."""

    arrays: tuple[DType, ...]
    homes: dict[Key, int]

    @property
    def bytes_kept(self) -> int:
        return sum(t.bytes for t in self.arrays)


def copied(body: Body, alignment: Alignment, width: int) -> frozenset[Fetch]:
    """The first stage's loads along a row that are whole vectors in every row: asynchronous copies can make them."""
    inner = body.reduced[-1]
    loads = [f for f in reuse_of(body).stages[0].raw.values() if not f.mask]
    if width == 1 or not alignment.divides(width, inner.extent):
        return frozenset()
    whole = (f for f in loads if alignment.whole(width, f.index[0], inner.name))
    return frozenset(f for f in whole if width * f.dtype.bytes >= LEAST_COPY)


def parking(body: Body, copies: frozenset[Fetch] = frozenset()) -> Parking:
    """Where raw elements and values worth keeping wait from one stage to a later one.

    What is read for the last time in a stage leaves its place to a value of the same type that the stage makes.
    copies: loads that wait there from the start on, needed later or not.
    """
    stages, arrays, homes = reuse_of(body).stages, list[DType](), dict[Key, int]()
    last: dict[Key, int] = {}
    for k, stage in enumerate(stages):
        read: list[Key] = [*stage.raw.values(), *stage.taken.values()]
        last.update(dict.fromkeys(read, k))
    for k, stage in enumerate(stages):
        made: list[tuple[Key, DType]] = [(f, f.dtype) for f in stage.raw.values()]
        made = [(f, t) for f, t in made if (last[f] > k or f in copies) and f not in homes]
        steps = body.stages[k].loop.steps
        made += [(number, steps[step].dtype) for step, number in stage.kept.items()]
        for key, dtype in made:
            busy = {homes[other] for other in homes if last[other] > k or (key in copies and other in copies)}
            free = next((a for a, t in enumerate(arrays) if t == dtype and a not in busy), len(arrays))
            arrays += [dtype] if free == len(arrays) else []
            homes[key] = free
    return Parking(tuple(arrays), homes)


@dataclass(frozen=True)
class Fit:
    """A block's threads, blocks that share a row, blocks an SM, slots that a thread has on the way together; whether
    the row is held in registers instead, and how many rows on a block asks for its part."""

    threads: int
    cluster: int
    blocks: int
    unroll: int
    held: bool = False
    ahead: int = 0


@dataclass(frozen=True)
class Row:
    """A row by its numbers: elements, bytes an element that wait, elements a vector, streams that the first stage
    reads, bytes an element of them all, streams of weights that later stages read, registers of the largest stage's
    states, whether rows are stored, whether asynchronous copies bring them."""

    length: int
    kept: int
    vector: int
    streams: int
    loaded: int
    weights: int
    states: int
    stored: bool
    copies: bool

    def ahead(self, device: Device) -> int:
        """Rows between one and the row that its blocks ask for: what is on its way to the L2 keeps memory busy while
        the blocks of a cluster wait for each other (H200: 97 to 100% of a copy; 3 to 6 MiB on the way are best, at 16
        the L2 loses them). Rows that are only read keep it busy by themselves."""
        return max(AHEAD * device.sms // (self.length * self.loaded), 1) if self.stored else 0

    @property
    def rule(self) -> tuple[Fit, int]:
        """What ran fastest on H200 (cluster to be found), and the bytes of a row that a block should have."""
        return self._copied if self.copies else self._loaded

    @property
    def _copied(self) -> tuple[Fit, int]:
        """64 KiB in three blocks of 512 threads an SM. Half of it and half the threads where more than two blocks would
        share a row (with weights: where two would), where many weights come with a latency of their own, and where a
        row of half types is only read. Measured with rows of 32 to 512 KiB."""
        size = self.length * self.kept
        if self.vector <= 4 and self.weights:
            return Fit(256, 1, 4, 4), 32 << 10
        if self.weights > 1 and size == 32 << 10:
            return Fit(512, 1, 3, 1), 32 << 10  # layer norm of 16384 bf16: 132 us; with 256 threads 135, 72 registers
        if self.weights > 1:
            return Fit(256, 1, 5, 1), 32 << 10
        if not self.stored and self.vector > 4:
            return Fit(256, 1, 5, 2), 32 << 10
        if (64 << 10 < size <= 128 << 10) if self.weights else size > 128 << 10:
            return Fit(256, 1, 5, 2), 32 << 10
        return Fit(512, 1, 3, 2), 64 << 10

    @property
    def _loaded(self) -> tuple[Fit, int]:
        """Half types: 64 KiB, and up to 64 B of loads on the way a thread. f32 with weights: 32 KiB, or the loads of
        the weights cost the third block of an SM."""
        if self.vector <= 4 and self.weights:
            return Fit(512, 1, 3, 4 if self.streams == 1 else 2), 32 << 10
        if self.vector <= 4:
            return Fit(512, 1, 3, 4), 64 << 10
        if self.streams > 1:
            return Fit(512 if self.length * self.kept > 128 << 10 else 256, 1, 3, 2), 64 << 10
        if not self.weights and self.length * self.kept != 64 << 10:
            return Fit(512, 1, 3, 2), 64 << 10
        return Fit(512, 1, 2, 4 if self.states == 1 or not self.weights else 2), 64 << 10


def held_fit(row: Row, fixed: Order, device: Device) -> Fit | None:
    """For long rows of one stream: the registers of a cluster. Shared memory reaches 87% of a copy where this reaches
    97% (softmax of 131072 bf16 on H200): its loads and conditions cost instructions, of which there are few to spare.
    Several streams of weights, or values worth keeping, would not fit beside."""
    if not row.copies or row.streams > 1 or row.kept != row.loaded or row.weights > 2:
        return None
    found = _held_halves(row, fixed, device) if row.vector == 8 else _held_f32(row, fixed, device)
    least = 2 if row.weights < 2 else 4
    return found if found is not None and found.cluster >= least else None


def _held_halves(row: Row, fixed: Order, device: Device) -> Fit | None:
    """Four blocks of 256 threads an SM overlap."""
    threads, most = 256, min(device.cluster, fixed.segments)
    while threads < 512 and row.length > most * threads * HELD:
        threads *= 2
    cluster = row.length // (threads * HELD)
    if cluster > most or fixed.lanes < threads * row.vector:
        return None
    return Fit(threads, cluster, HELD_BLOCKS * 256 // threads, 1, True, row.ahead(device))


def _held_f32(row: Row, fixed: Order, device: Device) -> Fit | None:
    """Where weights are loaded beside: three blocks (H200, layer norm of 32768 columns 299 -> 279 us, of 65536 308 ->
    291; root mean square norm of 16384 279 -> 254). Without weights shared memory is as fast."""
    cluster = row.length // (256 * HELD_F32)
    fits = cluster <= min(device.cluster, MOST_F32) and fixed.lanes * fixed.segments >= cluster * 256 * row.vector
    if not (fits and row.vector == 4 and row.weights and row.stored):
        return None
    return Fit(256, cluster, HELD_BLOCKS - 1, 1, True, row.ahead(device))


def fit(row: Row, fixed: Order, device: Device) -> Fit | None:
    """The smallest cluster whose blocks have little enough of the row each; None where a row fits none."""
    rule, wanted = row.rule
    whole = device.shared_block
    limit = min(wanted, whole // rule.blocks - BESIDE)
    most = min(device.cluster, fixed.segments * max(fixed.lanes // (rule.threads * row.vector), 1))
    cluster = 1
    while cluster < most and row.length // cluster * row.kept > limit:
        cluster *= 2
    share = row.length // cluster * row.kept
    blocks = min(whole // (share + BESIDE), rule.blocks)
    if blocks == 0 or row.kept == 0 or fixed.lanes < rule.threads * row.vector:
        return None
    return Fit(rule.threads, cluster, blocks, rule.unroll, ahead=row.ahead(device))
