"""erf and erfc.

In: a handle of f32 or f64. Out: the value within 1 (erf) or 2 (erfc) ulp. Near 0 erf is x plus x times a polynomial in
x^2; beyond, 1 - exp(-x P(x)) with x P(x) = -log erfc(x): its error counts erfc/erf as much, so a short polynomial
does. Coefficients: as in `exponentials`, the error weighted accordingly.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.exponentials import exp_in_range
from fuser.optable.mathlib.parts import at_most, chosen, fma, horner, magnitude, with_sign

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
