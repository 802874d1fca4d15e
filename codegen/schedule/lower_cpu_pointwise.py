"""Pointwise groups on CPUs: chunks of the contiguous axis, or tiles where some operand is read across rows.

In: `CpuParts` of a group without reduced axes. Out: one kernel. Vectors run along the innermost collapsed axis. An
operand whose neighbours lie along the next axis out (a transposed one) is first copied, tile by tile, along its own
contiguous axis into a small array, so that each of its cache lines is touched once.
"""

from __future__ import annotations

from fuser.codegen.evaluate import mask_operand
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.program import Fetch
from fuser.codegen.schedule.axes import Axis, count
from fuser.codegen.schedule.cpu_parts import NO_AXIS, CpuParts, peel
from fuser.codegen.schedule.cpu_sweep import Sweep, Walk, ceil_div, crossing
from fuser.codegen.schedule.frame import Frame
from fuser.hostexpr import lit


def lower(parts: CpuParts) -> Kernel:
    """The kernel of a pointwise group."""
    return _tiled(parts) if parts.schedule.block_rows > 1 else _chunked(parts)


def _chunked(parts: CpuParts) -> Kernel:
    chunks, rows = parts.tiles(parts.schedule.tile), count(parts.outer)

    def write(frame: Frame, it: Operand) -> None:
        walk, (stage,) = Walk(frame), parts.body.stages
        row, chunk = peel(walk, it, [rows, chunks]) if parts.outer else (walk.operand(0), it)
        _run(parts, Sweep(frame, stage.loop), parts.at_outer(frame, row), chunk)

    return parts.kernel(rows * chunks, parts.schedule.grain, write)


def _run(parts: CpuParts, sweep: Sweep, at: IndexEmitter, chunk: Operand) -> None:
    """One chunk of one row."""
    walk, (stage,) = Walk(sweep.frame), parts.body.stages
    if parts.inner is NO_AXIS:
        sweep.store(stage.stores, at, sweep.element(at, {}))
        return
    sweep.known = {}
    sweep.hoist(at, {}, [parts.inner.name])
    start, stop = _span(walk, chunk, parts.schedule.tile, parts.inner)
    with walk.loop("i", start, stop, kind="vector") as i:
        place = at.bound(**{parts.inner.name: i})
        sweep.store(stage.stores, place, sweep.element(place, {}))


def _span(walk: Walk, block: Operand, size: int, axis: Axis) -> tuple[Operand, Operand]:
    """Where block number `block` of an axis starts and stops."""
    start = walk.op("multiply", block, size)
    return start, walk.least(walk.op("add", start, size), axis.extent)


def _tiled(parts: CpuParts) -> Kernel:
    """Iterations are (outer axes, block of rows, chunk); the rows of a block follow one another."""
    rows, others = parts.body.parallel[-2], parts.body.parallel[:-2]
    blocks, chunks = ceil_div(rows.extent, parts.schedule.block_rows), parts.tiles(parts.schedule.tile)

    def write(frame: Frame, it: Operand) -> None:
        walk, (stage,) = Walk(frame), parts.body.stages
        other, block, chunk = peel(walk, it, [lit(0), blocks, chunks])
        at = walk.place(frame.indices(parts.body.ranges), others, other)
        sweep = Sweep(frame, stage.loop)
        start, stop = _span(walk, block, parts.schedule.block_rows, rows)
        for step in crossing(stage.loop, rows, parts.inner):
            _stage(parts, sweep, step, at, (start, stop), _span(walk, chunk, parts.schedule.tile, parts.inner))
        with walk.loop("row", start, stop) as row:
            _run(parts, sweep, at.bound(**{rows.name: row}), chunk)

    return parts.kernel(count(others) * blocks * chunks, parts.schedule.grain, write)


def _stage(
    parts: CpuParts,
    sweep: Sweep,
    step: int,
    at: IndexEmitter,
    rows: tuple[Operand, Operand],
    columns: tuple[Operand, Operand],
) -> None:
    """Copy a fetch that crosses rows into an array of (row, column) of the tile, along its contiguous axis."""
    fetch, b, walk = sweep.program.steps[step], sweep.frame.builder, Walk(sweep.frame)
    assert isinstance(fetch, Fetch)
    outer, inner = parts.body.parallel[-2], parts.inner
    width, height = parts.schedule.tile, parts.schedule.block_rows
    array = b.alloc("tile", fetch.dtype, width * height, "register")

    def place(row: Operand, column: Operand) -> Operand:
        line = walk.op("multiply", walk.op("subtract", row, rows[0]), width)
        return walk.op("add", line, walk.op("subtract", column, columns[0]))

    with walk.loop("column", *columns) as j, walk.loop("row", *rows, kind="vector") as i:
        here = at.bound(**{outer.name: i, inner.name: j})
        value = b.load(sweep.frame.buffer_of(fetch), here.value(fetch.index[0]), mask_operand(b, here, fetch.mask))
        b.store(array, place(i, j), value)
    sweep.staged[step] = (array, lambda x: place(x.bindings[outer.name], x.bindings[inner.name]))
