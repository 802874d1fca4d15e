"""Groups of few, long reductions: the shares of one reduction spread over iterations.

In: `CpuParts` of a group whose rows (or tiles of columns) are too few to keep all cores busy. Out: for each stage that
reduces, a kernel that leaves one partial state a block of shares in a workspace, and one that combines the
partials and finishes; for each stage that stores along the reduced axes, a kernel over elements. Finished
results stay in workspaces. The tree of shares is the one `fuser.order` fixes, so the answer is the same as unsplit.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.program import Program, Result
from fuser.codegen.schedule.axes import count
from fuser.codegen.schedule.body import StageBody
from fuser.codegen.schedule.cpu_parts import CpuParts, peel
from fuser.codegen.schedule.cpu_state import Each, Folds, ResultArrays, Stack, levels_of, once, rows_of
from fuser.codegen.schedule.cpu_sweep import Sweep, Walk, ceil_div
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.lower_cpu_fused import band_of, tile_columns
from fuser.dtypes import DType
from fuser.hostexpr import HostExpr, lit
from fuser.record import dataclass

CHUNK = 8192  # elements an iteration of a kernel that stores along the reduced axes
FEW_ROWS = 8  # reduced rows an iteration of such a kernel over columns
ResultKey = tuple[int, int]


def lower(parts: CpuParts) -> tuple[Kernel, ...]:
    """The kernels of a group, stage by stage."""
    inner = parts.axis_kind == "inner" or not parts.body.parallel
    banded = inner and parts.schedule.block_rows > 1
    split = SplitBands(parts) if banded else SplitRows(parts) if inner else SplitColumns(parts)
    kernels: list[Kernel] = []
    for k, stage in enumerate(parts.body.stages):
        if stage.reduces:
            kernels += [split.partial(k, stage), split.combine(k, stage)]
            continue
        kernels += [split.elements(k, stage)] if stage.stores else []
        kernels += [split.per_row(k, stage)] if stage.row_stores else []
    return tuple(kernels)


@dataclass(frozen=True)
class _Split:
    """What rows and columns share: states and results in and out of workspaces."""

    parts: CpuParts

    @property
    def blocks(self) -> int:
        return self.parts.schedule.blocks

    def workspace(self, frame: Frame, name: str, dtype: DType, size: HostExpr) -> str:
        """A workspace of the group: the same name is the same memory in every kernel."""
        return frame.builder.buffer(name, dtype, "workspace", None, size)

    def partials(self, frame: Frame, k: int, folds: Folds) -> list[list[str]]:
        """The workspaces of stage `k`'s partial states by (row, block), a list of components a reduction."""
        size = self.parts.body.rows * self.blocks
        return [
            [self.workspace(frame, f"partial_{k}_{f}_{c}", t, size) for c, t in enumerate(fold.dtypes)]
            for f, fold in enumerate(folds.folds)
        ]

    def read_by(self, frame: Frame, *programs: Program, but: tuple[int, ...] = ()) -> dict[ResultKey, str]:
        """The workspaces of the results of earlier stages that programs read; `but`: nodes finished in this kernel."""
        found = {
            (s.node, s.k): s.dtype for p in programs for s in p.steps if isinstance(s, Result) and s.node not in but
        }
        return {key: self.result(frame, key, found[key]) for key in sorted(found)}

    def result(self, frame: Frame, key: ResultKey, dtype: DType) -> str:
        return self.workspace(frame, f"result_{key[0]}_{key[1]}", dtype, self.parts.body.rows)

    def save(self, folds: Folds, names: list[list[str]], place: Operand, at: Operand) -> None:
        for fold, buffers in zip(folds.folds, names, strict=True):
            for value, buffer in zip(folds.load(fold, place), buffers, strict=True):
                folds.b.store(buffer, at, value.value)

    def restore(self, folds: Folds, names: list[list[str]], place: Operand, at: Operand) -> None:
        for fold, buffers in zip(folds.folds, names, strict=True):
            folds.store(fold, place, [folds.b.handle(folds.b.load(buffer, at)) for buffer in buffers])

    def gather(
        self, walk: Walk, total: Folds, each: Each, every: Each, restore: Callable[[Operand, Operand], None]
    ) -> None:
        """All blocks combined in order into `total`; `restore(block, place)` fetches one for `each` place."""
        stack = Stack(walk, total, levels_of(self.blocks), every)
        with walk.loop("block", 0, self.blocks) as block:
            each(lambda j: restore(block, j))
            if self.blocks > 1:
                stack.push(walk.op("add", block, 1))


