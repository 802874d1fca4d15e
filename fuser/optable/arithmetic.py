"""Rows for sums, products, quotients and what is made of them without a branch on the value.

In: nothing. Out: rows named as NumPy's ufuncs. Everything here is exact: IEEE arithmetic for floats, wrap-around
at the dtype's own width for integers. A bool adds by `or` and multiplies by `and`, as in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.dtypes import U64, DType
from fuser.hostexpr import call
from fuser.optable import complexes
from fuser.optable.base import Call, Cost, Infix, Instr, Intrinsic, Names, Prefix, S, ScalarOp, Table, Variant
from fuser.optable.complexes import pairs
from fuser.optable.fma import fma_array
from fuser.optable.rules import fused, integers, numpy_rule
from fuser.optable.spell import c_call, fast, infix_arithmetic, instr_arithmetic, intrinsic

Array = np.ndarray[Any, Any]


def _absolute(x: S) -> S:
    return (x < 0).where(-x, x) if x.dtype.kind == "i" else x  # unsigned and bool are their own


def _sign(x: S) -> S:
    if x.dtype.kind == "u":
        return x.ne(0).where(x.like(1), 0)
    rest = x.eq(0).where(x.like(0), x) if x.dtype.is_float else x.like(0)  # -0.0 gives 0.0, NaN stays
    return (x > 0).where(x.like(1), (x < 0).where(x.like(-1), rest))


def _reciprocal(x: S) -> S:
    """1/x; for integers that is 0 except for x = 1 and x = -1."""
    if x.dtype.is_float:
        return 1.0 / x
    unit = x.eq(1) if x.dtype.kind == "u" else x.eq(1) | x.eq(-1)
    return unit.where(x, 0)


def _reciprocal_array(x: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(np.reciprocal(x))
    unit = x == 1 if x.dtype.kind == "u" else np.abs(x) == 1
    return np.where(unit, x, x.dtype.type(0))


def _degrees_factor(dtype: DType) -> float:
    """180/pi, divided in the dtype itself, as NumPy does."""
    t = dtype.numpy.type
    return float(t(180.0) / t(np.pi))


def _radians_factor(dtype: DType) -> float:
    t = dtype.numpy.type
    return float(t(np.pi) / t(180.0))


def _heaviside(x: S, at_zero: S) -> S:
    nan_or_step = x.ne(x).where(x, (x > 0).where(x.like(1.0), 0.0))
    return x.eq(0).where(at_zero, nan_or_step)


def _mulhi_array(a: Array, b: Array) -> Array:
    return np.asarray((a.astype(U64.numpy) * b.astype(U64.numpy)) >> np.uint64(32))


def _mulhi_wide(a: S, b: S) -> S:
    return ((a.cast(U64) * b.cast(U64)) >> 32).cast(a.dtype)


BASIC = (
    ScalarOp(
        name="add", arity=2, symbol="+", rule=numpy_rule(np.add), reference=np.add, exact=True,
        sign="common", units=(0, 0), commutes="biuf",
        cuda={"b": Infix("|"), **infix_arithmetic("+")}, llvm={"b": Instr("or_"), **instr_arithmetic("add")},
        names=Names(numpy=("add",), torch=("add",), methods=("add",)), vjp=lambda g, y, a, b: (g, g),
        notes="bool + bool is or", pairs=pairs(np.add, lambda a, b: a + b),
    ),
    ScalarOp(
        name="subtract", arity=2, symbol="-", rule=numpy_rule(np.subtract), reference=np.subtract, exact=True,
        sign="difference", units=(None, 0),
        cuda=infix_arithmetic("-"), llvm=instr_arithmetic("sub"), vjp=lambda g, y, a, b: (g, -g),
        names=Names(numpy=("subtract",), torch=("sub", "subtract"), dsl=("sub",), methods=("sub",)),
        notes="bool - bool is refused", pairs=pairs(np.subtract, lambda a, b: a - b),
    ),
    ScalarOp(
        name="multiply", arity=2, symbol="*", rule=numpy_rule(np.multiply), reference=np.multiply, exact=True,
        growth=(1, 1), sign="product", units=(1, 1), commutes="biuf",
        cuda={"b": Infix("&"), **infix_arithmetic("*")}, llvm={"b": Instr("and_"), **instr_arithmetic("mul")},
        names=Names(numpy=("multiply",), torch=("mul", "multiply"), dsl=("mul",), methods=("mul",)),
        vjp=lambda g, y, a, b: (g * b, g * a), notes="bool * bool is and",
        pairs=pairs(np.multiply, lambda a, b: a * b, "every product and sum rounded"),
    ),
    ScalarOp(
        name="divide", arity=2, symbol="/", rule=numpy_rule(np.divide), reference=np.divide, exact=True, near=True,
        growth=(1, 1), sign="product", called=True,
        cuda={"f": Infix("/")}, llvm={"f": Instr("fdiv")}, cost=Cost(9, sfu=1, registers=8, wide=14),
        variants={"fast": Variant(cuda=fast("divide"), error=2.0**-22, cost=Cost(8, sfu=1, registers=1))},
        names=Names(
            numpy=("divide", "true_divide"), torch=("div", "divide", "true_divide"), dsl=("div", "true_divide"),
            methods=("div",),
        ),
        vjp=lambda g, y, a, b: (g / b, -(g * y) / b), notes="integers divide as floats (i32 -> f64)",
        pairs=pairs(np.divide, complexes.divide, "Smith's algorithm in NumPy's order"),
    ),
    ScalarOp(
        name="negative", arity=1, symbol="-", rule=numpy_rule(np.negative), reference=np.negative, exact=True,
        growth=(1,), sign="opposite", closed=True, host="neg",
        cuda={"i": Prefix("-", wraps=True), "u": Prefix("-", wraps=True), "f": Prefix("-")},
        llvm={"i": Instr("neg"), "u": Instr("neg"), "f": Instr("fneg")},
        names=Names(numpy=("negative",), torch=("neg", "negative"), dsl=("neg",), methods=("neg",)),
        vjp=lambda g, y, x: (-g,), notes="flips the sign bit, of NaN too; unsigned wraps; bool is refused",
        pairs=pairs(np.negative, lambda a: -a),
    ),
    ScalarOp(
        name="positive", arity=1, symbol="+", rule=numpy_rule(np.positive), reference=np.positive, exact=True,
        growth=(1,), sign="operand", closed=True, host="pos",
        expand=lambda x: x, cost=Cost(0), names=Names(numpy=("positive",), torch=("positive",)),
        vjp=lambda g, y, x: (g,), notes="bool is refused", pairs=pairs(np.positive, lambda a: a),
    ),
    ScalarOp(
        name="square", arity=1, rule=numpy_rule(np.square), reference=np.square, exact=True, expand=lambda x: x * x,
        growth=(2,), sign="never-below", host=lambda x: call("*", x, x),
        names=Names(numpy=("square",), torch=("square",), methods=("square",)), vjp=lambda g, y, x: (g * (x * 2),),
        pairs=pairs(np.square, complexes.square),
    ),
    ScalarOp(
        name="reciprocal", arity=1, rule=numpy_rule(np.reciprocal), reference=_reciprocal_array, exact=True,
        growth=(1,), sign="operand", host=lambda x: call("/", 1.0, x),
        expand=_reciprocal, cost=Cost(9, sfu=1, registers=6, wide=8), vjp=lambda g, y, x: (-(g * y * y),),
        variants={"fast": Variant(cuda=fast("reciprocal"), error=2.0**-22, cost=Cost(8, sfu=1, registers=1))},
        names=Names(numpy=("reciprocal",), torch=("reciprocal",), methods=("reciprocal",)),
        notes="integer reciprocal of 0 is 0 (NumPy leaves it open)",
        pairs=pairs(np.reciprocal, complexes.reciprocal),
    ),
    ScalarOp(
        name="fma", arity=3, hidden=True, rule=fused, reference=fma_array, exact=True, cuda=c_call("fma"),
        llvm={"f": Intrinsic("fma")}, vjp=lambda g, y, a, b, c: (g * b, g * a, g),
        notes="a*b + c rounded once; never made by contraction, only asked for by rows",
    ),
    ScalarOp(
        name="mulhi", arity=2, hidden=True, rule=integers, reference=_mulhi_array, exact=True,
        cuda={"u32": Call("__umulhi")},
        expand=_mulhi_wide, no_vjp="an integer helper", notes="upper half of a u32 product (Philox); u32 only",
    ),
)  # fmt: skip

SIGNS = (
    ScalarOp(
        name="absolute", arity=1, rule=numpy_rule(np.absolute), reference=np.absolute, exact=True,
        growth=(1,), sign="never-below", closed=True, host="abs",
        cuda=c_call("fabs"), llvm=intrinsic("fabs"), expand=_absolute, vjp=lambda g, y, x: (g * x.op("sign"),),
        names=Names(numpy=("absolute", "abs"), torch=("abs", "absolute"), dsl=("abs",), methods=("abs", "__abs__")),
        notes="clears the sign bit, of NaN too; the most negative integer stays itself",
        pairs=pairs(np.absolute, lambda a: a.modulus, "`hypot` of the parts"),
    ),
    ScalarOp(
        name="fabs", arity=1, rule=numpy_rule(np.fabs), reference=np.fabs, exact=True, cuda=c_call("fabs"),
        growth=(1,), sign="never-below", closed=True,
        llvm=intrinsic("fabs"), names=Names(numpy=("fabs",)), vjp=lambda g, y, x: (g * x.op("sign"),),
        notes="as `absolute`, but integers become floats",
    ),
    ScalarOp(
        name="sign", arity=1, rule=numpy_rule(np.sign), reference=np.sign, exact=True, expand=_sign, cost=Cost(4),
        closed=True,
        names=Names(numpy=("sign",), torch=("sign", "sgn"), methods=("sign",)), continuous=False,
        vjp=lambda g, y, x: (g * 0,), notes="NaN stays NaN, both zeros give +0; bool is refused",
        pairs=pairs(np.sign, complexes.sign, "z / |z|"),
    ),
    ScalarOp(
        name="heaviside", arity=2, rule=numpy_rule(np.heaviside), reference=np.heaviside, exact=True, expand=_heaviside,
        cost=Cost(5), names=Names(numpy=("heaviside",), torch=("heaviside",)), continuous=False,
        vjp=lambda g, y, x, h: (g * 0, x.eq(0).where(g, 0)), notes="NaN stays NaN, whatever the value at zero",
    ),
    ScalarOp(
        name="degrees", arity=1, rule=numpy_rule(np.degrees), reference=np.degrees, exact=True,
        expand=lambda x: x * _degrees_factor(x.dtype), vjp=lambda g, y, x: (g * _degrees_factor(x.dtype),),
        names=Names(numpy=("degrees", "rad2deg"), torch=("rad2deg",), dsl=("rad2deg",), methods=("rad2deg",)),
    ),
    ScalarOp(
        name="radians", arity=1, rule=numpy_rule(np.radians), reference=np.radians, exact=True,
        expand=lambda x: x * _radians_factor(x.dtype), vjp=lambda g, y, x: (g * _radians_factor(x.dtype),),
        names=Names(numpy=("radians", "deg2rad"), torch=("deg2rad",), dsl=("deg2rad",), methods=("deg2rad",)),
    ),
)  # fmt: skip

ROWS = (*BASIC, *SIGNS)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
