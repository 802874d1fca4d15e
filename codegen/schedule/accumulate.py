"""Accumulators: the states of a stage's reductions in one thread, folded in the fixed order.

In: reduction sites, how many lanes a thread holds. Out: declared states, the update by an element, folds of
lanes, teams and segments. All of `fuser.order` that a kernel realises is here: an element joins its lane in increasing
index, lanes combine pairwise from the low bits, then segments do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Operand, Var
from fuser.codegen.schedule.body import ReduceSite
from fuser.dtypes import BOOL, F32, I64, U16, U32, DType
from fuser.graph import Graph
from fuser.optable import table
from fuser.optable.base import Emit, Reduction, S, Scan
from fuser.record import dataclass

State = tuple[Operand, ...]


@dataclass(frozen=True)
class Fold:
    """One reduction of a stage: its row, and where its elements come from."""

    row: Reduction
    site: ReduceSite

    @property
    def operand(self) -> DType:
        return self.site.operand

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return self.row.state(self.operand)

    @property
    def unordered(self) -> bool:
        """Whether its result has the same bits in whatever order elements join: then a thread needs no lanes apart.
        (Of f64 maxima a NaN keeps its payload, and which of several it is depends on the order.)"""
        return self.row.exact and (self.row.uses_index or not self.operand.is_float or self.operand == F32)

    def identity(self, b: KernelBuilder) -> State:
        values = self.row.identity(self.operand)
        return tuple(b.literal(v, t) for v, t in zip(values, self.dtypes, strict=True))

    def combine(self, b: KernelBuilder, x: State, y: State) -> State:
        """`x` holds what comes first."""
        return _values(self.row.combine(_handles(b, x), _handles(b, y)))

    def tree(self, b: KernelBuilder, states: Sequence[State]) -> State:
        """States of consecutive numbers (a power of two of them) combined pairwise from the low bits."""
        level = list(states)
        while len(level) > 1:
            level = [self.combine(b, level[k], level[k + 1]) for k in range(0, len(level), 2)]
        return level[0]

    def lift(self, b: KernelBuilder, value: Operand, index: Operand) -> State:
        """An element and its index in the reduced axes as a (narrow) state."""
        position: Operand = index if self.row.uses_index else b.literal(0, I64)
        return _values(self.row.lift(S(b, value, value.dtype), S(b, position, position.dtype)))

    def finish(self, b: KernelBuilder, state: State, count: Operand) -> tuple[Operand, ...]:
        """The reduction's results; `count` is the number of elements (i64)."""
        return _values(self.row.finish(_handles(b, state), S(b, count, I64)))

    @cached_property
    def index_parts(self) -> tuple[bool, ...]:
        return index_parts(self.row, self.operand)

    def indices(self, state: State) -> State:
        """The components of a state that are indices."""
        return tuple(v for v, part in zip(state, self.index_parts, strict=True) if part)

    def widen(self, state: State, b: KernelBuilder) -> State:
        """The state as its row declares it."""
        return tuple(v if v.dtype == t else b.apply("cast", (v,), t) for v, t in zip(state, self.dtypes, strict=True))

    def declare(self, b: KernelBuilder, name: str, state: State) -> tuple[Var, ...]:
        """Mutable variables holding a state."""
        return tuple(b.mutable(name, v) for v in state)


def assign(b: KernelBuilder, variables: Sequence[Var], state: State) -> None:
    """Give every component of a state its variable."""
    for var, value in zip(variables, state, strict=True):
        b.assign(var, value)


def folds_of(graph: Graph, sites: Sequence[ReduceSite]) -> tuple[Fold, ...]:
    """The reduction of every site; a scan folds by the reduction it names."""
    return tuple(Fold(_row(graph.by_id[s.node].op), s) for s in sites)


def _row(op: str) -> Reduction:
    row = table().known[op]
    return table().reduction(row.reduction if isinstance(row, Scan) else op)


def index_parts(row: Reduction, operand: DType) -> tuple[bool, ...]:
    """Which components of a state are the element's index itself."""
    if not row.uses_index:
        return (False,) * len(row.state(operand))
    mark = S(_Silent(), "index", I64)
    return tuple(s.value == "index" for s in row.lift(S(_Silent(), "element", operand), mark))


class Later:
    """The builder, but for one fact: an element that joins a lane has a later index than all before it."""

    def __init__(self, b: KernelBuilder, joining: State, held: State) -> None:
        self.b, self.later = b, set(zip(joining, held, strict=True))

    def apply(self, op: str, args: Sequence[Operand], dtype: DType) -> Operand:
        if op == "less" and tuple(args) in self.later:
            return self.b.literal(False, dtype)
        return self.b.apply(op, args, dtype)

    def literal(self, value: float | int | bool, dtype: DType) -> Operand:
        return self.b.literal(value, dtype)


def _handles(b: Emit, state: State) -> tuple[S, ...]:
    return tuple(S(b, v, v.dtype) for v in state)


def _values(state: Sequence[S]) -> State:
    return tuple(s.value for s in state)


