"""pow, cbrt, hypot.

In: handles of f32 or f64. Out: pow, cbrt and hypot within 1 ulp. |x|**y = 2**(y*log2 |x|) with the logarithm as the
unevaluated sum of two floats, about 12 digits more than the format has: 2 atanh(s)/ln2 in powers of s = (m-1)/(m+1), of
which the first two terms are carried in two floats each and the rest in one. The special cases of C's pow (x not
positive and finite, y infinite or NaN) are behind a branch. Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.exponentials import exp2_of_sum
from fuser.optable.mathlib.logarithms import normalised
from fuser.optable.mathlib.parts import (
    Parts,
    chosen,
    exact_product,
    exact_sum,
    fma,
    horner,
    layout,
    magnitude,
    power_of_two,
    rarely,
    with_sign,
)

# log2(m) = s*(A + z*(B + z*(c0 + c1 z + ...))), s = (m-1)/(m+1), z = s^2, A = 2/ln2, B = A/3: errors 2^-36.7, 2^-66.2.
LINEAR = {"f32": Parts(2.88539, 3.851926e-08), "f64": Parts(2.8853900817779268, 4.0710547481862066e-17)}
CUBIC = {"f32": Parts(0.9617967, -7.028462e-09), "f64": Parts(0.9617966939259756, 5.0577616648125907e-17)}
REST_SINGLE = (0.57708025, 0.41184402, 0.33796003)
REST_DOUBLE = (
    0.5770780163556184, 0.4121985830917146, 0.3205989023156919, 0.2623076972976483, 0.22198417986708982,
    0.19125079726705563, 0.19042699672816274,
)  # fmt: skip
INFINITY = float("inf")


def _log2(x: S) -> tuple[S, S]:
    """log2(x) as high and low part, for x positive and finite."""
    linear, cubic = LINEAR[x.dtype.name], CUBIC[x.dtype.name]
    n, m = normalised(x)
    f, g = m - 1.0, m + 1.0
    g_low = m - (g - 1.0)
    inverse = 1.0 / g
    s = f * inverse
    s_low = fma(-s, g_low, fma(-s, g, f)) * inverse
    z, z_low = exact_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    w, w_low = exact_sum(s.like(cubic.high), z * horner(z, chosen(x, REST_SINGLE, REST_DOUBLE)))
    t, t_low = exact_product(z, w)
    t_low = fma(z, w_low + cubic.low, fma(z_low, w, t_low))
    u, u_low = exact_sum(s.like(linear.high), t)
    u_low = u_low + (t_low + linear.low)
    log, log_low = exact_product(s, u)
    high, low = exact_sum(n, log)
    return high, low + (log_low + fma(s, u_low, s_low * u))


def power(x: S, y: S) -> S:
    """x**y as C's pow."""
    size = magnitude(x)
    log, log_low = _log2(size)
    exponent, low = exact_product(y, log)
    low = fma(y, log_low, low)
    within = magnitude(exponent) < (256.0 if x.dtype == F32 else 2048.0)  # else 0 or inf, and `low` means nothing
    found = exp2_of_sum(exponent, within.where(low, 0.0))
    usual = (x > 0.0) & (x < INFINITY) & (magnitude(y) < INFINITY)
    return rarely(~usual, lambda: _special(x, y, found), found)


def _special(x: S, y: S, found: S) -> S:
    """The cases where |x|**y, as computed, is not the answer."""
    size, endless = magnitude(x), magnitude(y).eq(INFINITY)
    whole = y.op("trunc").eq(y)
    half = y * 0.5
    odd = whole & half.op("trunc").ne(half)
    extreme = ((size > 1.0) ^ (y < 0.0)).where(x.like(INFINITY), 0.0)
    value = (size.eq(0.0) | size.eq(INFINITY) | endless).where(extreme, found)
    value = odd.where(with_sign(value, x), value)
    invalid = ((x < 0.0) & (size < INFINITY) & ~whole) | x.ne(x) | y.ne(y)
    one = y.eq(0.0) | x.eq(1.0) | (size.eq(1.0) & endless)
    return one.where(1.0, invalid.where(float("nan"), value))


# m^(-1/3) = c0 + c1 f + ..., f = m-1, m in [sqrt(1/2), sqrt(2)]: errors 2^-14.7 and 2^-25.4, squared by a step.
ROOT_SINGLE = (0.9999766, -0.33290157, 0.22436267, -0.1889093, 0.12836981)
ROOT_DOUBLE = (
    0.9999999782422887, -0.3333331968823104, 0.22222940685202267, -0.17286019080899798, 0.1436707343402135,
    -0.12387118535991536, 0.11649470674639799, -0.11677720556061624, 0.07294037629845278,
)  # fmt: skip
THIRD = 1.0 / 3.0
CUBE_ROOT_2 = 1.2599210498948732


def cbrt(x: S) -> S:
    """From v near w**(-1/3), x = w * 8**k: one Newton step for v, then y = w*v*v and a step for y with y**3 - w
    in two floats. No division, and hardly an error beside the last rounding."""
    form = layout(x)
    size = magnitude(x)
    n, m = normalised(size)
    shifted = fma(n, THIRD, form.magic + form.bias)
    rest = n - (shifted - (form.magic + form.bias)) * 3.0  # -1, 0 or 1
    up, down = rest > 0.5, rest < -0.5
    w = up.where(m * 2.0, down.where(m * 0.5, m))
    v = horner(m - 1.0, chosen(x, ROOT_SINGLE, ROOT_DOUBLE))
    v = v * up.where(x.like(1.0 / CUBE_ROOT_2), down.where(x.like(CUBE_ROOT_2), 1.0))
    v = fma(v * THIRD, fma(-w * v, v * v, 1.0), v)
    slope = v * v
    y = w * slope
    square, square_low = exact_product(y, y)
    excess = fma(square_low, y, fma(square, y, -w))
    y = fma(excess * slope, -THIRD, y) * power_of_two(shifted)
    return ((size > 0.0) & (size < INFINITY)).where(with_sign(y, x), x)


def hypot(x: S, y: S) -> S:
    """sqrt(x*x + y*y), scaled where a square could leave the format; an infinity wins over NaN."""
    a, b = magnitude(x), magnitude(y)
    larger = (a > b).where(a, b)
    smaller = (a > b).where(b, a)
    low, high, up, down = (-50, 60, 90, -70) if x.dtype == F32 else (-450, 500, 600, -600)
    huge, tiny = larger > 2.0**high, larger < 2.0**low
    scale = huge.where(x.like(2.0**down), tiny.where(x.like(2.0**up), 1.0))
    back = huge.where(x.like(2.0**-down), tiny.where(x.like(2.0**-up), 1.0))
    larger, smaller = larger * scale, smaller * scale
    root = fma(larger, larger, smaller * smaller).op("sqrt") * back
    return (a.eq(INFINITY) | b.eq(INFINITY)).where(INFINITY, root)
