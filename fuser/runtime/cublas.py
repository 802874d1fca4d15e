"""bf16 matrix products through cuBLAS GemmEx, which CuPy's own `matmul` does not offer.

In: CuPy arrays of dtype bfloat16 (ml_dtypes) or their views. Out: the product in place. Accumulation is f32, rounded
once.
"""

from __future__ import annotations

from typing import Any

CUDA_R_16BF = 14  # cudaDataType_t
CUBLAS_COMPUTE_32F = 68  # cublasComputeType_t
CUBLAS_GEMM_DEFAULT = -1


def matmul_bf16(a: Any, b: Any, out: Any) -> None:
    """`out = a @ b` for arrays [..., m, k], [..., k, n], [..., m, n]; leading axes broadcast, one call a matrix."""
    import cupy

    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    batch = out.shape[:-2]
    lefts = cupy.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
    rights = cupy.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    results = out.reshape(-1, *out.shape[-2:])
    for k in range(results.shape[0]):
        _gemm(lefts[k], rights[k], results[k])


def _gemm(a: Any, b: Any, out: Any) -> None:
    """One row-major product: cuBLAS is column-major, so it is asked for out.T = b.T @ a.T."""
    import numpy as np
    from cupy.cuda import cublas, device

    (m, k), n = a.shape, b.shape[1]
    one, zero = np.array(1, np.float32), np.array(0, np.float32)
    cublas.gemmEx(
        device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k,
        one.ctypes.data, b.data.ptr, CUDA_R_16BF, n, a.data.ptr, CUDA_R_16BF, k,
        zero.ctypes.data, out.data.ptr, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip
