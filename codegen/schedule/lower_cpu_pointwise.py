"""Pointwise groups on CPUs: chunks of the contiguous axis, or tiles where some operand is read across rows.

In: `CpuParts` of a group without reduced axes. Out: one kernel. Vectors run along the innermost collapsed axis. An
operand whose neighbours lie along another axis (a transposed one) is read lane by lane; rows then come in blocks, so
that each of its cache lines is used by all rows of a block while it is in L1.
"""

from __future__ import annotations

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.schedule.axes import count
from fuser.codegen.schedule.cpu_parts import NO_AXIS, CpuParts, peel
from fuser.codegen.schedule.cpu_sweep import Sweep, Walk, ceil_div
from fuser.codegen.schedule.frame import Frame
from fuser.hostexpr import lit


def lower(parts: CpuParts) -> Kernel:
    """The kernel of a pointwise group."""
    return _tiled(parts) if parts.schedule.block_rows > 1 else _chunked(parts)


def _chunked(parts: CpuParts) -> Kernel:
    tile = parts.schedule.tile
    chunks = parts.tiles(tile)
    rows = count(parts.outer)

    def write(frame: Frame, it: Operand) -> None:
        walk = Walk(frame)
        row, chunk = peel(walk, it, [rows, chunks]) if parts.outer else (walk.operand(0), it)
        _run(parts, frame, parts.at_outer(frame, row), chunk)

    return parts.kernel(rows * chunks, parts.schedule.grain, write)


def _run(parts: CpuParts, frame: Frame, at: IndexEmitter, chunk: Operand) -> None:
    """One chunk of one row."""
    walk, (stage,) = Walk(frame), parts.body.stages
    sweep = Sweep(frame, stage.loop)
    if parts.inner is NO_AXIS:
        sweep.store(stage.stores, at, sweep.element(at, {}))
        return
    sweep.hoist(at, {}, [parts.inner.name])
    start = walk.op("multiply", chunk, parts.schedule.tile)
    stop = walk.least(walk.op("add", start, parts.schedule.tile), parts.inner.extent)
    with walk.loop("i", start, stop, kind="vector") as i:
        place = at.bound(**{parts.inner.name: i})
        sweep.store(stage.stores, place, sweep.element(place, {}))


def _tiled(parts: CpuParts) -> Kernel:
    """Iterations are (outer axes, block of rows, chunk); the rows of a block follow one another."""
    rows = parts.body.parallel[-2]
    others = parts.body.parallel[:-2]
    blocks, chunks = ceil_div(rows.extent, parts.schedule.block_rows), parts.tiles(parts.schedule.tile)

    def write(frame: Frame, it: Operand) -> None:
        walk = Walk(frame)
        other, block, chunk = peel(walk, it, [lit(0), blocks, chunks])
        at = walk.place(frame.indices(parts.body.ranges), others, other)
        start = walk.op("multiply", block, parts.schedule.block_rows)
        stop = walk.least(walk.op("add", start, parts.schedule.block_rows), rows.extent)
        with walk.loop("row", start, stop) as row:
            _run(parts, frame, at.bound(**{rows.name: row}), chunk)

    return parts.kernel(count(others) * blocks * chunks, parts.schedule.grain, write)
