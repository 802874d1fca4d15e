"""log, log2, log10, log1p.

In: a handle of f32 or f64. Out: the value within 1.2 ulp (log1p: 1.6). x = 2**n * (1+f) with 1+f in
[sqrt(1/2), sqrt(2)), cut out of the bits; log(1+f) is kept as f + y with y small, so that f stays exact and every
base gets it by fused multiply-adds. f32 takes y by a polynomial in f, f64 by one in (f/(2+f))**2, where a division is
cheaper than twice the degree. Subnormal arguments are scaled up first. Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.parts import DOUBLE, LN2, SINGLE, Parts, fma, horner, layout

# log(1+f) = f - f^2/2 + f^3*(c0 + c1 f + ...): error 2^-27.3 of the result.
LOG_SINGLE = (0.3333333, -0.25000823, 0.2000126, -0.16623321, 0.14201093, -0.13159971, 0.12765515, -0.07639323)
# log(1+f) = s*(2 + z*(c0 + c1 z + ...)) with s = f/(2+f), z = s^2: error 2^-59.5.
LOG_DOUBLE = (
    0.6666666666666734, 0.39999999999417574, 0.2857142874176244, 0.2222219863381945, 0.18183561358708086,
    0.15314122250309636, 0.1479526899352542,
)  # fmt: skip
ROOT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)


LOG2E = {"f32": Parts(1.442695, 1.925963e-08), "f64": Parts(1.4426950408889634, 2.0355273740931033e-17)}
LOG10E = {"f32": Parts(0.4342945, -1.010305e-08), "f64": Parts(0.4342944819032518, 1.098319650216765e-17)}
LOG10_2 = {"f32": Parts(0.30103, -1.4320989e-08), "f64": Parts(0.3010299956639812, -2.8037281277851704e-18)}


def exponent(x: S) -> tuple[S, S]:
    """(n, m), n a whole float: x = 2**n * m, m in [sqrt(1/2), sqrt(2)); for x positive and normal."""
    root = ROOT_HALF[x.dtype.name]
    if x.dtype == F32:
        bits = x.bits(SINGLE.signed)
        n = (bits - root) >> SINGLE.mantissa
        return n.cast(x.dtype), (bits - (n << SINGLE.mantissa)).bits(x.dtype)
    above = x.bits(DOUBLE.unsigned) + ((DOUBLE.bias << DOUBLE.mantissa) - root)
    biased = above >> DOUBLE.mantissa
    one = 2.0**DOUBLE.mantissa  # its low bits count units, so a small whole number put there makes the sum
    n = (biased | ((DOUBLE.bias + DOUBLE.mantissa) << DOUBLE.mantissa)).bits(x.dtype) - (one + DOUBLE.bias)
    m = ((above & ((1 << DOUBLE.mantissa) - 1)) + root).bits(x.dtype)
    return n, m


def tail(f: S) -> S:
    """log(1+f) - f for 1+f in [sqrt(1/2), sqrt(2)]."""
    square = f * f
    if f.dtype == F32:
        return square * fma(f, horner(f, LOG_SINGLE), -0.5)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fma(s, fma(z, horner(z, LOG_DOUBLE), half), -half)


def normalised(x: S) -> tuple[S, S]:
    """`exponent` for any positive x; subnormals are scaled up first."""
    form = layout(x)
    small = x < form.smallest_normal
    lift = float(form.mantissa + 2)
    n, m = exponent(small.where(x * 2.0**lift, x))
    return small.where(n - lift, n), m


def with_specials(x: S, found: S) -> S:
    """Zero gives -inf, below zero NaN; inf and NaN stay."""
    below = x.eq(0.0).where(x.like(float("-inf")), float("nan"))
    return (x > 0.0).where((x < float("inf")).where(found, x), below)


def log(x: S) -> S:
    n, m = normalised(x)
    f = m - 1.0
    ln2 = LN2[x.dtype.name]
    return with_specials(x, fma(n, ln2.high, f + fma(n, ln2.low, tail(f))))


def log2(x: S) -> S:
    n, m = normalised(x)
    f = m - 1.0
    log2e = LOG2E[x.dtype.name]
    return with_specials(x, n + fma(f, log2e.high, fma(tail(f), log2e.high, f * log2e.low)))


def log10(x: S) -> S:
    n, m = normalised(x)
    f = m - 1.0
    log10e, log10_2 = LOG10E[x.dtype.name], LOG10_2[x.dtype.name]
    small = fma(n, log10_2.low, fma(tail(f), log10e.high, f * log10e.low))
    return with_specials(x, fma(n, log10_2.high, fma(f, log10e.high, small)))


def log1p(x: S) -> S:
    """n is that of the rounded 1+x; f = x*2**-n + (2**-n - 1) is taken from x itself, so nothing cancels. For x
    beyond 2**64 both are scaled, as 2**-n would leave the normal range."""
    form, ln2 = layout(x), LN2[x.dtype.name]
    large = x > 2.0**64
    scaled = large.where(x * 2.0**-64, x)
    n, _ = exponent(large.where(scaled, x + 1.0))
    unit = _inverse_power(n)
    f = fma(scaled, unit, large.where(-1.0, unit - 1.0))
    n = large.where(n + 64.0, n)
    found = fma(n, ln2.high, f + fma(n, ln2.low, tail(f)))
    found = (x > -1.0).where((x < float("inf")).where(found, x), x.eq(-1.0).where(x.like(float("-inf")), float("nan")))
    return (x.op("absolute") < 2.0 ** -(form.mantissa + 2)).where(x, found)


def _inverse_power(n: S) -> S:
    """2**-n for |n| below the bias."""
    form = layout(n)
    shifted = (form.magic + form.bias) - n
    return (shifted.bits(form.signed) << form.mantissa).bits(n.dtype)
