"""Rows that change the dtype: `cast`, `bitcast`, and the machine's own `convert` that `cast` is written with.

In: one operand and the dtype to reach. Out: the rows, and `cast_array`, the same conversion on NumPy arrays.
`cast` is total and one rule on every device, where C leaves it open: float to integer truncates toward zero,
saturates out of range, and takes NaN to 0. Its own file because the result dtype is an argument here, not a
rule's outcome.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.dtypes import BF16, BOOL, F16, F32, F64, U16, U32, DType, find
from fuser.optable.base import Convert, Cost, S, ScalarOp, Table
from fuser.optable.rules import conversion

Array = np.ndarray[Any, Any]


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


# -- on arrays -------------------------------------------------------------------------------------
def cast_array(x: Array, dtype: DType) -> Array:
    """The `cast` row on an array. Integers reach a half type through f32, f64 reaches bf16 rounded once."""
    source = find(x.dtype)
    assert source is not None, x.dtype
    if source.is_float and dtype.is_integer:
        return _truncate(x, dtype)
    if dtype == BF16 and source == F64:
        return _to_odd(x).astype(dtype.numpy)
    if dtype.is_half and source.kind in "iu":
        return x.astype(F32.numpy).astype(dtype.numpy)
    if dtype == BOOL:
        return np.asarray(x != 0)
    return x.astype(dtype.numpy)


def _truncate(x: Array, dtype: DType) -> Array:
    low, high = integer_range(dtype)
    wide = x.astype(F64.numpy)
    inside = (wide >= low) & (wide < high + 1)
    cut = np.where(inside, wide, 0.0).astype(dtype.numpy)
    top, bottom = dtype.numpy.type(high), dtype.numpy.type(low)
    return np.where(wide >= high + 1, top, np.where(wide < low, bottom, cut))


def _to_odd(x: Array) -> Array:
    """f64 to f32 rounded to odd, so that a second rounding (to bf16 or f16) is as if there were only one."""
    near = x.astype(F32.numpy)
    back = near.astype(F64.numpy)
    bits = near.view(np.uint32)
    inexact = (back != x) & np.isfinite(x) & np.isfinite(near) & (bits & 1 == 0)
    step = np.where(np.abs(back) > np.abs(x), np.uint32(0xFFFFFFFF), np.uint32(1))
    return np.where(inexact, bits + step, bits).astype(np.uint32).view(F32.numpy)


def _reinterpret(x: Array, dtype: DType) -> Array:
    return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)


# -- in row arithmetic -----------------------------------------------------------------------------
def _convert(x: S, dtype: DType) -> S:
    return x if x.dtype == dtype else x.op("convert", dtype=dtype)


def expand_cast(x: S, dtype: DType) -> S:
    """`cast` written with `convert`, which is only ever asked for what the machine defines."""
    source = x.dtype
    if source == dtype:
        return x
    if source.is_half:  # before anything that needs a literal: half types have none
        return expand_cast(_widen_half(x), dtype)
    if dtype == BOOL:
        return x.ne(0)
    if dtype.is_half:
        return _to_half(x, dtype)
    if source.is_float and dtype.is_integer:
        return _float_to_integer(x, dtype)
    return _convert(x, dtype)


def _float_to_integer(x: S, dtype: DType) -> S:
    low, high = integer_range(dtype)
    above = x >= float(high + 1)  # a power of two: exact in f32 and f64, where `high` itself may not be
    inside = (x >= float(low)) & (x < float(high + 1))
    cut = _convert(inside.where(x, 0.0), dtype)
    return above.where(cut.like(high), (x < float(low)).where(cut.like(low), cut))


def _widen_half(x: S) -> S:
    """f16 or bf16 to f32, exactly. The bits of a bf16 are the upper half of an f32's."""
    if x.dtype == F16:
        return _convert(x, F32)
    return (_convert(x.bits(U16), U32) << 16).bits(F32)


def _to_half(x: S, dtype: DType) -> S:
    if x.dtype == F64:
        x = _round_to_odd(x)
    elif x.dtype != F32:
        x = _convert(x, F32)
    return _convert(x, F16) if dtype == F16 else _to_bf16(x)


def _to_bf16(x: S) -> S:
    """f32 to bf16, ties to even: add half a unit (and the last kept bit for ties) below the cut. NaN stays quiet."""
    bits = x.bits(U32)
    rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    nan = (bits >> 16) | 0x40
    return _convert(x.ne(x).where(nan, rounded), U16).bits(BF16)


def _round_to_odd(x: S) -> S:
    """f64 to f32 such that rounding the result again gives what rounding `x` once would."""
    near = _convert(x, F32)
    back, bits = _convert(near, F64), near.bits(U32)
    finite = back.op("absolute") < float("inf")
    inexact = finite & back.ne(x) & (bits & 1).eq(0)
    step = (back.op("absolute") > x.op("absolute")).where(bits.like(0xFFFFFFFF), 1)
    return inexact.where(bits + step, bits).bits(F32)


# One instruction each on a GPU, rounding ties to even as the expansion does.
_HALF_CONVERSIONS = {pair: Convert() for pair in ("f32,f16", "f16,f32", "f32,bf16", "bf16,f32")}

ROWS = (
    ScalarOp(
        name="cast", arity=1, converts=True, rule=conversion, reference=cast_array, expand=expand_cast, exact=True,
        growth=(1,), sign="operand",
        cost=Cost(2), hidden=True, vjp=lambda g, y, x: (g.cast(x.dtype),), cuda=_HALF_CONVERSIONS,
        notes="float to integer truncates toward zero, saturates out of range, NaN gives 0; integers wrap; "
        "anything to bool is x != 0; users write it as a dtype name or `astype`; "
        "to a narrower float rounds ties to even, integers reach f16 and bf16 through f32",
    ),
    ScalarOp(
        name="bitcast", arity=1, converts=True, hidden=True, rule=conversion, reference=_reinterpret, exact=True,
        cuda={"*": Convert(bits=True)}, llvm={"*": Convert(bits=True)}, cost=Cost(1), continuous=False,
        no_vjp="reads the representation, not the value", notes="source and result have one width",
    ),
    ScalarOp(
        name="convert", arity=1, converts=True, hidden=True, rule=conversion, reference=cast_array, exact=True,
        cuda={"*": Convert()}, llvm={"*": Convert()}, cost=Cost(1),
        no_vjp="a helper of `cast`, which has one",
        notes="the machine's conversion; float to integer only for values in range, never to bool, bf16 only by bits",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
