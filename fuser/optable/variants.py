"""Cheaper spellings of f32 rows as rows of their own, and the sums that only `passes.variants` writes.

In: the table with every scalar row. Out: a hidden row `NAME.KEY` for each of their `variants`, and `one_plus_tanh`,
`one_plus_erf`, whose small values the plain sums lose to cancellation. A variant means what its plain row means, within
the error it states: its reference is the plain one, and where a device has no cheaper spelling (CPUs: none has) it is
the plain row, bit for bit. Its own file because these rows exist for a pass, not for users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.dtypes import F32
from fuser.optable.base import Cost, Expand, Operand, Resolution, Rule, S, ScalarOp, Table, Variant
from fuser.optable.exponential import EXPONENT, SQUARED_EXPONENT
from fuser.optable.references import elementwise, in_double
from fuser.optable.rules import floats
from fuser.optable.spell import fast

Array = np.ndarray[Any, Any]
LAST_PLACE = 2.0**-24  # an error of one unit in the last place is at least this much of the value


def singles(count: int) -> Rule:
    """All operands f32."""

    def rule(operands: Sequence[Operand]) -> Resolution | None:
        return Resolution((F32,) * count, F32) if tuple(operands) == (F32,) * count else None

    return rule


def _plainly(name: str) -> Expand:
    def expand(x: S, *others: S) -> S:
        return x.op(name, *others)

    return expand


def variant_row(row: ScalarOp, key: str, variant: Variant) -> ScalarOp:
    """The row of one variant; its ulp allows for the plain row's own error."""
    own = row.ulp.get("f32", 0.5)
    return ScalarOp(
        name=f"{row.name}.{key}", arity=row.arity, hidden=True, rule=singles(row.arity), reference=row.reference,
        cuda=variant.cuda, expand=_plainly(row.name), cost=variant.cost, ulp={"f32": variant.error / LAST_PLACE + own},
        domain=row.domain, no_vjp="chosen after differentiation", variant_of=row.name,
        notes=variant.notes or f"`{row.name}` within a relative error of 2^{math.log2(variant.error):.1f}",
    )  # fmt: skip


def _one_plus_tanh_array(x: Array) -> Array:
    """2/(1 + exp(-2x)), which cancels nowhere."""
    return np.asarray(2.0 / (1.0 + np.exp(-2.0 * x)))


# Without their variants these would not pay: on CPUs the plain sums are as cheap. Both are exact where the plain sum is
# 0 too early: 1 + tanh(x) below -9, 1 + erf(x) below -3.9.
ROWS = (
    ScalarOp(
        name="one_plus_tanh", arity=1, hidden=True, rule=floats(1), reference=in_double(_one_plus_tanh_array),
        growth=(EXPONENT,), sign="never-below",
        expand=lambda x: (x + x).op("sigmoid") * 2.0, cost=Cost(23, sfu=2, registers=3), ulp={"f32": 6, "f64": 6},
        domain=(-40, 40), no_vjp="made of `tanh` after differentiation", notes="2*sigmoid(2x)",
        variants={"fast": Variant(cuda=fast("one_plus_tanh"), error=2.0**-16.5, cost=Cost(4, sfu=2, registers=1),
                                  notes="results below 2^-126 are 0")},
    ),
    ScalarOp(
        name="one_plus_erf", arity=1, hidden=True, rule=floats(1), reference=elementwise(lambda x: math.erfc(-x)),
        growth=(SQUARED_EXPONENT,), sign="never-below",
        expand=lambda x: (-x).op("erfc"), cost=Cost(49, sfu=3, registers=8), ulp={"f32": 4, "f64": 5}, domain=(-9, 5),
        no_vjp="made of `erf` after differentiation", notes="erfc(-x)",
        variants={"fast": Variant(cuda=fast("one_plus_erf"), error=2.0**-16, cost=Cost(16, sfu=2, registers=3),
                                  notes="results below 2^-126 are 0")},
    ),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows, then the variants of every scalar row."""
    for row in ROWS:
        table.register(row)
    for plain in table.of(ScalarOp):
        for key, variant in plain.variants.items():
            table.register(variant_row(plain, key, variant))
