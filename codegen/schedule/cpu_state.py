"""Accumulators of CPU reductions, and the fixed order in which they combine.

In: the reductions of one pass. Out: statements over register arrays. A state component is one array: of lanes (rows),
of columns (columns), or of one element. `absorb` puts an element into a place; `tree` combines lanes pairwise from the
low bits up; `Stack` combines shares pairwise as they are finished, like a binary counter, which gives exactly the tree
that `fuser.order` fixes without keeping every share.

A share is far shorter than 2^31, so indices (argmax) are kept as i32 from its start while it is read: as many lanes as
4-byte values have. They are widened once a share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Operand
from fuser.codegen.program import Program, Result
from fuser.codegen.schedule.accumulate import Later, index_parts
from fuser.codegen.schedule.body import ReduceSite
from fuser.codegen.schedule.cpu_sweep import Results, Values, Walk
from fuser.dtypes import I32, I64, DType
from fuser.graph import Graph
from fuser.hostexpr import HostExpr
from fuser.optable import table
from fuser.optable.base import Reduction, S
from fuser.record import dataclass

ResultArrays = dict[tuple[int, int], str]  # finished reductions: (node, result) -> array of all places
Each = Callable[[Callable[[Operand], None]], None]  # runs what it is given for every place of an array


@dataclass(frozen=True)
class Fold:
    """One reduction and the arrays of its state's components."""

    row: Reduction
    site: ReduceSite
    arrays: tuple[str, ...]
    dtypes: tuple[DType, ...]

    @cached_property
    def index_parts(self) -> tuple[bool, ...]:
        return index_parts(self.row, self.site.operand)

    def indices(self, state: Sequence[S]) -> tuple[Operand, ...]:
        """The components of a state that are indices."""
        return tuple(s.value for s, part in zip(state, self.index_parts, strict=True) if part)


def results_at(b: KernelBuilder, program: Program, arrays: ResultArrays, place: Operand) -> Results:
    """The results that a program reads, of one place."""
    keys = {(s.node, s.k) for s in program.steps if isinstance(s, Result)}
    return {key: b.load(arrays[key], place) for key in sorted(keys)}


def rows_of(graph: Graph, sites: Sequence[ReduceSite]) -> list[Reduction]:
    """The table rows of reduction nodes."""
    return [table().reduction(graph.by_id[s.node].op) for s in sites]


