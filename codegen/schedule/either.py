"""Rows that are whole vectors and rows that are not, by one kernel: what a program is called with next is not to wait
for a compilation.

In: how schedules are chosen, a size class. Out: `choose` gives the schedule of the class, with that of the other rows
where one kernel is to have code for both; `join` makes that kernel of the finished two: the length decides, at each
launch, for the whole grid. Its own file because no lowering of rows knows that its kernel is a part of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Kernel, Launch
from fuser.codegen.schedule.batch import share_memory
from fuser.codegen.schedule.body import Body
from fuser.codegen.splice import Buffers, Piece
from fuser.dtypes import BOOL, I32, I64
from fuser.graph import Graph
from fuser.hostexpr import call
from fuser.keys import SizeClass, vector_unit
from fuser.schedule import CudaSchedule

MOST = 16  # elements a thread of rows that are no vectors: with more they take the registers that others overlap in
WIDE = 128  # elements of a row from which on threads have as many of it as of whole vectors
MANY = 1 << 20  # rows


def choose(
    graph: Graph, body: Body, size_class: SizeClass, choose_one: Callable[[SizeClass], CudaSchedule]
) -> CudaSchedule:
    """The schedule of a class. With code for the other rows where rows of one dtype are kept in registers of one block
    and stored: what the other code takes besides then costs nothing (NVRTC: softmax of 1024 f32 columns takes the
    registers that it takes alone; one H200: 502 us both)."""
    chosen, d, unit = choose_one(size_class), row_dim(body), vector_unit(graph)
    factor = dict(size_class.factors).get(d, 1) if d else 0
    if chosen.kind != "rows" or factor not in (1, unit):
        return chosen
    others = tuple(f for f in size_class.factors if f[0] != d)
    if factor == 1:  # with code for whole vectors as many rows have it
        dims = tuple((k, n if k == d else max(n, MANY)) for k, n in size_class.dims)
        whole = choose_one(replace(size_class, factors=tuple(sorted((*others, (d, unit)))), dims=dims))
        ragged = chosen
    else:
        whole, ragged = chosen, choose_one(replace(size_class, factors=others))
    team = _team(whole, ragged)
    if whole.vector != unit or not whole.ahead or not (_held(whole) and _held(ragged)) or ragged.capacity > MOST * team:
        return chosen
    ragged = replace(ragged, threads=whole.threads, threads_per_row=team)
    return replace(whole, ragged=ragged, uneven=factor == 1)


def own(schedule: CudaSchedule) -> CudaSchedule:
    """The schedule of the class's rows alone."""
    return schedule.ragged if schedule.uneven and schedule.ragged is not None else replace(schedule, ragged=None)


def row_dim(body: Body) -> str:
    """The dim that is the length of rows; empty where another number is."""
    length = body.length
    return str(length.value) if len(body.reduced) == 1 and length.op == "sym" else ""


def _team(whole: CudaSchedule, ragged: CudaSchedule) -> int:
    """Threads that share a row that is no vectors; 0 where its code is better apart. As many as share whole vectors:
    more, with less of a row each, would have to run at once to keep memory busy, for which the other code takes too
    many registers. (One H200, softmax: f32 of 257 columns 190 us apart, 225 together with more threads, 152 with as
    many; 511: 139, 144, 140; 1001: 139 all; 127: 145, 167, 205; 63: 160, 162, 204.)"""
    if whole.capacity > WIDE:
        return whole.threads_per_row
    return min(ragged.threads_per_row, whole.threads) if whole.capacity < WIDE else 0


def _held(s: CudaSchedule) -> bool:
    """Whether rows wait in the registers of one block."""
    return s.resident and not s.parked and s.cluster == 1 and s.order.segments == 1


def join(body: Body, schedule: CudaSchedule, kernels: Sequence[Kernel]) -> Kernel:
    """The kernel of rows of any length. kernels: of whole vectors, of other rows."""
    (whole, ragged), index = kernels, I64 if schedule.index_bits == 64 else I32
    b = KernelBuilder(whole.name, "cuda")
    buffers = Buffers(b, exclusive=True)
    pieces = [Piece(b, k, buffers) for k in kernels]
    share_memory(b, pieces)
    unit = dict(schedule.factors)[row_dim(body)]
    rest = b.apply("trunc_rem", (b.scalar(body.length, index), b.literal(unit, index)), index)
    with b.branch(b.apply("equal", (rest, b.literal(0, index)), BOOL), uniform=True):
        pieces[0].write(whole.body)
    with b.otherwise():
        pieces[1].write(ragged.body)
    grid, other = whole.launch.grid[0], ragged.launch.grid[0]
    if grid != other:
        grid = call("where", call("==", body.length % unit, 0), grid, other)
    blocks = min(k.launch.min_blocks for k in kernels)
    joined = b.finish(Launch((grid, 1), whole.launch.block, blocks))
    return replace(joined, guarded=any(k.guarded for k in kernels))
