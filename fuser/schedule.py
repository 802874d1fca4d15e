"""Schedules: how a group runs on a device. Frozen data, chosen by formula, never part of a program's meaning.

In: numbers from `codegen.schedule` (which chooses) or a tuning table. Out: records that lowering,
the cost model, plans and dumps read.
"""

from __future__ import annotations

from typing import Literal

from fuser.order import Order
from fuser.record import dataclass

ONE_LANE = Order(1)
CudaKind = Literal["pointwise", "rows", "columns", "split", "scan", "mixed", "batch"]


@dataclass(frozen=True)
class CudaSchedule:
    """A CUDA schedule.

    threads: block size. vector: elements a thread takes together along the contiguous axis (part of `order.lanes`
    for rows). unroll: vectors (or rows, for columns) in flight a thread. threads_per_row: threads that share a row
    ("rows"), row lanes that share a column ("columns"), or threads along a tile's row (stencils; else 1). order: the
    fixed reduction order. resident: raw input rows kept in registers between stages. aligned: every buffer starts
    16-byte aligned. factors: (dim symbol, power of two that divides it); with both, provably aligned vectors are loaded
    and stored whole. index_bits: 32 or 64.
    """

    kind: CudaKind
    threads: int
    vector: int = 1
    unroll: int = 1
    threads_per_row: int = 1
    order: Order = ONE_LANE
    resident: bool = False
    aligned: bool = False
    index_bits: int = 32
    min_blocks: int = 1
    capacity: int = 0  # largest reduced length the kernel is valid for (0: any)
    factors: tuple[tuple[str, int], ...] = ()
    turns: int = 1  # split: segments (or sets of them) that a block folds one after another
    sharers: int = 1  # split rows: blocks that share a segment, each with a run of its lanes
    slots: bool = False  # split: partials go to the block that starts last, which waits for them, a thread for each
    cluster: int = 1  # rows: neighbouring blocks that share a row, each keeping its segments of it
    parked: bool = False  # resident rows wait in shared memory instead of registers
    copies: bool = False  # parked: rows go there by asynchronous copies, all of a block's on their way at once
    workers: int = 0  # scan: blocks at most, each of which takes tiles in turn (0: a block a tile)
    tile: int = 0  # pointwise: side of the squares that transposed operands cross shared memory in (0: none do)
    strip: int = 1  # pointwise: neighbouring values of the axis before the innermost that a thread takes
    guarded: bool = False  # bound by arithmetic: exact divisions of a thread's lanes share a test and a branch
    ahead: int = 0  # rows, columns: a block asks for its part of what comes so many rows or tiles on (0: of none)
    bounds: tuple[tuple[str, int], ...] = ()  # with 64-bit indices: (dim symbol, the most it can be)
    down: Order = ONE_LANE  # mixed: of the reductions across rows (`order` is that of those along them)
    weights: bool = False  # mixed: what all rows read alike stays in registers from row to row
    parts: tuple[CudaSchedule, ...] = ()  # batch: of each part; `threads` are common to all
    ragged: CudaSchedule | None = None  # rows: of rows that are no whole vectors, which the same kernel has code for
    uneven: bool = False  # with `ragged`: rows of this size class are such rows


@dataclass(frozen=True)
class CpuSchedule:
    """A CPU schedule.

    grain: rows (or elements) a task should have at least. vector: lanes of the widest element in a vector register.
    order: the fixed reduction order. tile: columns (elements) a block for column reductions. blocks: parts that the
    shares of one reduction are split into, each a task ("split"). block_rows: rows a tile of a pointwise kernel that
    also reads across rows (1: whole rows), or rows that are reduced together run by run. stream: bytes from which
    results are stored past the caches (0: none are). capacity: bucket of the reduced length that `order` was chosen
    for. ahead: rows of at most `tile` elements by which an operand read across reduced axes is copied ahead (0: none).
    """

    kind: CudaKind
    vector: int = 8
    unroll: int = 1
    grain: int = 16384
    tile: int = 256
    blocks: int = 1
    block_rows: int = 1
    capacity: int = 0
    order: Order = ONE_LANE
    index_bits: int = 64
    stream: int = 0
    ahead: int = 0
    parts: tuple[CpuSchedule, ...] = ()  # batch: of each part


Schedule = CudaSchedule | CpuSchedule
