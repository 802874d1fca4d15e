"""One pass of a CPU kernel over elements: what the inner loops of all CPU schedules write for an element.

In: a stage's program on a `Frame`, loop variables, a mask for partial rounds. Out: statements. Steps that do
not change inside a loop are written before it. Its own file because rows, columns, shares of both, scans and
pointwise loops differ only in how they walk, not in what they do at an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from fuser.codegen.evaluate import Lane, Loader
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import LoopKind, Operand, Var
from fuser.codegen.program import Fetch, Program
from fuser.codegen.program import instructions as step_instructions
from fuser.codegen.schedule.axes import Axis, count, split
from fuser.codegen.schedule.body import StoreSite
from fuser.codegen.schedule.cpu_keep import Keep
from fuser.codegen.schedule.frame import Frame
from fuser.dtypes import BOOL, I64
from fuser.hostexpr import HostExpr, lit, sym
from fuser.indexmap import coefficient
from fuser.proofs import GATHERED, Ranges
from fuser.record import dataclass

Values = dict[int, Operand]
Results = Mapping[tuple[int, int], Operand]


def instructions(program: Program, variables: Iterable[str]) -> float:
    """What the operators of a program cost an element, by the table, but those that are the same along `variables`."""
    moving = program.dependent(frozenset(variables))
    return sum(step_instructions(s, plain=True) for s, moves in zip(program.steps, moving, strict=True) if moves)


def crosses(offset: HostExpr, rows: Axis, inner: Axis) -> bool:
    """Whether an access is contiguous along `rows`, not along `inner`."""
    return coefficient(offset, rows.name) == lit(1) and coefficient(offset, inner.name) not in (lit(0), lit(1))


def crossing(program: Program, rows: Axis, inner: Axis) -> list[int]:
    """The loads of a program that cross rows, at addresses that loop variables give."""
    plain = (k for k in program.fetches if not any(n.startswith(GATHERED) for n in program.symbols(k)))
    return [k for k in plain if crosses(program.fetch(k).index[0], rows, inner)]


Staged = tuple[str, Callable[[IndexEmitter], Operand]]  # an array, and the index in it


@dataclass
class Sweep:
    """A program written at one element after another. `guard`: the mask of the round being written, if it has one.

    `staged`: fetches whose elements were copied to a register array: step -> (array, its index).
    `keep`, `arrays`: values saved for later stages of a row, or saved by earlier ones.
    """

    frame: Frame
    program: Program
    guard: Operand | None = None
    known: Values = field(default_factory=dict)
    staged: dict[int, Staged] = field(default_factory=dict)
    keep: Keep = field(default_factory=Keep)
    arrays: Sequence[str] = ()

    def hoist(self, indices: IndexEmitter, results: Results, variables: Sequence[str]) -> None:
        """Write every step that depends on none of the variables, here, before their loops."""
        moving = self.program.dependent(frozenset(variables))
        needed = self.keep.needed or [True] * len(moving)
        here = [n and not m for n, m in zip(needed, moving, strict=True)]
        self.known = self._lane().run(indices, results, self.known, here)

    def element(self, indices: IndexEmitter, results: Results, only: Sequence[bool] | None = None) -> Values:
        """The steps (those marked in `only`) at the element that `indices` binds."""
        return self._lane().run(indices.bound(), results, self.known, only)

    def element_of_row(self, indices: IndexEmitter, results: Results, i: Operand) -> Values:
        """All steps at the `i`-th element of the row, with kept values loaded and saved."""
        b = self.frame.builder
        loaded = {step: b.load(self.arrays[array], i) for step, array in self.keep.loads.items()}
        values = self._lane().run(indices.bound(), results, {**self.known, **loaded}, self.keep.needed)
        for step, array in self.keep.saves.items():
            b.store(self.arrays[array], i, values[step], self.guard)
        return values

    def store(self, sites: Sequence[StoreSite], indices: IndexEmitter, values: Values) -> None:
        for site in sites:
            self.frame.store(site, indices, values[site.step], self.guard)

    def _lane(self) -> Lane:
        return Lane(self.program, self.frame.builder, self._loader())

    def _loader(self) -> Loader:
        b = self.frame.builder

        def load(step: int, indices: IndexEmitter, mask: Operand | None) -> Operand:
            fetch = self.program.steps[step]
            assert isinstance(fetch, Fetch)
            if step in self.staged:
                array, place = self.staged[step]
                return b.load(array, place(indices))
            if self.guard is not None:
                mask = self.guard if mask is None else b.apply("logical_and", (self.guard, mask), BOOL)
            return b.load(self.frame.buffer_of(fetch), indices.value(fetch.index[0]), mask)

        return load


@dataclass(frozen=True)
class Walk:
    """Loops and index arithmetic in i64 over a frame's builder."""

    frame: Frame

    @contextmanager
    def loop(
        self, name: str, start: Operand | int, stop: Operand | int, step: int = 1, kind: LoopKind = "serial"
    ) -> Iterator[Var]:
        first, last, by = (self.operand(x) for x in (start, stop, step))
        with self.frame.builder.loop(name, first, last, by, kind) as i:
            yield i

    def operand(self, x: Operand | int | HostExpr) -> Operand:
        """A number, or a value of the host's, as an i64 operand."""
        if isinstance(x, (int, HostExpr)):
            return self.frame.builder.scalar(x, I64)
        return x

    def op(self, name: str, *args: Operand | int | HostExpr) -> Operand:
        return self.frame.builder.apply(name, [self.operand(a) for a in args], I64)

    def holds(self, name: str, *args: Operand | int | HostExpr) -> Operand:
        """A comparison."""
        return self.frame.builder.apply(name, [self.operand(a) for a in args], BOOL)

    def both(self, a: Operand, b: Operand) -> Operand:
        return self.frame.builder.apply("logical_and", (a, b), BOOL)

    def least(self, a: Operand | int | HostExpr, b: Operand | int | HostExpr) -> Operand:
        """The smaller of two indices."""
        return self.op("min_num", a, b)

    def share(self, number: Operand, size: Operand, length: HostExpr | Operand) -> tuple[Operand, Operand]:
        """Where a share of `size` elements starts and ends, of a length that the last one may not fill."""
        low = self.least(self.op("multiply", number, size), length)
        return low, self.least(self.op("add", low, size), length)

    def place(self, indices: IndexEmitter, axes: Sequence[Axis], position: Operand) -> IndexEmitter:
        """`indices` with the axes bound to the row-major `position` over them."""
        if not axes:
            return indices
        if len(axes) == 1:
            return indices.bound(**{axes[0].name: position})
        extents = {**indices.ranges.extents, _POSITION: count(axes)}
        at = IndexEmitter(indices.builder, {_POSITION: position}, Ranges(extents), indices.dtype)
        values = {a.name: at.value(e) for a, e in zip(axes, split(sym(_POSITION), axes), strict=True)}
        return indices.bound(**values)


_POSITION = "position"


def ceil_div(n: HostExpr | int, by: int) -> HostExpr:
    """Parts of `by` that cover `n`, on the host."""
    return lit(1) * n // by if by == 1 else (lit(1) * n + (by - 1)) // by
