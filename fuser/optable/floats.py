"""Rows that read or write the parts of a float: sign, exponent, neighbours, special values.

In: nothing. Out: `copysign`, `signbit`, `nextafter`, `ldexp`, `isnan`, `isinf`, `isfinite`. They are written
on the bits, so every backend agrees exactly; a compiler that assumed finite math could not break them. Its
own file because only these rows know how a float is laid out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.dtypes import BOOL, F16, F32, I16, I32, I64, DType
from fuser.optable.base import Cost, Names, S, ScalarOp, Table
from fuser.optable.complexes import by_part, pairs
from fuser.optable.rules import numpy_rule, scaling
from fuser.optable.spell import c_call, intrinsic

Array = np.ndarray[Any, Any]


def _integer(dtype: DType) -> DType:
    """The signed integer dtype that holds a float's bits."""
    return {16: I16, 32: I32, 64: I64}[dtype.bits]


def _bits(x: S) -> S:
    return x.bits(_integer(x.dtype))


def _signbit(x: S) -> S:
    return _bits(x) < 0


def _isnan(x: S) -> S:
    return x.ne(x) if x.dtype.is_float else x.literal(False, BOOL)


def _isinf(x: S) -> S:
    return x.op("absolute").eq(float("inf")) if x.dtype.is_float else x.literal(False, BOOL)


def _isfinite(x: S) -> S:
    return x.op("absolute") < float("inf") if x.dtype.is_float else x.literal(True, BOOL)


def _nextafter(x: S, y: S) -> S:
    """The neighbour of x toward y: the bits count up away from zero and down toward it. Where they are equal it is y:
    0.0 and -0.0 are told apart."""
    bits = _bits(x)
    outward = (x < y) ^ (x < 0)
    stepped = outward.where(bits + 1, bits - 1)
    from_zero = (y > 0).where(bits.like(1), bits.like(_sign_mask(x.dtype) + 1))  # the smallest subnormal
    moved = x.eq(0).where(from_zero, stepped).bits(x.dtype)
    settled = x.eq(y).where(y, moved)
    return (x.ne(x) | y.ne(y)).where(x + y, settled)


def _nextafter_numpy(x: Any, y: Any) -> Any:
    """NumPy's, and y where they are equal, as C has it and NumPy from 2.5 on: its halves gave x before."""
    return np.where(np.equal(x, y), y, np.nextafter(x, y))


def _sign_mask(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1))


def _power_of_two(n: S, dtype: DType) -> S:
    """2**n by its exponent field, for n within the normal range."""
    mantissa, bias = (23, 127) if dtype == F32 else (52, 1023)
    return ((n.cast(_integer(dtype)) + bias) << mantissa).bits(dtype)


def _ldexp(x: S, n: S) -> S:
    """x * 2**n, rounded once: large steps first; on the way down a step stops short of the subnormals."""
    top, digits = (127, 24) if x.dtype == F32 else (1023, 53)
    down = top - 1 - digits  # x * 2**-down keeps full precision for any x that a further step may round
    n = _clamped(n, 3 * top)
    for _ in range(2):
        up, low = n > top, n < -(top - 1)
        scale = up.where(x.like(2.0**top), low.where(x.like(2.0**-down), 1.0))
        x = x * scale
        n = up.where(n - top, low.where(n + down, n))
    return x * _power_of_two(_clamped_between(n, -(top - 1), top), x.dtype)


def _clamped(n: S, limit: int) -> S:
    return _clamped_between(n, -limit, limit)


def _clamped_between(n: S, low: int, high: int) -> S:
    return n.op("max_num", low).op("min_num", high)


def _spacing(x: S) -> S:
    """The distance to the neighbour away from zero, with the sign of x (zeros: positive). NumPy's of f16: to the
    neighbour above."""
    if x.dtype == F16:
        return x.eq(float("-inf")).where(float("nan"), x.op("nextafter", float("inf")) - x)
    outward = (x < 0).where(x.like(float("-inf")), float("inf"))
    return x.op("nextafter", outward) - x


def _numpy_spacing(x: Array) -> Array:
    """NumPy's; ml_dtypes gives bf16's -0.0 a negative one."""
    return np.where(x == 0, np.abs(np.spacing(x)), np.spacing(x))


def _row(name: str, arity: int, reference: Any, **fields: Any) -> ScalarOp:
    rule = fields.pop("rule", None) or numpy_rule(reference)
    return ScalarOp(name=name, arity=arity, reference=reference, exact=True, rule=rule, **fields)


def _predicate(name: str, ufunc: np.ufunc, expand: Any, notes: str, join: str = "") -> ScalarOp:
    """`join`: how the answers of the parts of a complex number combine; without it such operands are refused."""
    return _row(
        name, 1, ufunc, expand=expand, continuous=False, cost=Cost(2), no_vjp="the result is a bool", notes=notes,
        names=Names(numpy=(name,), torch=(name,), methods=(name,)),
        pairs=pairs(ufunc, by_part(name, join)) if join else None,
    )  # fmt: skip


ROWS = (
    _predicate("isnan", np.isnan, _isnan, "integers are never NaN", "bitwise_or"),
    _predicate("isinf", np.isinf, _isinf, "either sign", "bitwise_or"),
    _predicate("isfinite", np.isfinite, _isfinite, "neither infinite nor NaN", "bitwise_and"),
    _predicate("signbit", np.signbit, _signbit, "true for -0.0 and for NaN with the sign set; integers become floats"),
    _row(
        "copysign", 2, np.copysign, cuda=c_call("copysign"), llvm=intrinsic("copysign"), continuous=False,
        growth=(1, 0), closed=True,
        names=Names(numpy=("copysign",), torch=("copysign",), methods=("copysign",)),
        vjp=lambda g, y, a, b: (g * a.op("sign") * b.like(1.0).op("copysign", b), g * 0),
        notes="the sign of NaN and -0.0 too",
    ),
    _row(
        "nextafter", 2, _nextafter_numpy, rule=numpy_rule(np.nextafter), expand=_nextafter, cost=Cost(14),
        continuous=False, by_bits=True,
        names=Names(numpy=("nextafter",), torch=("nextafter",)),
        no_vjp="reads the representation, not the value", notes="of f16 and bf16 the neighbour in that very dtype",
    ),
    _row(
        "spacing", 1, _numpy_spacing, rule=numpy_rule(np.spacing), expand=_spacing, cost=Cost(16), continuous=False,
        by_bits=True, names=Names(numpy=("spacing",)), no_vjp="reads the representation, not the value",
        notes="sign of x (f16, as NumPy has it: positive, to the neighbour above); NaN for infinities",
    ),
    _row(
        "ldexp", 2, np.ldexp, rule=scaling, expand=_ldexp, cost=Cost(18),
        names=Names(numpy=("ldexp",), torch=("ldexp",)), vjp=lambda g, y, x, n: (g.op("ldexp", n), None),
        notes="x * 2**n rounded once, for any exponent",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
