"""Comparisons of dims while tracing: decided, or assumed under a guard, before a trace is specialised for them.

In: a bool host expression over dims. Out: its truth, if it follows from dims being at least 2 (others are static), or
holds for the call at hand and can be a guard. `if x.shape[0] == w.shape[1]` then costs a comparison at each call
instead of a trace a size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuser.construct.common import UNBOUNDED
from fuser.errors import Span
from fuser.hostexpr import HostExpr, as_dim, is_scalar_symbol, lit, sym
from fuser.hostfunctions import FUNCTIONS
from fuser.indexmap import bounds
from fuser.shapes import Relation, ShapeEnv

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def truth(expr: HostExpr, shapes: ShapeEnv, env: Mapping[str, Any] | None, span: Span | None) -> bool | None:
    """The truth of a condition over dims; None where only specialising can tell."""
    if expr.kind == "float" or any(map(is_scalar_symbol, expr.symbols)):
        return None
    if expr.op in COMPARISONS and all(a.kind == "int" for a in expr.args):
        op, left, right = expr.op, *expr.args
    elif expr.kind == "int":
        op, left, right = "!=", expr, lit(0)
    else:
        return None
    known = _known(op, left - right, 2)
    if known is not None:
        if _known(op, left - right, 1) is None:  # an axis of length 1 may be traced like longer ones: not here
            for name in sorted((left - right).symbols):
                shapes.guard(sym(name), ">=", 2, span)
        return known
    if env is None or not expr.symbols <= env.keys():
        return None
    holds = bool(FUNCTIONS[op](left.evaluate(env), right.evaluate(env)))
    _assume(op, left, right, holds, shapes, span)
    return holds


def _known(op: str, gap: HostExpr, least: int) -> bool | None:
    """`gap op 0` from interval bounds alone, where no dim is less than `least`."""
    found = bounds(gap, dict.fromkeys(gap.symbols, (least, UNBOUNDED)))
    if found is None:
        return None
    low, high = found
    if op in ("==", "!="):
        return None if low <= 0 <= high else op == "!="
    ends = {bool(FUNCTIONS[op](end, 0)) for end in (low, high)}
    return ends.pop() if len(ends) == 1 else None


def _assume(op: str, left: HostExpr, right: HostExpr, holds: bool, shapes: ShapeEnv, span: Span | None) -> None:
    """Record what was found to hold as a guard (equal dims are unified)."""
    if (op == "==") == holds and op in ("==", "!="):
        shapes.unify(as_dim(left), as_dim(right), span)
        return
    if op in ("==", "!="):
        shapes.guard(as_dim(left), "!=", as_dim(right), span)
        return
    if op in (">", ">="):
        left, right, op = right, left, {">": "<", ">=": "<="}[op]
    strict = 1 if (op == "<") == holds else 0  # left < right, or not (left <= right): right < left
    small, large = (left, right) if holds else (right, left)
    relation: Relation = ">="
    shapes.guard(as_dim(large), relation, as_dim(small + strict), span)
