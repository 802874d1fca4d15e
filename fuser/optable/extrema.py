"""Rows that take the larger or smaller of values.

In: nothing. Out: `maximum`/`minimum` (NaN wins), `fmax`/`fmin` (NaN loses), `clip`, and the helpers `max_num`,
`min_num` for index arithmetic, `largest` (also of two bf16 a word), `smallest` for reductions. C's `fmaxf` and LLVM's
`maxnum` drop NaN, so none of these is primitive for floats but the last ones. For two zeros of different sign NumPy's
answer differs by CPU and by position in the array; ours is the second operand, as NumPy's vector code has it on x86,
everywhere. Hence references written out rather than `np.maximum`. A reduction has no second operand: there 0.0 is
above -0.0, which is IEEE 754-2019's maximum, one instruction on a GPU, and the same in any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.dtypes import F32, I32, I64, U32
from fuser.optable.base import Call, Cost, Intrinsic, Names, S, ScalarOp, Table
from fuser.optable.rules import integers, numpy_rule, same, words

Array = np.ndarray[Any, Any]
_UPPER, _NAN = 0xFFFF0000, 0x7FFFFFFF  # bits of a word's upper half; the NaN that CUDA's instructions give


def _chosen(takes_first: S, a: S, b: S) -> S:
    return takes_first.where(a, b)


def _maximum(a: S, b: S) -> S:
    if a.dtype.kind == "b":
        return a | b
    if not a.dtype.is_float:
        return _chosen(a > b, a, b)
    if _settles(b, 0.0) or _settles(a, -0.0):
        return a.op("largest", b)
    return _chosen((a > b) | a.ne(a), a, b)


def _minimum(a: S, b: S) -> S:
    if a.dtype.kind == "b":
        return a & b
    if not a.dtype.is_float:
        return _chosen(a < b, a, b)
    if _settles(b, -0.0) or _settles(a, 0.0):
        return a.op("smallest", b)
    return _chosen((a < b) | a.ne(a), a, b)


def _settles(x: S, zero: float) -> bool:
    """Whether x is a literal beside which no pair of zeros makes a difference: any but the zero of the other sign."""
    value = x.known
    return value is not None and (value != 0 or math.copysign(1.0, value) == math.copysign(1.0, zero))


def _not_negative(x: S) -> S:
    """Whether the sign bit is clear."""
    return x.bits(I32 if x.dtype == F32 else I64) >= 0


def _largest(a: S, b: S) -> S:
    return _chosen((a > b) | a.ne(a) | (a.eq(b) & _not_negative(a)), a, b)


def _smallest(a: S, b: S) -> S:
    return _chosen((a < b) | a.ne(a) | (a.eq(b) & ~_not_negative(a)), a, b)


def _largest_halves(a: S, b: S) -> S:
    def larger(x: S, y: S) -> S:
        best = x.bits(F32).op("largest", y.bits(F32))
        return best.ne(best).where(S(a.emit, a.emit.literal(_NAN, U32), U32), best.bits(U32))

    high = larger(a & _UPPER, b & _UPPER) & _UPPER
    return high | (larger(a << 16, b << 16) >> 16)


def _fmax(a: S, b: S) -> S:
    return _chosen((a > b) | b.ne(b), a, b) if a.dtype.is_float else _maximum(a, b)


def _fmin(a: S, b: S) -> S:
    return _chosen((a < b) | b.ne(b), a, b) if a.dtype.is_float else _minimum(a, b)


def _clip(x: S, low: S, high: S) -> S:
    """min(max(x, low), high) where a tie keeps x, and NaN anywhere wins."""
    if x.dtype.kind == "b":
        return (x | low) & high
    if not x.dtype.is_float:
        raised = (x < low).where(low, x)
        return (raised > high).where(high, raised)
    raised = ((x < low) | low.ne(low)).where(low, x)
    raised = x.ne(x).where(x, raised)
    lowered = ((raised > high) | high.ne(high)).where(high, raised)
    return raised.ne(raised).where(raised, lowered)


def _maximum_array(a: Array, b: Array) -> Array:
    return np.where((a > b) | (a != a), a, b)


def _minimum_array(a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b)


def _largest_array(a: Array, b: Array) -> Array:
    return np.where((a > b) | (a != a) | ((a == b) & ~np.signbit(a)), a, b)


def _largest_halves_array(a: Array, b: Array) -> Array:
    def larger(x: Array, y: Array) -> Array:
        best = _largest_array(x.astype(np.uint32).view(np.float32), y.astype(np.uint32).view(np.float32))
        return np.where(np.isnan(best), np.uint32(_NAN), best.view(np.uint32))

    a, b = np.atleast_1d(a, b)
    high = larger(a & np.uint32(_UPPER), b & np.uint32(_UPPER)) & np.uint32(_UPPER)
    return high | (larger(a << np.uint32(16), b << np.uint32(16)) >> np.uint32(16))


def _smallest_array(a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a) | ((a == b) & np.signbit(a)), a, b)


def _fmax_array(a: Array, b: Array) -> Array:
    return np.where((a > b) | (b != b), a, b)


def _fmin_array(a: Array, b: Array) -> Array:
    return np.where((a < b) | (b != b), a, b)


def _clip_array(x: Array, low: Array, high: Array) -> Array:
    raised = np.where(((x < low) | (low != low)) & (x == x), low, x)
    return np.where(((raised > high) | (high != high)) & (raised == raised), high, raised)


def _half(g: S, tie: S, whole: S) -> S:
    """A gradient's share: all of it, none of it, or half at a tie."""
    return tie.where(g * 0.5, whole.where(g, 0.0))


