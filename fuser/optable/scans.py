"""Scans: prefix folds along an axis.

In: nothing. Out: rows `cumsum cumprod cummax cummin`, each by the combiner of a reduction with one value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.dtypes import DType
from fuser.optable.base import Names, Scan, Table
from fuser.optable.evaluate import dtype_of
from fuser.optable.reductions import highest, lowest

Array = np.ndarray[Any, Any]


def _reference(fold: np.ufunc, identity: Callable[[DType], float]) -> Callable[..., Array]:
    """Floats accumulate in f64, as the reductions' references do.

    x: the operand, already of the reduction's dtype. exclusive: position i holds the fold of those before it.
    reverse: from the far end.
    """

    def reference(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
        wide = x if x.dtype.kind in "iub" else x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        wide = np.flip(wide, axis) if reverse else wide
        done = np.asarray(fold.accumulate(wide, axis=axis, dtype=wide.dtype))
        if exclusive and done.shape[axis]:
            done = np.roll(done, 1, axis=axis)
            done[(slice(None),) * (axis % x.ndim) + (0,)] = identity(dtype_of(x))
        return (np.flip(done, axis) if reverse else done).astype(x.dtype)

    return reference


ROWS = (
    Scan(name="cumsum", reduction="sum", reference=_reference(np.add, lambda t: 0),
         names=Names(numpy=("cumsum",), torch=("cumsum",), methods=("cumsum",)),
         notes="integers and bools in 64 bits, wrapping"),
    Scan(name="cummax", reduction="max", reference=_reference(np.maximum, lowest),
         notes="NaN wins from where it stands on"),
    Scan(name="cummin", reduction="min", reference=_reference(np.minimum, highest),
         notes="NaN wins from where it stands on"),
    Scan(name="cumprod", reduction="prod", reference=_reference(np.multiply, lambda t: 1),
         names=Names(numpy=("cumprod",), torch=("cumprod",), methods=("cumprod",)),
         notes="integers and bools in 64 bits, wrapping"),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
