"""Rows of exponentials, logarithms and the logistic function.

In: nothing. Out: rows as NumPy's ufuncs, and `sigmoid`. Primitive where a device has the function, else
expanded: CPUs take the polynomials of `mathlib`. Error bounds cover every backend: CUDA's documented ones too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.optable import complexes
from fuser.optable.base import Cost, Expand, Names, S, ScalarOp, SignRule, Table, Variant, Vjp
from fuser.optable.complexes import Z, pairs
from fuser.optable.mathlib import exponentials, logarithms
from fuser.optable.references import in_double
from fuser.optable.rules import floats, numpy_rule
from fuser.optable.spell import c_call, fast

Array = np.ndarray[Any, Any]
LN2 = math.log(2.0)
LOG2E = math.log2(math.e)
# exp(x) of an f32 is neither 0 nor inf for |x| up to 104: an absolute error of x, |x| times a relative one, is a
# relative error of exp(x). What it is made of falls off no faster, but for erfc(-x), which does as exp(-x^2).
EXPONENT, SQUARED_EXPONENT = 104.0, 208.0


def _logaddexp(a: S, b: S) -> S:
    """Equal arguments (infinities too) apart, so that no inf - inf makes a NaN."""
    difference = a - b
    tail = (-difference.op("absolute")).op("exp").op("log1p")
    larger = (difference > 0).where(a, b)
    return a.eq(b).where(a + LN2, difference.ne(difference).where(difference, larger + tail))


def _logaddexp2(a: S, b: S) -> S:
    difference = a - b
    tail = (-difference.op("absolute")).op("exp2").op("log1p") * LOG2E
    larger = (difference > 0).where(a, b)
    return a.eq(b).where(a + 1.0, difference.ne(difference).where(difference, larger + tail))


def _sigmoid_array(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _logit(x: S) -> S:
    """log(x/(1-x)); near 1/2 the quotient is near 1, so log1p of its distance from 1 keeps the digits."""
    near = ((x - 0.5) * 2.0 / (1.0 - x)).op("log1p")
    far = (x / (1.0 - x)).op("log")
    return ((x > 0.3) & (x < 0.65)).where(near, far)


def _logit_array(x: Array) -> Array:
    return np.where((x > 0.3) & (x < 0.65), np.log1p((x - 0.5) * 2.0 / (1.0 - x)), np.log(x / (1.0 - x)))


def _function(
    name: str, ufunc: np.ufunc, expand: Expand, cost: Cost, domain: tuple[float, float], vjp: Vjp, *,
    ulp: tuple[float, float] = (2, 2), notes: str = "", torch: str = "", scipy: tuple[str, ...] = (),
    cheaper: Variant | None = None, form: Callable[[Z], Z] | None = None, sign: SignRule | None = None,
    growth: tuple[float, ...] | None = None, host: str = "",
) -> ScalarOp:  # fmt: skip
    """A unary function that CUDA's library has; CPUs take this project's."""
    names = Names(numpy=(name,), torch=(torch or name,), scipy=scipy, methods=(torch or name,))
    return ScalarOp(
        name=name, arity=1, rule=numpy_rule(ufunc), reference=in_double(ufunc), names=names, cuda=c_call(name),
        expand=expand, cost=cost, domain=domain, ulp={"f32": ulp[0], "f64": ulp[1]}, vjp=vjp, notes=notes, sign=sign,
        growth=growth, host=host,
        variants={} if cheaper is None else {"fast": cheaper}, pairs=None if form is None else pairs(ufunc, form),
    )  # fmt: skip


# Costs: the f32 function's instructions in SASS (NVRTC 13, sm_90), slow paths apart, and registers beyond its operands.
_EXP, _EXP2 = Cost(9, sfu=1, registers=4, wide=4), Cost(4, sfu=1, registers=4, wide=4)
_EXPM1 = Cost(24, registers=4, wide=5)
_LOG, _LOG1P = Cost(27, registers=4, wide=16), Cost(29, registers=5, wide=14)


def _near_one(stem: str) -> Variant:
    """A logarithm: its error is relative but near 1, where it is 2^-21 of 1; so no budget covers it."""
    return Variant(
        cuda=fast(stem), error=2.0**-21, cost=Cost(5, sfu=1, registers=1), budget=False,
        notes=f"`{stem}` within 2^-21 of its value, or of 1 where the operand is near 1",
    )  # fmt: skip


_FAST_EXP = Variant(cuda=fast("exp"), error=2.0**-16.5, cost=Cost(3, sfu=1))

FUNCTIONS = (
    _function("exp", np.exp, exponentials.exp, _EXP, (-80, 80), lambda g, y, x: (g * y,), cheaper=_FAST_EXP,
              notes="overflows to inf, -inf gives 0", form=complexes.exp, growth=(EXPONENT,), sign="never-below",
              host="exp"),
    _function("exp2", np.exp2, exponentials.exp2, _EXP2, (-120, 120), lambda g, y, x: (g * y * LN2,), scipy=("exp2",),
              growth=(EXPONENT,), sign="never-below"),
    _function("expm1", np.expm1, exponentials.expm1, _EXPM1, (-20, 80), lambda g, y, x: (g * (y + 1.0),),
              scipy=("expm1",), notes="keeps -0.0; accurate near 0", sign="operand"),
    _function("log", np.log, logarithms.log, _LOG, (1e-30, 1e30), lambda g, y, x: (g / x,),
              notes="0 gives -inf, below zero NaN", cheaper=_near_one("log"), form=complexes.log, host="log"),
    _function("log2", np.log2, logarithms.log2, _LOG, (1e-30, 1e30), lambda g, y, x: (g / (x * LN2),),
              cheaper=_near_one("log2"), form=complexes.log2),
    _function("log10", np.log10, logarithms.log10, _LOG, (1e-30, 1e30), lambda g, y, x: (g / (x * math.log(10.0)),),
              form=complexes.log10),
    _function("log1p", np.log1p, logarithms.log1p, _LOG1P, (-0.99, 1e10), lambda g, y, x: (g / (x + 1.0),),
              scipy=("log1p",), notes="keeps -0.0; -1 gives -inf, below that NaN", sign="operand"),
)  # fmt: skip

ROWS = (
    *FUNCTIONS,
    ScalarOp(
        name="logaddexp", arity=2, rule=numpy_rule(np.logaddexp), reference=in_double(np.logaddexp), expand=_logaddexp,
        cost=Cost(45, sfu=1, registers=7), ulp={"f32": 3, "f64": 3},
        names=Names(numpy=("logaddexp",), torch=("logaddexp",)),
        vjp=lambda g, y, a, b: (g * (a - y).op("exp"), g * (b - y).op("exp")), domain=(0, 50),
        notes="infinities of one sign are not subtracted: both -inf give -inf; "
        "digits cancel near a result of 0, as NumPy's do",
    ),
    ScalarOp(
        name="logaddexp2", arity=2, rule=numpy_rule(np.logaddexp2), reference=in_double(np.logaddexp2),
        expand=_logaddexp2,
        cost=Cost(45, sfu=1, registers=7), ulp={"f32": 3, "f64": 3},
        names=Names(numpy=("logaddexp2",), torch=("logaddexp2",)),
        vjp=lambda g, y, a, b: (g * (a - y).op("exp2"), g * (b - y).op("exp2")), domain=(0, 50),
        notes="as `logaddexp`, to base 2",
    ),
    ScalarOp(
        name="sigmoid", arity=1, rule=floats(1), reference=in_double(_sigmoid_array), expand=exponentials.sigmoid,
        growth=(EXPONENT,), sign="never-below",
        cost=Cost(18, sfu=2, registers=3), ulp={"f32": 4, "f64": 4}, domain=(-80, 80),
        variants={"fast": Variant(cuda=fast("sigmoid"), error=2.0**-16.5, cost=Cost(7, sfu=2, registers=1))},
        names=Names(torch=("sigmoid",), scipy=("expit",), dsl=("expit",), methods=("sigmoid",)),
        vjp=lambda g, y, x: (g * (y * (1.0 - y)),), notes="small results keep their digits down to the subnormals",
    ),
    ScalarOp(
        name="logit", arity=1, rule=floats(1), reference=in_double(_logit_array), expand=_logit,
        cost=Cost(75, sfu=2, registers=8), ulp={"f32": 5, "f64": 5}, domain=(0.01, 0.99),
        names=Names(torch=("logit",), scipy=("logit",), methods=("logit",)), vjp=lambda g, y, x: (g / (x * (1.0 - x)),),
        notes="NaN outside [0, 1], infinities at its ends",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