def _vjp_larger(g: S, y: S, a: S, b: S) -> tuple[S, S]:
    return _half(g, a.eq(b), a > b), _half(g, a.eq(b), b > a)


def _vjp_smaller(g: S, y: S, a: S, b: S) -> tuple[S, S]:
    return _half(g, a.eq(b), a < b), _half(g, a.eq(b), b < a)


def _vjp_clip(g: S, y: S, x: S, low: S, high: S) -> tuple[S, S, S]:
    inside = (x >= low) & (x <= high)
    return inside.where(g, 0.0), ((x < low) & (low <= high)).where(g, 0.0), (x > high).where(g, 0.0)


ROWS = (
    ScalarOp(
        name="maximum", arity=2, rule=numpy_rule(np.maximum), reference=_maximum_array, exact=True, expand=_maximum,
        growth=(1, 1), sign="largest", closed=True, commutes="biu", host="max",
        cost=Cost(3), names=Names(numpy=("maximum",), torch=("maximum",), methods=("maximum",)), vjp=_vjp_larger,
        notes="NaN of either side wins; zeros of both signs give the second",
    ),
    ScalarOp(
        name="minimum", arity=2, rule=numpy_rule(np.minimum), reference=_minimum_array, exact=True, expand=_minimum,
        growth=(1, 1), sign="common", closed=True, commutes="biu", host="min",
        cost=Cost(3), names=Names(numpy=("minimum",), torch=("minimum",), methods=("minimum",)), vjp=_vjp_smaller,
        notes="NaN of either side wins; zeros of both signs give the second",
    ),
    ScalarOp(
        name="fmax", arity=2, rule=numpy_rule(np.fmax), reference=_fmax_array, exact=True, expand=_fmax, cost=Cost(3),
        growth=(1, 1), sign="largest", closed=True,
        names=Names(numpy=("fmax",), torch=("fmax",)), vjp=_vjp_larger, notes="NaN only where both sides are",
    ),
    ScalarOp(
        name="fmin", arity=2, rule=numpy_rule(np.fmin), reference=_fmin_array, exact=True, expand=_fmin, cost=Cost(3),
        growth=(1, 1), sign="common", closed=True,
        names=Names(numpy=("fmin",), torch=("fmin",)), vjp=_vjp_smaller, notes="NaN only where both sides are",
    ),
    ScalarOp(
        name="clip", arity=3, rule=same(3), reference=_clip_array, exact=True, expand=_clip, cost=Cost(6),
        growth=(1, 1, 1), closed=True, host="clip",
        hidden=True, vjp=_vjp_clip,
        notes="min(max(x, low), high); users reach it through a function that may leave a bound out; "
        "NaN anywhere wins, a zero of x keeps its sign at a zero bound",
    ),
    ScalarOp(
        name="max_num", arity=2, hidden=True, rule=integers, reference=np.maximum, exact=True,
        expand=lambda a, b: (a > b).where(a, b), no_vjp="an integer helper", notes="integers only",
    ),
    ScalarOp(
        name="min_num", arity=2, hidden=True, rule=integers, reference=np.minimum, exact=True,
        expand=lambda a, b: (a < b).where(a, b), no_vjp="an integer helper", notes="integers only",
    ),
    ScalarOp(
        name="largest", arity=2, hidden=True, rule=same(2, "f"), reference=_largest_array, exact=True, expand=_largest,
        cuda={"f32": Call("fuser_largest")}, llvm={"f": Intrinsic("maximum")},
        commutes="f", no_vjp="a helper of reductions", notes="NaN of either side wins; 0.0 is above -0.0",
    ),
    ScalarOp(
        name="largest_bf16x2", arity=2, hidden=True, rule=words, reference=_largest_halves_array, exact=True,
        expand=_largest_halves, cuda={"u32": Call("fuser_largest_bf16x2")}, continuous=False,
        no_vjp="a helper of reductions", notes="`largest` of the lower and of the upper halves of two u32, bf16 each",
    ),
    ScalarOp(
        name="smallest", arity=2, hidden=True, rule=same(2, "f"), reference=_smallest_array, exact=True,
        expand=_smallest, cuda={"f32": Call("fuser_smallest")}, llvm={"f": Intrinsic("minimum")},
        commutes="f", no_vjp="a helper of reductions", notes="NaN of either side wins; -0.0 is below 0.0",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
