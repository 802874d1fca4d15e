"""CUDA schedules by formula: threads, vector, unroll and kind for a group, a size class and a device.

In: a group's body (its axes and addresses), size-class buckets, device numbers. Out: a `CudaSchedule`. Nothing here
changes a result: `order` comes from `fuser.order`, the rest only says which thread computes what.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.codegen.loops import Kernel
from fuser.codegen.program import Fetch
from fuser.codegen.schedule import (
    either,
    lower_cluster,
    lower_columns_shared,
    lower_margins,
    lower_pointwise,
    lower_reduce,
    lower_resident,
    lower_scan,
    lower_scan_long,
    lower_scan_turns,
    lower_shared,
    lower_split,
    lower_stencil,
    lower_strips,
    lower_transposed,
)
from fuser.codegen.schedule.accumulate import folds_of
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.body import Body, Layouts
from fuser.codegen.schedule.cuda_mixed import Mixed, weaker
from fuser.codegen.schedule.cuda_scan import Scans
from fuser.codegen.schedule.exchange import SHARED_LIMIT, near_members
from fuser.codegen.schedule.flight import LONE_BLOCK
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.lower_resident import LINE_BYTES, reuse_of
from fuser.codegen.schedule.measures import BLOCK, LANE_STEPS, body_of
from fuser.codegen.schedule.parking import AHEAD, Fit, Row, copied, fit, held_fit, parking
from fuser.device import Device
from fuser.errors import InternalError
from fuser.graph import Graph
from fuser.group import Group
from fuser.hostfunctions import ceil_pow2
from fuser.keys import SizeClass
from fuser.order import Order
from fuser.schedule import CudaKind, CudaSchedule

RESIDENT_BYTES = 128  # of a row's raw inputs that a thread keeps from stage to stage
LONG_LANES = 4096  # lanes of rows that are long enough to wait in shared memory (8 Ki elements)
LOOP_REGISTERS = 48  # of states, and of elements on their way, that a loop over a row unrolls up to
FEW_COLUMNS = 8  # columns that one thread may take all of
LINE_THREADS = 8  # threads along a row of columns that wait in shared memory: 128 bytes
PARKED_BLOCK = 64 << 10  # bytes of them a block
LEAST_COLUMN = 8  # elements that a thread has of a column that waits there (32 rows of bf16 on H200: 84% of a copy, 77)
BESIDE_HELD = 34  # registers of a row kernel besides what it holds (NVRTC 13, softmax and layer norm)
SHORT_ROW = 16  # elements a thread up to which even one stage loads its whole row before it computes


def choose(graph: Graph, group: Group, size_class: SizeClass, device: Device) -> CudaSchedule:
    """The schedule of a group."""
    body = body_of(graph, group, tuple(size_class.layouts))
    return either.choose(graph, body, size_class, lambda c: _choose(graph, group, c, device))


def _choose(graph: Graph, group: Group, size_class: SizeClass, device: Device) -> CudaSchedule:
    chooser = _Chooser(graph, group, size_class, device)
    chosen = _of_kind(chooser, group.kind)
    loops = chosen.kind not in ("scan", "mixed") and not (chosen.resident or chosen.parked or chosen.tile)
    if not (loops and chooser.guards):
        return chosen
    half = device.threads // (2 * chosen.threads)  # of the threads, or 64 registers (n-body on H200: 5% over 85)
    return replace(chosen, guarded=True, min_blocks=max(chosen.min_blocks, half))


def _of_kind(chooser: _Chooser, kind: str) -> CudaSchedule:
    if kind == "pointwise":
        return chooser.pointwise()
    if kind == "scan":
        return chooser.scan()
    if kind == "mixed":
        return chooser.mixed()
    if kind in ("rows", "columns", "full"):
        return chooser.rows() if chooser.group.space.inner else chooser.columns()
    raise InternalError(f"no CUDA schedule for a group of kind `{kind}`", "schedule-kind")


def lower(graph: Graph, group: Group, schedule: CudaSchedule, layouts: Layouts) -> tuple[Kernel, ...]:
    """The kernels of a group under a schedule."""
    if schedule.ragged is not None:
        parts = [lower(graph, group, s, layouts) for s in (replace(schedule, ragged=None), schedule.ragged)]
        return (either.join(body_of(graph, group, tuple(layouts)), schedule, [k for (k,) in parts]),)
    kernels = _lowered(graph, group, schedule, layouts)
    return tuple(replace(k, guarded=True) for k in kernels) if schedule.guarded else kernels


def _lowered(graph: Graph, group: Group, schedule: CudaSchedule, layouts: Layouts) -> tuple[Kernel, ...]:
    body = body_of(graph, group, tuple(layouts))
    alignment = Alignment(schedule.aligned, schedule.factors)
    bounds = dict(schedule.bounds)
    frame = Frame(graph, group, layouts, schedule.index_bits, "cuda", alignment, bounds)
    if schedule.kind == "mixed":
        later = replace(group, name=f"{group.name}_columns")
        second = Frame(graph, later, layouts, schedule.index_bits, "cuda", alignment, bounds)
        return lower_margins.lower(frame, second, body, schedule)
    if schedule.kind == "pointwise":
        return (_pointwise(frame, body, schedule),)
    if schedule.kind == "split":
        return (lower_split.lower(frame, body, schedule, columns=not group.space.inner),)
    if schedule.workers:
        return (lower_scan_turns.lower(frame, body, schedule),)
    if schedule.kind == "scan" and group.space.inner and schedule.capacity > lower_scan_long.LONG:
        return (lower_scan_long.lower(frame, body, schedule),)
    if schedule.kind == "scan":
        return (lower_scan.lower(frame, body, schedule, columns=not group.space.inner),)
    if schedule.parked and not group.space.inner:
        return (lower_columns_shared.lower(frame, body, schedule),)
    if schedule.parked:
        return (lower_shared.lower(frame, body, schedule),)
    if schedule.resident:
        full = reuse_of(body).bytes_kept * schedule.capacity == RESIDENT_BYTES * schedule.threads_per_row
        return ((lower_cluster if schedule.cluster > 1 or full else lower_resident).lower(frame, body, schedule),)
    return (lower_reduce.lower(frame, body, schedule),)


def _pointwise(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    if schedule.tile:
        return lower_transposed.lower(frame, body, schedule)
    if schedule.threads_per_row > 1:
        return lower_stencil.lower(frame, body, schedule)
    if schedule.strip > 1:
        return lower_strips.lower(frame, body, schedule)
    return lower_pointwise.lower(frame, body, schedule)


def retreat(schedule: CudaSchedule) -> CudaSchedule | None:
    """The next schedule to try when the compiler reports spills; None when there is none. Never another order."""
    if schedule.kind == "mixed" or schedule.ragged is not None:
        return weaker(schedule) if schedule.ragged is None else either.own(schedule)
    if schedule.guarded and schedule.min_blocks > 1 and schedule.kind != "pointwise":
        return replace(schedule, min_blocks=1)
    if schedule.guarded:
        return replace(schedule, guarded=False, min_blocks=1)
    if schedule.strip > 1:
        return replace(schedule, strip=schedule.strip // 2)
    if schedule.parked and schedule.unroll > 1 and schedule.kind != "scan":
        return replace(schedule, unroll=schedule.unroll // 2)
    if schedule.min_blocks > 1:
        return replace(schedule, min_blocks=schedule.min_blocks - 1)
    if schedule.resident or schedule.parked:
        return replace(schedule, resident=False, cluster=1, parked=False, workers=0, ahead=0)
    if schedule.unroll > 1 and schedule.kind != "scan":  # a scan's rows a thread are part of its order
        return replace(schedule, unroll=schedule.unroll // 2)
    if schedule.kind == "rows" and schedule.vector > 1 and schedule.threads_per_row < 1024:  # twice the threads a row
        team = schedule.threads_per_row * 2
        return replace(schedule, vector=schedule.vector // 2, threads_per_row=team, threads=max(schedule.threads, team))
    if schedule.kind != "scan" and schedule.vector > 1:  # a thread's lanes stay; fewer of them are loaded together
        return replace(schedule, vector=schedule.vector // 2)
    if schedule.kind == "rows" and schedule.threads > max(schedule.threads_per_row, 128):
        return replace(schedule, threads=schedule.threads // 2)
    return None


def _resident_blocks(threads: int, held: int, vector: int, weights: int) -> int:
    """Blocks an SM that a resident row kernel is compiled for: two of 512 threads where registers allow.

    One such block an SM has nothing to overlap its barriers with; smaller blocks fit several times whatever they take.
    Elements that are no vectors bring so few bytes a load that four blocks of 256 threads are needed, and rows with
    two weights compute so much (H200, dropout before a layer norm: 121 us against 127).
    """
    if vector == 1 or weights > 1:
        return 1024 // threads
    return 2 if threads == 512 and held // 4 + BESIDE_HELD <= 68 else 1


class _Chooser(Mixed, Scans):
    def rows(self) -> CudaSchedule:
        length, fixed = self._order()
        axis = self.body.reduced[-1] if self.body.reduced else None
        vector = min(self._vector(axis), fixed.lanes) if axis else 1
        if axis is not None and len(self.body.reduced) > 1:
            vector = self._dividing(vector, axis.extent)
        vector = self._fewer(vector, 1 << 30) if axis and self._any_whole(vector, axis) else 1
        rows = self._representative(self.body.rows)
        whole = vector, self._team(fixed, vector, length)
        vector, team = spread = self._spread(*whole, fixed, length, rows)
        threads = max(team, 128 if length > 128 else BLOCK)
        kind: CudaKind = "split" if self._splits_rows(fixed, -(-rows * team // threads)) else "rows"
        groups = fixed.lanes // (team * vector)
        unroll = max(min(4 // groups, length // (fixed.segments * fixed.lanes)), 1)
        states = fixed.lanes // team * self._state_registers(narrow=self.bits == 32)
        while unroll > 1 and states + vector * groups * unroll > LOOP_REGISTERS:
            unroll //= 2
        chosen = self._schedule(kind, threads, vector, unroll, team, fixed, length)
        if kind == "split":
            return self._split_rows(chosen, rows)
        if found := self._parked(fixed, vector, length):
            return replace(
                chosen, threads=found.threads, threads_per_row=found.threads, resident=True,
                parked=not found.held, copies=not found.held and bool(self._copied(vector)), cluster=found.cluster,
                min_blocks=found.blocks, unroll=found.unroll, ahead=found.ahead,
            )  # fmt: skip
        held = self._held_bytes(length // team) if fixed.segments == 1 else 0
        blocks = _resident_blocks(threads, held + self._fresh_bytes() * vector, vector, self._fresh_streams())
        if not held:
            if len(self.body.stages) == 1 and self._few(rows * team // threads, chosen):
                if over := self._over_cluster(chosen, rows):
                    return over
                return replace(chosen, unroll=self._vectors_in_flight(chosen, rows * team // threads))
            return replace(chosen, min_blocks=2 if threads == 512 else 1)
        ahead = spread == whole and self._ahead(rows, team, vector, length)
        chosen = replace(chosen, resident=True, min_blocks=blocks, ahead=int(ahead))
        return chosen if chosen.ahead else replace(chosen, min_blocks=max(blocks, self._read_blocks(threads, held)))

    def _split_rows(self, chosen: CudaSchedule, rows: int) -> CudaSchedule:
        """Segments on blocks: how many in turn, and more on the way than where rows have blocks of their own."""
        blocks = max(rows * chosen.threads_per_row // chosen.threads, 1)
        turns = 1 if chosen.threads_per_row > 512 else self._turns(chosen, blocks)
        chosen = replace(chosen, sharers=self._sharers(chosen, rows))
        unroll = self._vectors_in_flight(chosen, blocks * chosen.order.segments // turns)
        plain = chosen.threads == BLOCK and self._state_registers() == 1 and self._steps() < 16
        plain = plain and not self._few(blocks * chosen.order.segments // turns, chosen)
        narrow = chosen.threads_per_row * chosen.vector == chosen.order.lanes and unroll <= 4
        plain_blocks = 5 if narrow else 4  # 48 registers or 64
        chosen = replace(chosen, turns=turns, unroll=unroll, min_blocks=plain_blocks if plain else 1)
        return replace(chosen, slots=self._slots(chosen, rows))

    def _parked(self, fixed: Order, vector: int, length: int) -> Fit | None:
        """How rows wait in shared memory or in a cluster's registers: long ones of several stages, and what registers
        of one block would not bring fast enough. None for others, and where they fit no block."""
        if vector == 1:
            return None  # neighbouring threads take neighbouring elements: reading them again is faster than that
        several, copies = len(self.body.stages) > 1, self._copied(vector)
        if fixed.lanes < LONG_LANES:
            return None
        if not several and not (copies and self._indexed()):
            return None
        weights = self._fresh_streams()
        if copies and weights > (0 if vector == 8 else 1) and fixed.segments == 1 and len(self.body.reduced) == 1:
            return None  # the registers of one block hold it, and what is asked for ahead keeps memory busy
        loads = [f.dtype.bytes for f in reuse_of(self.body).stages[0].raw.values()]
        kept = parking(self.body, copies).bytes_kept
        stored = any(stage.stores for stage in self.body.stages)
        states = self._state_registers()
        row = Row(length, kept, vector, len(loads), sum(loads), weights, states, stored, bool(copies))
        # Indices of several reduced axes take registers too: batch norm of 128x256x56x56 bf16 then has one block an SM,
        # 190 us on an H200 where shared memory takes 149.
        if len(self.body.reduced) == 1 and (found := held_fit(row, fixed, self.device)):
            return found
        found = fit(row, fixed, self.device)
        if found is None or length // (found.cluster * found.threads) * self._steps() > 2 * LANE_STEPS:
            return None
        # nor do they leave time to ask for rows ahead (the same batch norm 150 -> 145 us without)
        return found if len(self.body.reduced) == 1 else replace(found, ahead=0)

    def _indexed(self) -> bool:
        """Whether states hold an index beside each value: a loop over registers then has too few loads on the way."""
        sites = [site for stage in self.body.stages for site in stage.reduces]
        return any(fold.row.uses_index for fold in folds_of(self.graph, sites))

    def _copied(self, vector: int) -> frozenset[Fetch]:
        """What goes into shared memory by asynchronous copies; nothing where the device has none, nor where several
        streams would crowd a block's share of it."""
        single = len(reuse_of(self.body).stages[0].raw) == 1
        return copied(self.body, self.alignment, vector) if single and self.device.copies else frozenset()

    def _held_bytes(self, elements: int) -> int:
        """Bytes a thread keeps of a row if it is resident, `elements` of it; 0 where it should not be."""
        if len(self.body.stages) < 2 and elements > SHORT_ROW:
            return 0
        reuse = reuse_of(self.body)
        held = reuse.bytes_kept * elements
        loops = zip(self.body.stages, reuse.stages, strict=True)
        steps = max(self._lane_steps(stage.loop, r.needed) for stage, r in loops)
        return held if held <= RESIDENT_BYTES and elements * steps <= LANE_STEPS else 0

    def _fresh(self) -> list[frozenset[Fetch]]:
        """The loads that only a later stage makes (weights), by stage."""
        first, *later = reuse_of(self.body).stages
        return [frozenset(s.raw.values()) - frozenset(first.raw.values()) for s in later]

    def _fresh_bytes(self) -> int:
        """Their bytes an element, in the largest stage."""
        return max((sum(f.dtype.bytes for f in fresh) for fresh in self._fresh()), default=0)

    def _fresh_streams(self) -> int:
        return max(map(len, self._fresh()), default=0)

    def columns(self) -> CudaSchedule:
        length, fixed = self._order()
        axes = self.body.parallel
        vector = self._dividing(self._vector(axes[-1]), axes[-1].extent) if axes else 1
        vector = self._fewer(vector, 1 << 30)
        if found := self._parked_columns(fixed, vector, length):
            return found
        single, across = vector == 1 and self._coarse(length), 16 if vector > 1 else 32
        if few := self._few_columns(vector):
            vector, across = few, 1
        elif axes:  # no more threads side by side than there are columns
            vector, across = self._narrow(vector, across, fixed)
            if not single:
                across = min(across, ceil_pow2(-(-self._representative(axes[-1].extent) // vector)))
            if rounds := self._lone(vector, fixed, length, single):
                return self._schedule("columns", LONE_BLOCK, vector, rounds, 1, fixed, length)
        blocks = self._representative(self.body.rows) // (across * vector)
        kind: CudaKind = "split" if self._splits(fixed, blocks) else "columns"
        most = 128 if few else 256 if kind == "split" else 512  # a thread a column folds all members' states
        at_once = min(fixed.segments, most // (across * fixed.lanes))
        team = fixed.lanes * at_once
        while vector > 1 and self._exchanged(across * team * vector) > SHARED_LIMIT:
            vector //= 2
        levels = 0 if kind == "split" else (fixed.segments // at_once).bit_length()
        while vector > 1 and vector * self._state_registers() * (2 + levels) > 64:  # of 128 a thread
            vector //= 2
        threads = max(across * team, 32)
        launched = max(blocks, 1) * (fixed.segments // at_once if kind == "split" else 1)
        unroll = self._rows_in_flight(length // (fixed.segments * fixed.lanes), vector, threads * launched)
        return self._schedule(kind, threads, vector, unroll, team, fixed, length)

    def _few_columns(self, vector: int) -> int:
        """How many columns (all there are, a number known here) one thread takes: where they have most of their steps
        in common, such as the distance that three coordinates are divided by. 0 where they do not."""
        inner = self.body.parallel[-1] if self.body.parallel else None
        if inner is None or vector > 1 or not inner.extent.is_literal or not 1 < inner.extent.value <= FEW_COLUMNS:
            return 0
        reduced = frozenset(a.name for a in self.body.reduced)
        for stage in self.body.stages:
            walks, own = stage.loop.dependent(reduced), stage.loop.dependent(frozenset({inner.name}))
            common = sum(w and not o for w, o in zip(walks, own, strict=True))
            if stage.has_loop and common <= sum(own):
                return 0
        return int(inner.extent.value)

    def _parked_columns(self, fixed: Order, vector: int, length: int) -> CudaSchedule | None:
        """How tall columns of several stages wait in shared memory: 64 KiB of a tile of columns a block, so that three
        blocks fit an SM; None for others, and where even a cluster cannot hold a tile."""
        if len([s for s in self.body.stages if s.has_loop]) < 2 or vector == 1 or not self.body.reduced:
            return None
        sizes = [f.dtype.bytes for f in lower_columns_shared.parked_loads(self.body)]
        element = sum(sizes)
        row, cluster = LINE_THREADS * vector * element, 1
        while cluster < min(self.device.cluster, fixed.segments) and length // cluster * row > PARKED_BLOCK:
            cluster *= 2
        at_once = min(fixed.segments // cluster, BLOCK // (LINE_THREADS * fixed.lanes))
        team, line = fixed.lanes * at_once, LINE_THREADS
        if row and LINE_THREADS * team < BLOCK and length >= LEAST_COLUMN * fixed.lanes:
            line, vector = self._lines(length // cluster * element, team, vector, min(sizes))
        held = length // cluster * line * vector * element
        exchanged = self._exchanged(line * vector * (team // near_members(line, cluster) + 2 * cluster))
        if not row or line * team < 128 or exchanged > SHARED_LIMIT:
            return None
        blocks = min(self.device.shared_block // (held + exchanged + 1024), 3)
        if not blocks:
            return None
        rows = length // (fixed.segments * fixed.lanes)
        unroll = self._rows_in_flight(rows, vector, blocks * line * team * self.device.sms)
        chosen = self._schedule("columns", line * team, vector, unroll, team, fixed, length)
        copies = self.device.copies and lower_columns_shared.copied(self.body, self.alignment, vector)
        stored = any(stage.stores for stage in self.body.stages)
        ahead = max(AHEAD * self.device.sms // (length * row), 1) if cluster > 1 and stored else 0
        return replace(chosen, parked=True, copies=copies, cluster=cluster, min_blocks=blocks, ahead=ahead)

    @staticmethod
    def _lines(column: int, team: int, vector: int, smallest: int) -> tuple[int, int]:
        """(threads along a row, elements each) of a block's tile of columns of so many bytes that few threads share: as
        many as make a block, and so many elements that they take 64 KiB, if that is 128 bytes of a row. (One H200,
        logarithms of softmax: 128 rows of bf16 59 -> 92% of a copy, 512 rows 49 -> 75, 1024 rows 47 -> 78.)"""
        line, width = max(min(BLOCK // team, PARKED_BLOCK // column), LINE_THREADS), vector
        while width > 1 and column * line * width > PARKED_BLOCK:
            width //= 2
        return (line, width) if line * width * smallest >= LINE_BYTES else (LINE_THREADS, vector)

    def _team(self, fixed: Order, vector: int, length: int) -> int:
        """Threads a row. At most 512 (one block of 1024 an SM leaves nothing to overlap), and that only for long rows
        of several stages; as few as give each thread of a short row 64 bytes, 128 bytes a team together."""
        several = len([s for s in self.body.stages if s.has_loop]) > 1
        team = min(fixed.lanes // vector, 512 if several and length > 8192 else BLOCK)
        element = 16 // vector  # bytes of the widest element
        most = 512 if several else 1024
        while team < min(most, fixed.lanes // vector) and fixed.lanes // team * self._state_registers() > 40:
            team *= 2
        if vector == 1 and (found := self._lone_team(team, length)) and self._narrows(found, several, length):
            return found
        while team > 8 and length // team * element < 64 and team * vector * element >= 256:
            team //= 2
        return max(team, 1)

    @staticmethod
    def _lone_team(team: int, length: int) -> int:
        """Threads a row of elements that are loaded one by one: what a thread does once counts for more than how wide a
        team is. 16 elements a thread, but no fewer threads than a sector has; and 128 threads where 32 elements each
        come of that. H200, softmax and layer norm of 127 to 2049 columns: up to 1.6 times as fast; argmax of 1001 bf16
        109 -> 50 us, of f32 113 -> 65, sum of 257 bf16 160 -> 70, of f32 161 -> 73."""
        while team > 16 and (length // team < 16 or (team > 128 and length // team == 16)):
            team //= 2
        return team

    def _narrows(self, team: int, several: bool, length: int) -> bool:
        """Whether elements along rows are narrow enough for so few threads: halves; in one stage f32 too, unless rows
        are short, or so few that wider teams find room beside each other (264 rows of 4095: 5.2 us, narrow 6.4)."""
        rows = {a.name for a in self.body.parallel}
        sizes = [size for e, size in self._accesses() if not e.symbols.isdisjoint(rows)]
        if several or not sizes:
            return bool(sizes) and max(sizes) <= 2
        fills = self._representative(self.body.rows) * team >= self.device.sms * self.device.threads
        return max(sizes) <= 4 and length > 64 and fills

    def _splits_rows(self, fixed: Order, blocks: int) -> bool:
        """As below; and where whole rows would make a few waves of four blocks an SM, the last of them part empty (one
        H200: 768 rows of 1.3 MB 250 -> 239 us)."""
        waves = 4 * self.device.sms < blocks <= 32 * self.device.sms
        return self._splits(fixed, blocks) or (waves and self._splits(fixed, 0))

    def _splits(self, fixed: Order, blocks: int) -> bool:
        """Whether segments go to blocks of their own: one reducing stage, and too few blocks to fill the device."""
        stages = [s for s in self.body.stages if s.has_loop]
        return fixed.segments > 1 and len(stages) == 1 and blocks < 2 * self.device.sms