@dataclass(frozen=True)
class Accumulator:
    """The lanes of one reduction in a thread: `lanes[k]` is a state in mutable variables. Where there are fewer than
    the thread has (an unordered reduction), several of its lanes are one."""

    fold: Fold
    lanes: tuple[tuple[Var, ...], ...]

    def add(self, b: KernelBuilder, lane: int, value: Operand, index: Operand) -> None:
        """An element joins a lane."""
        state, lifted = self.lanes[lane % len(self.lanes)], self.fold.lift(b, value, index)
        emit = Later(b, self.fold.indices(lifted), self.fold.indices(state)) if self.fold.row.uses_index else b
        assign(b, state, _values(self.fold.row.combine(_handles(emit, state), _handles(emit, lifted))))

    def folded(self, b: KernelBuilder, lanes: Sequence[int]) -> tuple[Var, ...]:
        """Lanes of consecutive numbers combined, in the variables of the first; indices stay narrow."""
        assign(b, self.lanes[lanes[0]], self.fold.tree(b, [self.lanes[k] for k in lanes]))
        return self.lanes[lanes[0]]


@dataclass(frozen=True)
class Halves:
    """The lanes of a maximum over elements that are bf16 in memory, two a word: no element is unpacked, and one
    instruction takes two of them. The bits are those of a maximum of f32."""

    fold: Fold
    words: tuple[Var, ...]

    def add(self, b: KernelBuilder, lane: int, low: Operand, high: Operand) -> None:
        """Two elements join an even lane and the next one."""
        bits = [b.apply("cast", (b.apply("bitcast", (x,), U16),), U32) for x in (low, high)]
        upper = b.apply("shl", (bits[1], b.literal(16, U32)), U32)
        self._take(b, lane // 2, b.apply("bitwise_or", (bits[0], upper), U32))

    def _take(self, b: KernelBuilder, word: int, other: Operand) -> None:
        word %= len(self.words)
        b.assign(self.words[word], b.apply("largest_bf16x2", (self.words[word], other), U32))

    def folded(self, b: KernelBuilder, lanes: Sequence[int]) -> tuple[Var, ...]:
        """Lanes of consecutive numbers combined, in a variable of the fold's own type."""
        first, count = lanes[0] // 2, len(lanes) // 2
        for k in range(1, count):
            self._take(b, first, self.words[first + k])
        word = self.words[first]
        upper = b.apply("bitwise_and", (word, b.literal(0xFFFF0000, U32)), U32)
        halves = [b.apply("bitcast", (x,), F32) for x in (b.apply("shl", (word, b.literal(16, U32)), U32), upper)]
        return self.fold.declare(b, self.fold.row.name, self.fold.tree(b, [(x,) for x in halves]))


def start_halves(b: KernelBuilder, fold: Fold, lanes: int) -> Halves:
    """Lanes that hold the identity."""
    return Halves(fold, tuple(b.mutable(fold.row.name, b.literal(0xFF80FF80, U32)) for _ in range(lanes // 2)))


def start(b: KernelBuilder, fold: Fold, first: Sequence[Operand]) -> Accumulator:
    """An accumulator whose lanes hold the identity. first: index of the first element that joins each lane.

    Where a state holds an index, a lane starts with its first element's in the index type: an element that is no
    better than the identity then leaves the right index behind, and no later element can win a tie.
    """
    zero = fold.identity(b)
    starts = [tuple(at if part else v for v, part in zip(zero, fold.index_parts, strict=True)) for at in first]
    return Accumulator(fold, tuple(fold.declare(b, fold.row.name, state) for state in starts))


class _Silent:
    """An `Emit` that emits nothing: for looking at what a row does with its operands."""

    def apply(self, op: str, args: Sequence[object], dtype: DType) -> object:
        return None

    def literal(self, value: object, dtype: DType) -> object:
        return None


class Carry:
    """Combines partials 0, 1, 2, ... (a power of two of them, arriving in a loop) pairwise from the low bits.

    It is a binary counter: level k holds the fold of 2^k partials that waits for its right neighbour.
    """

    def __init__(self, b: KernelBuilder, fold: Fold, count: int) -> None:
        self.b, self.fold = b, fold
        self.levels = count.bit_length() - 1
        zero = fold.identity(b)
        self.waiting = [fold.declare(b, "waiting", zero) for _ in range(self.levels)]
        self.total = fold.declare(b, "total", zero)

    def push(self, number: Operand, partial: State) -> None:
        """The next partial, number `number` (uniform over the block)."""
        self._carry(number, partial, 0)

    def _carry(self, number: Operand, partial: State, level: int) -> None:
        b = self.b
        if level == self.levels:
            assign(b, self.total, partial)
            return
        bit = b.apply("bitwise_and", (number, b.literal(1 << level, number.dtype)), number.dtype)
        left = b.apply("equal", (bit, b.literal(0, number.dtype)), BOOL)
        with b.branch(left, uniform=True):
            assign(b, self.waiting[level], partial)
        with b.otherwise():
            self._carry(number, self.fold.combine(b, self.waiting[level], partial), level + 1)
