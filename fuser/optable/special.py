"""Rows of the special functions that array programs use: error functions, gamma functions, softplus, entropies.

In: nothing. Out: rows named as in scipy.special (`expit` is in `exponential`). References come from Python's
math module, so the table needs no SciPy; tests hold them against it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.dtypes import F32, F64
from fuser.optable.base import Call, Cost, Names, S, ScalarOp, Spellings, Table
from fuser.optable.mathlib import errorfunctions
from fuser.optable.references import elementwise, in_double
from fuser.optable.rules import floats
from fuser.optable.spell import c_call, libm

Array = np.ndarray[Any, Any]
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

# Coefficients of Wichura's algorithm AS 241 (PPND16), lowest power first: the normal quantile to about 1e-16.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_MIDDLE = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_TAIL = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _horner(x: S, coefficients: tuple[float, ...]) -> S:
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _ratio(x: S, pair: tuple[tuple[float, ...], tuple[float, ...]]) -> S:
    return _horner(x, pair[0]) / _horner(x, pair[1])


def _erfinv(x: S) -> S:
    """By AS 241 in f64: erfinv(x) = quantile((1 + x)/2) / sqrt(2), from x itself so that nothing cancels near 0."""
    if x.dtype == F32:
        return _erfinv(x.cast(F64)).cast(F32)
    half = x * 0.5
    central = half * _ratio(0.180625 - half * half, _CENTRE)
    r = (-((1.0 - x.op("absolute")) * 0.5).op("log")).op("sqrt")
    outer = (r <= 5.0).where(_ratio(r - 1.6, _MIDDLE), _ratio(r - 5.0, _TAIL))
    outer = x.op("absolute").eq(1.0).where(float("inf"), outer)
    found = (half.op("absolute") <= 0.425).where(central, outer.op("copysign", x))
    return found * math.sqrt(0.5)


def _erfinv_one(y: float) -> float:
    """Newton's method on math.erf from AS 241's neighbour; math has no inverse."""
    if not -1.0 < y < 1.0:
        return math.copysign(math.inf, y) if abs(y) == 1.0 else math.nan
    from statistics import NormalDist

    size = abs(y)
    if size < 1e-8:
        return y / TWO_OVER_SQRT_PI
    x = -NormalDist().inv_cdf((1.0 - size) / 2.0) * math.sqrt(0.5)
    for _ in range(2):
        excess = math.erf(x) - size if size < 0.5 else (1.0 - size) - math.erfc(x)
        x -= excess / (TWO_OVER_SQRT_PI * math.exp(-x * x))
    return math.copysign(x, y)


def _ndtr(x: S) -> S:
    return (x * -math.sqrt(0.5)).op("erfc") * 0.5


def _softplus(x: S) -> S:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)): no overflow, NaN stays."""
    return x.op("maximum", 0.0) + (-x.op("absolute")).op("exp").op("log1p")


def _softplus_array(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def _xlogy(x: S, y: S) -> S:
    return (x.eq(0) & y.eq(y)).where(0.0, x * y.op("log"))


def _xlogy_array(x: Array, y: Array) -> Array:
    return np.where((x == 0) & (y == y), 0.0, x * np.log(y))


def _xlog1py(x: S, y: S) -> S:
    return (x.eq(0) & y.eq(y)).where(0.0, x * y.op("log1p"))


def _xlog1py_array(x: Array, y: Array) -> Array:
    return np.where((x == 0) & (y == y), 0.0, x * np.log1p(y))


def _entr(x: S) -> S:
    """-x*log(x): 0 at 0, -inf below."""
    return (x < 0).where(x.like(float("-inf")), x.eq(0).where(0.0, -(x * x.op("log"))))


def _entr_array(x: Array) -> Array:
    return np.where(x < 0, -np.inf, np.where(x == 0, 0.0, -(x * np.log(x))))


def _names(name: str, *torch: str) -> Names:
    return Names(scipy=(name,), torch=torch, methods=torch)


def _lgamma_one(x: float) -> float:
    """math.lgamma, infinite at its poles, where math raises."""
    return math.inf if x <= 0 and (math.isinf(x) or x == math.floor(x)) else math.lgamma(x)


def _gamma_one(x: float) -> float:
    """math.gamma with C's infinities at zero and on overflow, where math raises."""
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except OverflowError:  # a large x, or one next to zero
        return math.copysign(math.inf, x)


# Costs: the f32 function's instructions in SASS (NVRTC 13, sm_90), slow paths apart, and registers beyond its operands.
ERRORS = (
    ScalarOp(
        name="erf", arity=1, rule=floats(1), reference=elementwise(math.erf),
        growth=(1,), sign="operand",
        cuda={"f32": Call("fuser_erf"), "f64": Call("erf")}, expand=errorfunctions.erf,
        cost=Cost(22, sfu=1, registers=4, wide=6), ulp={"f32": 2, "f64": 2}, domain=(-5, 5), names=_names("erf", "erf"),
        vjp=lambda g, y, x: (g * (-(x * x)).op("exp") * TWO_OVER_SQRT_PI,), notes="keeps -0.0",
    ),
    ScalarOp(
        name="erfc", arity=1, rule=floats(1), reference=elementwise(math.erfc), cuda=c_call("erfc"),
        sign="never-below",
        expand=errorfunctions.erfc,
        cost=Cost(48, sfu=3, registers=8, wide=16),
        ulp={"f32": 4, "f64": 5}, domain=(-5, 9), names=_names("erfc", "erfc"),
        vjp=lambda g, y, x: (g * (-(x * x)).op("exp") * -TWO_OVER_SQRT_PI,), notes="accurate in the upper tail",
    ),
    ScalarOp(
        name="erfinv", arity=1, rule=floats(1), reference=elementwise(_erfinv_one), cuda=c_call("erfinv"),
        expand=_erfinv,
        cost=Cost(27, sfu=2, registers=4), ulp={"f32": 3, "f64": 8}, domain=(-0.999, 0.999),
        names=_names("erfinv", "erfinv"),
        vjp=lambda g, y, x: (g * (y * y).op("exp") / TWO_OVER_SQRT_PI,),
        notes="NaN outside [-1, 1], infinities at its ends",
    ),
    ScalarOp(
        name="ndtr", arity=1, rule=floats(1), reference=elementwise(lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5))),
        expand=_ndtr, cost=Cost(50, sfu=3, registers=8), ulp={"f32": 40, "f64": 48}, domain=(-6, 6),
        names=Names(scipy=("ndtr",)),
        vjp=lambda g, y, x: (g * (x * x * -0.5).op("exp") * (1.0 / math.sqrt(2.0 * math.pi)),),
        notes="the normal distribution function; its lower tail magnifies the rounding of x/sqrt(2) by x*x",
    ),
)  # fmt: skip

