"""What the tests of `fuser.optable.mathlib` share: exact values, and errors in fractions of a last place.

In: a function's name. Out: `FUNCTIONS[name]`: its value in f64 (for f32) and in mpmath (for f64), where to sample, and
the error that its module promises. `error` compares with a reference wider than the result, which `samples.ulps`
does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Function:
    """ranges: one list of (low, high) an operand; the k-th ranges of all operands belong together. f32, f64: ulp."""

    wide: Callable[..., Array]
    exact: Callable[..., Any]
    ranges: tuple[tuple[tuple[float, float], ...], ...]
    f32: float
    f64: float

    @property
    def arity(self) -> int:
        return len(self.ranges)


def _each(f: Callable[[float], float]) -> Callable[..., Array]:
    one = np.frompyfunc(f, 1, 1)
    return lambda x: np.asarray(one(x), np.float64)


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _within(f: Callable[[Any], Any], low: float, high: float) -> Callable[[Any], Any]:
    return lambda x: f(x) if low <= x <= high else mpmath.nan


def _erfc(x: Any) -> Any:
    """mpmath's, which without gmpy2 overflows on arguments far beyond those where erfc is 0 or 2."""
    return mpmath.erfc(x) if abs(x) < 1000 or mpmath.isnan(x) else mpmath.mpf(0 if x > 0 else 2)


def _unary(wide: Any, exact: Any, f32: float, f64: float, *ranges: tuple[float, float]) -> Function:
    return Function(wide, exact, (ranges,), f32, f64)


_POWER = (((0.01, 100.0), (0.9, 1.1), (0.0, 1e-38)), ((-9.0, 9.0), (-600.0, 600.0), (-1.0, 1.0)))
_PLANE = (((-5.0, 5.0), (0.0, 1e-38), (-1e30, 1e30)), ((-5.0, 5.0), (0.0, 1e-38), (-1e30, 1e30)))
FUNCTIONS: dict[str, Function] = {
    "exp": _unary(np.exp, mpmath.exp, 1, 1, (-104, 89), (-1, 1), (-745, 710)),
    "exp2": _unary(np.exp2, lambda x: mpmath.power(2, x), 1, 1, (-150, 128), (-1, 1), (-1075, 1024)),
    "expm1": _unary(np.expm1, mpmath.expm1, 1.5, 1.5, (-20, 89), (-1, 1), (-50, 710)),
    "log": _unary(np.log, mpmath.log, 1, 1, (0.5, 2), (0.9, 1.1), (0, 1e30)),
    "log2": _unary(np.log2, lambda x: mpmath.log(x, 2), 1.2, 1.2, (0.5, 2), (0.9, 1.1), (0, 1e30)),
    "log10": _unary(np.log10, mpmath.log10, 1.1, 1.1, (0.5, 2), (0.9, 1.1), (0, 1e30)),
    "log1p": _unary(np.log1p, mpmath.log1p, 1.6, 1.6, (-0.999, 3), (-0.1, 0.1), (0, 1e30)),
    "sigmoid": _unary(_sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), 1.7, 1.7, (-104, 30), (-2, 2), (-745, 5)),
    "tanh": _unary(np.tanh, mpmath.tanh, 1.6, 1.6, (-10, 10), (-1, 1), (-20, 20)),
    "sinh": _unary(np.sinh, mpmath.sinh, 1.7, 1.7, (-90, 90), (-2, 2), (-710, 710)),
    "cosh": _unary(np.cosh, mpmath.cosh, 1.4, 1.4, (-90, 90), (-2, 2), (-710, 710)),
    "arcsinh": _unary(np.arcsinh, mpmath.asinh, 1.8, 1.8, (-3, 3), (0, 1e10), (-1e25, 1e25)),
    "arccosh": _unary(np.arccosh, _within(mpmath.acosh, 1, math.inf), 2.2, 2.2, (1, 1.1), (1, 100), (1, 1e25)),
    "arctanh": _unary(np.arctanh, _within(mpmath.atanh, -1, 1), 1.9, 1.9, (-1, 1), (-0.1, 0.1), (0.9, 1)),
    "erf": _unary(_each(math.erf), mpmath.erf, 1.2, 1.2, (-4, 4), (-1, 1), (0.8, 1.2)),
    "erfc": _unary(_each(math.erfc), _erfc, 1.9, 1.8, (-5, 10), (0.4, 1.5), (1, 27)),
    "sin": _unary(np.sin, mpmath.sin, 1.6, 1.6, (-10, 10), (-131072, 131072), (-4e9, 4e9)),
    "cos": _unary(np.cos, mpmath.cos, 1.6, 1.6, (-10, 10), (-131072, 131072), (-4e9, 4e9)),
    "tan": _unary(np.tan, mpmath.tan, 1.4, 1.4, (-10, 10), (-131072, 131072), (-4e9, 4e9)),
    "arcsin": _unary(np.arcsin, _within(mpmath.asin, -1, 1), 1.3, 1.3, (-1, 1), (0.45, 0.55), (0.99, 1)),
    "arccos": _unary(np.arccos, _within(mpmath.acos, -1, 1), 1.3, 1.3, (-1, 1), (0.45, 0.55), (0.99, 1)),
    "arctan": _unary(np.arctan, mpmath.atan, 1.5, 1.5, (-3, 3), (-1000, 1000), (0, 1e20)),
    "arctan2": Function(np.arctan2, mpmath.atan2, _PLANE, 1.6, 1.6),
    "hypot": Function(np.hypot, mpmath.hypot, _PLANE, 1, 1),
    "cbrt": _unary(
        np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), 0.6, 0.6, (-9, 9), (0, 1e-38), (-1e30, 1e30)
    ),
    "power": Function(np.power, mpmath.power, _POWER, 1, 1.1),
}


