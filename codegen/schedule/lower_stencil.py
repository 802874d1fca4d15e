"""Stencils on CUDA: pointwise groups that read an array at several neighbouring places.

In: a pointwise body in which one input is read at offsets that differ by numbers of the host's. Out: one kernel. A
block computes a tile of the two or three innermost axes; a thread takes `unroll` vectors one after another along the
outermost of these. Every element that it needs is loaded once, whole vectors wherever two or more elements of one are
needed: the shifted reads of a row are parts of the same vectors, and the row below is the next vector's row itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fuser.codegen.indices import IndexEmitter, TileLane
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.program import Fetch, Program
from fuser.codegen.schedule.axes import Axis, count
from fuser.codegen.schedule.body import Body, StoreSite
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import bind_axes
from fuser.codegen.schedule.tile import Tile, Values
from fuser.dtypes import BOOL, U32, U64
from fuser.hostexpr import HostExpr, call, lit, sym, terms
from fuser.proofs import GATHERED
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

NEIGHBOURS = 3  # places at which a stencil reads an array, at least


def neighbours(body: Body) -> frozenset[int]:
    """The loads (steps of the stage's program) of arrays that are read at several places a fixed distance apart."""
    (stage,) = body.stages
    program, names = stage.loop, {a.name for a in body.parallel}
    found: dict[int, list[int]] = {}
    for k in program.fetches:
        if not any(n.startswith(GATHERED) for n in program.symbols(k)):
            found.setdefault(program.fetch(k).node, []).append(k)
    out: set[int] = set()
    for steps in found.values():
        offsets = {program.fetch(k).index[0] for k in steps}
        first = program.fetch(steps[0]).index[0]
        apart = [e - first for e in offsets]
        if len(apart) >= NEIGHBOURS and all(names.isdisjoint(d.symbols) and _whole_lines(d) for d in apart):
            out.update(steps)
    return frozenset(out)


def _whole_lines(distance: HostExpr) -> bool:
    """Whether a distance is made of whole lines and elements: halves of a line, which a rotation exchanges, are places
    that no two threads near each other share.
    """
    return all(atom.op == "sym" for term in terms(distance) for atom in term)


def marching(body: Body) -> Axis | None:
    """The axis along which a thread takes several vectors: the third innermost, else the second."""
    return body.parallel[-3:][0] if len(body.parallel) > 1 else None


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a stencil."""
    writer = _Stencil(frame, body, schedule)
    writer.write()
    return frame.builder.finish(Launch((writer.blocks, 1), schedule.threads, schedule.min_blocks))


@dataclass(frozen=True)
class _Span:
    """An axis of the grid: `step` values of it a block."""

    axis: Axis
    step: int

    @property
    def blocks(self) -> HostExpr:
        return call("//", self.axis.extent + (self.step - 1), self.step)


class _Stencil:
    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule) -> None:
        self.frame, self.body, self.schedule = frame, body, schedule
        (self.stage,) = body.stages
        self.inner, self.march = body.parallel[-1], marching(body)
        self.across = schedule.threads_per_row if self.march else schedule.threads
        down = schedule.threads // self.across
        self.spans = [_Span(self.inner, self.across * schedule.vector)]
        if len(body.parallel) == 2:
            self.spans.append(_Span(body.parallel[-2], down * schedule.unroll))
        elif len(body.parallel) > 2:
            self.spans += [_Span(body.parallel[-2], down), _Span(body.parallel[-3], schedule.unroll)]
        self.others = body.parallel[: -len(self.spans)]
        self.blocks = count(self.others)
        for span in self.spans:
            self.blocks = self.blocks * span.blocks

    def write(self) -> None:
        f, b = self.frame, self.frame.builder
        at, valid = self._place()
        tile = Tile(f, self.stage.loop, frozenset({self.inner.name}), self.inner.name, self.schedule.vector)
        with b.branch(valid):
            window = _Window(f, self.stage.loop, self.inner.name, self.schedule.vector, neighbours(self.body), at)
            vectors = [_Vector(self, tile, at, u) for u in range(self.schedule.unroll if self.march else 1)]
            loads = [v.load(window) for v in vectors]
            for vector, loaded in zip(vectors, loads, strict=True):
                vector.compute(self.stage.stores, loaded)

    def _place(self) -> tuple[IndexEmitter, Operand]:
        """Loop variables of the thread's first vector, and whether it exists."""
        f, block, thread = self.frame, self.frame.block(), self.frame.thread()
        inside, bound = list[Operand](), dict[str, Operand]()
        threads = [f.rem(thread, self.across), f.div(thread, self.across), f.number(0)]
        last = self.march.name if self.march else ""
        for k, (span, member) in enumerate(zip(self.spans, threads, strict=False)):
            number = block
            if self.others or k + 1 < len(self.spans):
                number, block = f.rem(block, f.host(span.blocks)), f.div(block, f.host(span.blocks))
            each = self.schedule.vector if k == 0 else self.schedule.unroll if span.axis.name == last else 1
            bound[span.axis.name] = f.add(f.mul(number, span.step), f.mul(member, each))
            inside.append(f.less(bound[span.axis.name], f.host(span.axis.extent)))
        bound.update(bind_axes(f, self.body.ranges, self.others, block, count(self.others)))
        valid = inside[0]
        for more in inside[1:]:
            valid = f.both(valid, more)
        return f.indices(self.body.ranges, **bound), valid


class _Vector:
    """A thread's `u`-th vector along the marching axis. exists: where it does (None: always)."""

    def __init__(self, writer: _Stencil, tile: Tile, base: IndexEmitter, u: int) -> None:
        f, march, inner = writer.frame, writer.march, writer.inner.name
        at, self.step = base, dict[str, HostExpr]()
        self.exists: Operand | None = None
        if march and u:
            place = f.add(base.bindings[march.name], u)
            at, self.exists = base.bound(**{march.name: place}), f.less(place, f.host(march.extent))
            self.step = {march.name: march.variable + u}
        first = at.bindings[inner]
        self.lanes = [at.in_lane(inner, TileLane(first, j, tile.width)) for j in range(tile.width)]
        self.tile = replace(tile, valid=self.exists)

    def load(self, window: _Window) -> dict[int, Sequence[Operand]]:
        loads = window.load(self.step)
        others = [k for k in self.tile.loadable if k not in loads]
        return {**loads, **{k: self.tile.load_step(k, self.lanes, self.exists) for k in others}}

    def compute(self, stores: Sequence[StoreSite], loads: Mapping[int, Sequence[Operand]]) -> None:
        values: list[Values] = []
        for j, lane in enumerate(self.lanes):
            values.append(self.tile.evaluate(j, lane, loads, {}, {}, values[0] if values else None))
        self.tile.store(stores, self.lanes, values, self.exists)


class _Window:
    """The elements around a thread's vectors, each loaded once, wherever its address lies inside its array.

    What a program may not read (beyond an edge) it does not use, so reading another element of the array instead, or
    none, changes nothing.
    """

    def __init__(
        self, frame: Frame, program: Program, inner: str, width: int, steps: frozenset[int], base: IndexEmitter
    ) -> None:
        self.frame, self.program, self.inner, self.width = frame, program, inner, width
        self.steps, self.base = sorted(steps), base
        self.elements: dict[tuple[int, HostExpr], Operand] = {}

    def load(self, step: dict[str, HostExpr]) -> dict[int, Sequence[Operand]]:
        """One operand a lane of every neighbouring load, for the vector `step` along."""
        places = {k: self._places(self.program.fetch(k), step) for k in self.steps}
        wanted: dict[tuple[int, HostExpr], set[HostExpr]] = {}  # aligned vector -> its elements that are wanted
        for k, lanes in places.items():
            fetch = self.program.fetch(k)
            for e in lanes:
                if (fetch.node, e) not in self.elements:
                    wanted.setdefault((k, self._vector_of(fetch, e)), set()).add(e)
        merged: dict[tuple[int, HostExpr], set[HostExpr]] = {}
        fetches: dict[int, Fetch] = {}
        for (k, start), elements in wanted.items():
            fetch = self.program.fetch(k)
            fetches[fetch.node] = fetch
            merged.setdefault((fetch.node, start), set()).update(elements)
        for (node, start), elements in merged.items():
            self._fill(fetches[node], start, sorted(elements, key=str))
        return {k: tuple(self.elements[self.program.fetch(k).node, e] for e in lanes) for k, lanes in places.items()}

    def _places(self, fetch: Fetch, step: dict[str, HostExpr]) -> list[HostExpr]:
        """Offset of each lane's element, the inner variable standing for lane 0's."""
        e = fetch.index[0].substitute(step)
        lane0 = sym(self.inner)
        return [e.substitute({self.inner: lane0 + j}) if j else e for j in range(self.width)]

    def _vector_of(self, fetch: Fetch, e: HostExpr) -> HostExpr:
        """Offset of the aligned vector with an element; the element's own where no such vector is proved, or where one
        might reach past the array's end."""
        start, known = e - terms(e).get((), 0) % self.width, self.frame.alignment
        whole = known.divides(self.width, lit(1) * self.frame.size(fetch.node))
        return start if whole and known.whole(self.width, start, self.inner) else e

    def _fill(self, fetch: Fetch, start: HostExpr, elements: Sequence[HostExpr]) -> None:
        if len(elements) == 1:
            (e,) = elements
            (self.elements[fetch.node, e],) = self._loaded(fetch, e, 1)
            return
        step = min(16 // fetch.dtype.bytes, self.width)
        for k in range(0, self.width, step):
            for j, value in enumerate(self._loaded(fetch, start + k, step)):
                self.elements[fetch.node, start + (k + j)] = value

    def _loaded(self, fetch: Fetch, start: HostExpr, width: int) -> tuple[Operand, ...]:
        f, b = self.frame, self.frame.builder
        at, size = self.base.value(start), lit(1) * f.size(fetch.node) - (width - 1)
        unsigned = U64 if f.index.bits == 64 else U32
        inside = b.apply("less", (b.apply("cast", (at,), unsigned), b.scalar(size, unsigned)), BOOL)
        return b.load_vec(f.buffer_of(fetch), at, width, inside)
