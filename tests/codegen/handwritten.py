"""Kernels written by hand with `KernelBuilder`: what the tests of the language's consumers run and print."""

from __future__ import annotations

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Kernel, Launch
from fuser.dtypes import F32, I32, I64, DType
from fuser.hostexpr import scalar_symbol, sym
from fuser.optable import table
from fuser.optable.base import S

N, ROWS, COLS = sym("n"), sym("rows"), sym("cols")


def global_index(b: KernelBuilder, threads: int) -> S:
    return b.handle(b.special("block")) * threads + b.handle(b.special("thread"))


def saxpy(dtype: DType = F32, threads: int = 64, vector: int = 1) -> Kernel:
    """out = a*x + y; with `vector` > 1, n is a multiple of it."""
    b = KernelBuilder("saxpy", "cuda")
    x, y = b.buffer("x", dtype, "in", 0, N), b.buffer("y", dtype, "in", 1, N)
    out = b.buffer("out", dtype, "out", 2, N)
    n, a = b.handle(b.scalar(N, I32)), b.handle(b.scalar(scalar_symbol("a", "float"), dtype, "a"))
    first = global_index(b, threads) * vector
    with b.branch((first < n).value):
        xs = b.load_vec(x, first.value, vector, name="xv")
        ys = b.load_vec(y, first.value, vector, name="yv")
        sums = [(a * b.handle(p) + b.handle(q)).value for p, q in zip(xs, ys, strict=True)]
        b.store_vec(out, first.value, sums)
    return b.finish(Launch(((N + (threads * vector - 1)) // (threads * vector), 1), threads))


def row_softmax(team: int = 32, threads: int = 64) -> Kernel:
    """Softmax of rows, `team` threads a row; rows beyond the end are computed as the last and not stored."""
    b = KernelBuilder("softmax_rows", "cuda")
    x, out = b.buffer("x", F32, "in", 0, ROWS * COLS), b.buffer("out", F32, "out", 1, ROWS * COLS)
    rows, cols = b.handle(b.scalar(ROWS, I32)), b.handle(b.scalar(COLS, I32))
    thread = b.handle(b.special("thread"))
    per_block = threads // team
    row = b.handle(b.special("block")) * per_block + thread.op("trunc_div", team)
    lane = thread.op("trunc_rem", team)
    live = row < rows
    base = live.where(row, rows - 1) * cols

    biggest = b.mutable("biggest", b.literal(float("-inf"), F32))
    with b.loop("j", lane.value, cols.value, team) as j:
        v = b.load(x, (base + b.handle(j)).value, name="v")
        b.assign(biggest, b.let("maximum", (biggest, v), F32, "bigger"))
    b.collective("max", F32, (biggest,), team)

    total = b.mutable("total", b.literal(0.0, F32))
    with b.loop("j", lane.value, cols.value, team) as j:
        v = b.load(x, (base + b.handle(j)).value, name="v")
        e = (b.handle(v) - b.handle(biggest)).op("exp")
        b.assign(total, (b.handle(total) + e).value)
    b.collective("sum", F32, (total,), team)

    with b.loop("j", lane.value, cols.value, team) as j:
        at = (base + b.handle(j)).value
        e = (b.handle(b.load(x, at, name="v")) - b.handle(biggest)).op("exp")
        b.store(out, at, (e / b.handle(total)).value, live.value)
    return b.finish(Launch(((ROWS + (per_block - 1)) // per_block, 1), threads))


def row_moments(team: int, threads: int) -> Kernel:
    """Mean and sum of squared deviations of each row by the `moments` reduction: a state of three components."""
    b = KernelBuilder("moments_rows", "cuda")
    x = b.buffer("x", F32, "in", 0, ROWS * COLS)
    mean, spread = b.buffer("mean", F32, "out", 1, ROWS), b.buffer("spread", F32, "out", 2, ROWS)
    row_of = table().reduction("moments")
    rows, cols = b.handle(b.scalar(ROWS, I32)), b.handle(b.scalar(COLS, I32))
    thread = b.handle(b.special("thread"))
    per_block = threads // team
    row = b.handle(b.special("block")) * per_block + thread.op("trunc_div", team)
    lane = thread.op("trunc_rem", team)
    live = row < rows
    types = row_of.state(F32)
    state = [
        b.mutable(f"s{k}", b.literal(v, t)) for k, (v, t) in enumerate(zip(row_of.identity(F32), types, strict=True))
    ]
    with b.loop("j", lane.value, cols.value, team) as j:
        v = b.load(x, (row * cols + b.handle(j)).value, live.value, name="v")
        new = row_of.combine(tuple(b.handle(s) for s in state), row_of.lift(b.handle(v), b.handle(b.literal(0, I64))))
        fixed = [b.mutable("new", s.value) for s in new]
        for s, f in zip(state, fixed, strict=True):
            b.assign(s, f)
    b.collective("moments", F32, state, team)
    first = (lane.eq(0) & live).value
    b.store(mean, row.value, state[1], first)
    b.store(spread, row.value, state[2], first)
    return b.finish(Launch(((ROWS + (per_block - 1)) // per_block, 1), threads))


def column_sum(across: int = 32, members: int = 8, reduction: str = "sum") -> Kernel:
    """Sums of columns: `members` row lanes, `across` columns a block; a team has stride `across`."""
    b = KernelBuilder("sum_columns", "cuda")
    x, out = b.buffer("x", F32, "in", 0, ROWS * COLS), b.buffer("out", F32, "out", 1, COLS)
    rows, cols = b.handle(b.scalar(ROWS, I32)), b.handle(b.scalar(COLS, I32))
    thread = b.handle(b.special("thread"))
    column = b.handle(b.special("block")) * across + thread.op("trunc_rem", across)
    live = column < cols
    start = thread.op("trunc_div", across)
    acc = b.mutable("acc", b.literal(0.0, F32))
    with b.loop("i", start.value, rows.value, members) as i:
        v = b.load(x, (b.handle(i) * cols + column).value, live.value, name="v")
        b.assign(acc, (b.handle(acc) + b.handle(v)).value)
    b.collective(reduction, F32, (acc,), members, across)
    b.store(out, column.value, acc, (start.eq(0) & live).value)
    return b.finish(Launch(((COLS + (across - 1)) // across, 1), across * members))


def full_sum(blocks: int = 8, threads: int = 64, ordered: bool = True, meet: bool = True) -> Kernel:
    """Sum of everything in one kernel: partials to a workspace, the last block adds them.

    ordered, meet: leave out to plant the faults that the interpreter must find.
    """
    b = KernelBuilder("sum_full", "cuda")
    x, out = b.buffer("x", F32, "in", 0, N), b.buffer("out", F32, "out", 1, 1)
    partials = b.buffer("partials", F32, "workspace", None, blocks)
    counter = b.buffer("counter", I32, "counter", None, 1)
    n = b.handle(b.scalar(N, I32))
    thread, block = b.handle(b.special("thread")), b.handle(b.special("block"))
    acc = b.mutable("acc", b.literal(0.0, F32))
    with b.loop("i", (block * threads + thread).value, n.value, blocks * threads) as i:
        b.assign(acc, (b.handle(acc) + b.handle(b.load(x, i, name="v"))).value)
    b.collective("sum", F32, (acc,), threads)
    last = b.alloc("last", I32, 1, "shared")
    first = thread.eq(0).value
    with b.branch(first):
        b.store(partials, block.value, acc)
        b.store(last, 0, b.ticket(counter, 0, blocks - 1, ordered=ordered))
    if meet:
        b.barrier()
    is_last = b.handle(b.load(last, 0, name="number")).eq(blocks - 1)
    with b.branch(is_last.value, uniform=True):
        total = b.mutable("total", b.literal(0.0, F32))
        with b.loop("k", thread.value, b.literal(blocks, I32), threads) as k:
            b.assign(total, (b.handle(total) + b.handle(b.load(partials, k, name="p"))).value)
        b.collective("sum", F32, (total,), threads)
        b.store(out, 0, total, first)
    return b.finish(Launch((blocks, 1), threads))
