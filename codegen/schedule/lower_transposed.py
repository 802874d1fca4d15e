"""Pointwise groups with transposed operands on CUDA: square tiles through shared memory.

In: a pointwise body in which some loads run along another axis than the stores. Out: one kernel. A block computes a
square of `tile` by `tile` elements: transposed operands are loaded along their own axis, parked in shared memory, and
read across; the rest is loaded as in any pointwise kernel. Global accesses are whole vectors where that is proven.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.program import Fetch
from fuser.codegen.schedule.alignment import Alignment, contiguous
from fuser.codegen.schedule.axes import Axis, count
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import bind_axes
from fuser.codegen.schedule.tile import Tile, Values
from fuser.hostexpr import call
from fuser.proofs import GATHERED
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

PAD = 1  # elements between the rows of a parked tile: columns then lie in different banks


@dataclass(frozen=True)
class Crossing:
    """The axis that transposed loads run along, and those loads (steps of the stage's program)."""

    axis: Axis
    steps: tuple[int, ...]


def crossing(body: Body) -> Crossing | None:
    """The transposed loads of a pointwise body: contiguous along one outer axis, and not along the innermost."""
    (stage,) = body.stages
    program, inner = stage.loop, body.parallel[-1].name if body.parallel else ""
    found: dict[str, list[int]] = {}
    for k in program.fetches:
        fetch = program.fetch(k)
        names = program.symbols(k)
        if fetch.mask or inner not in names or any(n.startswith(GATHERED) for n in names):
            continue
        along = [a for a in body.parallel[:-1] if contiguous(fetch.index[0], a.name)]
        if along and not contiguous(fetch.index[0], inner):
            found.setdefault(along[0].name, []).append(k)
    if not found:
        return None
    name, steps = max(found.items(), key=lambda item: len(item[1]))
    return Crossing(next(a for a in body.parallel if a.name == name), tuple(steps))


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a pointwise group with transposed operands."""
    found = crossing(body)
    assert found is not None
    writer = _Transposed(frame, body, schedule, found)
    writer.write()
    return frame.builder.finish(Launch((writer.blocks, 1), schedule.threads, schedule.min_blocks))


class _Transposed:
    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule, found: Crossing) -> None:
        self.frame, self.body, self.schedule, self.crossing = frame, body, schedule, found
        (self.stage,) = body.stages
        self.side = schedule.tile
        self.inner, self.outer = body.parallel[-1], found.axis
        self.others = [a for a in body.parallel[:-1] if a != found.axis]
        self.tiles = [call("//", a.extent + (self.side - 1), self.side) for a in (self.outer, self.inner)]
        self.blocks = count(self.others) * self.tiles[0] * self.tiles[1]

    def write(self) -> None:
        f, thread, block = self.frame, self.frame.thread(), self.frame.block()
        across = f.host(self.tiles[1])
        rest = f.div(block, across)
        down = f.host(self.tiles[0])
        corner_inner = f.mul(f.rem(block, across), self.side)
        corner_outer = f.mul(f.rem(rest, down), self.side)
        base = bind_axes(f, self.body.ranges, self.others, f.div(rest, down), count(self.others))
        self.base = f.indices(self.body.ranges, **base)
        self.corner = {self.outer.name: corner_outer, self.inner.name: corner_inner}
        self.thread = thread
        parked = {k: self._load(k) for k in self.crossing.steps}
        tile = Tile(f, self.stage.loop, frozenset({self.inner.name}), self.inner.name, self.schedule.vector)
        rows = self._places(self.inner, self.outer, self.schedule.vector)
        direct = [{k: tile.load_step(k, at, ok) for k in tile.loadable if k not in parked} for _, at, ok in rows]
        scratch = {k: self._park(k, *loaded) for k, loaded in parked.items()}
        f.builder.barrier()
        for (place, lanes, ok), loads in zip(rows, direct, strict=True):
            with f.builder.branch(ok):
                crossed = {k: self._read(name, place, len(lanes)) for k, name in scratch.items()}
                self._evaluate(tile, lanes, {**loads, **crossed})

    def _places(
        self, along: Axis, other: Axis, width: int
    ) -> list[tuple[tuple[Operand, Operand], list[IndexEmitter], Operand]]:
        """The vectors of the square that this thread has: (place along, place across), lanes, whether they exist."""
        f, per_row, out = self.frame, self.side // width, []
        first = f.mul(f.rem(self.thread, per_row), width)
        x = f.add(self.corner[along.name], first)
        inside = f.less(x, f.host(along.extent))
        for k in range(0, self.side, self.schedule.threads // per_row):
            step = f.add(f.div(self.thread, per_row), k)
            y = f.add(self.corner[other.name], step)
            at = self.base.bound(**{other.name: y})
            lanes = [at.bound(**{along.name: f.add(x, j)}) for j in range(width)]
            out.append(((first, step), lanes, f.both(inside, f.less(y, f.host(other.extent)))))
        return out

    # -- transposed operands -----------------------------------------------------------------------
    def _width(self, fetch: Fetch) -> int:
        """Elements of its loads along its own axis."""
        return vector_along(self.frame.alignment, fetch, self.outer)

    def _load(self, step: int) -> tuple[list[tuple[Operand, Operand]], list[tuple[Operand, ...]]]:
        fetch = self.stage.loop.fetch(step)
        width = self._width(fetch)
        tile = Tile(self.frame, self.stage.loop, frozenset({self.outer.name}), self.outer.name, width)
        places = self._places(self.outer, self.inner, width)
        return [place for place, _, _ in places], [tile.load_step(step, at, ok) for _, at, ok in places]

    def _park(self, step: int, places: Sequence[tuple[Operand, Operand]], loads: Sequence[tuple[Operand, ...]]) -> str:
        """Writes a loaded square to shared memory, rows along the operand's own axis."""
        f, dtype = self.frame, self.stage.loop.fetch(step).dtype
        name = f.builder.alloc("square", dtype, self.side * (self.side + PAD), "shared")
        for (first, row), lanes in zip(places, loads, strict=True):
            at = f.add(f.mul(row, self.side + PAD), first)
            for j, value in enumerate(lanes):
                f.builder.store(name, f.add(at, j), value)
        return name

    def _read(self, name: str, place: tuple[Operand, Operand], width: int) -> tuple[Operand, ...]:
        """A vector along the innermost axis, read across the rows of the parked square."""
        f, (first, row) = self.frame, place
        return tuple(f.builder.load(name, f.add(f.mul(f.add(first, j), self.side + PAD), row)) for j in range(width))

    def _evaluate(self, tile: Tile, lanes: Sequence[IndexEmitter], loads: dict[int, tuple[Operand, ...]]) -> None:
        values: list[Values] = []
        for j, at in enumerate(lanes):
            values.append(tile.evaluate(j, at, loads, {}, {}, values[0] if values else None))
        tile.store(self.stage.stores, lanes, values)


def vector_along(alignment: Alignment, fetch: Fetch, axis: Axis) -> int:
    """Elements of a 16-byte vector along an axis, 1 where it is not proven aligned."""
    width = 16 // fetch.dtype.bytes
    fits = alignment.divides(width, axis.extent) and alignment.whole(width, fetch.index[0], axis.name)
    return width if fits else 1
