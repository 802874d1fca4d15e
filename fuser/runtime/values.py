"""Host scalars on their way into a kernel.

In: Python numbers from host expressions. Out: numbers of the parameter's dtype, or the error NumPy 2 raises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.dtypes import BOOL, DType
from fuser.errors import ComplexError, OverflowArgumentError


def convert(value: Any, dtype: DType) -> Any:
    """`value` as a NumPy scalar of `dtype`. An integer out of the dtype's range raises OverflowArgumentError."""
    if isinstance(value, complex):
        raise ComplexError(
            f"a number of the call came out complex ({value}) where the program has a real one",
            "complex-number",
            notes=["Python's power of a negative number is complex: convert it first, complex(h) ** 0.5"],
        )
    if dtype == BOOL:
        return np.bool_(value)
    if dtype.is_integer:
        number = int(value)
        info = np.iinfo(dtype.numpy)
        if not info.min <= number <= info.max:
            raise OverflowArgumentError(
                f"Python integer {number} does not fit {dtype}",
                "integer-out-of-range",
                notes=[f"NumPy 2 refuses it too; {dtype} holds {info.min} to {info.max}"],
            )
        return dtype.numpy.type(number)
    with np.errstate(over="ignore"):
        return dtype.numpy.type(float(value))


def slot_bits(value: Any, dtype: DType) -> int:
    """The value's bits in the low end of an 8-byte slot, as a signed 64-bit integer (CPU kernels' scalar ABI)."""
    raw = np.zeros(8, np.uint8)
    data = np.array(value, dtype.numpy)
    raw[: dtype.bytes] = data.reshape(1).view(np.uint8)
    return int(raw.view(np.int64)[0])
