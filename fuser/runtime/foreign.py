"""Arrays of libraries that fuser does not know by name, through the protocols they share.

In: anything with `__dlpack__` or `__cuda_array_interface__` (JAX, Numba, ...). Out: a NumPy or CuPy array over the
same memory, and results given back in kind. Nothing is copied where the library shares its memory; DLPack orders the
streams.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

PREFIX = "foreign:"
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED = 1, 2, 3, 13


def family_of(value: object) -> str | None:
    """`foreign:` and the library's name; None for what follows no protocol."""
    kind = type(value)
    if isinstance(value, type) or not (hasattr(kind, "__dlpack__") or hasattr(value, "__cuda_array_interface__")):
        return None
    return PREFIX + kind.__module__.partition(".")[0].removesuffix("lib")  # JAX's arrays are of `jaxlib`


def view(value: Any) -> Any:
    """A NumPy or CuPy array over the memory of a foreign array."""
    if hasattr(value, "__dlpack_device__"):
        kind = int(value.__dlpack_device__()[0])
        if kind in (_DLPACK_CPU, _DLPACK_CUDA_HOST):
            return _host_view(value)
        if kind not in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
            return None
    import cupy

    return cupy.asarray(value) if hasattr(value, "__cuda_array_interface__") else cupy.from_dlpack(value)


def _host_view(value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, RuntimeError):  # a dtype that NumPy's DLPack lacks, such as bfloat16
        return np.asarray(value)


def give(array: Any, family: str) -> Any:
    """A NumPy or CuPy array as one of the library that the call's arrays are from; as it is where that has no way
    in."""
    name = family.removeprefix(PREFIX)
    module = sys.modules.get({"jax": "jax.numpy", "numba": "numba.cuda"}.get(name, name))
    maker = getattr(module, "from_dlpack", None) or getattr(module, "as_cuda_array", None)
    if maker is None:
        return array
    try:
        return maker(array)
    except (BufferError, TypeError, RuntimeError, ValueError):  # again a dtype outside DLPack
        other = getattr(module, "asarray", None)
        return other(array) if other is not None else array
