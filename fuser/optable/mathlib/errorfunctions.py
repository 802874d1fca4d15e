"""erf and erfc.

In: a handle of f32 or f64. Out: the value within 1.2 (erf) or 1.9 (erfc) ulp. Near 0 erf is x plus x times a polynomial
in x^2; beyond, 1 - exp(-x P(x)) with x P(x) = -log erfc(x): its error counts erfc/erf as much, so a short polynomial
does. Coefficients: as in `exponentials`, the error weighted accordingly.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.exponentials import (
    EXP_DOUBLE,
    EXP_RANGE,
    EXP_SINGLE,
    exp_in_range,
    reduced,
    scaled,
)
from fuser.optable.mathlib.parts import Parts, at_most, chosen, exact_sum, fma, horner, magnitude, with_sign

# erf(x) = x + x*(c0 + c1 z + ...), z = x^2, |x| <= 0.93 (f64: 1): errors 2^-25.7 and 2^-55.7.
ERF_SINGLE = (0.12837915, -0.3761249, 0.112817265, -0.026762696, 0.00498685, -0.0005956646)
ERF_DOUBLE = (
    0.12837916709551256, -0.37612638903183343, 0.11283791670936952, -0.026866170641959522, 0.005223977596740123,
    -0.00085483254850217, 0.0001205528047840525, -1.4924464679592474e-05, 1.644412901445861e-06,
    -1.6183742827772605e-07, 1.3615253962603593e-08, -7.604438125566655e-10,
)  # fmt: skip
# -log(erfc(x)) = x*(c0 + c1 x + ...), 0.92 <= x <= 4 (f64: 0.99 <= x <= 6): errors of erf 2^-28.3 and 2^-57.8.
TAIL_SINGLE = (1.1285144, 0.63571817, 0.10526202, -0.022890063, 0.0032149819, -0.00021398762)
TAIL_DOUBLE = (
    1.1283791181806333, 0.6366201857351682, 0.10277111116029757, -0.01912570770405235, -0.00021069509820470218,
    0.001690834662032877, -0.0005728811732881547, -2.354720604493639e-06, 9.632633490402185e-05, -5.644146974102156e-05,
    2.050378318638695e-05, -5.430434979914428e-06, 1.0885014893454213e-06, -1.6482849224829814e-07,
    1.8360505843880273e-08, -1.422599034576216e-09, 6.853885743043797e-11, -1.5462219722247018e-12,
)  # fmt: skip


def erf(x: S) -> S:
    near, most = (0.92, 4.0) if x.dtype == F32 else (1.0, 6.0)
    size = magnitude(x)
    small = fma(size, horner(x * x, chosen(x, ERF_SINGLE, ERF_DOUBLE)), size)
    capped = at_most(size, most)
    large = 1.0 - exp_in_range(-(capped * horner(capped, chosen(x, TAIL_SINGLE, TAIL_DOUBLE))))
    return with_sign((size < near).where(small, large), x)


# exp(x^2)*erfc(x) = (C + c0 t + c1 t^2 + ...)/(x+k), t = (x-k)/(x+k), k = 2 (f64: 4), x >= 0.6:
# errors 2^-28.7 and 2^-57.6.
SCALED_AT_ZERO = {"f32": Parts(1.0215827, -1.7313548e-08), "f64": Parts(1.095995661000491, 5.98246757222821e-17)}
SCALED_SINGLE = (
    -0.6871607, 0.27947205, -0.03644323, -0.02150908, 0.006493093, 0.003071513, -0.00090479833, -0.00057443156,
    0.00014916442,
)  # fmt: skip
SCALED_DOUBLE = (
    -0.9765487290808821, 0.7732087022652364, -0.540853831313225, 0.3308515878780483, -0.17401093724025474,
    0.07638151490846073, -0.026370053335730607, 0.00611205566688573, -0.0002809589015716808, -0.0004550527760167506,
    0.00017681298853670474, -3.634684566441456e-06, -1.8861388426449473e-05, 4.69275678662171e-06,
    1.4251219727497218e-06, -8.426291569210491e-07, -7.655961564625437e-08, 1.1949653470837324e-07,
    1.4744824092968363e-09, -1.2134681273029698e-08,
)  # fmt: skip


def erfc(x: S) -> S:
    """1 - erf(x) near 0; in the tail exp(-x^2) times a quotient, of which each factor carries what its rounding left
    out, so that their errors do not add up."""
    k, most = (2.0, 10.3) if x.dtype == F32 else (4.0, 27.3)
    near = 1.0 - fma(x, horner(x * x, chosen(x, ERF_SINGLE, ERF_DOUBLE)), x)
    size = magnitude(x)
    capped = at_most(size, most)
    square = capped * capped
    shifted, r = reduced(-square)
    e, e_low = exact_sum(r.like(2.0), r * horner(r, (2.0, *chosen(r, EXP_SINGLE, EXP_DOUBLE))))
    d, n = capped + k, capped - k
    d_low, n_low = capped - (d - k), capped - (n + k)
    inverse = 1.0 / d
    t = n * inverse
    t = fma(fma(-t, d, n) + fma(-t, d_low, n_low), inverse, t)
    at_zero = SCALED_AT_ZERO[x.dtype.name]
    g, g_low = exact_sum(x.like(at_zero.high), t * horner(t, chosen(x, SCALED_SINGLE, SCALED_DOUBLE)))
    p = e * g
    p_low = fma(e, g, -p) + fma(e, g_low + at_zero.low, e_low * g)
    p_low = fma(-p, fma(capped, capped, -square), p_low)  # exp of what the square's rounding left out
    y = p * inverse
    y = fma(fma(-y, d, p) + fma(-y, d_low, p_low), inverse, y)
    far = scaled(y, shifted, square > -EXP_RANGE[x.dtype.name].tiny)
    return (size < 0.65).where(near, (x < 0.0).where(2.0 - far, far))
