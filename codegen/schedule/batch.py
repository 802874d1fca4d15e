"""Groups of several spaces: independent kernels in one launch.

In: the finished kernels of a batch's parts. Out: one kernel that runs them all. On CUDA the grids follow one another:
blocks [0, a) are the first part's, [a, a + b) the second's, and a branch on the block's number, the same for the whole
block, finds the part. On CPUs an iteration of the one parallel loop is a task of one part: as many of that part's
iterations as are worth one, so that all parts share one dispatch to the thread pool. Where parts start is worked out by
the host at each call; a kernel is valid for all sizes that its parts are valid for. (Parts that read the same tables
took turns for a while, a 64th of each at a time. On an H200 queries and keys rotated so took 194 us, one after the
other 189.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Alloc, For, Kernel, Launch, Operand, walk
from fuser.codegen.schedule.cpu_sweep import ceil_div
from fuser.codegen.splice import Buffers, Piece
from fuser.dtypes import BOOL, I64, DType
from fuser.hostexpr import HostExpr, lit, wrap
from fuser.schedule import CpuSchedule, CudaSchedule


def choose_cuda(parts: Sequence[CudaSchedule]) -> CudaSchedule:
    """The schedule of a batch: the parts' own, brought to one block size where that is free."""
    threads = max(s.threads for s in parts)
    same = tuple(_resized(s, threads) if _resizable(s) else s for s in parts)
    return CudaSchedule(
        "batch", threads, max(s.vector for s in parts), max(s.unroll for s in parts),
        aligned=all(s.aligned for s in parts), index_bits=max(s.index_bits for s in parts),
        factors=tuple(dict.fromkeys(m for s in parts for m in s.factors)), parts=same,
    )  # fmt: skip


def _resized(s: CudaSchedule, threads: int) -> CudaSchedule:
    return replace(s, threads=threads, ragged=None if s.ragged is None else _resized(s.ragged, threads))


def _resizable(s: CudaSchedule) -> bool:
    """Whether the block is free to be larger: nothing but the number of elements or rows a block takes hangs on it."""
    return (s.kind == "pointwise" and not s.tile) or (s.kind == "rows" and not s.parked)


def choose_cpu(parts: Sequence[CpuSchedule]) -> CpuSchedule:
    """The schedule of a batch."""
    return CpuSchedule("batch", grain=1, parts=tuple(parts))


def lower(name: str, lowered: Sequence[tuple[Kernel, ...]]) -> tuple[Kernel, ...]:
    """The kernels of a batch from those of its parts: one, and beside it what cannot share a launch."""
    block = max((k.launch.block for kernels in lowered for k in kernels), default=1)
    joined = [kernels[0] for kernels in lowered if len(kernels) == 1 and _joins(kernels[0], block)]
    if len(joined) < 2:
        return tuple(k for kernels in lowered for k in kernels)
    single = _on_cuda(name, joined) if joined[0].target == "cuda" else _on_cpu(name, joined)
    return (single, *(k for kernels in lowered if kernels[0] not in joined for k in kernels))


def _joins(k: Kernel, block: int) -> bool:
    """Whether a kernel is one line of independent blocks of the common size, with static shared memory only."""
    dynamic = any(isinstance(s, Alloc) and s.dynamic for s in walk(k.body))
    return k.launch.block == block and k.launch.grid[1] == 1 and k.launch.cluster == 1 and not dynamic


def _on_cuda(name: str, kernels: Sequence[Kernel]) -> Kernel:
    b = KernelBuilder(name, "cuda")
    buffers = Buffers(b)
    pieces = [Piece(b, k, buffers) for k in kernels]
    ranges = _Ranges([wrap(k.launch.grid[0]) for k in kernels])
    thread, block = b.special("thread"), b.special("block")
    share_memory(b, pieces)

    def write(k: int, here: Operand) -> None:
        pieces[k].specials = {"thread": thread, "block": here}
        pieces[k].write(kernels[k].body)

    ranges.dispatch(b, block, write)
    launches = [k.launch for k in kernels]
    joined = b.finish(Launch((ranges.total, 1), launches[0].block, min(x.min_blocks for x in launches)))
    return replace(joined, guarded=any(k.guarded for k in kernels))


def share_memory(b: KernelBuilder, pieces: Sequence[Piece]) -> None:
    """Shared arrays of all pieces in the same memory: a block runs one piece."""
    pools: dict[tuple[DType, int], list[tuple[Piece, Alloc]]] = {}
    for piece in pieces:
        seen: dict[DType, int] = {}
        for s in walk(piece.kernel.body):
            if isinstance(s, Alloc) and s.space == "shared":
                seen[s.dtype] = seen.get(s.dtype, 0) + 1
                pools.setdefault((s.dtype, seen[s.dtype]), []).append((piece, s))
    for (dtype, _), users in pools.items():
        array = b.alloc(users[0][1].name, dtype, max(s.size for _, s in users), "shared")
        for piece, s in users:
            piece.arrays[s.name] = array


def _on_cpu(name: str, kernels: Sequence[Kernel]) -> Kernel:
    b = KernelBuilder(name, "cpu")
    buffers = Buffers(b)
    pieces = [Piece(b, k, buffers) for k in kernels]
    loops = [_loop(k) for k in kernels]
    ranges = _Ranges([ceil_div(wrap(k.launch.grid[0]), k.launch.grain) for k in kernels])
    for piece, loop in zip(pieces, loops, strict=True):
        piece.write([s for s in piece.kernel.body if s is not loop])
    with b.loop("task", 0, b.scalar(ranges.total, I64), kind="parallel") as task:
        ranges.dispatch(b, task, lambda k, here: _iterations(b, pieces[k], loops[k], here))
    return b.finish(Launch((ranges.total, 1), 1))


def _loop(k: Kernel) -> For:
    return next(s for s in k.body if isinstance(s, For) and s.kind == "parallel")


def _iterations(b: KernelBuilder, piece: Piece, loop: For, task: Operand) -> None:
    """One task of a part: `grain` of its iterations."""
    launch = piece.kernel.launch
    if launch.grain == 1:
        piece.bind(loop.var, task)
        piece.write(loop.body)
        return
    first = b.apply("multiply", (task, b.literal(launch.grain, I64)), I64)
    after = b.apply("add", (first, b.literal(launch.grain, I64)), I64)
    with b.loop("it", first, b.apply("min_num", (after, b.scalar(launch.grid[0], I64)), I64)) as it:
        piece.bind(loop.var, it)
        piece.write(loop.body)


class _Ranges:
    """Which part a block (or task) number belongs to, and which of that part's it is. counts: of each part."""

    def __init__(self, counts: Sequence[HostExpr]) -> None:
        self.starts = [lit(0)]
        for n in counts:
            self.starts.append(self.starts[-1] + n)
        self.total = self.starts.pop()

    def dispatch(self, b: KernelBuilder, number: Operand, write: Callable[[int, Operand], None]) -> None:
        """`write(k, i)` where `number` is the `i`-th of part `k`; the part is found by halves."""
        dtype = number.dtype

        def among(low: int, high: int) -> None:
            if high - low == 1:
                return write(low, b.apply("subtract", (number, b.scalar(self.starts[low], dtype)), dtype))
            middle = (low + high) // 2
            with b.branch(b.apply("less", (number, b.scalar(self.starts[middle], dtype)), BOOL), uniform=True):
                among(low, middle)
            with b.otherwise():
                among(middle, high)

        among(0, len(self.starts))
