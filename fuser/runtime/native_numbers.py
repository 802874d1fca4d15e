"""Python numbers on the native road: what they must be, and what kernels' scalars are made of them.

In: a bound program, a number's symbol or a host expression. Out: `NumberNeed`s and modes. Its own file because the
roads of all array libraries share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fuser.runtime import native_words as w
from fuser.runtime.bound import Launch
from fuser.runtime.native_entry import NumberNeed

if TYPE_CHECKING:
    from fuser.dtypes import DType
    from fuser.hostexpr import HostExpr
    from fuser.runtime.bound import BoundProgram


def number_need(program: BoundProgram, symbol: str, kind: type) -> NumberNeed:
    """A number whose kernels' parameters it must fit."""
    low, high = -(1 << 63), (1 << 63) - 1
    for launch in program.steps:
        for _, dtype, expr in launch.dynamic if isinstance(launch, Launch) else ():
            if expr.symbols == {symbol} and dtype.is_integer:
                info = np.iinfo(dtype.numpy)
                low, high = max(low, int(info.min)), min(high, int(info.max))
    return NumberNeed(kind, low, high)


def mode_of(expr: HostExpr, dtype: DType) -> int | None:
    """How native code makes a kernel's scalar of the number itself; None for expressions and other dtypes."""
    if expr.op != "sym":
        return None
    known = {
        ("float", "f64"): w.F64_OF_FLOAT, ("float", "f32"): w.F32_OF_FLOAT, ("int", "f64"): w.F64_OF_INT,
        ("int", "f32"): w.F32_OF_INT, ("int", "i32"): w.I64_OF_INT, ("int", "i64"): w.I64_OF_INT,
    }  # fmt: skip
    return known.get((expr.kind, dtype.name))
