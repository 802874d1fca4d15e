"""tanh; sinh, cosh and the inverses.

In: a handle of f32 or f64. Out: the value within 2 ulp. Computed on |x|, the sign put back at the end, so -0.0 stays.
Coefficients: as in `exponentials`.
"""

from __future__ import annotations

from fuser.dtypes import F32
from fuser.optable.base import S
from fuser.optable.mathlib.exponentials import exp_in_range
from fuser.optable.mathlib.parts import at_most, chosen, fma, horner, magnitude, with_sign

# tanh(x) = x + x^3*(c0 + c1 z + ...), z = x^2, |x| <= 0.55 (f32: 0.625): errors 2^-27.7 and 2^-60.3.
TANH_SINGLE = (-0.3333328, 0.13331406, -0.053736858, 0.020630576, -0.0056963474)
TANH_DOUBLE = (
    -0.333333333333333, 0.1333333333332658, -0.053968253963736994, 0.021869488385183846, -0.008863232590580705,
    0.0035920919226915963, -0.0014555421653084828, 0.0005884417381279173, -0.00023337468310062522,
    8.330669656497229e-05, -1.9488703634314914e-05,
)  # fmt: skip


def tanh(x: S) -> S:
    """Near 0 a polynomial, elsewhere 1 - 2/(exp(2|x|) + 1): the larger |x|, the less the error of exp counts."""
    near, most = (0.625, 10.0) if x.dtype == F32 else (0.55, 20.0)
    size = magnitude(x)
    square = x * x
    small = fma(size * square, horner(square, chosen(x, TANH_SINGLE, TANH_DOUBLE)), size)
    capped = at_most(size, most)
    large = 1.0 - 2.0 / (exp_in_range(capped + capped) + 1.0)
    return with_sign((size < near).where(small, large), x)
