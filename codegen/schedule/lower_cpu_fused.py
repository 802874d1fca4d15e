"""Groups with reductions whose stages all fit one iteration: a row, a band of rows, or a tile of columns.

In: `CpuParts`. Out: one kernel. All stages of a row (a band, a tile) run one after another while it is in cache.
"""

from __future__ import annotations

from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.schedule.axes import count
from fuser.codegen.schedule.cpu_bands import Band
from fuser.codegen.schedule.cpu_columns import Columns
from fuser.codegen.schedule.cpu_parts import CpuParts, peel
from fuser.codegen.schedule.cpu_state import ResultArrays
from fuser.codegen.schedule.cpu_sweep import Results, Walk
from fuser.codegen.schedule.frame import Frame
from fuser.hostexpr import lit


def lower_rows(parts: CpuParts) -> Kernel:
    """An iteration is a row."""

    def write(frame: Frame, it: Operand) -> None:
        at = parts.at_row(frame, it)
        results: Results = {}
        rows = parts.rows(frame).keeping(parts.schedule.capacity)
        for stage in parts.body.stages:
            results = rows.stage(stage, at, results)

    return parts.kernel(parts.body.rows, parts.schedule.grain, write)


def lower_bands(parts: CpuParts) -> Kernel:
    """An iteration is a band of rows."""
    bands = parts.tiles(parts.schedule.block_rows)

    def write(frame: Frame, it: Operand) -> None:
        outer, number = peel(Walk(frame), it, [lit(0), bands])
        band, at = band_of(parts, frame, number), parts.at_outer(frame, outer)
        results: ResultArrays = {}
        for stage in parts.body.stages:
            results = band.stage(stage, at, results)

    return parts.kernel(count(parts.outer) * bands, parts.schedule.grain, write)


def lower_columns(parts: CpuParts) -> Kernel:
    """An iteration is a tile of columns."""
    tiles = parts.tiles(parts.schedule.tile)

    def write(frame: Frame, it: Operand) -> None:
        outer, tile = peel(Walk(frame), it, [lit(0), tiles])
        columns = tile_columns(parts, frame, tile)
        at = parts.at_outer(frame, outer)
        results: ResultArrays = {}
        for stage in parts.body.stages:
            results = columns.stage(stage, at, results)

    return parts.kernel(count(parts.outer) * tiles, parts.schedule.grain, write)


def tile_columns(parts: CpuParts, frame: Frame, tile: Operand) -> Columns:
    """The columns of a tile by number."""
    walk, width = Walk(frame), parts.schedule.tile
    first = walk.op("multiply", tile, width)
    size = walk.least(walk.op("subtract", parts.inner.extent, first), width)
    return Columns(parts.graph, frame, parts.body, parts.order(4), width, first, size)


def band_of(parts: CpuParts, frame: Frame, number: Operand) -> Band:
    """The rows of a band by number."""
    walk, height = Walk(frame), parts.schedule.block_rows
    first = walk.op("multiply", number, height)
    size = walk.least(walk.op("subtract", parts.inner.extent, first), height)
    return Band(parts.rows(frame), height, first, size)
