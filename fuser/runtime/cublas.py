"""Products of float matrices through cuBLAS: flags and strides instead of copies, bf16 included.

In: CuPy arrays (bf16 as its bits), which may be views. Out: the product in place. Halves are multiplied
exactly and added in f32, rounded once; f32 is added in f32, f64 in f64: never in TF32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.dtypes import BF16, F16, F32, F64, DType
from fuser.runtime.library import layout

# cudaDataType_t, cublasComputeType_t (cublas_api.h) and the dtype of alpha and beta, by the matrices' dtype.
KINDS = {
    BF16: (14, 68, np.float32),
    F16: (2, 68, np.float32),
    F32: (0, 68, np.float32),
    F64: (1, 70, np.float64),
}
CUBLAS_GEMM_DEFAULT = -1


@dataclass(frozen=True)
class _Matrices:
    """One operand: its first address, whether it lies transposed, elements from line to line and matrix to matrix."""

    pointer: int
    transposed: bool
    line: int
    step: int


def matmul(a: Any, b: Any, out: Any, dtype: DType) -> None:
    """`out = a @ b` for arrays [..., m, k], [..., k, n], [..., m, n]; leading axes broadcast. `out` is in C order."""
    import cupy

    batch = out.shape[:-2]
    if 0 in out.shape:
        return
    if a.shape[-1] == 0:
        out[...] = 0
        return
    a, b = (cupy.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    a, b = (x if layout(x.shape, x.strides, x.itemsize) is not None else cupy.ascontiguousarray(x) for x in (a, b))
    count, outer = _together(batch, [a, b])
    for index in np.ndindex(*outer):
        _gemm(a[index], b[index], out[index], count, dtype)


def _together(batch: tuple[int, ...], operands: list[Any]) -> tuple[int, tuple[int, ...]]:
    """(matrices of one call, leading axes left over): the last batch axes that are one line in every operand."""
    count, used = 1, len(batch)
    while used:
        joins = all(used == len(batch) or x.strides[used - 1] == x.strides[used] * batch[used] for x in operands)
        if not joins:
            break
        used -= 1
        count *= batch[used]
    return count, batch[:used]


def _gemm(a: Any, b: Any, out: Any, count: int, dtype: DType) -> None:
    """`count` row-major products: cuBLAS is column-major, so it is asked for out.T = b.T @ a.T."""
    from cupy.cuda import cublas, device

    (m, k), n = a.shape[-2:], b.shape[-1]
    kind, compute, scalar = KINDS[dtype]
    one, zero = np.array(1, scalar), np.array(0, scalar)
    left, right = _described(b), _described(a)
    flags = [cublas.CUBLAS_OP_T if x.transposed else cublas.CUBLAS_OP_N for x in (left, right)]
    if count == 1:
        cublas.gemmEx(
            device.get_cublas_handle(), *flags, n, m, k,
            one.ctypes.data, left.pointer, kind, left.line, right.pointer, kind, right.line,
            zero.ctypes.data, out.data.ptr, kind, n, compute, CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip
        return
    cublas.gemmStridedBatchedEx(
        device.get_cublas_handle(), *flags, n, m, k,
        one.ctypes.data, left.pointer, kind, left.line, left.step, right.pointer, kind, right.line, right.step,
        zero.ctypes.data, out.data.ptr, kind, n, m * n, count, compute, CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


def _described(x: Any) -> _Matrices:
    found = layout(x.shape, x.strides, x.itemsize)
    assert found is not None
    return _Matrices(x.data.ptr, *found, x.strides[-3] // x.itemsize if x.ndim > 2 else 0)
