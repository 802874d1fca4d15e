"""Shapes with symbolic dims, and the guards under which a trace is valid.

In: the dims of argument axes and the equalities that operators demand. Out: canonical dims, and a
list of `Guard`s to check at each call. Dims: an `int`, or a HostExpr over one fresh symbol per
argument axis. Size 1 is static (so broadcasting is decided while tracing) and 0 is a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Literal

from fuser.errors import ShapeError, Span
from fuser.hostexpr import Dim, Env, HostExpr, as_dim, wrap
from fuser.record import dataclass

Shape = tuple[Dim, ...]
Relation = Literal["==", "!=", ">="]


@dataclass(frozen=True)
class Guard:
    """`left relation right` over dims and scalars, with the source place that asked for it.

    A call whose values break a guard traces again with those dims static; nothing is assumed silently.
    """

    left: HostExpr
    relation: Relation
    right: HostExpr
    span: Span | None = field(default=None, compare=False)

    def holds(self, env: Env) -> bool:
        a, b = self.left.evaluate(env), self.right.evaluate(env)
        return bool(a == b if self.relation == "==" else a != b if self.relation == "!=" else a >= b)

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


def numel(shape: Iterable[Dim]) -> Dim:
    """Number of elements as a dim."""
    total: Any = 1
    for d in shape:
        total = total * d
    return as_dim(total)


def text_of(shape: Iterable[Dim]) -> str:
    """`[n, 1, d - 2]`."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def substitute(shape: Iterable[Dim], mapping: dict[str, HostExpr]) -> Shape:
    """The shape with symbols replaced."""
    return tuple(as_dim(d.substitute(mapping)) if isinstance(d, HostExpr) else d for d in shape)


def evaluate(shape: Iterable[Dim], env: Env) -> tuple[int, ...]:
    """The shape of a call."""
    return tuple(int(d.evaluate(env)) if isinstance(d, HostExpr) else d for d in shape)


class ShapeEnv:
    """Union of dim symbols while a graph is built, and the guards collected on the way.

    `merged` maps a symbol to what it was found equal to; `canonical` applies it. Nodes built before a
    merge still carry the old symbol: compare through `same`, and rewrite once when the graph is closed.
    """

    def __init__(self) -> None:
        self.merged: dict[str, HostExpr] = {}
        self.guards: dict[Guard, None] = {}

    def canonical(self, d: Dim) -> Dim:
        """The representative of a dim under all merges so far."""
        while isinstance(d, HostExpr) and not self.merged.keys().isdisjoint(d.symbols):
            d = as_dim(d.substitute(self.merged))
        return d

    def same(self, a: Dim, b: Dim) -> bool:
        """Whether two dims are known equal."""
        return self.canonical(a) == self.canonical(b)

    def guard(self, left: Dim, relation: Relation, right: Dim, span: Span | None = None) -> bool:
        """Record a guard; False when it is known to fail (the caller raises its own error)."""
        left, right = self.canonical(left), self.canonical(right)
        if isinstance(left, int) and isinstance(right, int):
            return Guard(wrap(left), relation, wrap(right)).holds({})
        if left == right:
            return relation != "!="
        self.guards.setdefault(Guard(wrap(left), relation, wrap(right), span))
        return True

    def unify(self, a: Dim, b: Dim, span: Span | None = None) -> bool:
        """Make two dims equal: merge a plain symbol, else guard. False when they can never be equal."""
        a, b = self.canonical(a), self.canonical(b)
        if a == b:
            return True
        if isinstance(a, int) and isinstance(b, int):
            return False
        ok = self.guard(a, "==", b, span)
        if _is_axis(a) and not _is_axis(b):
            a, b = b, a  # a dim that the user named stands for one called after its argument
        for one, other in ((b, a), (a, b)):
            if isinstance(one, HostExpr) and one.op == "sym" and one.value not in wrap(other).symbols:
                self.merged[one.value] = wrap(other)
                break
        return ok

    def broadcast(self, shapes: Sequence[Shape], span: Span | None = None) -> Shape:
        """NumPy broadcasting; symbolic dims are taken not to be 1 (guarded where that is not known)."""
        rank = max((len(s) for s in shapes), default=0)
        out: list[Dim] = []
        for axis in range(-rank, 0):
            dims = [self.canonical(s[axis]) for s in shapes if len(s) >= -axis]
            result: Dim = 1
            for d in dims:
                if d == 1:
                    continue
                if result == 1:
                    result = d
                elif not self.unify(result, d, span):
                    shown = " and ".join(text_of(s) for s in dict.fromkeys(shapes))
                    spans = (span,) if span else ()
                    raise ShapeError(f"shapes {shown} do not broadcast: {result} against {d}", "broadcast", spans)
            if len(dims) > 1 and isinstance(result, HostExpr) and result.op != "sym" and any(d != result for d in dims):
                self.guard(result, "!=", 1, span)
            out.append(self.canonical(result))
        return tuple(out)


def _is_axis(d: Dim) -> bool:
    """Whether a dim is a symbol made up from an argument's name and axis, such as `x.0`."""
    return isinstance(d, HostExpr) and d.op == "sym" and "." in str(d.value)
