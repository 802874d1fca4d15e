"""exp, exp2, expm1 and the logistic function.

In: a handle of f32 or f64. Out: the value within 1 ulp (expm1 and the logistic function: 1.7). x = n*ln2 + r with
|r| <= ln2/2, exp(r) a polynomial, 2**n by the exponent field. The polynomials give 2*exp(r), so that 2**(n-1) stays in
range where the result is next to overflow; results below the normal range are computed 2**64 times too large and
scaled down with one rounding.

Coefficients: minimax for the relative error (Remez's exchange in 45 digits), rounded one after the other with the
rest fitted again; `tests/ops/test_mathlib_coefficients.py` holds every polynomial of this package against its function
and fits the short ones again.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.parts import (
    LN2,
    at_least,
    at_most,
    chosen,
    fma,
    horner,
    layout,
    magnitude,
    power_of_two,
)
from fuser.record import dataclass

LOG2E = 1.4426950408889634
# 2*exp(r) = 2 + 2r + r^2*(c0 + c1 r + ...) on |r| <= 0.3476: errors 2^-28.2 and 2^-57.1.
EXP_SINGLE = (0.9999999, 0.33333027, 0.08333616, 0.016739037, 0.0027682984)
EXP_DOUBLE = (
    1.0000000000000022, 0.33333333333332593, 0.08333333333304799, 0.016666666667148784, 0.0027777777891320253,
    0.00039682538646390435, 4.960298132629037e-05, 5.511550142939282e-06, 5.526243529682108e-07, 4.9899566094775374e-08,
)  # fmt: skip
# 2*2^r = 2 + r*(c0 + c1 r + ...) on |r| <= 0.501: errors 2^-27.5 and 2^-55.4.
EXP2_SINGLE = (1.3862945, 0.4804531, 0.111005455, 0.019234132, 0.0026835504, 0.00031645174)
EXP2_DOUBLE = (
    1.3862943611198915, 0.480453013918202, 0.11100821732957626, 0.019236258215210196, 0.0026667116307390773,
    0.0003080706089041862, 3.0505454837665287e-05, 2.6430880652241236e-06, 2.0361047650047907e-07,
    1.4146109451469745e-08, 8.224083649200782e-10,
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Where results leave the format: beyond `low` or `high` they are 0 or inf, below `tiny` perhaps subnormal."""

    low: float
    high: float
    tiny: float


EXP_RANGE = {"f32": Range(-104.0, 89.0, -86.0), "f64": Range(-746.0, 710.0, -707.0)}
EXP2_RANGE = {"f32": Range(-151.0, 129.0, -125.0), "f64": Range(-1076.0, 1025.0, -1021.0)}


def exponent_offset(x: S) -> float:
    """`magic` plus the exponent field of 2**-1: a whole number n added to it is 2**(n-1) in `power_of_two`."""
    form = layout(x)
    return form.magic + (form.bias - 1)


def reduced(x: S) -> tuple[S, S]:
    """(shifted n, r) with x = n*ln2 + r, |r| <= ln2/2 up to rounding; for |x| below the format's overflow."""
    ln2, offset = LN2[x.dtype.name], exponent_offset(x)
    shifted = fma(x, LOG2E, offset)
    n = shifted - offset
    return shifted, fma(n, -ln2.low, fma(n, -ln2.high, x))


def twice_exp(r: S) -> S:
    """2*exp(r) for |r| <= ln2/2."""
    return horner(r, (2.0, 2.0, *chosen(r, EXP_SINGLE, EXP_DOUBLE)))


def exp_in_range(x: S) -> S:
    """exp(x) where neither x nor the result is near overflow or underflow; NaN stays."""
    shifted, r = reduced(x)
    return twice_exp(r) * power_of_two(shifted)


def scaled(twice: S, shifted: S, tiny: S) -> S:
    """twice * 2**(n-1), rounded once; `tiny` says where it may be subnormal."""
    product = twice * power_of_two(tiny.where(shifted + 64.0, shifted))
    return tiny.where(product * 2.0**-64, product)


def exp(x: S) -> S:
    limits = EXP_RANGE[x.dtype.name]
    x = at_least(at_most(x, limits.high), limits.low)
    shifted, r = reduced(x)
    return scaled(twice_exp(r), shifted, x < limits.tiny)


def exp2(x: S) -> S:
    return exp2_of_sum(x, None)


def exp2_of_sum(x: S, low: S | None) -> S:
    """2**(x + low), low small against 1."""
    limits = EXP2_RANGE[x.dtype.name]
    x = at_least(at_most(x, limits.high), limits.low)
    offset = exponent_offset(x)
    shifted = x + offset
    r = x - (shifted - offset)
    if low is not None:
        r = r + low
    twice = horner(r, (2.0, *chosen(x, EXP2_SINGLE, EXP2_DOUBLE)))
    return scaled(twice, shifted, x < limits.tiny)


def expm1(x: S) -> S:
    """2*(s*(r + q) + (s - 1/2)) with s = 2**(n-1) and q = exp(r) - 1 - r: the two additions are fused, so
    that only the rounding of s*r + (s - 1/2) and the last one count."""
    least, nothing = (-18.0, 2.0**-26) if x.dtype == F32 else (-38.0, 2.0**-55)
    within = at_least(at_most(x, EXP_RANGE[x.dtype.name].high), least)
    shifted, r = reduced(within)
    s = power_of_two(shifted)
    q = (r * r) * (horner(r, chosen(x, EXP_SINGLE, EXP_DOUBLE)) * 0.5)
    half = fma(s, q, fma(s, r, s - 0.5))
    return (magnitude(x) < nothing).where(x, half + half)


def sigmoid(x: S) -> S:
    """Of e = exp(-|x|), which neither overflows nor cancels: with q = e/(1+e), 1 - q or e - e*q. So the
    errors of q count little where the result is far from 1/2."""
    e = (-magnitude(x)).op("exp")
    a = (x >= 0).where(e.like(1.0), e)
    divisor = 1.0 + e  # in [1, 2], and 1 where e is small: the division needs no test of its operands
    quotient = e.op("divide.near", divisor) if x.dtype == F32 else e / divisor
    return fma(-a, quotient, a)
