"""sin, cos, tan.

In: a handle of f32 or f64. Out: the value within 1.6 ulp. |x| = n*pi/2 + r with |r| <= pi/4: n*pi/2 is taken off in
three parts (Cody and Waite; with fused multiply-adds the first subtraction is exact), which keeps r's relative error
at one rounding for |x| up to 2^17 (f32) and 2^32 (f64). Larger arguments go to the C library's function element by
element: their reduction (Payne and Hanek) needs over a thousand bits of 2/pi. A vector without one skips that.
Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.parts import chosen, fma, horner, layout, magnitude, rarely

TWO_OVER_PI = 0.6366197723675814
HALF_PI_SINGLE = (1.5707964, -4.371139e-08, -1.7151245e-15)
HALF_PI_DOUBLE = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
# sin(r) = r + r^3*(c0 + c1 z + ...), z = r^2, |r| <= 0.79: errors 2^-27.8 and 2^-57.8.
SIN_SINGLE = (-0.16666654, 0.008332106, -0.0001950789)
SIN_DOUBLE = (
    -0.16666666666666627, 0.008333333333321128, -0.00019841269828771806, 2.755731333002859e-06,
    -2.505070105111985e-08, 1.5893464500506397e-10,
)  # fmt: skip
# cos(r) = 1 + z*(c0 + c1 z + ...), |r| <= 0.79: errors 2^-32.9 and 2^-63.8.
COS_SINGLE = (-0.5, 0.041666646, -0.0013887304, 2.4431201e-05)
COS_DOUBLE = (
    -0.5, 0.04166666666666659, -0.0013888888888872167, 2.480158728827508e-05, -2.7557314007551524e-07,
    2.0875676877180807e-09, -1.1357266766845062e-11,
)  # fmt: skip
# tan(r) = r + r^3*(c0 + c1 z + ...), |r| <= 0.79: errors 2^-25.6 and 2^-55.9.
TAN_SINGLE = (0.3333314, 0.13339227, 0.05337532, 0.024560196, 0.0029087458, 0.009511799)
TAN_DOUBLE = (
    0.33333333333332665, 0.13333333333430047, 0.05396825391932092, 0.021869489784416784, 0.008863216703615694,
    0.003592311182840955, 0.0014546242509652194, 0.0005956251307658506, 0.00022073318406796874,
    0.00013990749233909765, -3.1140779911416e-05, 9.381156387060964e-05, -4.722441928396981e-05, 2.1426641514571334e-05,
)  # fmt: skip


def _quadrant(size: S) -> tuple[S, S, S]:
    """(n as an integer of which the low bits count, n, size - n*first exactly) for size >= 0."""
    form = layout(size)
    shifted = fma(size, TWO_OVER_PI, form.magic)
    n = shifted - form.magic
    return shifted.bits(form.signed), n, fma(n, -chosen(size, HALF_PI_SINGLE, HALF_PI_DOUBLE)[0], size)


def _sin_cos(size: S) -> tuple[S, S, S]:
    """(n, sin r, cos r) for size >= 0."""
    bits, n, near = _quadrant(size)
    _, second, third = chosen(size, HALF_PI_SINGLE, HALF_PI_DOUBLE)
    r = fma(n, -third, fma(n, -second, near))
    z = r * r
    sine = fma(r * z, horner(z, chosen(r, SIN_SINGLE, SIN_DOUBLE)), r)
    return bits, sine, horner(z, (1.0, *chosen(r, COS_SINGLE, COS_DOUBLE)))


def _in_two(n: S, near: S) -> tuple[S, S]:
    """near - n*(second + third) as high and low part."""
    _, second, third = chosen(near, HALF_PI_SINGLE, HALF_PI_DOUBLE)
    part = n * second
    high = near - part
    change = high - near
    lost = (near - (high - change)) - (part + change)
    rest = lost - fma(n, third, fma(n, second, -part))
    r = high + rest
    return r, (high - r) + rest


def _large(size: S) -> S:
    """Where the reduction in three parts no longer holds; infinities too."""
    return size > (2.0**17 if size.dtype == F32 else 2.0**32)


def _odd(n: S) -> S:
    return (n & 1).ne(0)


def _flipped(x: S, sign: S) -> S:
    """`x`, its sign changed where the integer `sign` has its top bit set."""
    form = layout(x)
    return (x.bits(form.signed) ^ sign).bits(x.dtype)


def _half_turn(n: S) -> S:
    """Bit 1 of `n` as a sign bit."""
    return (n & 2) << (n.dtype.bits - 2)


def _sign(x: S, size: S) -> S:
    """The sign bit of `x`, whose magnitude is `size`."""
    form = layout(x)
    return x.bits(form.signed) ^ size.bits(form.signed)


def sin(x: S) -> S:
    size = magnitude(x)
    n, sine, cosine = _sin_cos(size)
    found = _flipped(_odd(n).where(cosine, sine), _half_turn(n) ^ _sign(x, size))
    return rarely(_large(size), lambda: x.op("libm_sin"), found)


def cos(x: S) -> S:
    size = magnitude(x)
    n, sine, cosine = _sin_cos(size)
    found = _flipped(_odd(n).where(sine, cosine), _half_turn(n + 1))
    return rarely(_large(size), lambda: x.op("libm_cos"), found)


def tan(x: S) -> S:
    """t + low = tan r, or -1/(t + low) with a correction of the quotient; `low` holds what the roundings of r and
    of t left out."""
    size = magnitude(x)
    bits, n, near = _quadrant(size)
    r, rest = _in_two(n, near)
    z = r * r
    beyond = (r * z) * horner(z, chosen(r, TAN_SINGLE, TAN_DOUBLE))
    t = r + beyond
    low = ((r - t) + beyond) + fma(rest * t, t, rest)
    quotient = -1.0 / t
    error = fma(quotient, low, fma(quotient, t, 1.0))
    found = _odd(bits).where(fma(quotient, error, quotient), t + low)
    return rarely(_large(size), lambda: x.op("libm_tan"), _flipped(found, _sign(x, size)))
