"""Products of float matrices through cuBLAS: flags and strides instead of copies, bf16 included.

In: CuPy arrays (bf16 as its bits), which may be views. Out: the product in place. Halves are multiplied exactly and
added in f32, rounded once; f32 is added in f32, f64 in f64: never in TF32. `products` says which calls these are and
touches no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.dtypes import BF16, F16, F32, F64, DType
from fuser.record import dataclass
from fuser.runtime.library import layout

# cudaDataType_t, cublasComputeType_t (cublas_api.h) and the dtype of alpha and beta, by the matrices' dtype.
KINDS: dict[DType, tuple[int, int, Any]] = {
    BF16: (14, 68, np.float32),
    F16: (2, 68, np.float32),
    F32: (0, 68, np.float32),
    F64: (1, 70, np.float64),
}
CUBLAS_GEMM_DEFAULT = -1


@dataclass(frozen=True)
class Memory:
    """An array as an address: strides in bytes."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def spread(self, batch: tuple[int, ...]) -> Memory:
        """The same with these leading axes."""
        missing = len(batch) + 2 - len(self.shape)
        shape, strides = (*[1] * missing, *self.shape), (*[0] * missing, *self.strides)
        held = tuple(0 if d == 1 else s for d, s in zip(shape[:-2], strides[:-2], strict=True))
        return Memory(self.pointer, (*batch, *shape[-2:]), (*held, *strides[-2:]), self.itemsize)

    def at(self, index: tuple[int, ...]) -> int:
        """The address of the matrices at an index of the first leading axes."""
        return self.pointer + sum(i * s for i, s in zip(index, self.strides, strict=False))


@dataclass(frozen=True)
class Factor:
    """One side of a call: first address, whether it lies transposed (row-major: cuBLAS sees it the other way), elements
    from line to line and from matrix to matrix."""

    pointer: int
    transposed: bool
    line: int
    step: int


@dataclass(frozen=True)
class Product:
    """`count` products, [m, k] by [k, n], row-major, into C order at `out`."""

    m: int
    n: int
    k: int
    count: int
    a: Factor
    b: Factor
    out: int


def products(a: Memory, b: Memory, out: Memory) -> Iterator[Product]:
    """The calls for `out = a @ b`, arrays [..., m, k], [..., k, n], [..., m, n] with leading axes that broadcast."""
    batch, (m, n), k = out.shape[:-2], out.shape[-2:], a.shape[-1]
    a, b = a.spread(batch), b.spread(batch)
    count, outer = _together(batch, (a, b))
    for number, index in enumerate(np.ndindex(*outer)):
        sides = [_factor(x, index, len(outer)) for x in (a, b)]
        yield Product(m, n, k, count, sides[0], sides[1], out.pointer + number * count * m * n * out.itemsize)


def _together(batch: tuple[int, ...], operands: tuple[Memory, ...]) -> tuple[int, tuple[int, ...]]:
    """(matrices of one call, leading axes left over): the last batch axes that are one line in every operand."""
    count, used = 1, len(batch)
    while used and all(used == len(batch) or x.strides[used - 1] == x.strides[used] * batch[used] for x in operands):
        used -= 1
        count *= batch[used]
    return count, batch[:used]


def _factor(x: Memory, index: tuple[int, ...], outer: int) -> Factor:
    found = layout(x.shape, x.strides, x.itemsize)
    assert found is not None, x
    together = x.strides[outer:-2]
    return Factor(x.at(index), *found, together[-1] // x.itemsize if together else 0)


def matmul(a: Any, b: Any, out: Any, dtype: DType) -> None:
    """`out = a @ b`; `out` is in C order."""
    import cupy

    if 0 in out.shape:
        return
    if a.shape[-1] == 0:
        out[...] = 0
        return
    a, b = (x if layout(x.shape, x.strides, x.itemsize) is not None else cupy.ascontiguousarray(x) for x in (a, b))
    for product in products(*(Memory(x.data.ptr, x.shape, x.strides, x.itemsize) for x in (a, b, out))):
        _call(product, dtype)


def _call(p: Product, dtype: DType) -> None:
    """cuBLAS is column-major, so it is asked for out.T = b.T @ a.T."""
    from cupy.cuda import cublas, device

    kind, compute, scalar = KINDS[dtype]
    one, zero = np.array(1, scalar), np.array(0, scalar)
    flags = [cublas.CUBLAS_OP_T if x.transposed else cublas.CUBLAS_OP_N for x in (p.b, p.a)]
    if p.count == 1:
        cublas.gemmEx(
            device.get_cublas_handle(), *flags, p.n, p.m, p.k,
            one.ctypes.data, p.b.pointer, kind, p.b.line, p.a.pointer, kind, p.a.line,
            zero.ctypes.data, p.out, kind, p.n, compute, CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip
        return
    cublas.gemmStridedBatchedEx(
        device.get_cublas_handle(), *flags, p.n, p.m, p.k,
        one.ctypes.data, p.b.pointer, kind, p.b.line, p.b.step, p.a.pointer, kind, p.a.line, p.a.step,
        zero.ctypes.data, p.out, kind, p.n, p.m * p.n, p.count, compute, CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip
