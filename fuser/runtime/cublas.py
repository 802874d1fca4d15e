"""Products of float matrices through cuBLAS: flags and strides instead of copies, bf16 included.

In: CuPy arrays (bf16 as its bits), which may be views. Out: the product in place. Halves are multiplied exactly and
added in f32, rounded once; f32 is added in f32, f64 in f64: never in TF32. `products` says which calls these are and
touches no GPU; `planned` says so of a bound program's step, with addresses left open, for native code to call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.dtypes import BF16, F16, F32, F64, DType
from fuser.record import dataclass
from fuser.runtime.library import View, layout

if TYPE_CHECKING:
    from fuser.graph import Node
    from fuser.runtime.bound import Library

# cudaDataType_t, cublasComputeType_t (cublas_api.h) and the dtype of alpha and beta, by the matrices' dtype.
KINDS: dict[DType, tuple[int, int, Any]] = {
    BF16: (14, 68, np.float32),
    F16: (2, 68, np.float32),
    F32: (0, 68, np.float32),
    F64: (1, 70, np.float64),
}
OP_N, OP_T = 0, 1  # cublasOperation_t
CUBLAS_GEMM_DEFAULT = -1
ERROR = 100_000  # added to a status of cuBLAS where codes of CUDA are given
FUNCTIONS = {
    "stream": "cublasSetStream_v2", "workspace": "cublasSetWorkspace_v2", "gemm": "cublasGemmEx",
    "batched": "cublasGemmStridedBatchedEx",
}  # fmt: skip


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

    def through(self, view: View | None) -> Memory | None:
        """What a view shows of it (see `library.seen`); None where that asks for a copy."""
        if view is None:
            return self
        if 0 in view.shape:
            return Memory(self.pointer, view.shape, (0,) * len(view.shape), self.itemsize)
        if view.axes is not None:
            pairs = list(zip(view.axes, self.strides, strict=True))
            start = sum(first * s for (first, _), s in pairs)
            strides = tuple(sum(by[k] * s for (_, by), s in pairs) for k in range(len(view.shape)))
            return Memory(self.pointer + start, view.shape, strides, self.itemsize)
        if self.strides != in_c_order(self.shape, self.itemsize):
            return None
        first, steps = view.flat
        moved = tuple(s * self.itemsize for s in steps)
        return Memory(self.pointer + first * self.itemsize, view.shape, moved, self.itemsize)


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


def in_c_order(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes."""
    strides, step = [], itemsize
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def planned(step: Library, at: Callable[[Node, int], Memory]) -> list[Product] | None:
    """The calls of a product step, addresses counted from where each array starts; `at` describes a node's array at a
    table place, at address 0. None where cuBLAS does not do the whole of it: other dtypes, operands to be copied, sums
    of nothing."""
    if step.node.op != "matmul" or step.node.storage not in KINDS or step.workspace is None:
        return None
    sides = [at(o.node, o.place).through(o.view) for o in step.operands]
    out = at(step.node, step.result)
    if 0 in out.shape:
        return []
    if out.strides != in_c_order(out.shape, out.itemsize):
        return None
    if any(x is None or layout(x.shape, x.strides, x.itemsize) is None for x in sides):
        return None
    a, b = (x for x in sides if x is not None)
    return list(products(a, b, out)) if a.shape[-1] else None


def matmul(a: Any, b: Any, out: Any, dtype: DType, workspace: tuple[int, int] | None) -> None:
    """`out = a @ b`; `out` is in C order. workspace: address and bytes; None where cuBLAS is called through CuPy."""
    import cupy
    from cupy.cuda import device

    if 0 in out.shape:
        return
    if a.shape[-1] == 0:
        out[...] = 0
        return
    a, b = (x if layout(x.shape, x.strides, x.itemsize) is not None else cupy.ascontiguousarray(x) for x in (a, b))
    calls = products(*(Memory(x.data.ptr, x.shape, x.strides, x.itemsize) for x in (a, b, out)))
    if workspace is None:
        for product in calls:
            _call(product, dtype)
        return
    known = direct()
    assert known is not None, "a workspace is only asked for where there is"
    known.run(device.get_cublas_handle(), cupy.cuda.get_current_stream().ptr, workspace, calls, dtype)


def scale(dtype: DType) -> tuple[Any, Any]:
    """Alpha and beta: one and zero."""
    kind = KINDS[dtype][2]
    return np.array(1, kind), np.array(0, kind)


class Direct:
    """cuBLAS's own functions, by the names of `FUNCTIONS`: those that CuPy calls, with a workspace that is the call's.

    The default workspace is shared by all streams of a handle; with one of its own a call chooses, and rounds, alike
    whatever else runs, and can be captured into a graph.
    """

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, symbol) for name, symbol in FUNCTIONS.items()}

    def address(self, name: str) -> int:
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0

    def run(
        self,
        handle: int,
        stream: int,
        workspace: tuple[int, int],
        calls: Iterator[Product] | list[Product],
        dtype: DType,
    ) -> None:
        """Enqueue products on a stream; the handle is left without the workspace."""
        address, nbytes = workspace
        self._check("stream", _P(handle), _P(stream))
        self._check("workspace", _P(handle), _P(address), ctypes.c_size_t(nbytes))
        try:
            for product in calls:
                self._product(handle, product, dtype)
        finally:
            self._check("stream", _P(handle), _P(0))

    def _product(self, handle: int, p: Product, dtype: DType) -> None:
        """cuBLAS is column-major, so it is asked for out.T = b.T @ a.T."""
        kind, compute, _ = KINDS[dtype]
        one, zero = scale(dtype)
        shape = [_P(handle), *(_I(OP_T if x.transposed else OP_N) for x in (p.b, p.a)), _I(p.n), _I(p.m), _I(p.k)]
        sides = [[_P(x.pointer), _I(kind), _I(x.line), _L(x.step)] for x in (p.b, p.a)]
        out = [_P(p.out), _I(kind), _I(p.n), _L(p.m * p.n)]
        last = [_I(compute), _I(CUBLAS_GEMM_DEFAULT)]
        scales = _P(one.ctypes.data), _P(zero.ctypes.data)
        if p.count == 1:
            self._check("gemm", *shape, scales[0], *sides[0][:3], *sides[1][:3], scales[1], *out[:3], *last)
        else:
            self._check("batched", *shape, scales[0], *sides[0], *sides[1], scales[1], *out, _I(p.count), *last)

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._functions[name](*arguments)
        if status:
            raise refused(status)


_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong


def refused(status: int) -> Exception:
    """The error of a call that cuBLAS refused."""
    from fuser.errors import InternalError

    return InternalError(f"cuBLAS refused a matrix product with status {status}", "library-refused")


@cache
def direct() -> Direct | None:
    """cuBLAS as CuPy has loaded it; None where its functions are not found there."""
    try:
        from cupy_backends.cuda.libs import cublas

        return Direct(ctypes.CDLL(cublas.__file__))  # searches what the file was linked with
    except (ImportError, OSError, AttributeError):
        return None


def handle_function() -> int:
    """The address of CuPy's function for the calling thread's handle on the current device."""
    from cupy.cuda import device

    from fuser.runtime.native_cupy import exported

    return exported(device, "get_cublas_handle", "intptr_t (int __pyx_skip_dispatch)")


def _call(p: Product, dtype: DType) -> None:
    """One product through CuPy's binding."""
    from cupy.cuda import cublas, device

    kind, compute, _ = KINDS[dtype]
    one, zero = scale(dtype)
    flags = [OP_T if x.transposed else OP_N for x in (p.b, p.a)]
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
