"""How fuser's dtypes look in LLVM IR: register types, memory types, literals.

In: `DType` and a lane count (1 is a scalar). Out: llvmlite types and constants. A bool is i1 in a register and i8 in
memory; a half type is its 16 bits and a complex type its 64 or 128 in both (only `cast`, or the rows `real`, `imag`
and `complex`, look inside). Its own file because everything that
writes IR needs it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from fuser.codegen.loops import Lit
from fuser.dtypes import BF16, BOOL, F16, F32, F64, DType

I1, I8, I16, I32, I64, I128 = (ir.IntType(n) for n in (1, 8, 16, 32, 64, 128))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
_REGISTER = {BOOL: I1, F16: I16, BF16: I16, F32: FLOAT, F64: DOUBLE}


def scalar(dtype: DType) -> Any:
    """The type of one element in a register."""
    return _REGISTER.get(dtype) or ir.IntType(dtype.bits)


def memory(dtype: DType) -> Any:
    """The type of one element in memory."""
    return I8 if dtype == BOOL else scalar(dtype)


@cache
def lanes(element: Any, width: int) -> Any:
    """A vector of `width` elements; the element type itself for width 1."""
    return element if width == 1 else ir.VectorType(element, width)


def type_width(kind: Any) -> int:
    """Lanes of an IR type (1 for scalars)."""
    return int(kind.count) if isinstance(kind, ir.VectorType) else 1


def width_of(value: Any) -> int:
    """Lanes of an IR value."""
    return type_width(value.type)


def element_of(value: Any) -> Any:
    """The scalar type of an IR value."""
    return value.type.element if isinstance(value.type, ir.VectorType) else value.type


def constant(element: Any, value: Any, width: int = 1) -> Any:
    """A number in every lane."""
    if width == 1:
        return ir.Constant(element, value)
    return ir.Constant(lanes(element, width), [ir.Constant(element, value)] * width)


def zero(element: Any, width: int = 1) -> Any:
    """Zero in every lane."""
    return constant(element, 0.0 if element in (FLOAT, DOUBLE) else 0, width)


def like(value: Any, number: Any) -> Any:
    """A number of an IR value's own type."""
    return constant(element_of(value), number, width_of(value))


def with_element(value: Any, element: Any) -> Any:
    """The type of `value` with another element type."""
    return lanes(element, width_of(value))


def index_vector(values: list[int], element: Any = I32) -> Any:
    """A constant vector of integers (shuffle masks, lane numbers)."""
    return ir.Constant(lanes(element, len(values)), [ir.Constant(element, v) for v in values])


def literal(lit: Lit) -> Any:
    """A kernel literal as a scalar constant."""
    element = scalar(lit.dtype)
    return ir.Constant(element, float(lit.value) if lit.dtype.is_float else int(lit.value))
