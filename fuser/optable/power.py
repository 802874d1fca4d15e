"""Rows for powers and roots.

In: nothing. Out: `power` (integers exactly modulo 2^width), `float_power`, `sqrt`, `rsqrt`, `cbrt`, `hypot`.
Its own file for the integer power: square-and-multiply over every bit of the exponent, in row arithmetic, so
it needs no loop in a kernel and wraps as NumPy's does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.hostexpr import call
from fuser.optable import complexes
from fuser.optable.base import Call, Cost, Intrinsic, Names, S, ScalarOp, Table, Variant
from fuser.optable.complexes import pairs
from fuser.optable.mathlib import powers
from fuser.optable.references import in_double
from fuser.optable.rules import floats, numpy_rule
from fuser.optable.spell import c_call, fast

Array = np.ndarray[Any, Any]


def _power(base: S, exponent: S) -> S:
    """Integers by squaring."""
    if base.dtype.is_float:
        return powers.power(base, exponent)
    unsigned = exponent.dtype.kind == "u"
    result, square, bits = base.like(1), base, exponent
    for k in range(exponent.dtype.bits - (0 if unsigned else 1)):  # a non-negative exponent has no sign bit
        odd = (bits & 1).ne(0)
        result = odd.where(result * square, result)
        if k + 1 < exponent.dtype.bits:
            square, bits = square * square, bits >> 1
    if unsigned:
        return result
    even_sign = (exponent & 1).eq(0).where(base.like(1), base)  # of 1 or -1
    unit = base.eq(1) | base.eq(-1)
    return (exponent < 0).where(unit.where(even_sign, 0), result)


def _power_array(base: Array, exponent: Array) -> Array:
    if base.dtype.kind == "f":
        return np.asarray(in_double(np.power)(base, exponent))
    if exponent.dtype.kind == "u":
        return np.asarray(np.power(base, exponent))
    found = np.asarray(np.power(base, np.maximum(exponent, 0)))
    unit = np.where(np.abs(base) == 1, np.where(exponent & 1 == 0, base.dtype.type(1), base), base.dtype.type(0))
    return np.where(exponent < 0, unit, found)


def _rsqrt_array(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / np.sqrt(x))


def _vjp_power(g: S, y: S, a: S, b: S) -> tuple[S, S]:
    """At a zero base the derivative by the exponent is 0, as y*log(a) tends to."""
    by_base = b.eq(0).where(g * 0, g * b * a.op("power", b - 1))
    log = a.op("log")
    return by_base, a.eq(0).where(g * 0, g * y * log)


# Costs: the f32 function's instructions in SASS (NVRTC 13, sm_90), slow paths apart, and registers beyond its operands.
_ROOT = Cost(9, sfu=1, registers=4, wide=12)
_POW = Cost(91, sfu=1, registers=10, wide=20)

ROWS = (
    ScalarOp(
        name="power", arity=2, symbol="**", rule=numpy_rule(np.power), reference=_power_array, cuda=c_call("pow"),
        expand=_power, cost=_POW, called=True, ulp={"f32": 4, "f64": 2}, domain=(0.01, 20.0), vjp=_vjp_power,
        names=Names(numpy=("power", "pow"), torch=("pow",), dsl=("pow",), methods=("pow",)),
        notes="integers exactly modulo 2^width; a negative integer exponent, which NumPy refuses, "
        "gives what 1/x**-n truncates to: 1 or -1 for those bases, else 0. Floats as C's pow",
        pairs=pairs(np.power, complexes.power, "literal integers below 100 multiply out in NumPy's order"),
    ),
    ScalarOp(
        name="float_power", arity=2, rule=numpy_rule(np.float_power), reference=np.float_power, cost=_POW,
        expand=lambda a, b: a.op("power", b), ulp={"f64": 2}, domain=(0.01, 20.0), vjp=_vjp_power,
        names=Names(numpy=("float_power",), torch=("float_power",)), notes="always in f64",
        pairs=pairs(np.float_power, complexes.power),
    ),
    ScalarOp(
        name="sqrt", arity=1, rule=numpy_rule(np.sqrt), reference=np.sqrt, exact=True, cuda=c_call("sqrt"), near=True,
        growth=(0.5,), sign="never-below", called=True, host="sqrt",
        llvm={"f": Intrinsic("sqrt")}, cost=_ROOT, domain=(1e-6, 1e6), vjp=lambda g, y, x: (g * 0.5 / y,),
        variants={"fast": Variant(cuda=fast("sqrt"), error=2.0**-22, cost=Cost(4, sfu=1, registers=1))},
        names=Names(numpy=("sqrt",), torch=("sqrt",), methods=("sqrt",)),
        notes="correctly rounded; NaN below zero, -0.0 stays",
        pairs=pairs(np.sqrt, complexes.sqrt),
    ),
    ScalarOp(
        name="rsqrt", arity=1, rule=floats(1), reference=_rsqrt_array, exact=True, expand=lambda x: 1.0 / x.op("sqrt"),
        growth=(0.5,), sign="never-below", host=lambda x: call("/", 1.0, call("sqrt", x)),
        cost=Cost(18, sfu=2, registers=4, wide=8), domain=(1e-3, 1e3), vjp=lambda g, y, x: (g * -0.5 * y / x,),
        variants={"fast": Variant(cuda=fast("rsqrt"), error=2.0**-22, cost=Cost(4, sfu=1, registers=1))},
        names=Names(torch=("rsqrt",), methods=("rsqrt",)),
        notes="1/sqrt(x), two correct roundings (within 2 ulp), the same bits on every device; zeros give infinities",
    ),
    ScalarOp(
        name="cbrt", arity=1, rule=numpy_rule(np.cbrt), reference=in_double(np.cbrt), cuda=c_call("cbrt"),
        growth=(1 / 3,), sign="operand",
        expand=powers.cbrt, cost=Cost(16, sfu=2, registers=6, wide=8), ulp={"f32": 2, "f64": 5},
        names=Names(numpy=("cbrt",), scipy=("cbrt",)), vjp=lambda g, y, x: (g / (y * y * 3.0),),
        notes="negative arguments have a real root",
    ),
    ScalarOp(
        name="hypot", arity=2, rule=numpy_rule(np.hypot), reference=in_double(np.hypot),
        growth=(1, 1), sign="never-below", called=True,
        cuda={"f32": Call("hypotf")},  # CUDA's for f64 gives infinity where the result is the largest double
        expand=powers.hypot, cost=Cost(20, sfu=2, registers=7, wide=14), ulp={"f32": 3, "f64": 2},
        vjp=lambda g, y, a, b: (g * a / y, g * b / y),
        names=Names(numpy=("hypot",), torch=("hypot",)), notes="no overflow in between; an infinity wins over NaN",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
