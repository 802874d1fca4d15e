"""tanh, sinh, cosh and their inverses.

In: a handle of f32 or f64. Out: the value within 1.7 ulp, inverses within 2.2. Odd functions are computed on |x| and
get the sign at the end, so -0.0 stays. Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.exponentials import exp_in_range, reduced, twice_exp
from fuser.optable.mathlib.parts import at_most, chosen, fma, horner, magnitude, power_of_two, with_sign

# tanh(x) = x + x^3*(c0 + c1 z + ...), z = x^2, |x| <= 0.55 (f32: 0.625): errors 2^-27.7 and 2^-60.3.
TANH_SINGLE = (-0.3333328, 0.13331406, -0.053736858, 0.020630576, -0.0056963474)
TANH_DOUBLE = (
    -0.333333333333333, 0.1333333333332658, -0.053968253963736994, 0.021869488385183846, -0.008863232590580705,
    0.0035920919226915963, -0.0014555421653084828, 0.0005884417381279173, -0.00023337468310062522,
    8.330669656497229e-05, -1.9488703634314914e-05,
)  # fmt: skip
# sinh(x) = x + x^3*(c0 + c1 z + ...), |x| <= 1: errors 2^-31.6 and 2^-61.7.
SINH_SINGLE = (0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-06)
SINH_DOUBLE = (
    0.16666666666666669, 0.00833333333333291, 0.0001984126984159546, 2.7557319105885935e-06, 2.5052131168815444e-08,
    1.6056643634981787e-10, 7.777137117964671e-13,
)  # fmt: skip
# asinh(x) = x + x^3*(c0 + c1 z + ...), |x| <= 0.5: errors 2^-29.6 and 2^-60.4.
ASINH_SINGLE = (-0.16666643, 0.074986406, -0.044382956, 0.028161013, -0.013223261)
ASINH_DOUBLE = (
    -0.1666666666666661, 0.07499999999984416, -0.044642857127830504, 0.03038194371633851, -0.022372138356766602,
    0.017352386931981868, -0.013960232028727584, 0.011512982583161383, -0.00953413588633008, 0.007465580505254832,
    -0.0047474799483824244, 0.0017180600099279495,
)  # fmt: skip
LN2 = 0.6931471805599453


def tanh(x: S) -> S:
    """Near 0 a polynomial, elsewhere 1 - 2/(exp(2|x|) + 1): the larger |x|, the less the error of exp counts."""
    near, most = (0.625, 10.0) if x.dtype == F32 else (0.55, 20.0)
    size = magnitude(x)
    square = x * x
    small = fma(size * square, horner(square, chosen(x, TANH_SINGLE, TANH_DOUBLE)), size)
    capped = at_most(size, most)
    large = 1.0 - 2.0 / (exp_in_range(capped + capped) + 1.0)
    return with_sign((size < near).where(small, large), x)


def _quarter_exp(x: S) -> S:
    """exp(x)/4 for 0 <= x, up to where a quarter of it would overflow."""
    shifted, r = reduced(at_most(x, 90.0 if x.dtype == F32 else 711.0))
    return twice_exp(r) * power_of_two(shifted - 2.0)


def sinh(x: S) -> S:
    size = magnitude(x)
    square = x * x
    small = fma(size * square, horner(square, chosen(x, SINH_SINGLE, SINH_DOUBLE)), size)
    e = _quarter_exp(size)
    half = e - 0.0625 / e
    return with_sign((size < 1.0).where(small, half + half), x)


def cosh(x: S) -> S:
    e = _quarter_exp(magnitude(x))
    half = e + 0.0625 / e
    return half + half


def _huge(x: S) -> S:
    """Where 1 no longer counts beside x, nor beside x^2, which does not overflow below."""
    return x > (2.0**30 if x.dtype == F32 else 2.0**60)


def arcsinh(x: S) -> S:
    """log1p of |x| + x^2/(1 + sqrt(1 + x^2)); for huge x log(2|x|)."""
    size = magnitude(x)
    square = x * x
    small = fma(size * square, horner(square, chosen(x, ASINH_SINGLE, ASINH_DOUBLE)), size)
    huge = _huge(size)
    above = huge.where(size, size + square / (1.0 + (1.0 + square).op("sqrt"))).op("log1p")
    return with_sign((size < 0.5).where(small, huge.where(above + LN2, above)), x)


def arccosh(x: S) -> S:
    """log1p of t + sqrt(t*t + 2t), t = x-1; for huge x log(2x)."""
    huge = _huge(x)
    t = x - 1.0
    above = huge.where(x, t + fma(t, t, t + t).op("sqrt")).op("log1p")
    return (x >= 1.0).where(huge.where(above + LN2, above), float("nan"))


def arctanh(x: S) -> S:
    """log1p(2a + 2a^2/(1-a))/2: the first term is exact."""
    size = magnitude(x)
    twice = size + size
    found = fma(twice, size / (1.0 - size), twice).op("log1p") * 0.5
    return (size > 1.0).where(float("nan"), with_sign(found, x))