def inputs(name: str, dtype: Any, n: int, seed: int = 0) -> list[Array]:
    """`n` values an operand: a third each over all magnitudes (both signs), and over the ranges of the function."""
    rng = np.random.default_rng([seed, n])
    f = FUNCTIONS[name]
    info = np.finfo(dtype)
    spread = [
        rng.choice([-1.0, 1.0], n // 4) * 2.0 ** rng.uniform(info.minexp - info.nmant, info.maxexp, n // 4)
        for _ in f.ranges
    ]
    near = [[rng.uniform(low, high, n // 4) for low, high in ranges] for ranges in f.ranges]
    with np.errstate(over="ignore", under="ignore"):
        return [np.concatenate([a, *parts]).astype(dtype) for a, parts in zip(spread, near, strict=True)]


def in_mpmath(name: str, arrays: list[Array]) -> Array:
    """The exact values as the sums of two f64 (high, low): shape [2, n]."""
    f = FUNCTIONS[name].exact
    out = np.zeros((2, len(arrays[0])))
    with mpmath.workdps(60):
        for k, values in enumerate(zip(*arrays, strict=True)):
            value = f(*(mpmath.mpf(float(v)) for v in values))
            value = mpmath.nan if isinstance(value, mpmath.mpc) else value
            out[0, k] = float(value)
            out[1, k] = float(value - mpmath.mpf(out[0, k])) if np.isfinite(out[0, k]) else 0.0
    return out


def error(got: Array, want: Array, low: Array | float = 0.0) -> Array:
    """|got - (want + low)| in units of the last place of `got`'s dtype at `want`; inf where one is NaN and one is not.

    A reference beyond the largest value by less than half a unit is as good as that value.
    """
    info = np.finfo(got.dtype)
    largest = float(info.max)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(want)[1] - 1, info.minexp, info.maxexp - 1)
        unit = np.ldexp(1.0, exponent - info.nmant)
        found = np.abs((got.astype(np.float64) - want) - low) / unit
        overflow = np.isinf(got) & (np.abs(want) >= largest) & (np.sign(got) == np.sign(want))
    found = np.where(overflow | (got == want), 0.0, found)
    found = np.where(np.isnan(got) & np.isnan(want), 0.0, found)
    return np.where(np.isnan(found) | (np.isnan(got) != np.isnan(want)), np.inf, found)
