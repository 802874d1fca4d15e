"""Division and square root as the few instructions that are exact almost everywhere, and a test of where they are.

In: the table with `divide` and `sqrt`. Out: hidden rows `NAME.near`, the same bits as the plain row wherever
`NAME.holds`, a bool of its operands and the result, is true. A compiler's own exact division has such a test in it, and
a branch to a slow path for what fails: nothing is scheduled across. `codegen.guards` puts one test and one branch
around many of them; a row that knows its operands (the logistic function) does without. Where a device has no such
spelling (CPUs: a division is one instruction there) they are the plain rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.dtypes import BOOL
from fuser.optable.base import Call, Cost, Operand, Resolution, ScalarOp, Table
from fuser.optable.variants import singles

Array = np.ndarray[Any, Any]
LEAST = 2.0**-100  # from here on the remainder of a division, 2^-48 of its dividend at least, is exact: no subnormal
LEAST_QUOTIENT = 2.0**-125  # a normal number, and not by its last rounding
LEAST_ROOT = 2.0**-50  # of LEAST
# No test is from above: an operand that is infinite, or zero or subnormal where the unit takes it for zero, makes one
# of the instructions subtract an infinity from another or multiply it by zero, and so does a quotient that overflows
# before its last rounding; a NaN is at least nothing. One that overflows by its last rounding is the right infinity.


def _tested(operands: Sequence[Operand]) -> Resolution | None:
    """Operands and result in f32, the answer a bool."""
    known = singles(len(operands))(operands)
    return None if known is None else Resolution(known.operands, BOOL)


_NO_VJP = "written after differentiation"

ROWS = (
    ScalarOp(
        name="divide.near", arity=2, hidden=True, rule=singles(2), reference=np.divide, exact=True,
        cuda={"f32": Call("fuser_divide_near")}, expand=lambda a, b: a / b, cost=Cost(6, sfu=1, registers=2),
        domain=(1e-3, 1e3), no_vjp=_NO_VJP, notes="a/b where `divide.holds`",
    ),
    ScalarOp(
        name="divide.holds", arity=3, hidden=True, rule=_tested, cuda={"f32": Call("fuser_divide_holds")},
        reference=lambda a, b, q: np.asarray((np.abs(a) >= LEAST) & (np.abs(q) >= LEAST_QUOTIENT)),
        expand=lambda a, b, q: (a.op("absolute") >= LEAST) & (q.op("absolute") >= LEAST_QUOTIENT),
        exact=True, cost=Cost(2), continuous=False, no_vjp=_NO_VJP, notes="false where one of them is NaN",
    ),
    ScalarOp(
        name="sqrt.near", arity=1, hidden=True, rule=singles(1), reference=np.sqrt, exact=True,
        cuda={"f32": Call("fuser_sqrt_near")}, expand=lambda x: x.op("sqrt"), cost=Cost(5, sfu=1, registers=2),
        domain=(1e-6, 1e6), no_vjp=_NO_VJP, notes="the root where `sqrt.holds`",
    ),
    ScalarOp(
        name="sqrt.holds", arity=2, hidden=True, rule=_tested, cuda={"f32": Call("fuser_sqrt_holds")},
        reference=lambda x, y: np.asarray(y >= LEAST_ROOT), expand=lambda x, y: y >= LEAST_ROOT, exact=True,
        cost=Cost(1), continuous=False, no_vjp=_NO_VJP, notes="false where y is NaN",
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
