"""Rows that divide with remainder.

In: nothing. Out: `floor_divide` and `remainder` (quotient toward minus infinity, remainder with the divisor's
sign), `fmod` (C's), and the raw C divisions `trunc_div`, `trunc_rem` they are written with. Integers divided
by zero give 0, the most negative one by -1 wraps; floats follow NumPy's `npy_divmod`. Its own file because a
dozen lines here are what every case of sign, zero and infinity rests on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.optable.base import Cost, Infix, Instr, Names, S, ScalarOp, Table
from fuser.optable.casts import integer_range
from fuser.optable.rules import integers, numpy_rule
from fuser.optable.spell import c_call, libm

Array = np.ndarray[Any, Any]


# -- integers --------------------------------------------------------------------------------------
def _safe_divisor(a: S, b: S) -> S:
    """The divisor, 1 in its place where C's division is undefined."""
    unsafe = b.eq(0)
    if b.dtype.kind == "i":
        unsafe = unsafe | (a.eq(integer_range(a.dtype)[0]) & b.eq(-1))
    return unsafe.where(b.like(1), b)


def _floors(r: S, b: S) -> S:
    """Whether C's remainder must be moved to the divisor's sign."""
    return r.ne(0) & ((r < 0) ^ (b < 0))


def _integer_floor_divide(a: S, b: S) -> S:
    safe = _safe_divisor(a, b)
    q = a.op("trunc_div", safe)
    if b.dtype.kind == "i":
        q = _floors(a - q * safe, safe).where(q - 1, q)
    return b.eq(0).where(b.like(0), q)


def _integer_remainder(a: S, b: S) -> S:
    safe = _safe_divisor(a, b)
    r = a.op("trunc_rem", safe)
    if b.dtype.kind == "i":
        r = _floors(r, safe).where(r + safe, r)
    return b.eq(0).where(b.like(0), r)


def _integer_fmod(a: S, b: S) -> S:
    return b.eq(0).where(b.like(0), a.op("trunc_rem", _safe_divisor(a, b)))


# -- floats: npy_divmod ----------------------------------------------------------------------------
def _float_remainder(a: S, b: S) -> S:
    r = a.op("fmod", b)
    moved = _floors(r, b).where(r + b, r)
    signed_zero = r.eq(0).where(r.like(0.0).op("copysign", b), moved)
    return b.eq(0).where(r, signed_zero)  # a zero divisor gives fmod's NaN


def _float_floor_divide(a: S, b: S) -> S:
    r = a.op("fmod", b)
    quotient = (a - r) / b
    quotient = _floors(r, b).where(quotient - 1.0, quotient)
    whole = quotient.op("floor")
    nearest = (quotient - whole > 0.5).where(whole + 1.0, whole)
    plain = a / b
    signed_zero = quotient.eq(0).where(plain.like(0.0).op("copysign", plain), nearest)
    return b.eq(0).where(plain, signed_zero)


def _floor_divide(a: S, b: S) -> S:
    return _float_floor_divide(a, b) if a.dtype.is_float else _integer_floor_divide(a, b)


def _remainder(a: S, b: S) -> S:
    return _float_remainder(a, b) if a.dtype.is_float else _integer_remainder(a, b)


# -- C's division on arrays ------------------------------------------------------------------------
def _trunc_rem_array(a: Array, b: Array) -> Array:
    return np.asarray(np.fmod(a, b))


def _trunc_div_array(a: Array, b: Array) -> Array:
    q, r = np.floor_divide(a, b), np.remainder(a, b)
    opposite = (a < 0) != (b < 0)
    return np.asarray(q + ((r != 0) & opposite).astype(q.dtype))


_INTEGER_COST = Cost(24, registers=4)  # no division unit on a GPU: a reciprocal and corrections; 64 bits cost more

ROWS = (
    ScalarOp(
        name="floor_divide", arity=2, symbol="//", rule=numpy_rule(np.floor_divide), reference=np.floor_divide,
        exact=True,
        expand=_floor_divide, cost=_INTEGER_COST, continuous=False,
        names=Names(numpy=("floor_divide",), torch=("floor_divide",), methods=("floor_divide",)),
        vjp=lambda g, y, a, b: (g * 0, g * 0),
        notes="integers: by zero gives 0, the most negative by -1 wraps; floats: as npy_divmod (by zero a/b)",
    ),
    ScalarOp(
        name="remainder", arity=2, symbol="%", rule=numpy_rule(np.remainder), reference=np.remainder, exact=True,
        expand=_remainder, cost=_INTEGER_COST, continuous=False,
        names=Names(numpy=("remainder", "mod"), torch=("remainder",), dsl=("mod",), methods=("remainder",)),
        vjp=lambda g, y, a, b: (g, -(g * a.op("floor_divide", b))),
        notes="sign of the divisor, zeros too; integers by zero give 0, floats NaN",
    ),
    ScalarOp(
        name="fmod", arity=2, rule=numpy_rule(np.fmod), reference=np.fmod, exact=True, cuda=c_call("fmod"),
        llvm=libm("fmod"), called=True,
        expand=_integer_fmod, cost=_INTEGER_COST, continuous=False,
        names=Names(numpy=("fmod",), torch=("fmod",), methods=("fmod",)),
        vjp=lambda g, y, a, b: (g, -(g * (a / b).op("trunc"))),
        notes="sign of the dividend; integers by zero give 0, floats NaN",
    ),
    ScalarOp(
        name="trunc_div", arity=2, hidden=True, rule=integers, reference=_trunc_div_array, exact=True, continuous=False,
        units=(None, 1),
        cuda={"i": Infix("/"), "u": Infix("/")}, llvm={"i": Instr("sdiv"), "u": Instr("udiv")}, cost=_INTEGER_COST,
        no_vjp="an integer helper",
        notes="C's division; the divisor is not 0, and not -1 for the most negative dividend",
    ),
    ScalarOp(
        name="trunc_rem", arity=2, hidden=True, rule=integers, reference=_trunc_rem_array, exact=True, continuous=False,
        cuda={"i": Infix("%"), "u": Infix("%")}, llvm={"i": Instr("srem"), "u": Instr("urem")}, cost=_INTEGER_COST,
        no_vjp="an integer helper", notes="C's remainder, with the divisors of `trunc_div`",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
