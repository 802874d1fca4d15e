"""Keys of calls: what of its arguments a call's program depends on.

In: the flat arguments of a call. Out: a hashable key, in which arrays count by dtype, shape, strides and alignment, and
numbers by their type. Its own file because it is taken at every call that native code does not answer: nothing here
makes an object that it could do without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.hostfunctions import literal_text
from fuser.runtime import arrays
from fuser.runtime.quickcpu import address

_ALIGNED_WRITEABLE = 0x500


def _numpy_part(a: Any) -> Any:
    return a.dtype, a.shape, a.strides, address(a) & 15, a.flags.num & _ALIGNED_WRITEABLE


def _cupy_part(a: Any) -> Any:
    return a.dtype.char, a.shape, a.strides, a.data.ptr & 15, a.data.device_id


def _torch_part(a: Any) -> Any:
    if arrays.records_gradients(a) or a.is_neg() or a.is_conj():
        return None  # an error: the long road says so
    try:
        address = a.data_ptr()
        if not address and a.numel():
            return None  # its memory was taken away
        return a.dtype, a.shape, a.stride(), address & 15, a.device, arrays.is_fixed(a)
    except RuntimeError:  # no strides or no memory: the long road says so
        return None


def _value_part(a: Any) -> Any:
    return type(a), a


NUMBERS = (int, float, complex)
_PARTS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _numpy_part, float: type, int: type, complex: type, bool: _value_part, str: _value_part,
    type(None): _value_part,
}  # fmt: skip


def _part_of(kind: type) -> Callable[[Any], Any] | None:
    """How to take the key of an argument of a type not seen before."""
    name = (kind.__module__.partition(".")[0], kind.__qualname__)
    if issubclass(kind, np.generic):
        found: Callable[[Any], Any] = type
    elif name == ("cupy", "ndarray"):
        found = _cupy_part
    elif name in (("torch", "Tensor"), ("torch", "Parameter")):
        found = _torch_part
    else:
        return None
    _PARTS[kind] = found
    return found


def key_of(args: Sequence[Any], by_value: bool) -> tuple[Any, ...] | None:
    """What a call's program depends on; None where some argument is not plain. `by_value`: numbers count too."""
    parts: list[Any] = []
    for a in args:
        kind = type(a)
        part = _PARTS.get(kind) or _part_of(kind)
        if part is None:
            return None
        value = part(a)
        if value is None:
            return None
        parts.append(value)
        if by_value and kind in NUMBERS:
            parts.append(literal_text(a))
    return tuple(parts)
