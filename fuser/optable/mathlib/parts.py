"""What the functions of this package share: how f32 and f64 are laid out, Horner's scheme, powers of two.

In: handles (`S`) of f32 or f64. Out: handles. Everything is branch-free and made of operators that a CPU has for
vectors: there is no shift of 64-bit integers that keeps the sign, and no conversion between 64-bit integers and
floats (AVX2 has neither); adding 1.5 * 2**mantissa puts a small whole number into the low bits of a float instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from fuser.dtypes import F32, I32, I64, U32, U64, DType
from fuser.optable.base import Number, S
from fuser.record import dataclass

Coefficients = tuple[float, ...]


@dataclass(frozen=True)
class Layout:
    """A float format. mantissa: stored bits of it; bias: of the exponent; magic: see the module."""

    signed: DType
    unsigned: DType
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest_normal(self) -> float:
        return float(2.0 ** (1 - self.bias))


@dataclass(frozen=True)
class Parts:
    """A constant as the sum of two floats of a format."""

    high: float
    low: float


LN2 = {"f32": Parts(0.6931472, -1.9046542e-09), "f64": Parts(0.6931471805599453, 2.3190468138462996e-17)}
SINGLE, DOUBLE = Layout(I32, U32, 23, 127), Layout(I64, U64, 52, 1023)


def layout(x: S) -> Layout:
    return SINGLE if x.dtype == F32 else DOUBLE


def chosen(x: S, single: Coefficients, double: Coefficients) -> Coefficients:
    """The coefficients for the dtype of `x`."""
    return single if x.dtype == F32 else double


def fma(a: S, b: Number, c: Number) -> S:
    """a*b + c rounded once."""
    return a.op("fma", b, c)


def exact_product(a: S, b: S) -> tuple[S, S]:
    """a*b as high and low part."""
    high = a * b
    return high, fma(a, b, -high)


def exact_sum(a: S, b: S) -> tuple[S, S]:
    """a+b as high and low part; exact for |a| >= |b| or a = 0, nearly so where |a| is little less."""
    high = a + b
    return high, (a - high) + b


def horner(x: S, coefficients: Sequence[float]) -> S:
    """c0 + c1*x + c2*x**2 + ...: lowest power first, one fused multiply-add each."""
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def at_most(x: S, limit: float) -> S:
    """min(x, limit), NaN kept."""
    return (x > limit).where(limit, x)


def at_least(x: S, limit: float) -> S:
    """max(x, limit), NaN kept."""
    return (x < limit).where(limit, x)


def magnitude(x: S) -> S:
    return x.op("absolute")


def with_sign(x: S, sign: S) -> S:
    return x.op("copysign", sign)


def power_of_two(shifted: S) -> S:
    """2**n, given `magic + bias + n` (the low bits are the exponent field); n within the normal range."""
    form = layout(shifted)
    return (shifted.bits(form.signed) << form.mantissa).bits(shifted.dtype)


@runtime_checkable
class Branching(Protocol):
    """A backend (`Emit`) that can skip a computation where no element at hand needs it."""

    def rarely(self, condition: Any, otherwise: Any, compute: Callable[[], Any]) -> Any: ...


def rarely(condition: S, compute: Callable[[], S], otherwise: S) -> S:
    """`condition.where(compute(), otherwise)`, for a condition that seldom holds and a long computation."""
    emit = condition.emit
    if isinstance(emit, Branching):
        return S(emit, emit.rarely(condition.value, otherwise.value, lambda: compute().value), otherwise.dtype)
    return condition.where(compute(), otherwise)
