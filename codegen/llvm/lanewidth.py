"""How many iterations of a vector loop run at once.

In: a `For("vector")` and the machine's vector bytes. Out: a lane count; 1 where the body cannot run in lanes
(a branch with side effects or a loop bound that differs between iterations, a variable carried from one to the next).
Its own file because it is an analysis: it reads statements and writes nothing.
"""

from __future__ import annotations

from fuser.codegen.loops import (
    Alloc,
    Assign,
    For,
    If,
    Let,
    Lit,
    Load,
    LoadVec,
    Mutable,
    Operand,
    Statement,
    Store,
    StoreVec,
    Var,
    walk,
)
from fuser.dtypes import BOOL, I64, U64

LINEAR_OPS = frozenset({"add", "subtract", "multiply"})
MOST_LANES = 64


class _Body:
    """What the statements of a loop body say, read once in program order."""

    def __init__(self, loop: For) -> None:
        self.varying = {loop.var.name}
        self.linear = {loop.var.name}
        self.inner: set[str] = set()
        self.widest = 0
        self.in_lanes = True
        for s in walk(loop.body):
            self._read(s)

    def _varies(self, x: Operand | None) -> bool:
        return isinstance(x, Var) and x.name in self.varying

    def _read(self, s: object) -> None:
        if isinstance(s, Let):
            self._let(s)
        elif isinstance(s, Load):
            if self._varies(s.index) or self._varies(s.mask):
                self._result(s.var)
        elif isinstance(s, Mutable):
            self.inner.add(s.var.name)
            self._result(s.var)
        elif isinstance(s, Assign):
            self.in_lanes &= s.var.name in self.inner
        elif isinstance(s, Store):
            self._count(s.value)
        elif isinstance(s, If):
            self.in_lanes &= not self._varies(s.condition) or skippable(s)
        elif isinstance(s, For):
            self.in_lanes &= not any(self._varies(x) for x in (s.start, s.stop, s.step))
            self.in_lanes &= s.going is None or not self._varies(s.going) or computes(s.body)
        elif isinstance(s, (Alloc, LoadVec, StoreVec)):
            self.in_lanes = False

    def _let(self, s: Let) -> None:
        moving = [a for a in s.args if self._varies(a)]
        if not moving:
            return
        affine = (
            s.op in LINEAR_OPS
            and s.var.dtype in (I64, U64)
            and all(a.name in self.linear for a in moving if isinstance(a, Var))
        )
        if affine and (s.op != "multiply" or len(moving) == 1):
            self.varying.add(s.var.name)
            self.linear.add(s.var.name)
        else:
            self._result(s.var)

    def _result(self, var: Var) -> None:
        self.varying.add(var.name)
        self._count(var)

    def _count(self, x: Operand) -> None:
        if x.dtype != BOOL:
            self.widest = max(self.widest, x.dtype.bytes)


def skippable(s: If) -> bool:
    """Whether the branch may run for lanes that do not take it: it only computes, and assigns what can be kept."""
    return not s.orelse and computes(s.then)


def computes(body: tuple[Statement, ...]) -> bool:
    """Whether statements only compute and assign, so that lanes which do not take part may run along."""
    return all(
        isinstance(t, (Let, Mutable, Assign))
        or (isinstance(t, If) and skippable(t))
        or (isinstance(t, For) and t.kind == "serial" and computes(t.body))
        for t in body
    )


def lane_width(loop: For, vector_bytes: int) -> int:
    """Lanes for the loop: what fills a vector register with the widest value of the body, at most the trip count."""
    body = _Body(loop)
    if not body.in_lanes or not isinstance(loop.step, Lit):
        return 1
    width = min(vector_bytes // max(body.widest, 1), MOST_LANES)
    trip = literal_trip(loop)
    if trip is not None:
        width = min(width, 1 << max(trip.bit_length() - 1, 0))
    return max(width, 1)


def literal_trip(loop: For) -> int | None:
    """The number of iterations, where it is known when compiling."""
    bounds = [x.value for x in (loop.start, loop.stop, loop.step) if isinstance(x, Lit)]
    return len(range(*(int(x) for x in bounds))) if len(bounds) == 3 else None
