"""Library calls: the opaque operators of the table on each place.

In: an opaque node with its operands' arrays. Out: the result written into a given array. The vendor library's own fast
path is used as it is: operands that are views are handed over with their strides. Products of floats on a GPU go to
cuBLAS directly, because CuPy's `matmul` knows no bf16 and copies the views of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fuser.dtypes import BF16, F16, F32, F64, DType
from fuser.errors import UnsupportedError
from fuser.graph import Node
from fuser.record import dataclass
from fuser.runtime.arrays import Place
from fuser.strided import Strided

Workspace = tuple[int, int] | None  # address and bytes
Steps = tuple[int, tuple[int, ...]]  # a start, and a step along each axis of the view


@dataclass(frozen=True)
class View:
    """An operand's look at an array. flat: in elements, of an array in C order. axes: by axis of the array, in its
    indices; None where only C order will do."""

    shape: tuple[int, ...]
    flat: Steps
    axes: tuple[Steps, ...] | None


def view_of(found: Strided, shape: tuple[int, ...], env: Mapping[str, Any]) -> View:
    """The view at a call's sizes."""
    return View(shape, found.over_c_order(env), found.by_axis(env))


def seen(array: Any, view: View | None) -> Any:
    """A NumPy or CuPy array through a view, without a copy unless a reshape of a strided array asks for one.

    CuPy's arrays of bf16 come as their bits.
    """
    array = array if isinstance(array, np.ndarray) else bits(array)
    if view is None:
        return array
    if 0 in view.shape:
        return array.reshape(-1)[:0].reshape(view.shape)
    if view.axes is None:
        flat = array.ravel()  # a copy where the array is not in C order
        start, steps = view.flat
        return _as_strided(flat[start:], view.shape, [s * array.itemsize for s in steps])
    first = array[tuple(slice(start, None) for start, _ in view.axes)]
    pairs = list(zip(view.axes, array.strides, strict=True))
    return _as_strided(first, view.shape, [sum(by[k] * s for (_, by), s in pairs) for k in range(len(view.shape))])


def bits(array: Any) -> Any:
    """A CuPy array, one of bf16 as u16 over the same memory: CuPy copies no bf16."""
    if array.dtype != BF16.numpy:
        return array
    import cupy

    return cupy.ndarray(array.shape, np.uint16, array.data, strides=array.strides)


def _as_strided(array: Any, shape: tuple[int, ...], steps: list[int]) -> Any:
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, shape, steps)
    from cupy.lib.stride_tricks import as_strided

    return as_strided(array, shape, steps)


def call(node: Node, operands: list[Any], result: Any, place: Place, workspace: Workspace = None) -> None:
    """Run an opaque node; every operand and the result have their node's dtype and shape."""
    run = _CALLS.get((node.op, place.kind))
    if run is None:
        raise UnsupportedError(f"no library runs `{node.op}` on {place}", "no-library")
    run(operands, result, node.storage, workspace)


def workspace_bytes(node: Node, place: Place) -> int:
    """Bytes of memory that a library call on a GPU needs besides its arrays: what cuBLAS takes for itself there."""
    from fuser.runtime import cublas, cuda

    if node.op != "matmul" or node.storage not in cublas.KINDS or cublas.direct() is None:
        return 0
    return 32 << 20 if int(cuda.architecture(place.ordinal).removeprefix("sm_")) >= 90 else 8 << 20


def _matmul_cpu(operands: list[Any], result: Any, dtype: DType, workspace: Workspace) -> None:
    a, b = (_for_blas(x) for x in operands)
    multiply(dtype)(a, b, result)


def multiply(dtype: DType) -> Callable[[Any, Any, Any], object]:
    """How NumPy multiplies arrays of a dtype that BLAS takes as they lie (`layout`): operands, and where to."""
    return _multiply_halves if dtype in (BF16, F16) else np.matmul


def _multiply_halves(a: Any, b: Any, out: Any) -> None:
    """Accumulated in f32, rounded once, as on the GPU."""
    out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(out.dtype)


def _for_blas(x: Any) -> Any:
    """The array if a transposition flag and a leading dimension describe its matrices, else a copy in C order: NumPy
    would multiply those element by element."""
    return x if layout(x.shape, x.strides, x.itemsize) is not None else np.ascontiguousarray(x)


def layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[bool, int] | None:
    """(whether the matrices lie transposed, elements between the starts of their rows or columns), as BLAS wants it.

    None where no such pair describes them. Axes of length 1 may have any stride.
    """
    (rows, columns), (down, across) = shape[-2:], (s // itemsize for s in strides[-2:])
    if any(s % itemsize for s in strides[-2:]):
        return None
    if (columns == 1 or across == 1) and (rows == 1 or down >= columns):
        return False, down if rows > 1 else max(columns, 1)
    if (rows == 1 or down == 1) and (columns == 1 or across >= rows):
        return True, across if columns > 1 else max(rows, 1)
    return None


def _matmul_cuda(operands: list[Any], result: Any, dtype: DType, workspace: Workspace) -> None:
    import cupy

    if dtype in (BF16, F16, F32, F64):
        from fuser.runtime.cublas import matmul

        matmul(operands[0], operands[1], bits(result), dtype, workspace)
    else:
        cupy.matmul(operands[0], operands[1], out=result)


_CALLS = {("matmul", "cpu"): _matmul_cpu, ("matmul", "cuda"): _matmul_cuda}