class SplitRows(_Split):
    """Vectors run along the reduced axes; an iteration is (row, block of shares)."""

    def partial(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: the state of every block of shares."""
        parts = self.parts

        def write(frame: Frame, it: Operand) -> None:
            walk, rows = Walk(frame), parts.rows(frame)
            names = self.read_by(frame, stage.loop)
            row, block = peel(walk, it, [lit(0), lit(self.blocks)])
            count_ = rows.order_of(stage).segments // self.blocks
            first = walk.op("multiply", block, count_)
            total = rows.shares(stage, parts.at_row(frame, row), self.load_results(frame, names, row), first, count_)
            self.save(total, self.partials(frame, k, total), walk.operand(0), it)

        return parts.kernel(parts.body.rows * self.blocks, 1, write, f"_{k}_shares")

    def combine(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: results of every row, and the values stored once a row."""
        parts = self.parts

        def write(frame: Frame, row: Operand) -> None:
            walk = Walk(frame)
            names = self.read_by(frame, stage.row, but=tuple(s.node for s in stage.reduces))
            total = Folds(walk, rows_of(parts.graph, stage.reduces), stage.reduces, 1, "total")
            buffers = self.partials(frame, k, total)
            base = walk.op("multiply", row, self.blocks)
            one = once(walk)
            self.gather(walk, total, one, one, lambda b, j: self.restore(total, buffers, j, walk.op("add", base, b)))
            results = self.load_results(frame, names, row)
            results.update(total.finish(walk.operand(0), parts.body.length))
            for fold in total.folds:
                for c, dtype in enumerate(fold.row.results(fold.site.operand)):
                    key = (fold.site.node, c)
                    frame.builder.store(self.result(frame, key, dtype), row, results[key])
            parts.rows(frame).row_stores(stage, parts.at_row(frame, row), results)

        return parts.kernel(parts.body.rows, 1, write, f"_{k}_total")

    def elements(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: values stored along the reduced axes, by (row, outer reduced axes, chunk of the innermost)."""
        parts, inner = self.parts, self.parts.body.reduced[-1]
        outer = parts.body.reduced[:-1]
        counts = [parts.body.rows, count(outer), ceil_div(inner.extent, CHUNK)]

        def write(frame: Frame, it: Operand) -> None:
            walk, sweep = Walk(frame), Sweep(frame, stage.loop)
            names = self.read_by(frame, stage.loop)
            row, run, chunk = peel(walk, it, counts)
            at = walk.place(parts.at_row(frame, row), outer, run)
            results = self.load_results(frame, names, row)
            sweep.hoist(at, results, [inner.name])
            start = walk.op("multiply", chunk, CHUNK)
            with walk.loop("i", start, walk.least(walk.op("add", start, CHUNK), inner.extent), kind="vector") as i:
                place = at.bound(**{inner.name: i})
                sweep.store(stage.stores, place, sweep.element(place, results))

        return parts.kernel(counts[0] * counts[1] * counts[2], 1, write, f"_{k}_elements")

    def per_row(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: values stored once a row by a stage that reduces nothing."""
        parts = self.parts

        def write(frame: Frame, row: Operand) -> None:
            results = self.load_results(frame, self.read_by(frame, stage.row), row)
            parts.rows(frame).row_stores(stage, parts.at_row(frame, row), results)

        return parts.kernel(parts.body.rows, 1, write, f"_{k}_rows")

    def load_results(self, frame: Frame, names: dict[ResultKey, str], row: Operand) -> dict[ResultKey, Operand]:
        return {key: frame.builder.load(name, row) for key, name in names.items()}


class SplitBands(SplitRows):
    """As rows, but an iteration is (outer axes, block of shares, band of rows): neighbouring rows run by run."""

    def partial(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: the states of every row and block of shares."""
        parts, height = self.parts, self.parts.schedule.block_rows
        bands = parts.tiles(height)

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            names = self.read_by(frame, stage.loop)
            outer, block, number = peel(walk, it, [lit(0), lit(self.blocks), bands])
            band = band_of(parts, frame, number)
            row = walk.op("add", walk.op("multiply", outer, parts.inner.extent), band.first)
            results = self._load_band(frame, names, row, band.count)
            shares = band.rows.order_of(stage).segments // self.blocks
            total = band.shares(
                stage, parts.at_outer(frame, outer), results, walk.op("multiply", block, shares), shares
            )
            buffers = self.partials(frame, k, total)
            with walk.loop("p", 0, band.count) as p:
                place = walk.op("multiply", walk.op("add", row, p), self.blocks)
                self.save(total, buffers, p, walk.op("add", place, block))

        return parts.kernel(count(parts.outer) * self.blocks * bands, 1, write, f"_{k}_shares")

    def _load_band(self, frame: Frame, names: dict[ResultKey, str], row: Operand, number: Operand) -> ResultArrays:
        """Results of earlier stages for the `number` rows from `row` on, as arrays."""
        walk, b = Walk(frame), frame.builder
        height = self.parts.schedule.block_rows
        arrays = {key: b.alloc("result", b.array_dtype(name), height, "register") for key, name in names.items()}
        if names:
            with walk.loop("p", 0, number) as p:
                for key, name in names.items():
                    b.store(arrays[key], p, b.load(name, walk.op("add", row, p)))
        return arrays


class SplitColumns(_Split):
    """Vectors run across columns; an iteration is (outer parallel axes, tile of columns, block of shares)."""

    def partial(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: the states of every tile and block of shares."""
        parts, tiles = self.parts, self.parts.tiles(self.parts.schedule.tile)

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            names = self.read_by(frame, stage.loop)
            outer, block, tile = peel(walk, it, [lit(0), lit(self.blocks), tiles])
            columns, at = tile_columns(parts, frame, tile), parts.at_outer(frame, outer)
            results = self.load_results(frame, names, outer, columns.first, columns.each)
            shares = columns.order.segments // self.blocks
            total = columns.shares(stage, at, results, walk.op("multiply", block, shares), shares)
            buffers = self.partials(frame, k, total)
            row = walk.op("add", walk.op("multiply", outer, self.blocks), block)
            base = self.column_base(walk, row, columns.first)
            columns.each(lambda j: self.save(total, buffers, j, walk.op("add", base, j)))

        return parts.kernel(count(parts.outer) * self.blocks * tiles, 1, write, f"_{k}_shares")

    def combine(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: results of every column, and the values stored once a column."""
        parts, tiles = self.parts, self.parts.tiles(self.parts.schedule.tile)

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            names = self.read_by(frame, stage.row, but=tuple(s.node for s in stage.reduces))
            outer, tile = peel(walk, it, [lit(0), tiles])
            columns, at = tile_columns(parts, frame, tile), parts.at_outer(frame, outer)
            total = Folds(walk, rows_of(parts.graph, stage.reduces), stage.reduces, parts.schedule.tile, "total")
            buffers = self.partials(frame, k, total)
            row = walk.op("multiply", outer, self.blocks)

            def restore(block: Operand, j: Operand) -> None:
                base = self.column_base(walk, walk.op("add", row, block), columns.first)
                self.restore(total, buffers, j, walk.op("add", base, j))

            self.gather(walk, total, columns.each, columns.every, restore)
            found = columns.finish(total)
            place = self.column_base(walk, outer, columns.first)
            for key, array in found.items():
                self._keep(frame, key, array, place, columns.each)
            found.update(self.load_results(frame, names, outer, columns.first, columns.each))
            columns.row_stores(stage.row, stage.row_stores, at, found)

        return parts.kernel(count(parts.outer) * tiles, 1, write, f"_{k}_total")

    def elements(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: values stored along the reduced axes, by (outer axes, rows in groups, tile)."""
        parts, tiles = self.parts, self.parts.tiles(self.parts.schedule.tile)
        counts = [lit(0), ceil_div(parts.body.length, FEW_ROWS), tiles]

        def write(frame: Frame, it: Operand) -> None:
            walk = Walk(frame)
            names = self.read_by(frame, stage.loop)
            outer, group, tile = peel(walk, it, counts)
            columns, at = tile_columns(parts, frame, tile), parts.at_outer(frame, outer)
            results = self.load_results(frame, names, outer, columns.first, columns.each)
            low = walk.op("multiply", group, FEW_ROWS)
            columns.store_down(stage, at, results, low, walk.least(walk.op("add", low, FEW_ROWS), parts.body.length))

        return parts.kernel(count(parts.outer) * counts[1] * tiles, 1, write, f"_{k}_elements")

    def per_row(self, k: int, stage: StageBody) -> Kernel:
        """Kernel: values stored once a column by a stage that reduces nothing."""
        parts, tiles = self.parts, self.parts.tiles(self.parts.schedule.tile)

        def write(frame: Frame, it: Operand) -> None:
            names = self.read_by(frame, stage.row)
            outer, tile = peel(Walk(frame), it, [lit(0), tiles])
            columns, at = tile_columns(parts, frame, tile), parts.at_outer(frame, outer)
            results = self.load_results(frame, names, outer, columns.first, columns.each)
            columns.row_stores(stage.row, stage.row_stores, at, results)

        return parts.kernel(count(parts.outer) * tiles, 1, write, f"_{k}_rows")

    def column_base(self, walk: Walk, row: Operand, first: Operand) -> Operand:
        """Where the tile starts in a workspace of (row, column)."""
        return walk.op("add", walk.op("multiply", row, self.parts.inner.extent), first)

    def load_results(
        self, frame: Frame, names: dict[ResultKey, str], outer: Operand, first: Operand, each: Each
    ) -> ResultArrays:
        """Results of earlier stages for the tile, as arrays."""
        walk, b = Walk(frame), frame.builder
        arrays = {
            key: b.alloc("result", b.array_dtype(name), self.parts.schedule.tile, "register")
            for key, name in names.items()
        }
        base = self.column_base(walk, outer, first)

        def copy(j: Operand) -> None:
            for key, name in names.items():
                b.store(arrays[key], j, b.load(name, walk.op("add", base, j)))

        if names:
            each(copy)
        return arrays

    def _keep(self, frame: Frame, key: ResultKey, array: str, base: Operand, each: Each) -> None:
        walk, b = Walk(frame), frame.builder
        buffer = self.result(frame, key, b.array_dtype(array))
        each(lambda j: b.store(buffer, walk.op("add", base, j), b.load(array, j)))
