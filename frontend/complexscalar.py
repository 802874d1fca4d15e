"""`ComplexScalar`: a run-time Python complex number while tracing.

In: Python operators. Out: pairs of host expressions evaluated per call in Python's semantics; a weak complex operand
when it meets an array. Its own file because a complex number has fewer operators than a `Scalar`, and they give pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import hostcomplex
from fuser.frontend.overrides import Number
from fuser.frontend.scalar import Scalar, host
from fuser.hostcomplex import HostComplex

if TYPE_CHECKING:
    from fuser.frontend.context import Context

Operation = Callable[[HostComplex, HostComplex], HostComplex]


def number(ctx: Context, value: HostComplex) -> Any:
    """A complex number as Python sees it: the number itself when it is known."""
    return complex(value.re.value, value.im.value) if value.is_literal else ComplexScalar(ctx, value)


def operand_of(value: object) -> HostComplex | None:
    """A number of Python's or of run time as a complex one; None for anything else."""
    if type(value) is ComplexScalar:
        return value.value
    if type(value) is Scalar:
        return hostcomplex.of(value.expr)
    return hostcomplex.of(value) if type(value) in (bool, int, float, complex) else None  # type: ignore[arg-type]


def arithmetic(ctx: Context, op: str, a: Any, b: Any) -> Any:
    """`a op b` of two numbers, one of them complex; NotImplemented for what is no number of Python's."""
    x, y = operand_of(a), operand_of(b)
    if x is None or y is None or op not in _ARITHMETIC:
        return NotImplemented
    return number(ctx, _ARITHMETIC[op](x, y))


_ARITHMETIC: dict[str, Operation] = {
    "+": hostcomplex.add, "-": hostcomplex.subtract, "*": hostcomplex.multiply, "/": hostcomplex.divide,
}  # fmt: skip
_UFUNCS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}


def _operator(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """`c op o` and `o op c`."""

    def forward(self: ComplexScalar, other: Any) -> Any:
        if isinstance(other, (np.generic, np.ndarray)):
            return _UFUNCS[op](self, other)
        return arithmetic(self._ctx, op, self, other)

    def backward(self: ComplexScalar, other: Any) -> Any:
        if isinstance(other, (np.generic, np.ndarray)):
            return _UFUNCS[op](other, self)
        return arithmetic(self._ctx, op, other, self)

    return forward, backward


class ComplexScalar(Number):
    """A complex number known at each call. `isinstance` sees a Python complex."""

    __slots__ = ("_ctx", "value")
    __hash__ = Number.__hash__  # a class with `__eq__` inherits none

    def __init__(self, ctx: Context, value: HostComplex) -> None:
        self._ctx, self.value = ctx, value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return complex

    def __repr__(self) -> str:
        return f"<run-time {self.value}>"

    def _now(self, what: str) -> complex:
        """Asks for a trace with both parts known."""
        for part in (self.value.re, self.value.im):
            if not part.is_literal:
                self._ctx.specialize(what, part)
        return complex(self.value.re.value, self.value.im.value)

    def __bool__(self) -> bool:
        return bool(self._now("a condition"))

    # -- arithmetic ---------------------------------------------------------------------------------
    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")

    def __pow__(self, other: Any) -> Any:
        """Small whole powers are multiplied out, as Python does; others need the number now."""
        if type(other) is int and 0 < other < 100:
            from fuser.optable.complexes import integer_power

            return number(self._ctx, integer_power(self.value, other, hostcomplex.multiply))
        if operand_of(other) is None:
            return NotImplemented
        return self._now("a complex power") ** other

    def __rpow__(self, other: Any) -> Any:
        if operand_of(other) is None:
            return NotImplemented
        return other ** self._now("a complex power")

    def __neg__(self) -> Any:
        return number(self._ctx, hostcomplex.negative(self.value))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return host(self._ctx, hostcomplex.modulus(self.value))

    def __eq__(self, other: object) -> Any:
        y = operand_of(other)
        return NotImplemented if y is None else host(self._ctx, hostcomplex.equal(self.value, y))

    @property
    def real(self) -> Any:
        return host(self._ctx, self.value.re)

    @property
    def imag(self) -> Any:
        return host(self._ctx, self.value.im)

    def conjugate(self) -> Any:
        return number(self._ctx, hostcomplex.conjugate(self.value))
