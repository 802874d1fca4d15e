"""NVIDIA's parallel algorithms for Python, `cuda.compute` of the package cuda-cccl, on what they have a form for.

In: a workload's program and options, torch tensors. Out: a callable, None where they have no form for it. Its own file:
a library of algorithms, not of arrays, is asked in another way.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np


def installed() -> bool:
    return importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.compute") is not None


def form(program: str, options: tuple[Any, ...] | None, x: Any) -> Callable[[], Any] | None:
    """The workload on a CUDA tensor: a reduction or scan of all elements, or of every row."""
    if "float32" not in str(x.dtype):
        return None
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]  # numba 0.6x asks for it; NumPy 2.4 took it away
    if program == "abs_sum":
        return _reduced(x, _magnitude)
    if program == "square_sum" and options == (None,):
        return _reduced(x, _square_and_one)
    if program == "square_sum" and options in ((2,), (-1,)):
        return _rows_reduced(x, _square_and_one)
    if program == "cumsum" and x.dim() == 1:
        return _scanned(x)
    return None


def _magnitude(v):  # no annotations: numba would take them for its own types
    return abs(v)


def _square_and_one(v):
    return v * v + np.float32(1)


def _flat(x: Any) -> Any:
    import cupy

    return cupy.from_dlpack(x.reshape(-1))


def _reduced(x: Any, change: Callable[[Any], Any]) -> Callable[[], Any]:
    import cupy
    from cuda.compute import OpKind, TransformIterator, make_reduce_into

    flat, out = _flat(x), cupy.empty(1, np.float32)
    common = {
        "d_in": TransformIterator(flat, change),
        "d_out": out,
        "op": OpKind.PLUS,
        "h_init": np.zeros(1, np.float32),
    }
    reducer = make_reduce_into(**common)
    room = cupy.empty(max(reducer(temp_storage=None, num_items=flat.size, **common), 1), np.uint8)

    def run() -> Any:
        reducer(temp_storage=room, num_items=flat.size, **common)
        return out[0]

    return run


def _rows_reduced(x: Any, change: Callable[[Any], Any]) -> Callable[[], Any]:
    import cupy
    from cuda.compute import OpKind, TransformIterator, make_segmented_reduce

    flat, width = _flat(x), x.shape[-1]
    rows = flat.size // width
    out, starts = cupy.empty(rows, np.float32), cupy.arange(rows + 1, dtype=np.int64) * width
    common = {
        "d_in": TransformIterator(flat, change), "d_out": out, "op": OpKind.PLUS, "h_init": np.zeros(1, np.float32),
        "start_offsets_in": starts[:-1], "end_offsets_in": starts[1:],
    }  # fmt: skip
    reducer = make_segmented_reduce(**common)
    count = {"num_segments": rows, "max_segment_size": width}
    room = cupy.empty(max(reducer(temp_storage=None, **count, **common), 1), np.uint8)

    def run() -> Any:
        reducer(temp_storage=room, **count, **common)
        return out.reshape(x.shape[:-1])

    return run


def _scanned(x: Any) -> Callable[[], Any]:
    import cupy
    from cuda.compute import OpKind, make_inclusive_scan

    flat = _flat(x)
    common = {"d_in": flat, "d_out": cupy.empty_like(flat), "op": OpKind.PLUS, "init_value": np.zeros(1, np.float32)}
    scanner = make_inclusive_scan(**common)
    room = cupy.empty(max(scanner(temp_storage=None, num_items=flat.size, **common), 1), np.uint8)

    def run() -> Any:
        scanner(temp_storage=room, num_items=flat.size, **common)
        return common["d_out"]

    return run