_GAMMA: Spellings = {"f32": Call("tgammaf"), "f64": Call("tgamma")}

GAMMAS = (
    ScalarOp(
        name="lgamma", arity=1, rule=floats(1), reference=elementwise(_lgamma_one), cuda=c_call("lgamma"),
        llvm=libm("lgamma"),
        cost=Cost(120, sfu=2, registers=8), ulp={"f32": 6, "f64": 12}, domain=(3.0, 100.0),
        names=Names(scipy=("gammaln",), torch=("lgamma",), dsl=("gammaln",), methods=("lgamma",)),
        no_vjp="its derivative, digamma, has no row yet",
        notes="log |gamma(x)|: poles give inf; relative to the value except near its roots 1, 2 and between poles. "
        "f64: the reference, CPython's own lgamma, is good to 9 ulp; libm and CUDA to 4",
    ),
    ScalarOp(
        name="gamma", arity=1, rule=floats(1), reference=elementwise(_gamma_one), cuda=_GAMMA, llvm=libm("tgamma"),
        cost=Cost(100, sfu=4, registers=12), ulp={"f32": 5, "f64": 10}, domain=(0.5, 30.0),
        names=Names(scipy=("gamma",)),
        no_vjp="its derivative needs digamma, which has no row yet", notes="overflows to inf; NaN at negative integers",
    ),
)  # fmt: skip

OTHERS = (
    ScalarOp(
        name="softplus", arity=1, rule=floats(1), reference=in_double(_softplus_array), expand=_softplus, names=Names(),
        sign="never-below",
        cost=Cost(42, sfu=1, registers=6), ulp={"f32": 4, "f64": 4}, domain=(-80, 80),
        vjp=lambda g, y, x: (g * x.op("sigmoid"),), notes="log(1 + exp(x)) without overflow",
    ),
    ScalarOp(
        name="xlogy", arity=2, rule=floats(2), reference=in_double(_xlogy_array), expand=_xlogy,
        cost=Cost(31, registers=6),
        ulp={"f32": 3, "f64": 3}, domain=(0.001, 100.0), names=_names("xlogy", "xlogy"),
        vjp=lambda g, y, a, b: (g * b.op("log"), g * a / b), notes="0 where x is 0 and y no NaN",
    ),
    ScalarOp(
        name="xlog1py", arity=2, rule=floats(2), reference=in_double(_xlog1py_array), expand=_xlog1py,
        cost=Cost(33, registers=6), ulp={"f32": 3, "f64": 3}, domain=(0.001, 100.0), names=Names(scipy=("xlog1py",)),
        vjp=lambda g, y, a, b: (g * b.op("log1p"), g * a / (b + 1.0)), notes="0 where x is 0 and y no NaN",
    ),
    ScalarOp(
        name="entr", arity=1, rule=floats(1), reference=in_double(_entr_array), expand=_entr,
        cost=Cost(32, registers=6),
        ulp={"f32": 3, "f64": 3}, domain=(0.001, 100.0), names=Names(scipy=("entr",)),
        vjp=lambda g, y, x: (-(g * (x.op("log") + 1.0)),), notes="-x*log(x); 0 at 0, -inf below",
    ),
)  # fmt: skip

ROWS = (*ERRORS, *GAMMAS, *OTHERS)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
