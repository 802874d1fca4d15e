"""The polynomials of `fuser.optable.mathlib` against their functions in 60 digits.

Each is as close as its comment says, and the short ones are as close as a polynomial of their length can be, found
again by Remez's exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from fuser.optable.mathlib import (
    circular,
    errorfunctions,
    exponentials,
    hyperbolic,
    inverse_circular,
    logarithms,
    parts,
    powers,
)
from tests.ops.remez import chebyshev, evaluate, minimax

Number = Any
with mpmath.workdps(80):
    LN2, LN10, PI = mpmath.log(2), mpmath.log(10), +mpmath.pi
    HALF, ROOT = LN2 / 2 * mpf("1.003"), mpmath.sqrt(mpf(1) / 2)
    S2 = ((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)) ** 2
TINY = mpf(10) ** -12


@dataclass(frozen=True)
class Polynomial:
    """weight(x) * (value(x) - polynomial(x)) is the error that counts, at most 2**bits: (f32's, f64's)."""

    coefficients: tuple[tuple[float, ...], tuple[float, ...]]
    interval: tuple[tuple[Number, Number], tuple[Number, Number]]
    value: Callable[[Number], Number]
    weight: Callable[[Number], Number]
    bits: tuple[float, float]
    slack: float = 1.0  # bits that the rounding of the coefficients may lose against the best of that length


def _odd(f: Callable[[Number], Number]) -> tuple[Callable[[Number], Number], Callable[[Number], Number]]:
    """(value, weight) of (f(x) - x)/x^3 as a function of z = x^2, the error relative to f."""

    def value(z: Number) -> Number:
        x = mpmath.sqrt(z)
        return (f(x) - x) / (x * z)

    def weight(z: Number) -> Number:
        x = mpmath.sqrt(z)
        return x * z / f(x)

    return value, weight


def _squared(low: float, high: float) -> tuple[Number, Number]:
    return max(mpf(low) ** 2, TINY), mpf(high) ** 2


def _both(interval: tuple[Number, Number]) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    return interval, interval


def _scaled_erfc(k: int) -> Callable[[Number], Number]:
    def value(t: Number) -> Number:
        x = k * (1 + t) / (1 - t)
        return mpmath.exp(x * x) * mpmath.erfc(x) * (x + k)

    return value


def _places(k: int, low: float, high: float) -> tuple[Number, Number]:
    return (mpf(low) - k) / (mpf(low) + k), (mpf(high) - k) / (mpf(high) + k)


PLACES = _both(_squared(0, 0.79))


def _log_rest(z: Number) -> Number:
    s = mpmath.sqrt(z)
    return (2 * mpmath.atanh(s) / s - 2) / z


def _pow_rest(z: Number) -> Number:
    s = mpmath.sqrt(z)
    return (2 / LN2) * (mpmath.atanh(s) / s - 1 - z / 3) / z**2


def _erf_rest(z: Number) -> Number:
    x = mpmath.sqrt(z)
    return mpmath.erf(x) / x - 1


SINGLE_AND_DOUBLE: dict[str, Polynomial] = {
    "exp": Polynomial(
        (exponentials.EXP_SINGLE, exponentials.EXP_DOUBLE), _both((-HALF, HALF)),
        lambda r: (2 * mpmath.exp(r) - 2 - 2 * r) / r**2, lambda r: r**2 / (2 * mpmath.exp(r)), (-28.1, -57),
    ),
    "exp2": Polynomial(
        (exponentials.EXP2_SINGLE, exponentials.EXP2_DOUBLE), _both((mpf("-0.501"), mpf("0.501"))),
        lambda r: (2 * mpmath.power(2, r) - 2) / r, lambda r: abs(r) / (2 * mpmath.power(2, r)), (-27.4, -55.3), 1.5,
    ),
    "log": Polynomial(
        (logarithms.LOG_SINGLE, ()), _both((ROOT - 1, 2 * ROOT - 1)),
        lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3, lambda f: abs(f**3 / mpmath.log1p(f)), (-27.3, 0),
    ),
    "log, in the square": Polynomial(
        ((), logarithms.LOG_DOUBLE), _both((TINY, S2)), _log_rest, lambda z: z / 2, (0, -59.4),
    ),
    "tanh": Polynomial(
        (hyperbolic.TANH_SINGLE, hyperbolic.TANH_DOUBLE), (_squared(0, 0.625), _squared(0, 0.55)),
        *_odd(mpmath.tanh), (-27.6, -60.3),
    ),
    "sinh": Polynomial(
        (hyperbolic.SINH_SINGLE, hyperbolic.SINH_DOUBLE), _both(_squared(0, 1)), *_odd(mpmath.sinh),
        (-31.6, -61.7), 2.7,
    ),
    "asinh": Polynomial(
        (hyperbolic.ASINH_SINGLE, hyperbolic.ASINH_DOUBLE), _both(_squared(0, 0.5)), *_odd(mpmath.asinh),
        (-29.5, -60.3),
    ),
    "erf": Polynomial(
        (errorfunctions.ERF_SINGLE, errorfunctions.ERF_DOUBLE), (_squared(0, 0.93), _squared(0, 1)),
        _erf_rest, lambda z: 1 / (1 + _erf_rest(z)), (-25.7, -55.7), 1.3,
    ),
    "-log erfc": Polynomial(
        (errorfunctions.TAIL_SINGLE, errorfunctions.TAIL_DOUBLE), ((mpf("0.92"), mpf(4)), (mpf("0.99"), mpf(6))),
        lambda x: -mpmath.log(mpmath.erfc(x)) / x, lambda x: x * mpmath.erfc(x) / mpmath.erf(x), (-28.3, -57.8),
    ),
    "scaled erfc": Polynomial(
        (errorfunctions.SCALED_SINGLE, ()), _both(_places(2, 0.6, 10.3)),
        lambda t: (_scaled_erfc(2)(t) - _at_zero("f32")) / t, lambda t: abs(t) / _scaled_erfc(2)(t), (-28.6, 0),
    ),
    "scaled erfc in f64": Polynomial(
        ((), errorfunctions.SCALED_DOUBLE), _both(_places(4, 0.6, 27.3)),
        lambda t: (_scaled_erfc(4)(t) - _at_zero("f64")) / t, lambda t: abs(t) / _scaled_erfc(4)(t), (0, -57.6),
    ),
    "sin": Polynomial(
        (circular.SIN_SINGLE, circular.SIN_DOUBLE), PLACES, *_odd(mpmath.sin), (-27.8, -57.7),
    ),
    "cos": Polynomial(
        (circular.COS_SINGLE, circular.COS_DOUBLE), PLACES, lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1) / z,
        lambda z: z / mpmath.cos(mpmath.sqrt(z)), (-32.8, -63.8), 1.1,
    ),
    "tan": Polynomial((circular.TAN_SINGLE, circular.TAN_DOUBLE), PLACES, *_odd(mpmath.tan), (-25.6, -55.9)),
    "atan": Polynomial(
        (inverse_circular.ATAN_SINGLE, inverse_circular.ATAN_DOUBLE), _both(_squared(0, 1)),
        *_odd(mpmath.atan), (-28.3, -57.4),
    ),
    "asin": Polynomial(
        (inverse_circular.ASIN_SINGLE, inverse_circular.ASIN_DOUBLE), _both(_squared(0, 0.5)),
        *_odd(mpmath.asin), (-27.6, -55.8),
    ),
    "log2 of pow": Polynomial(
        (powers.REST_SINGLE, powers.REST_DOUBLE), _both((TINY, S2)), _pow_rest, lambda z: z * z * LN2 / 2,
        (-36.7, -66.2),
    ),
    "inverse cube root": Polynomial(
        (powers.ROOT_SINGLE, powers.ROOT_DOUBLE), _both((ROOT - 1, 2 * ROOT - 1)),
        lambda f: (1 + f) ** (-mpf(1) / 3), lambda f: (1 + f) ** (mpf(1) / 3), (-14.6, -25.4),
    ),
}  # fmt: skip
CASES = [
    pytest.param(polynomial, k, id=f"{name}-{('f32', 'f64')[k]}")
    for name, polynomial in SINGLE_AND_DOUBLE.items()
    for k in (0, 1)
    if polynomial.coefficients[k]
]
SHORT = [c for c in CASES if len(c.values[0].coefficients[c.values[1]]) <= 9]


def _at_zero(dtype: str) -> Number:
    pair = errorfunctions.SCALED_AT_ZERO[dtype]
    return _held(pair.high, dtype) + _held(pair.low, dtype)


def _held(number: float, dtype: str) -> Number:
    """The literal as the dtype holds it."""
    return mpf(float(np.float32(number)) if dtype == "f32" else number)


def _sampled(polynomial: Polynomial, k: int, n: int) -> tuple[list[Number], list[Number], list[Number]]:
    points = [x for x in chebyshev(*polynomial.interval[k], n) if abs(x) > TINY / 10]
    return points, [polynomial.value(x) for x in points], [polynomial.weight(x) for x in points]


@pytest.mark.parametrize(("polynomial", "k"), CASES)
def test_polynomials_are_as_close_as_they_say(polynomial: Polynomial, k: int) -> None:
    coefficients = [_held(c, ("f32", "f64")[k]) for c in polynomial.coefficients[k]]
    with mpmath.workdps(60):
        points, values, weights = _sampled(polynomial, k, 300)
        errors = [abs(w * (v - evaluate(coefficients, x))) for x, v, w in zip(points, values, weights, strict=True)]
        assert mpmath.log(max(errors), 2) <= polynomial.bits[k]


@pytest.mark.parametrize(("polynomial", "k"), SHORT)
def test_short_polynomials_are_found_again(polynomial: Polynomial, k: int) -> None:
    """The best of the same length is no better than `slack` bits, and its coefficients are those shipped, nearly."""
    shipped = [_held(c, ("f32", "f64")[k]) for c in polynomial.coefficients[k]]
    with mpmath.workdps(45):
        points, values, weights = _sampled(polynomial, k, 40 * (len(shipped) + 1))
        found, level = minimax(points, values, weights, len(shipped))
        assert abs(mpmath.log(level, 2) - polynomial.bits[k]) <= polynomial.slack + 0.15
        assert abs(found[0] / shipped[0] - 1) < 2.0**-12
        assert all(abs(f / s - 1) < 0.1 for f, s in zip(found, shipped, strict=True))


with mpmath.workdps(80):
    PARTS = {
        "ln2": (parts.LN2, LN2), "log2(e)": (logarithms.LOG2E, 1 / LN2), "log10(e)": (logarithms.LOG10E, 1 / LN10),
        "log10(2)": (logarithms.LOG10_2, LN2 / LN10), "pi": (inverse_circular.PI, PI),
        "pi/2": (inverse_circular.HALF_PI, PI / 2), "2/ln2": (powers.LINEAR, 2 / LN2),
        "2/(3 ln2)": (powers.CUBIC, 2 / (3 * LN2)),
    }  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_constants_in_two_parts(name: str) -> None:
    constant, value = PARTS[name]
    with mpmath.workdps(80):
        for dtype, digits in (("f32", 24), ("f64", 53)):
            p = constant[dtype]
            assert _held(p.high, dtype) == mpf(float(np.float32(float(value)) if dtype == "f32" else float(value)))
            assert abs(_held(p.high, dtype) + _held(p.low, dtype) - value) < abs(value) * mpf(2) ** (-2 * digits + 1)


def test_half_pi_in_three_parts() -> None:
    with mpmath.workdps(80):
        for dtype, pieces, digits in (("f32", circular.HALF_PI_SINGLE, 24), ("f64", circular.HALF_PI_DOUBLE, 53)):
            rest = PI / 2 - sum(_held(p, dtype) for p in pieces)
            assert abs(rest) < mpf(2) ** (-3 * digits + 1)
