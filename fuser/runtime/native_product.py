"""Matrix products by cuBLAS, natively: the calls of `cublas.products`, with addresses from a call's table.

In: a function under construction of `native_launch`. Out: its code for the handle, for stream and workspace, for one
product. The handle is that of CuPy for the calling thread, so that no two threads use one; CuPy gives it a stream
before every call of its own, and it is left as CuPy would leave it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.runtime import cublas
from fuser.runtime.native_words import I32, I64, VOID, P, Writer, c

# Words about cuBLAS: addresses of functions, table place and bytes of the workspace.
B_HANDLE, B_STREAM, B_WORKSPACE, B_GEMM, B_BATCHED, B_PLACE, B_BYTES, BLAS_WORDS = range(8)
# Words of a product in cuBLAS's order (it is column-major: `second @ first`); of a side: table place, offset, elements
# from line to line, from matrix to matrix.
(
    Q_SECOND_FLAG, Q_FIRST_FLAG, Q_N, Q_M, Q_K, Q_KIND, Q_COMPUTE, Q_ONE, Q_ZERO, Q_COUNT, Q_ALGORITHM, Q_SECOND,
) = range(12)  # fmt: skip
SIDE_WORDS = 4
Q_FIRST, Q_OUT, PRODUCT_WORDS = Q_SECOND + SIDE_WORDS, Q_SECOND + 2 * SIDE_WORDS, Q_SECOND + 3 * SIDE_WORDS
NO_HANDLE = 1  # CUBLAS_STATUS_NOT_INITIALIZED

HANDLE = ir.FunctionType(I64, [I32]).as_pointer()
SET_STREAM = ir.FunctionType(I32, [P, P]).as_pointer()  # cublasSetStream_v2
SET_WORKSPACE = ir.FunctionType(I32, [P, P, I64]).as_pointer()  # cublasSetWorkspace_v2
GEMM = ir.FunctionType(I32, [P, *[I32] * 5, P, P, I32, I32, P, I32, I32, P, P, *[I32] * 4]).as_pointer()  # cublasGemmEx
BATCHED = ir.FunctionType(  # cublasGemmStridedBatchedEx
    I32, [P, *[I32] * 5, P, P, I32, I32, I64, P, I32, I32, I64, P, P, I32, I32, I64, *[I32] * 3]
).as_pointer()

Library = tuple[Any, Any]  # the words about cuBLAS, null for a plan without products; the handle


def handle(w: Writer, blas: Any, code: Any) -> Any:
    """The thread's handle; where it has none, `code` says so. Needs the interpreter's lock."""
    b = w.b
    found = w.variable(I64, c(0))
    with b.if_then(b.not_(w.is_zero(blas))):
        b.store(b.call(b.inttoptr(w.word(blas, B_HANDLE), HANDLE), [ir.Constant(I32, 0)]), found)
        with b.if_then(w.is_zero(b.load(found, typ=I64))):
            w.api("PyErr_Clear", VOID)
            b.store(ir.Constant(I32, cublas.ERROR + NO_HANDLE), code)
    return b.inttoptr(b.load(found, typ=I64), P)


def prepare(w: Writer, library: Library, table: Any, stream: Any, code: Any) -> None:
    """Products of this call go to `stream`, and have the call's own workspace: what cuBLAS chooses is then the same on
    every stream."""
    b, (blas, found) = w.b, library
    with b.if_then(b.not_(w.is_zero(blas))):
        _check(w, b.call(b.inttoptr(w.word(blas, B_STREAM), SET_STREAM), [found, stream]), code)
        room = b.inttoptr(w.word(table, w.word(blas, B_PLACE)), P)
        function = b.inttoptr(w.word(blas, B_WORKSPACE), SET_WORKSPACE)
        _check(w, b.call(function, [found, room, w.word(blas, B_BYTES)]), code)


def leave(w: Writer, library: Library) -> None:
    """Setting a stream takes the workspace away, which is another call's from now on."""
    b, (blas, found) = w.b, library
    with b.if_then(b.not_(w.is_zero(blas))):
        b.call(b.inttoptr(w.word(blas, B_STREAM), SET_STREAM), [found, ir.Constant(P, None)])


def call(w: Writer, library: Library, product: Any, table: Any, code: Any) -> None:
    """One product, or several of one shape."""
    b, (blas, found) = w.b, library

    def number(k: int) -> Any:
        return b.trunc(w.word(product, k), I32)

    def side(first: int) -> tuple[Any, Any, Any]:
        address = b.add(w.word(table, w.word(product, first)), w.word(product, first + 1))
        return b.inttoptr(address, P), number(first + 2), w.word(product, first + 3)

    second, first, out = (side(k) for k in (Q_SECOND, Q_FIRST, Q_OUT))
    shape = [number(k) for k in (Q_SECOND_FLAG, Q_FIRST_FLAG, Q_N, Q_M, Q_K)]
    kind, one, zero = number(Q_KIND), w.word(product, Q_ONE, P), w.word(product, Q_ZERO, P)
    last = [number(Q_COMPUTE), number(Q_ALGORITHM)]
    count = number(Q_COUNT)
    with b.if_else(b.icmp_signed("==", count, ir.Constant(I32, 1))) as (single, many):
        with single:
            given = [found, *shape, one, second[0], kind, second[1], first[0], kind, first[1], zero, out[0], kind]
            _check(w, b.call(b.inttoptr(w.word(blas, B_GEMM), GEMM), [*given, out[1], *last]), code)
        with many:
            sides = [second[0], kind, *second[1:], first[0], kind, *first[1:], zero, out[0], kind, *out[1:]]
            function = b.inttoptr(w.word(blas, B_BATCHED), BATCHED)
            _check(w, b.call(function, [found, *shape, one, *sides, count, *last]), code)


def _check(w: Writer, status: Any, code: Any) -> None:
    b = w.b
    with b.if_then(b.not_(w.is_zero(status))):
        b.store(b.add(status, ir.Constant(I32, cublas.ERROR)), code)
