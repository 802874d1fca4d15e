"""Complex arithmetic on pairs of reals, and the rows that take complex values apart and put them together.

In: pairs of handles. Out: `Z`, the forms that rows of the table name as their `pairs`, and the rows `real`, `imag`,
`complex`. Complex numbers exist in memory only: no kernel computes with one.

+ - * / and the square, reciprocal and integer powers are NumPy's own formulas, each operation rounded (NumPy built for
a machine with fused multiply-add rounds products of complex numbers once instead of twice). Functions are the
textbook's, by the real rows: their error is normwise, a few ulp of the larger part. C99's table of special values is
kept for infinite and NaN operands where the formula gives it, and not otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fuser.dtypes import BOOL, F64, DType
from fuser.optable.base import Cost, Join, Names, Pairs, Part, S, ScalarOp, Table
from fuser.optable.rules import complex_rule, joined, numpy_rule, parts_of
from fuser.record import dataclass

Array = np.ndarray[Any, Any]
T = TypeVar("T")
LARGEST_INTEGER_POWER = 100  # NumPy multiplies out exponents below this


@dataclass(frozen=True)
class Z:
    """A complex operand: real and imaginary part, of one dtype."""

    re: S
    im: S

    def __add__(self, o: Z) -> Z:
        return Z(self.re + o.re, self.im + o.im)

    def __sub__(self, o: Z) -> Z:
        return Z(self.re - o.re, self.im - o.im)

    def __mul__(self, o: Z) -> Z:
        return Z(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)

    def __neg__(self) -> Z:
        return Z(-self.re, -self.im)

    def scaled(self, factor: S | float) -> Z:
        """Both parts times a real."""
        return Z(self.re * factor, self.im * factor)

    @property
    def modulus(self) -> S:
        return self.re.op("hypot", self.im)

    @property
    def argument(self) -> S:
        return self.im.op("arctan2", self.re)


def select(condition: S, yes: Z, no: Z) -> Z:
    """`yes` where the bool holds, else `no`."""
    return Z(condition.where(yes.re, no.re), condition.where(yes.im, no.im))


# -- arithmetic ------------------------------------------------------------------------------------
def divide(a: Z, b: Z) -> Z:
    """Smith's algorithm in NumPy's order: by the ratio of the divisor's parts; by zero, each part over 0."""
    larger_real = b.re.op("absolute") >= b.im.op("absolute")
    big, small = larger_real.where(b.re, b.im), larger_real.where(b.im, b.re)
    with_big, with_small = larger_real.where(a.re, a.im), larger_real.where(a.im, a.re)
    zero = larger_real & big.eq(0.0)
    ratio = small / big
    scale = zero.where(float("inf"), 1.0 / (big + small * ratio))
    left, right = zero.where(0.0, with_small * ratio), zero.where(0.0, with_big * ratio)
    im = larger_real.where(with_small, right) - larger_real.where(right, with_small)
    return Z((with_big + left) * scale, im * scale)


def reciprocal(a: Z) -> Z:
    """1/a by the ratio of its parts, in NumPy's order."""
    larger_real = a.im.op("absolute") <= a.re.op("absolute")
    big, small = larger_real.where(a.re, a.im), larger_real.where(a.im, a.re)
    ratio = small / big
    divisor = big + small * ratio
    return Z(larger_real.where(1.0, ratio) / divisor, larger_real.where(-ratio, -1.0) / divisor)


def square(a: Z) -> Z:
    return Z(a.re * a.re - a.im * a.im, a.re * a.im + a.im * a.re)


def sign(a: Z) -> Z:
    """a / |a|; zero stays zero."""
    size = a.modulus
    return select(size.eq(0.0), Z(a.re.like(0.0), a.im.like(0.0)), Z(a.re / size, a.im / size))


def integer_power(a: T, n: int, multiply: Callable[[T, T], T]) -> T:
    """a**n for n > 0, multiplied out in NumPy's order."""
    if n == 3:
        return multiply(a, multiply(a, a))
    result, factor = None, a
    while n:
        if n & 1:
            result = factor if result is None else multiply(result, factor)
        n >>= 1
        factor = multiply(factor, factor) if n else factor
    assert result is not None
    return result


def power(a: Z, b: Z) -> Z:
    """exp(b*log(a)); 1 for an exponent of 0, and 0 for a base of 0 otherwise."""
    general = exp(b * log(a))
    one, nothing = a.re.like(1.0), a.re.like(0.0)
    based = select(a.re.eq(0.0) & a.im.eq(0.0), Z(nothing, nothing), general)
    return select(b.re.eq(0.0) & b.im.eq(0.0), Z(one, nothing), based)


# -- functions -------------------------------------------------------------------------------------
def exp(a: Z) -> Z:
    """e^re (cos im + i sin im); a real operand stays real."""
    size = a.re.op("exp")
    return Z(size * a.im.op("cos"), a.im.eq(0.0).where(a.im, size * a.im.op("sin")))


