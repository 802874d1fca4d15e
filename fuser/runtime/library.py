"""Library calls: the opaque operators of the table on each place.

In: an opaque node with its operands' arrays. Out: the result written into a given array. The vendor
library's own fast path is used as it is; bf16 products, which CuPy does not know, go to cuBLAS GemmEx.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.dtypes import BF16, F16, DType
from fuser.errors import UnsupportedError
from fuser.graph import Node
from fuser.runtime.arrays import Place


def call(node: Node, operands: list[Any], result: Any, place: Place) -> None:
    """Run an opaque node; every operand and the result have their node's dtype and shape."""
    run = _CALLS.get((node.op, place.kind))
    if run is None:
        raise UnsupportedError(f"no library runs `{node.op}` on {place}", "no-library")
    run(operands, result, node.storage)


def _matmul_cpu(operands: list[Any], result: Any, dtype: DType) -> None:
    a, b = operands
    if dtype in (BF16, F16):  # accumulated in f32, rounded once, as on the GPU
        result[...] = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(result.dtype)
    else:
        np.matmul(a, b, out=result)


def _matmul_cuda(operands: list[Any], result: Any, dtype: DType) -> None:
    import cupy

    a, b = operands
    if dtype == BF16:
        from fuser.runtime.cublas import matmul_bf16

        matmul_bf16(a, b, result)
    else:
        cupy.matmul(a, b, out=result)


_CALLS = {("matmul", "cpu"): _matmul_cpu, ("matmul", "cuda"): _matmul_cuda}
