"""Literal folding and identities on integers and bools: what index arithmetic shrinks to before it is emitted.

In: an operator name, its operands, the result dtype. Out: an operand that means the same, or None. Its own file
because the builder and the expander share it. Floats are left alone: `x + 0.0` and `x * 0.0` are not identities.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from fuser.codegen.loops import Lit, Operand, Var
from fuser.dtypes import BOOL, DType
from fuser.errors import InternalError
from fuser.optable import table

IntFunction = Callable[[int, int], int]


def _trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _trunc_rem(a: int, b: int) -> int:
    return a - b * _trunc_div(a, b)


_ARITHMETIC: dict[str, IntFunction] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "trunc_div": _trunc_div, "trunc_rem": _trunc_rem,
    "minimum": min, "maximum": max, "min_num": min, "max_num": max,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip
_IDEMPOTENT = frozenset({"minimum", "maximum", "min_num", "max_num", "bitwise_and", "bitwise_or"})
_ZERO_RIGHT = frozenset({"multiply", "bitwise_and"})
_ZERO_LEFT = frozenset({"multiply", "bitwise_and", "trunc_div", "trunc_rem", "shl", "shr"})
EXACT_IN_F32 = 1 << 24  # an integer up to this size has one float value in every float dtype with literals


def wrap_int(value: int, dtype: DType) -> int:
    """An integer reduced to the range of an integer dtype, as its arithmetic wraps."""
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind == "i" and low >> (dtype.bits - 1) else low


def literal(value: float | int | bool, dtype: DType) -> Lit:
    """A literal in the normal form of its dtype: bool, wrapped int, or the float that the dtype holds."""
    if dtype.kind == "b":
        return Lit(bool(value), dtype)
    if dtype.is_integer:
        return Lit(wrap_int(int(value), dtype), dtype)
    if dtype.is_half or not dtype.is_float:
        raise InternalError(f"kernel literals of {dtype} do not exist", "half-literal")
    with np.errstate(over="ignore"):
        return Lit(float(dtype.numpy.type(value)), dtype)


def fold(op: str, args: Sequence[Operand], dtype: DType) -> Operand | None:
    """The simpler operand that `op(args)` equals, or None; exact for every value of the variables."""
    if op == "where":
        return _fold_where(args)
    if op == "cast":
        return _fold_cast(args[0], dtype)
    if args[0].dtype == BOOL:
        return _fold_bool(op, args)
    if len(args) != 2 or not args[0].dtype.is_integer:
        return None
    return _fold_integer(op, args[0], args[1], dtype)


def _fold_where(args: Sequence[Operand]) -> Operand | None:
    condition, yes, no = args
    if isinstance(condition, Lit):
        return yes if condition.value else no
    return yes if yes == no else None


def _fold_cast(x: Operand, dtype: DType) -> Operand | None:
    if x.dtype == dtype:
        return x
    if isinstance(x, Var) or x.dtype.is_float or dtype.is_half:
        return None
    if dtype.is_float and abs(int(x.value)) > EXACT_IN_F32:
        return None
    return literal(x.value, dtype)


def _fold_bool(op: str, args: Sequence[Operand]) -> Operand | None:
    if op == "logical_not" and isinstance(args[0], Lit):
        return Lit(not args[0].value, BOOL)
    if op not in ("logical_and", "logical_or"):
        return None
    absorbing = op == "logical_or"  # the value that decides the result alone
    for x, other in ((args[0], args[1]), (args[1], args[0])):
        if isinstance(x, Lit) and other.dtype == BOOL:
            return Lit(absorbing, BOOL) if bool(x.value) == absorbing else other
    return args[0] if args[0] == args[1] else None


def _fold_integer(op: str, a: Operand, b: Operand, dtype: DType) -> Operand | None:
    if isinstance(a, Lit) and isinstance(b, Lit):
        return _fold_literals(op, int(a.value), int(b.value), dtype)
    if a == b:
        return _fold_same(op, a, dtype)
    left_unit, right_unit = table().scalar(op).units
    if isinstance(b, Lit):
        if b.value == right_unit:
            return a
        if (op in _ZERO_RIGHT and b.value == 0) or (op == "trunc_rem" and b.value == 1):
            return literal(0, dtype)
    if isinstance(a, Lit):
        if a.value == left_unit:
            return b
        if op in _ZERO_LEFT and a.value == 0:
            return literal(0, dtype)
    return None


def _fold_literals(op: str, a: int, b: int, dtype: DType) -> Operand | None:
    if op in _COMPARE:
        return Lit(_COMPARE[op](a, b), BOOL)
    if op not in _ARITHMETIC or (op in ("trunc_div", "trunc_rem") and b == 0):
        return None
    if op in ("shl", "shr") and not 0 <= b < dtype.bits:
        return None
    return literal(_ARITHMETIC[op](a, b), dtype)


def _fold_same(op: str, a: Operand, dtype: DType) -> Operand | None:
    if op in _COMPARE:
        return Lit(_COMPARE[op](0, 0), BOOL)
    if op in _IDEMPOTENT:
        return a
    return literal(0, dtype) if op in ("subtract", "bitwise_xor") else None


def known_mask(mask: Operand | None) -> tuple[Operand | None, bool]:
    """(mask without the literal true, whether it is the literal false)."""
    if mask is None:
        return None, False
    if mask.dtype != BOOL:
        raise InternalError(f"a mask is bool, not {mask.dtype}", "kernel-type")
    if isinstance(mask, Lit):
        return None, not mask.value
    return mask, False
