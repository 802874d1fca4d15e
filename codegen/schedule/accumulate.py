"""Accumulators: the states of a stage's reductions in one thread, folded in the fixed order.

In: reduction sites, how many lanes a thread holds. Out: declared states, the update by an element, folds of
lanes, teams and segments. All of `fuser.order` that a kernel realises is here: an element joins its lane in increasing
index, lanes combine pairwise from the low bits, then segments do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Operand, Var
from fuser.codegen.schedule.body import ReduceSite
from fuser.dtypes import BOOL, I64, DType
from fuser.graph import Graph
from fuser.optable import table
from fuser.optable.base import Reduction, S, Scan

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
        """An element and its index in the reduced axes as a state."""
        position: Operand = b.literal(0, I64)
        if self.row.uses_index:
            position = b.apply("cast", (index,), I64)
        return _values(self.row.lift(S(b, value, value.dtype), S(b, position, I64)))

    def finish(self, b: KernelBuilder, state: State, count: Operand) -> tuple[Operand, ...]:
        """The reduction's results; `count` is the number of elements (i64)."""
        return _values(self.row.finish(_handles(b, state), S(b, count, I64)))

    def declare(self, b: KernelBuilder, name: str, state: State) -> tuple[Var, ...]:
        """Mutable variables holding a state."""
        return tuple(b.mutable(name, v) for v in state)


def assign(b: KernelBuilder, variables: Sequence[Var], state: State) -> None:
    for var, value in zip(variables, state, strict=True):
        b.assign(var, value)


def folds_of(graph: Graph, sites: Sequence[ReduceSite]) -> tuple[Fold, ...]:
    """The reduction of every site; a scan folds by the reduction it names."""
    return tuple(Fold(_row(graph.by_id[s.node].op), s) for s in sites)


def _row(op: str) -> Reduction:
    row = table().rows[op]
    return table().reduction(row.reduction if isinstance(row, Scan) else op)


def _handles(b: KernelBuilder, state: State) -> tuple[S, ...]:
    return tuple(S(b, v, v.dtype) for v in state)


def _values(state: Sequence[S]) -> State:
    return tuple(s.value for s in state)


@dataclass(frozen=True)
class Accumulator:
    """The lanes of one reduction in a thread: `lanes[k]` is a state in mutable variables."""

    fold: Fold
    lanes: tuple[tuple[Var, ...], ...]

    def add(self, b: KernelBuilder, lane: int, value: Operand, index: Operand) -> None:
        """An element joins a lane."""
        state = self.lanes[lane]
        assign(b, state, self.fold.combine(b, state, self.fold.lift(b, value, index)))


def start(b: KernelBuilder, fold: Fold, lanes: int) -> Accumulator:
    """An accumulator whose lanes hold the identity."""
    name = fold.row.name
    return Accumulator(fold, tuple(fold.declare(b, name, fold.identity(b)) for _ in range(lanes)))


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


Combine = Callable[[Accumulator], list[State]]  # a thread's lanes -> states after team and lane folds
