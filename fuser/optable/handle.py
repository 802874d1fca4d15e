"""The handle in which rows write arithmetic: `S`, on any backend that is an `Emit`.

In: a backend and its values. Out: values of the same backend; Python's operators, casts and selections are applied
through the table's rows. Its own file because it knows dtypes and names of operators, but no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union, runtime_checkable  # Union where a name is not defined yet

from fuser.dtypes import DType
from fuser.record import dataclass


class Emit(Protocol):
    """What a backend offers to `expand`, `combine`, ...: apply an operator, make a literal.

    `apply` takes and gives backend values (kernel-language operands, NumPy arrays, graph nodes);
    `dtype` is the result dtype where it is not that of the first argument.
    """

    def apply(self, op: str, args: Sequence[Any], dtype: DType) -> Any: ...
    def literal(self, value: float | int | bool, dtype: DType) -> Any: ...


@runtime_checkable
class Knowing(Protocol):
    """An `Emit` that can tell a literal from a value of run time."""

    def known(self, value: Any) -> float | int | bool | None: ...


Number = Union["S", float, int]


@dataclass(frozen=True)
class S:
    """A scalar in a row's arithmetic: Python operators emit, literals take the handle's dtype.

    No promotion happens here: both operands of a binary operator must have one dtype.
    """

    emit: Emit
    value: Any
    dtype: DType

    def op(self, name: str, *others: Number, dtype: DType | None = None) -> S:
        """Apply any operator of the table with this handle as first argument."""
        args = [self, *(self.like(o) for o in others)]
        out = dtype or self.dtype
        return S(self.emit, self.emit.apply(name, [a.value for a in args], out), out)

    def like(self, other: Number) -> S:
        """A number as a literal of this handle's dtype; handles pass through."""
        if isinstance(other, S):
            return other
        return S(self.emit, self.emit.literal(other, self.dtype), self.dtype)

    def literal(self, value: float | int | bool, dtype: DType) -> S:
        return S(self.emit, self.emit.literal(value, dtype), dtype)

    @property
    def known(self) -> float | int | bool | None:
        """The value, where the backend can tell that this handle is a literal."""
        return self.emit.known(self.value) if isinstance(self.emit, Knowing) else None

    def cast(self, dtype: DType) -> S:
        """Value conversion (`cast` row)."""
        return self if dtype == self.dtype else self.op("cast", dtype=dtype)

    def bits(self, dtype: DType) -> S:
        """Reinterpret the bits as a dtype of the same width."""
        return self.op("bitcast", dtype=dtype)

    def where(self, yes: Number, no: Number) -> S:
        """Select by this bool handle."""
        typed = next(v for v in (yes, no) if isinstance(v, S))
        a, b = typed.like(yes), typed.like(no)
        return S(self.emit, self.emit.apply("where", [self.value, a.value, b.value], a.dtype), a.dtype)

    def _compare(self, name: str, o: Number) -> S:
        from fuser.dtypes import BOOL

        return self.op(name, o, dtype=BOOL)

    def __add__(self, o: Number) -> S:
        return self.op("add", o)

    def __radd__(self, o: Number) -> S:
        return self.like(o).op("add", self)

    def __sub__(self, o: Number) -> S:
        return self.op("subtract", o)

    def __rsub__(self, o: Number) -> S:
        return self.like(o).op("subtract", self)

    def __mul__(self, o: Number) -> S:
        return self.op("multiply", o)

    def __rmul__(self, o: Number) -> S:
        return self.like(o).op("multiply", self)

    def __truediv__(self, o: Number) -> S:
        return self.op("divide", o)

    def __rtruediv__(self, o: Number) -> S:
        return self.like(o).op("divide", self)

    def __neg__(self) -> S:
        return self.op("negative")

    def __and__(self, o: Number) -> S:
        return self.op("bitwise_and", o)

    def __or__(self, o: Number) -> S:
        return self.op("bitwise_or", o)

    def __xor__(self, o: Number) -> S:
        return self.op("bitwise_xor", o)

    def __invert__(self) -> S:
        return self.op("invert")

    def __lshift__(self, o: Number) -> S:
        return self.op("shl", o)

    def __rshift__(self, o: Number) -> S:
        return self.op("shr", o)

    def __lt__(self, o: Number) -> S:
        return self._compare("less", o)

    def __le__(self, o: Number) -> S:
        return self._compare("less_equal", o)

    def __gt__(self, o: Number) -> S:
        return self._compare("greater", o)

    def __ge__(self, o: Number) -> S:
        return self._compare("greater_equal", o)

    def eq(self, o: Number) -> S:
        return self._compare("equal", o)

    def ne(self, o: Number) -> S:
        return self._compare("not_equal", o)
