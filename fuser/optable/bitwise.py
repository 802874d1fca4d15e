"""Rows on bits and on truth values.

In: nothing. Out: `bitwise_*`, `invert`, shifts with NumPy's rule for oversized counts, the `logical_*` rows (operands
cast to bool first), and the raw shifts `shl` and `shr` that other rows use with counts in range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from fuser.dtypes import U8, U16, U32, U64
from fuser.hostexpr import HostExpr, call
from fuser.optable.base import Cost, Infix, Instr, Names, Prefix, S, ScalarOp, Spellings, Table
from fuser.optable.rules import integers, logical, numpy_rule

_UNSIGNED = {t.bits: t for t in (U8, U16, U32, U64)}


def _both(symbol: str) -> Spellings:
    return {"i": Infix(symbol), "u": Infix(symbol), "b": Infix(symbol)}


def _instr(name: str) -> Spellings:
    return {"i": Instr(name), "u": Instr(name), "b": Instr(name)}


def _in_range(n: S) -> S:
    """Whether a shift count is within the width; a negative one is not."""
    below = n < n.dtype.bits
    return below & (n >= 0) if n.dtype.kind == "i" else below


def _left_shift(x: S, n: S) -> S:
    safe = _in_range(n)
    return safe.where(x << safe.where(n, 0), 0)


def _right_shift(x: S, n: S) -> S:
    """Counts out of range shift every bit out: 0, or all sign bits."""
    safe = _in_range(n)
    rest = (x >> (x.dtype.bits - 1)) if x.dtype.kind == "i" else x.like(0)
    return safe.where(x >> safe.where(n, 0), rest)


def _bitwise_count(x: S) -> S:
    """Set bits of |x|, summed in ever wider fields of the unsigned dtype."""
    magnitude = x.op("absolute")
    bits, width = magnitude.cast(_UNSIGNED[x.dtype.bits]), x.dtype.bits
    field = 1
    while field < width:
        mask = ((1 << width) - 1) // ((1 << field) + 1)  # every other field of this width
        bits = (bits & mask) + ((bits >> field) & mask)
        field *= 2
    return bits.cast(U8)


def _bitwise(
    name: str, symbol: str, instr: str, ufunc: np.ufunc, units: tuple[int | None, int | None] = (None, None)
) -> ScalarOp:
    return ScalarOp(
        name=name, arity=2, symbol=symbol, rule=numpy_rule(ufunc), reference=ufunc, exact=True, continuous=False,
        cuda=_both(symbol), llvm=_instr(instr), names=Names(numpy=(name,), torch=(name,), methods=(name,)),
        units=units, commutes="biu", no_vjp="integers and bools have no derivative", notes="floats are refused",
    )  # fmt: skip


def _logical(
    name: str, same_as: str, ufunc: np.ufunc, host: Callable[[Any, Any], HostExpr] | Literal[""] = ""
) -> ScalarOp:
    return ScalarOp(
        host=host,
        name=name, arity=2, rule=logical(2), reference=ufunc, exact=True, continuous=False,
        expand=lambda a, b: a.op(same_as, b), names=Names(numpy=(name,), torch=(name,), methods=(name,)),
        no_vjp="the result is a bool", notes="operands are cast to bool first: x != 0, so NaN is true",
    )  # fmt: skip


ROWS = (
    _bitwise("bitwise_and", "&", "and_", np.bitwise_and),
    _bitwise("bitwise_or", "|", "or_", np.bitwise_or, units=(0, 0)),
    _bitwise("bitwise_xor", "^", "xor", np.bitwise_xor, units=(0, 0)),
    ScalarOp(
        name="invert", arity=1, symbol="~", rule=numpy_rule(np.invert), reference=np.invert, exact=True,
        host="~",
        continuous=False,
        cuda={"b": Prefix("!"), "i": Prefix("~"), "u": Prefix("~")}, llvm=_instr("not_"),
        names=Names(
            numpy=("invert", "bitwise_not", "bitwise_invert"), torch=("bitwise_not",), dsl=("bitwise_not",),
            methods=("bitwise_not",),
        ),
        no_vjp="integers and bools have no derivative", notes="logical not of a bool; floats are refused",
    ),
    ScalarOp(
        name="left_shift", arity=2, symbol="<<", rule=numpy_rule(np.left_shift), reference=np.left_shift, exact=True,
        expand=_left_shift, cost=Cost(4), continuous=False,
        names=Names(numpy=("left_shift", "bitwise_left_shift"), torch=("bitwise_left_shift",)),
        no_vjp="integers have no derivative", notes="a count below 0 or beyond the width gives 0",
    ),
    ScalarOp(
        name="right_shift", arity=2, symbol=">>", rule=numpy_rule(np.right_shift), reference=np.right_shift, exact=True,
        expand=_right_shift, cost=Cost(4), continuous=False,
        names=Names(numpy=("right_shift", "bitwise_right_shift"), torch=("bitwise_right_shift",)),
        no_vjp="integers have no derivative",
        notes="arithmetic for signed; a count out of range gives 0 or -1, by sign",
    ),
    ScalarOp(
        name="bitwise_count", arity=1, rule=numpy_rule(np.bitwise_count), reference=np.bitwise_count, exact=True,
        expand=_bitwise_count, cost=Cost(16), continuous=False, names=Names(numpy=("bitwise_count",)),
        no_vjp="integers have no derivative", notes="bits of the absolute value, as u8",
    ),
    _logical("logical_and", "bitwise_and", np.logical_and, lambda x, y: call("&", call("bool", x), call("bool", y))),
    _logical("logical_or", "bitwise_or", np.logical_or, lambda x, y: call("|", call("bool", x), call("bool", y))),
    _logical("logical_xor", "bitwise_xor", np.logical_xor),
    ScalarOp(
        name="logical_not", arity=1, rule=logical(1), reference=np.logical_not, exact=True, continuous=False,
        host="not",
        expand=lambda x: x.op("invert"),
        names=Names(numpy=("logical_not",), torch=("logical_not",), methods=("logical_not",)),
        no_vjp="the result is a bool", notes="the operand is cast to bool first: x != 0, so NaN is true",
    ),
    ScalarOp(
        name="shl", arity=2, hidden=True, rule=integers, reference=np.left_shift, exact=True, continuous=False,
        units=(None, 0),
        cuda={"i": Infix("<<", wraps=True), "u": Infix("<<")}, llvm={"i": Instr("shl"), "u": Instr("shl")},
        no_vjp="an integer helper", notes="the count is within 0 .. width-1",
    ),
    ScalarOp(
        name="shr", arity=2, hidden=True, rule=integers, reference=np.right_shift, exact=True, continuous=False,
        units=(None, 0),
        cuda={"i": Infix(">>"), "u": Infix(">>")}, llvm={"i": Instr("ashr"), "u": Instr("lshr")},
        no_vjp="an integer helper", notes="the count is within 0 .. width-1; arithmetic for signed",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
