"""`Scalar`: a run-time Python number (an `int` or `float` argument, a dim, or arithmetic on them) while tracing.

In: Python operators. Out: host expressions evaluated per call in Python's semantics; a weak operand when it
meets an array. Where Python needs the number now (`range`, `if`, a shape of a list, a dict key), the trace
is specialised. Its own file because it is the whole of "Python scalars are run-time values".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.frontend import questions
from fuser.frontend.overrides import Number
from fuser.hostexpr import HostExpr, call, lit

if TYPE_CHECKING:
    from fuser.frontend.context import Context

_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool}


def host(ctx: Context, expr: HostExpr) -> Any:
    """A host expression as Python sees it: the number itself when it is known."""
    expr = _canonical(ctx, expr)
    return expr.value if expr.is_literal else Scalar(ctx, expr)


def _canonical(ctx: Context, expr: HostExpr) -> HostExpr:
    merged = ctx.b.shapes.merged
    while not merged.keys().isdisjoint(expr.symbols):
        expr = expr.substitute(merged)
    return expr


def _operator(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """`s op o` and `o op s`."""

    def forward(self: Scalar, other: Any) -> Any:
        return self._binary(op, other)

    def backward(self: Scalar, other: Any) -> Any:
        return self._binary(op, other, True)

    return forward, backward


def _unary(op: str) -> Callable[[Any], Any]:
    def apply(self: Scalar) -> Any:
        return host(self._ctx, call(op, self.expr))

    return apply


class Scalar(Number):
    """A number known at each call. `isinstance` sees the Python type it stands for."""

    __slots__ = ("_ctx", "expr")
    __hash__ = Number.__hash__  # a class with `__eq__` inherits none

    def __init__(self, ctx: Context, expr: HostExpr) -> None:
        self._ctx, self.expr = ctx, expr

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that `isinstance(h, float)` takes the branch it takes without tracing
        return _TYPES[self.expr.kind]

    def __repr__(self) -> str:
        return f"<run-time {self.expr.kind} {self.expr}>"

    # -- where Python needs the number ------------------------------------------------------------
    def _now(self, what: str) -> Any:
        expr = _canonical(self._ctx, self.expr)
        return expr.value if expr.is_literal else self._ctx.specialize(what, expr)

    def __index__(self) -> int:
        if self.expr.kind == "float":
            raise TypeError("'float' object cannot be interpreted as an integer")
        return int(self._now("a count, index or axis"))

    def __int__(self) -> int:
        return int(self._now("int()"))

    def __float__(self) -> float:
        return float(self._now("float()"))

    def __round__(self, digits: Any = None) -> Any:
        return round(self._now("round()"), digits)

    def __bool__(self) -> bool:
        ctx = self._ctx
        known = questions.truth(_canonical(ctx, self.expr), ctx.b.shapes, ctx.env, ctx.b.span)
        return bool(self._now("a condition")) if known is None else known

    # -- arithmetic ---------------------------------------------------------------------------------
    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        operand = operand_of(other)
        if operand is None:
            if isinstance(other, complex) and not isinstance(other, np.generic):
                from fuser.frontend.complexscalar import arithmetic

                return arithmetic(self._ctx, op, other, self) if swapped else arithmetic(self._ctx, op, self, other)
            if isinstance(other, (np.generic, np.ndarray)):
                return self._meets_numpy(op, other, swapped)
            return NotImplemented
        return host(self._ctx, call(op, operand, self.expr) if swapped else call(op, self.expr, operand))

    def _meets_numpy(self, op: str, other: Any, swapped: bool) -> Any:
        ufunc = _UFUNCS[op]
        return ufunc(other, self) if swapped else ufunc(self, other)

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")
    __floordiv__, __rfloordiv__ = _operator("//")
    __mod__, __rmod__ = _operator("%")
    __and__, __rand__ = _operator("&")
    __or__, __ror__ = _operator("|")
    __xor__, __rxor__ = _operator("^")
    __lshift__, __rlshift__ = _operator("<<")
    __rshift__, __rrshift__ = _operator(">>")
    __lt__, __gt__ = _operator("<")[0], _operator(">")[0]
    __le__, __ge__ = _operator("<=")[0], _operator(">=")[0]
    __neg__, __pos__, __abs__, __invert__ = _unary("neg"), _unary("pos"), _unary("abs"), _unary("~")
    __trunc__, __floor__, __ceil__ = _unary("int"), _unary("floor"), _unary("ceil")

    def __eq__(self, o: object) -> Any:
        if isinstance(o, Scalar) and _canonical(self._ctx, o.expr) == _canonical(self._ctx, self.expr):
            return True if self.expr.kind == "int" else self._binary("==", o)  # a float may be NaN
        return self._binary("==", o)

    def __ne__(self, o: object) -> Any:
        equal = self.__eq__(o)
        if equal is NotImplemented or isinstance(equal, bool):
            return equal if equal is NotImplemented else not equal
        return self._binary("!=", o)

    def __divmod__(self, o: Any) -> Any:
        return _pair(self._binary("//", o), self._binary("%", o))

    def __rdivmod__(self, o: Any) -> Any:
        return _pair(self._binary("//", o, True), self._binary("%", o, True))

    def __pow__(self, o: Any, mod: Any = None) -> Any:
        return self._power(o, False)

    def __rpow__(self, o: Any) -> Any:
        return self._power(o, True)

    def _power(self, other: Any, swapped: bool) -> Any:
        """`**`: the kind of an int power depends on the exponent's sign, which must then be known."""
        operand = operand_of(other)
        if operand is not None:
            base, exponent = (operand, self.expr) if swapped else (self.expr, operand)
            if base.kind != "float" and exponent.kind != "float":
                if not exponent.is_literal:
                    self._ctx.specialize("the exponent of an integer", exponent)
                if exponent.value < 0:
                    return host(self._ctx, call("**", call("float", base), exponent))
        return self._binary("**", other, swapped)

    # -- what numbers have --------------------------------------------------------------------------
    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return 0.0 if self.expr.kind == "float" else 0

    def conjugate(self) -> Any:
        return self

    def item(self) -> Any:
        return self

    def is_integer(self) -> Any:
        """`float.is_integer`: asks for the value."""
        return float(self._now("is_integer()")).is_integer()


_UFUNCS: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.remainder,
    "**": np.power, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": np.left_shift,
    ">>": np.right_shift, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def operand_of(value: object) -> HostExpr | None:
    """A Python number or `Scalar` as a host expression; None for anything else."""
    if type(value) is Scalar:
        return value.expr
    return lit(value) if type(value) in (bool, int, float) else None  # type: ignore[arg-type]


def _pair(quotient: Any, remainder: Any) -> Any:
    return NotImplemented if quotient is NotImplemented else (quotient, remainder)
