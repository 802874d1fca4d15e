"""Python complex numbers of which a part is known only at the call: two host expressions.

In: host expressions and Python numbers. Out: `HostComplex` values and Python's complex arithmetic on them, in double,
as Python does it. Its own file because host expressions themselves are reals: a kernel gets the parts as two scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fuser.hostexpr import HostExpr, call, lit, scalar_symbol, wrap
from fuser.record import dataclass

HostNumber = HostExpr | complex | float | int | bool


@dataclass(frozen=True)
class HostComplex:
    """A complex number of the host, weak in promotion."""

    re: HostExpr
    im: HostExpr

    @property
    def kind(self) -> Literal["complex"]:
        return "complex"

    @property
    def symbols(self) -> frozenset[str]:
        return self.re.symbols | self.im.symbols

    @property
    def is_literal(self) -> bool:
        return self.re.is_literal and self.im.is_literal

    def __str__(self) -> str:
        return f"complex({self.re}, {self.im})"


def argument(name: str) -> HostComplex:
    """A run-time complex argument: the symbols `=name.real` and `=name.imag`."""
    return HostComplex(scalar_symbol(f"{name}.real", "float"), scalar_symbol(f"{name}.imag", "float"))


def of(value: HostComplex | HostNumber) -> HostComplex:
    """Any number of the host as a complex one."""
    if isinstance(value, HostComplex):
        return value
    if isinstance(value, complex):
        return HostComplex(lit(value.real), lit(value.imag))
    return HostComplex(call("float", wrap(value)), lit(0.0))


def add(a: HostComplex, b: HostComplex) -> HostComplex:
    return HostComplex(a.re + b.re, a.im + b.im)


def subtract(a: HostComplex, b: HostComplex) -> HostComplex:
    return HostComplex(a.re - b.re, a.im - b.im)


def multiply(a: HostComplex, b: HostComplex) -> HostComplex:
    return HostComplex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def divide(a: HostComplex, b: HostComplex) -> HostComplex:
    """Smith's algorithm, as CPython; by zero it raises ZeroDivisionError at the call, by a quotient of reals."""
    large = call(">=", call("abs", b.re), call("abs", b.im))
    big, small = call("where", large, b.re, b.im), call("where", large, b.im, b.re)
    high, low = call("where", large, a.re, a.im), call("where", large, a.im, a.re)
    ratio = small / big
    divisor = big + small * ratio
    left, right = call("where", large, low, high * ratio), call("where", large, high * ratio, low)
    return HostComplex((high + low * ratio) / divisor, (left - right) / divisor)


def negative(a: HostComplex) -> HostComplex:
    return HostComplex(-a.re, -a.im)


def conjugate(a: HostComplex) -> HostComplex:
    return HostComplex(a.re, -a.im)


def modulus(a: HostComplex) -> HostExpr:
    return call("hypot", a.re, a.im)


def settled(value: HostComplex) -> HostComplex | complex:
    """The number itself when both parts are known."""
    return complex(value.re.value, value.im.value) if value.is_literal else value


# Operators on complex numbers alone, by the names of the table's rows.
OPERATORS: dict[str, Callable[..., HostComplex]] = {
    "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "negative": negative,
    "positive": lambda a: a, "conjugate": conjugate,
}  # fmt: skip


def equal(a: HostComplex, b: HostComplex) -> HostExpr:
    return call("&", call("==", a.re, b.re), call("==", a.im, b.im))