class Folds:
    """The reductions of one pass with their state arrays of `size` places.

    share: for the elements of one share, whose indices are i32 from its start.
    """

    def __init__(
        self,
        walk: Walk,
        rows: Sequence[Reduction],
        sites: Sequence[ReduceSite],
        size: int,
        name: str = "acc",
        share: bool = False,
    ) -> None:
        self.walk, self.rows, self.sites, self.size, self.share = walk, tuple(rows), tuple(sites), size, share
        self.b: KernelBuilder = walk.frame.builder
        self.folds = tuple(self._fold(r, s, name) for r, s in zip(rows, sites, strict=True))

    def _fold(self, row: Reduction, site: ReduceSite, name: str) -> Fold:
        parts = index_parts(row, site.operand)
        dtypes = tuple(
            I32 if part and self.share else t for t, part in zip(row.state(site.operand), parts, strict=True)
        )
        return Fold(row, site, tuple(self.b.alloc(name, t, self.size, "register") for t in dtypes), dtypes)

    @property
    def uses_index(self) -> bool:
        return any(row.uses_index for row in self.rows)

    def sized(self, size: int, name: str, share: bool = False) -> Folds:
        """The same reductions with other arrays."""
        return Folds(self.walk, self.rows, self.sites, size, name, share)

    # -- one place ---------------------------------------------------------------------------------
    def load(self, fold: Fold, place: Operand) -> tuple[S, ...]:
        return tuple(self.b.handle(self.b.load(a, place)) for a in fold.arrays)

    def store(self, fold: Fold, place: Operand, state: Sequence[S]) -> None:
        for array, value in zip(fold.arrays, state, strict=True):
            self.b.store(array, place, value.value)

    def clear(self, place: Operand, first: Operand | None = None) -> None:
        """The identity at a place. first: index in the share of the first element that joins it: an element that is
        no better than the identity then leaves the right index behind, and no later one can win a tie."""
        for fold in self.folds:
            numbers = fold.row.identity(fold.site.operand)
            for array, number, dtype, part in zip(fold.arrays, numbers, fold.dtypes, fold.index_parts, strict=True):
                known = self._narrow(first) if part and self.share and first is not None else None
                self.b.store(array, place, known if known is not None else self.b.literal(number, dtype))

    def _narrow(self, index: Operand) -> Operand:
        return self.b.apply("cast", (index,), I32)

    def within(self, i: Operand, low: Operand) -> Operand:
        """The index in its share, which starts at `low`, of the element at linear index `i`."""
        if not self.uses_index:
            return self.b.literal(0, I32)
        return self._narrow(self.walk.op("subtract", i, low))

    def absorb(self, place: Operand, values: Values, index: Operand, guard: Operand | None) -> None:
        """Combine the element at `index` of the share, later than all before it, into a place, where `guard` holds."""
        for fold in self.folds:
            old = self.load(fold, place)
            lifted = fold.row.lift(self.b.handle(values[fold.site.step]), self.b.handle(index))
            new = fold.row.combine(*self._in_order(fold, old, lifted))
            if guard is not None:
                keep = self.b.handle(guard)
                new = tuple(keep.where(self.b.handle(n.value), o) for n, o in zip(new, old, strict=True))
            self.store(fold, place, new)

    def _in_order(self, fold: Fold, old: Sequence[S], new: Sequence[S]) -> tuple[tuple[S, ...], tuple[S, ...]]:
        """Two states, the second known to come later."""
        if not fold.row.uses_index:
            return tuple(old), tuple(new)
        emit = Later(self.b, fold.indices(new), fold.indices(old))
        first, second = (tuple(S(emit, s.value, s.dtype) for s in state) for state in (old, new))
        return first, second

    def merge(self, place: Operand, earlier: Folds, at: Operand) -> None:
        """`place` becomes `earlier[at]` combined with it."""
        for mine, other in zip(self.folds, earlier.folds, strict=True):
            self.store(mine, place, mine.row.combine(earlier.load(other, at), self.load(mine, place)))

    def copy(self, place: Operand, source: Folds, at: Operand, low: Operand | None = None) -> None:
        """`place` takes the state at `source[at]`; `low` is where the share starts that `source` is for."""
        for mine, other in zip(self.folds, source.folds, strict=True):
            state = source.load(other, at)
            if source.share and not self.share and low is not None:
                state = tuple(self._widened(s, p, low) for s, p in zip(state, mine.index_parts, strict=True))
            self.store(mine, place, state)

    def widened(self, low: Operand) -> Folds:
        """The state of a share that starts at `low`, of one place, with whole indices."""
        if not self.uses_index:
            return self
        whole = self.sized(self.size, "total")
        whole.copy(self.walk.operand(0), self, self.walk.operand(0), low)
        return whole

    def _widened(self, value: S, is_index: bool, low: Operand) -> S:
        return self.b.handle(low) + value.cast(I64) if is_index else value

    def finish(self, place: Operand, length: HostExpr) -> dict[tuple[int, int], Operand]:
        """The results of every reduction from the state at a place; `length` elements were reduced."""
        n = self.b.handle(self.walk.operand(length))
        out: dict[tuple[int, int], Operand] = {}
        for fold in self.folds:
            for k, value in enumerate(fold.row.finish(self.load(fold, place), n)):
                out[fold.site.node, k] = value.value
        return out

    def finish_all(self, each: Each, length: HostExpr) -> ResultArrays:
        """Arrays of the results of every place that `each` runs over."""
        arrays: ResultArrays = {}
        for fold in self.folds:
            for k, dtype in enumerate(fold.row.results(fold.site.operand)):
                arrays[fold.site.node, k] = self.b.alloc("result", dtype, self.size, "register")

        def write(place: Operand) -> None:
            for key, value in self.finish(place, length).items():
                self.b.store(arrays[key], place, value)

        each(write)
        return arrays

    # -- all lanes ---------------------------------------------------------------------------------
    def clear_all(self, lanes: int) -> None:
        """The identity everywhere, in rows of `lanes` places that elements join in turn."""
        positions = self.size > lanes and self.uses_index
        with self.walk.loop("l", 0, self.size, kind="vector") as lane:
            self.clear(lane, self.walk.op("bitwise_and", lane, lanes - 1) if positions else lane)

    def tree(self) -> Folds:
        """The lanes combined pairwise, the low bits first: arrays of one place."""
        current = self
        while current.size > 1:
            half = current.sized(current.size // 2, "pair", self.share)
            with self.walk.loop("l", 0, half.size, kind="vector") as lane:
                left = self.walk.op("multiply", lane, 2)
                right = self.walk.op("add", left, 1)
                for mine, theirs in zip(half.folds, current.folds, strict=True):
                    both = mine.row.combine(current.load(theirs, left), current.load(theirs, right))
                    half.store(mine, lane, both)
            current = half
        return current


class Stack:
    """Partial results of finished shares: level k holds the state of 2^k neighbouring shares.

    `total`: state arrays with `places` places, that of the share just finished. each: runs a body for every place.
    """

    def __init__(self, walk: Walk, total: Folds, levels: int, each: Each) -> None:
        self.walk, self.total, self.levels, self.each = walk, total, levels, each
        self.kept = total.sized(max(levels, 1) * total.size, "kept")

    def push(self, finished: Operand) -> None:
        """Take in the share in `total`, the `finished`-th one (from 1); after 2^levels of them `total` is the whole."""
        walk, b = self.walk, self.walk.frame.builder
        with walk.loop("level", 0, self.levels) as level:
            base = walk.op("multiply", level, self.total.size)
            low = walk.op("subtract", walk.op("shl", 1, level), 1)
            wide = walk.op("subtract", walk.op("shl", 2, level), 1)
            pairs = walk.holds("equal", walk.op("bitwise_and", finished, wide), 0)
            with b.branch(pairs):
                self.each(lambda j: self.total.merge(j, self.kept, walk.op("add", base, j)))
            with b.otherwise(), b.branch(walk.holds("equal", walk.op("bitwise_and", finished, low), 0)):
                self.each(lambda j: self.kept.copy(walk.op("add", base, j), self.total, j))


def once(walk: Walk) -> Each:
    """The only place of one-element arrays."""
    return lambda body: body(walk.operand(0))


def places(walk: Walk, stop: Operand | int) -> Each:
    """Places 0 to `stop`, in vectors. With a literal `stop` there is no remainder to write code for."""

    def run(body: Callable[[Operand], None]) -> None:
        with walk.loop("j", 0, stop, kind="vector") as j:
            body(j)

    return run


def levels_of(shares: int) -> int:
    """log2 of a number of shares, a power of two."""
    return shares.bit_length() - 1
