"""Rows that compare, and `where`, which selects by the outcome.

In: nothing. Out: comparison rows with a bool result, and the selection. Comparing i64 with u64 is exact, as
in NumPy 2, so it is never primitive: C and LLVM would first convert one side. Its own file because these are
the discontinuous rows that `widen` rounds operands for.
"""

from __future__ import annotations

import numpy as np

from fuser.dtypes import U64
from fuser.optable.base import Infix, Instr, Names, Pairs, S, ScalarOp, Spellings, Table, Ternary
from fuser.optable.complexes import pairs, select
from fuser.optable.rules import complex_selection, numpy_rule, selection

_MIXED: Spellings = {"i64,u64": None, "u64,i64": None}


def _llvm(symbol: str) -> Spellings:
    """Ordered comparison of floats: false for NaN, but `!=` is true."""
    ordered = "fcmp_unordered" if symbol == "!=" else "fcmp_ordered"
    unsigned = Instr("icmp_unsigned", symbol)
    return {**_MIXED, "i": Instr("icmp_signed", symbol), "u": unsigned, "b": unsigned, "f": Instr(ordered, symbol)}


def _mixed(name: str, a: S, b: S) -> S:
    """i64 against u64: a negative number is below every unsigned one; else both compare as u64."""
    signed_first = a.dtype.kind == "i"
    negative = (a if signed_first else b) < 0
    outcome = {"equal": False, "not_equal": True, "less": signed_first, "less_equal": signed_first}
    below = outcome.get(name, not signed_first)
    same = a.cast(U64).op(name, b.cast(U64), dtype=negative.dtype)
    return negative.where(negative.like(below), same)


_PAIRS: dict[str, Pairs] = {  # complex numbers have no order here
    "equal": pairs(np.equal, lambda a, b: a.re.eq(b.re) & a.im.eq(b.im)),
    "not_equal": pairs(np.not_equal, lambda a, b: a.re.ne(b.re) | a.im.ne(b.im)),
}


def _row(name: str, symbol: str, ufunc: np.ufunc, short: str) -> ScalarOp:
    torch = (short,) if name == "equal" else (short, name)  # torch.equal is one bool for the whole array
    return ScalarOp(
        name=name, arity=2, symbol=symbol, rule=numpy_rule(ufunc), reference=ufunc, exact=True, continuous=False,
        cuda={**_MIXED, "*": Infix(symbol)}, llvm=_llvm(symbol), expand=lambda a, b: _mixed(name, a, b),
        names=Names(numpy=(name,), torch=torch, methods=(short,)),
        no_vjp="the result is a bool",
        notes="with NaN only != holds; i64 with u64 compares exactly", pairs=_PAIRS.get(name),
    )  # fmt: skip


COMPARISONS = (
    _row("equal", "==", np.equal, "eq"),
    _row("not_equal", "!=", np.not_equal, "ne"),
    _row("less", "<", np.less, "lt"),
    _row("less_equal", "<=", np.less_equal, "le"),
    _row("greater", ">", np.greater, "gt"),
    _row("greater_equal", ">=", np.greater_equal, "ge"),
)

ROWS = (
    *COMPARISONS,
    ScalarOp(
        name="where", arity=3, rule=selection, reference=np.where, exact=True, cuda={"*": Ternary()},
        growth=(0, 1, 1), sign="chosen", closed=True, host="where",
        names=Names(numpy=("where",), torch=("where",)),
        llvm={"*": Instr("select")},
        vjp=lambda g, y, c, a, b: (None, c.where(g, 0), c.where(0, g)),
        notes="both branches are computed; the condition is cast to bool (NaN is true)",
        pairs=Pairs(rule=complex_selection, form=select),
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
