"""Dtype rules: what an operator does with the dtypes of its operands.

In: operands as `DType` (strong) or weak kind (a Python scalar). Out: a `Resolution` (the dtype each operand
is cast to, and the result's) or None, where NumPy would raise a TypeError. NumPy itself answers, through
`ufunc.resolve_dtypes`; bf16, which NumPy does not know, is answered for f32 and mapped back. Its own file
because rows only name a rule, and every front end asks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fuser.dtypes import BF16, BOOL, C64, C128, F32, F64, U32, DType, find, promote
from fuser.optable.base import Operand, Resolution, Rule, is_complex

# NEP 50 knows weak Python numbers; a Python bool is as strong as np.bool_.
_WEAK: dict[str, object] = {"bool": np.dtype(np.bool_), "int": int, "float": float, "complex": complex}


@lru_cache(maxsize=4096)
def _numpy(ufunc: np.ufunc, operands: tuple[Operand, ...]) -> Resolution | None:
    """NumPy's own answer for real operands, None where it has no loop or the loop's dtypes are not ours."""
    found = _loop(ufunc, operands)
    return None if found is None or any(t.is_complex for t in (*found.operands, found.result)) else found


def _loop(ufunc: np.ufunc, operands: tuple[Operand, ...]) -> Resolution | None:
    asked: Any = (*(t.numpy if isinstance(t, DType) else _WEAK[t] for t in operands), *(None,) * ufunc.nout)
    try:
        chosen = ufunc.resolve_dtypes(asked)
    except TypeError:  # includes UFuncTypeError: no loop, or none without an unsafe cast
        return None
    found = [find(t) for t in chosen]
    if any(t is None for t in found):
        return None
    *ins, out = (t for t in found if t is not None)
    return Resolution(tuple(ins), out)


def _with_bf16(ufunc: np.ufunc, operands: tuple[Operand, ...]) -> Resolution | None:
    """The answer where bf16 takes part: everything is promoted to one dtype first, bf16 standing for f32."""
    common = promote(operands)
    if common != BF16:
        return _numpy(ufunc, tuple(common if t == BF16 else t for t in operands))
    found = _numpy(ufunc, (F32,) * len(operands))
    if found is None:
        return None
    back = {F32: BF16}
    return Resolution(tuple(back.get(t, t) for t in found.operands), back.get(found.result, found.result))


def numpy_rule(ufunc: np.ufunc) -> Rule:
    """The rule of a NumPy ufunc: integers to float functions as NumPy (i8 -> f16, i16 -> f32, i32 -> f64)."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        if len(operands) != ufunc.nin or refused(operands):
            return None
        key = tuple(operands)
        if not any(isinstance(t, DType) for t in key):  # NumPy compares two Python numbers as objects
            key = tuple(promote([t]) for t in key)
        return _with_bf16(ufunc, key) if BF16 in key else _numpy(ufunc, key)

    return rule


def complex_rule(ufunc: np.ufunc) -> Rule:
    """The rule of a NumPy ufunc where an operand is complex: NumPy's own, a bf16 operand counting as f32."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        if len(operands) != ufunc.nin:
            return None
        key = tuple(F32 if t == BF16 else t for t in operands)
        if not any(isinstance(t, DType) for t in key):
            key = tuple(promote([t]) for t in key)
        return _loop(ufunc, key)

    return rule


def parts_of(result: Callable[[DType], DType]) -> Rule:
    """One complex operand; its dtype gives the result's."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        own = promote(operands) if len(operands) == 1 else None
        return Resolution((own,), result(own)) if own is not None and own.is_complex else None

    return rule


def joined(operands: Sequence[Operand]) -> Resolution | None:
    """Two reals of f32 or f64 as the parts of a complex number."""
    first = operands[0]
    if len(operands) == 2 and first in (F32, F64) and operands[1] == first:
        return Resolution((first, first), C64 if first == F32 else C128)
    return None


def refused(operands: Sequence[Operand]) -> bool:
    """Whether an operand is complex: rows take those by their `pairs` alone."""
    return any(is_complex(t) for t in operands)


def same(count: int, kinds: str = "biuf") -> Rule:
    """All operands promoted to one dtype, which is the result's and must be of one of `kinds`."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        if len(operands) != count or refused(operands):
            return None
        common = promote(operands)
        return Resolution((common,) * count, common) if common.kind in kinds else None

    return rule


def floats(count: int) -> Rule:
    """As a NumPy float function of `count` operands, for those that are no ufunc (erf, sigmoid, ...)."""
    like = {1: np.exp, 2: np.arctan2}[count]
    return numpy_rule(like)


def logical(count: int) -> Rule:
    """Operands are cast to bool (x != 0) first; the result is bool."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        fits = len(operands) == count
        return Resolution((BOOL,) * count, BOOL) if fits else None

    return rule


def selection(operands: Sequence[Operand]) -> Resolution | None:
    """`where(condition, x, y)`: the condition is cast to bool, the branches are promoted."""
    return None if refused(operands) else complex_selection(operands)


def complex_selection(operands: Sequence[Operand]) -> Resolution | None:
    """`selection` whatever its operands."""
    if len(operands) != 3:
        return None
    common = promote(operands[1:])
    return Resolution((BOOL, common, common), common)


def scaling(operands: Sequence[Operand]) -> Resolution | None:
    """`ldexp(x, n)`: as NumPy, a float and an integer (i32, or i64 for wider exponents)."""
    if len(operands) != 2 or BF16 not in operands:
        return numpy_rule(np.ldexp)(operands)
    x, n = operands
    found = numpy_rule(np.ldexp)((F32, n)) if x == BF16 else None
    return Resolution((BF16, found.operands[1]), BF16) if found else None


def integers(operands: Sequence[Operand]) -> Resolution | None:
    """Hidden integer helpers: operands of one integer dtype."""
    first = operands[0]
    if isinstance(first, DType) and first.is_integer and all(t == first for t in operands):
        return Resolution((first,) * len(operands), first)
    return None


def words(operands: Sequence[Operand]) -> Resolution | None:
    """Hidden helpers of packed words: two u32."""
    return integers(operands) if all(t == U32 for t in operands) else None


def fused(operands: Sequence[Operand]) -> Resolution | None:
    """`fma`: three operands of f32 or f64."""
    first = operands[0]
    if len(operands) == 3 and first in (F32, F64) and all(t == first for t in operands):
        return Resolution((first, first, first), first)
    return None


def conversion(operands: Sequence[Operand]) -> Resolution | None:
    """`cast` and kin: any operand as it is; the result dtype is the node's own, not the rule's to say."""
    if len(operands) != 1 or refused(operands):
        return None
    own = promote(operands)
    return Resolution((own,), own)
