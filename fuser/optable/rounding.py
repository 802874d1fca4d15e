"""Rows that round to whole numbers.

In: nothing. Out: `floor`, `ceil`, `trunc`, `rint` (ties to even). All are exact, keep -0.0 and infinities, and
leave integers alone where NumPy's rule does (floor, ceil, trunc since 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.hostexpr import HostExpr, call
from fuser.optable.base import Cost, Intrinsic, Names, S, ScalarOp, Table
from fuser.optable.rules import numpy_rule
from fuser.optable.spell import c_call


def _itself(x: S) -> S:
    """Integers are whole already."""
    return x


def _on_host(name: str) -> Callable[[Any], HostExpr]:
    """NumPy's answer is a float, Python's an int."""
    return lambda x: call("float", call(name, x))


def _row(name: str, ufunc: np.ufunc, torch: tuple[str, ...], notes: str) -> ScalarOp:
    whole = None if name == "rint" else _itself
    return ScalarOp(
        name=name, arity=1, rule=numpy_rule(ufunc), reference=ufunc, exact=True, cuda=c_call(name),
        llvm={"f": Intrinsic(name)},
        expand=whole, cost=Cost(1), continuous=False, closed=True,
        host=_on_host(name) if name in ("floor", "ceil") else "",
        names=Names(numpy=(name,), torch=torch, methods=torch), vjp=lambda g, y, x: (g * 0,), notes=notes,
    )  # fmt: skip


ROWS = (
    _row("floor", np.floor, ("floor",), "toward minus infinity; integers pass through"),
    _row("ceil", np.ceil, ("ceil",), "toward plus infinity, -0.5 gives -0.0; integers pass through"),
    _row("trunc", np.trunc, ("trunc", "fix"), "toward zero; integers pass through"),
    _row("rint", np.rint, (), "ties to even; integers become floats"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