def log(a: Z) -> Z:
    """log |a| + i arg(a). For a modulus near 1 by log1p of its square less 1, where log would lose its digits."""
    x, y = a.re.op("absolute"), a.im.op("absolute")
    high, low = (x > y).where(x, y), (x > y).where(y, x)
    near = ((high - 1.0) * (high + 1.0) + low * low).op("log1p") * 0.5
    size = a.modulus
    return Z(((size > 0.5) & (size < 2.0)).where(near, size.op("log")), a.argument)


def sqrt(a: Z) -> Z:
    """The root with a real part of at least 0; the signs of both parts are the imaginary part's on the cut."""
    half = a.re.op("absolute") * 0.5
    root = (half + half.op("hypot", a.im * 0.5)).op("sqrt")
    other = root.eq(0.0).where(0.0, a.im.op("absolute") * 0.5 / root)
    right = a.re >= 0.0
    return Z(right.where(root, other), right.where(other, root).op("copysign", a.im))


def sinh(a: Z) -> Z:
    return Z(a.re.op("sinh") * a.im.op("cos"), a.re.op("cosh") * a.im.op("sin"))


def cosh(a: Z) -> Z:
    return Z(a.re.op("cosh") * a.im.op("cos"), a.re.op("sinh") * a.im.op("sin"))


def tanh(a: Z) -> Z:
    """Kahan's formula; far from the imaginary axis the limit, where sinh would overflow."""
    far = a.re.op("absolute") > (20.0 if a.re.dtype == F64 else 10.0)
    inside = far.where(0.0, a.re)
    tan, sinh_ = a.im.op("tan"), inside.op("sinh")
    stretch = 1.0 + tan * tan
    divisor = 1.0 + stretch * sinh_ * sinh_
    near = Z(stretch * (1.0 + sinh_ * sinh_).op("sqrt") * sinh_ / divisor, tan / divisor)
    tail = (a.re.op("absolute") * -2.0).op("exp")
    limit = Z(a.re.like(1.0).op("copysign", a.re), a.im.op("sin") * a.im.op("cos") * 4.0 * tail)
    return select(far, limit, near)


def _turned(function: Callable[[Z], Z]) -> Callable[[Z], Z]:
    """-i f(i z): sin from sinh, tan from tanh."""

    def turned(a: Z) -> Z:
        found = function(Z(-a.im, a.re))
        return Z(found.im, -found.re)

    return turned


sin, tan = _turned(sinh), _turned(tanh)


def cos(a: Z) -> Z:
    return cosh(Z(-a.im, a.re))


def _over(base: float) -> Callable[[Z], Z]:
    return lambda a: log(a).scaled(1.0 / math.log(base))


log2, log10 = _over(2.0), _over(10.0)


# -- what rows name ---------------------------------------------------------------------------------
def pairs(ufunc: np.ufunc, form: Callable[..., Any], notes: str = "") -> Pairs:
    """The complex meaning of a NumPy ufunc's row."""
    return Pairs(rule=complex_rule(ufunc), form=form, reference=ufunc, notes=notes)


def by_part(name: str, join: str) -> Callable[[Z], S]:
    """A predicate on both parts."""
    return lambda a: a.re.op(name, dtype=BOOL).op(join, a.im.op(name, dtype=BOOL))


def _component(dtype: DType) -> DType:
    return dtype.component


def _join_arrays(re: Array, im: Array) -> Array:
    """Both parts as they are: `re + 1j*im` would lose signs of zeros and make NaNs of infinities."""
    out = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), np.result_type(re.dtype, np.complex64))
    out.real, out.imag = re, im
    return out


def _part(name: str, index: int, reference: Callable[..., Any]) -> ScalarOp:
    return ScalarOp(
        name=name, arity=1, hidden=True, rule=parts_of(_component), reference=reference, exact=True, cost=Cost(0),
        cuda={"c": Part(index)}, llvm={"c": Part(index)}, no_vjp="complex numbers have no derivative here yet",
        notes="one part of a complex number",
    )  # fmt: skip


ROWS = (
    ScalarOp(
        name="conjugate", arity=1, rule=numpy_rule(np.conjugate), reference=np.conjugate, exact=True, cost=Cost(0),
        expand=lambda x: x, names=Names(numpy=("conjugate", "conj"), torch=("conj",), dsl=("conj",)),
        vjp=lambda g, y, x: (g,), pairs=pairs(np.conjugate, lambda a: Z(a.re, -a.im)), notes="reals as they are",
    ),
    _part("real", 0, np.real),
    _part("imag", 1, np.imag),
    ScalarOp(
        name="complex", arity=2, hidden=True, rule=joined, reference=_join_arrays, exact=True, cost=Cost(0),
        cuda={"f": Join()}, llvm={"f": Join()}, no_vjp="complex numbers have no derivative here yet",
        notes="a complex number of its parts, which must be f32 or f64",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
