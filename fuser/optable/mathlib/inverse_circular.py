"""arcsin, arccos, arctan, arctan2.

In: handles of f32 or f64. Out: the value within 1.6 ulp. Arguments are brought near 0 by 1/x, by sqrt((1-|x|)/2), or by
the quotient of the smaller and the larger coordinate; what the multiples of pi/2 lose in rounding is added back.
Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.optable.base import S
from fuser.optable.mathlib.parts import Parts, chosen, fma, horner, layout, magnitude, with_sign

# atan(x) = x + x^3*(c0 + c1 z + ...), z = x^2, |x| <= 1: errors 2^-28.4 and 2^-57.5.
ATAN_SINGLE = (
    -0.333333, 0.1999853, -0.14264016, 0.10950878, -0.0839928, 0.057880368, -0.031095274, 0.010867417, -0.0017824824,
)  # fmt: skip
ATAN_DOUBLE = (
    -0.3333333333333307, 0.19999999999951756, -0.14285714282588738, 0.11111111007366599, -0.09090907008310525,
    0.07692279895631061, -0.06666404483214887, 0.05880530187395752, -0.052535285406283244, 0.04722354460933355,
    -0.04219259590258608, 0.036643480831995166, -0.02990623894492896, 0.021987650834297674, -0.013903079735458445,
    0.007198208111917442, -0.0028857565004976817, 0.0008316041841242487, -0.00015221914556330115,
    1.3230632118465526e-05,
)  # fmt: skip
# asin(x) = x + x^3*(c0 + c1 z + ...), |x| <= 1/2: errors 2^-27.6 and 2^-55.9.
ASIN_SINGLE = (0.16666752, 0.074953094, 0.045469157, 0.02418468, 0.04215861)
ASIN_DOUBLE = (
    0.16666666666665408, 0.0750000000033714, 0.04464285682821862, 0.03038195914172649, 0.02237175793462767,
    0.017359706480290543, 0.013885219211990516, 0.012169311653583278, 0.006527578783196101, 0.019529236045583355,
    -0.01622557741835005, 0.031913031016509726,
)  # fmt: skip
PI = {"f32": Parts(3.1415927, -8.742278e-08), "f64": Parts(3.141592653589793, 1.2246467991473532e-16)}
HALF_PI = {"f32": Parts(1.5707964, -4.371139e-08), "f64": Parts(1.5707963267948966, 6.123233995736766e-17)}


def _atan(t: S) -> S:
    """For 0 <= t <= 1."""
    z = t * t
    return fma(t * z, horner(z, chosen(t, ATAN_SINGLE, ATAN_DOUBLE)), t)


def _less(angle: Parts, x: S) -> S:
    """angle - x."""
    return angle.high - (x - angle.low)


def arctan(x: S) -> S:
    size = magnitude(x)
    beyond = size > 1.0
    angle = _atan(beyond.where(1.0 / size, size))
    return with_sign(beyond.where(_less(HALF_PI[x.dtype.name], angle), angle), x)


def arctan2(y: S, x: S) -> S:
    """The angle of (x, y): signs of zeros choose the quadrant; two infinities count as equal."""
    a, b = magnitude(y), magnitude(x)
    steep = a > b
    smaller, larger = steep.where(b, a), steep.where(a, b)
    t = smaller.eq(larger).where((larger > 0.0).where(x.like(1.0), 0.0), smaller / larger)
    angle = _atan(t)
    angle = steep.where(_less(HALF_PI[x.dtype.name], angle), angle)
    left = x.bits(layout(x).signed) < 0
    angle = with_sign(left.where(_less(PI[x.dtype.name], angle), angle), y)
    return (x.ne(x) | y.ne(y)).where(float("nan"), angle)


def _asin_parts(size: S) -> tuple[S, S, S]:
    """(|x| >= 1/2, s, asin(s) - s) with s = |x| or sqrt((1-|x|)/2)."""
    far = size >= 0.5
    half = 0.5 - size * 0.5
    z = far.where(half, size * size)
    s = far.where(half.op("sqrt"), size)
    return far, s, (s * z) * horner(z, chosen(size, ASIN_SINGLE, ASIN_DOUBLE))


def arcsin(x: S) -> S:
    """The far case subtracts 2s first, and keeps what that rounds off: the errors of s would count double."""
    far, s, rest = _asin_parts(magnitude(x))
    right, twice = HALF_PI[x.dtype.name], s + s
    main = right.high - twice
    outer = main + (((right.high - main) - twice) - ((rest + rest) - right.low))
    return with_sign(far.where(outer, s + rest), x)


def arccos(x: S) -> S:
    far, s, rest = _asin_parts(magnitude(x))
    angle = s + rest
    twice = angle + angle
    outer = (x < 0.0).where(_less(PI[x.dtype.name], twice), twice)
    return far.where(outer, _less(HALF_PI[x.dtype.name], with_sign(angle, x)))
