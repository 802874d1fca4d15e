"""Contractions: the opaque `matmul` and the functions that lead to it.

In: nothing. Out: the `matmul` row (a library call) and `Function` rows over `fuser.construct.contraction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.construct import complexes, contraction, einsum
from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct.common import fail, normal_axes, static_int
from fuser.dtypes import DType
from fuser.errors import ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostexpr import Dim
from fuser.optable.adapt import arrays, as_float, function, listed, named
from fuser.optable.base import OpaqueOp, Table
from fuser.shapes import Shape, numel


def _infer(b: Builder, inputs: Sequence[Node], params: dict[str, Any]) -> tuple[DType, Shape]:
    return contraction.matmul_result(b, inputs)


def _flops(shapes: Sequence[Shape], dtype: DType) -> Dim:
    """Two a multiply-add."""
    x, y = shapes
    return numel([2, *x, y[-1]])


def _matmul_array(x: Any, y: Any) -> Any:
    """NumPy's product; halves are multiplied and added in f32, as the libraries do, and rounded once."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    return np.matmul(x, y)


MATMUL = OpaqueOp(
    name="matmul", infer=_infer, reference=_matmul_array, flops=_flops, build=arrays(2, contraction.matmul),
    names=named(numpy="matmul linalg.matmul", torch="matmul mm bmm", methods="matmul"),
    notes="x [*B, m, k] with y [*B, k, n] or [k, n]; vectors become multiply and sum, which fuse",
)  # fmt: skip


# -- norms of vectors and matrices -----------------------------------------------------------------
def norm(b: Builder, x: Node, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Node:
    """`np.linalg.norm`: vector norms of any order; Frobenius, 1 and inf norms of matrices."""
    x = as_float(b, x)
    if axis is None and ord is None:
        return _vector_norm(b, x, 2, tuple(range(x.rank)), keepdims)
    axes = normal_axes(b, axis, x.rank)
    if len(axes) == 1:
        return _vector_norm(b, x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        fail(b, ShapeError, "norm takes one axis (vectors) or two (matrices)", "norm")
    if ord in (None, "fro"):
        return _vector_norm(b, x, 2, axes, keepdims)
    if ord not in (1, -1, float("inf"), float("-inf")):
        fail(
            b,
            UnsupportedError,
            f"matrix norm of order {ord!r} needs singular values",
            "norm",
            "orders: 'fro', 1, -1, inf, -inf",
        )
    rows, columns = axes
    summed, across = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = red.reduce(b, "sum", ew.node(b, "absolute", x), summed, keepdims=True)
    result = red.reduce(b, "max" if ord > 0 else "min", sums, across, keepdims=True)
    from fuser.construct import views

    return result if keepdims else views.squeeze(b, result, axes)


def _vector_norm(b: Builder, x: Node, order: Any, axes: tuple[int, ...], keepdims: bool) -> Node:
    if order == 2:
        return ew.node(b, "sqrt", red.reduce(b, "sum", complexes.squared_modulus(b, x), axes, keepdims))
    if order == 0:
        return ew.cast(b, red.count_nonzero(b, x, axes, keepdims), x.dtype.component)
    size = ew.node(b, "absolute", x)
    if order in (float("inf"), float("-inf")):
        return red.reduce(b, "max" if order > 0 else "min", size, axes, keepdims)
    if order == 1:
        return red.reduce(b, "sum", size, axes, keepdims)
    if isinstance(order, str):
        fail(b, UnsupportedError, f"a vector has no norm {order!r}", "norm")
    total = red.reduce(b, "sum", ew.node(b, "power", size, order), axes, keepdims)
    return ew.node(b, "power", total, ew.apply(b, "divide", 1.0, order))


def _vector_norm_function(b: Builder, x: Node, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Node:
    return _vector_norm(b, as_float(b, x), ord, tuple(sorted(normal_axes(b, axis, x.rank))), keepdims)


def _matrix_norm(b: Builder, x: Node, ord: Any = "fro", keepdims: bool = False) -> Node:
    return norm(b, x, ord, (-2, -1), keepdims)


def _addmm(b: Builder, bias: Node, x: Node, y: Node, beta: Any = 1, alpha: Any = 1) -> Node:
    product = contraction.matmul(b, x, y)
    scaled = product if alpha == 1 else ew.node(b, "multiply", product, alpha)
    return ew.node(b, "add", scaled, bias if beta == 1 else ew.node(b, "multiply", bias, beta))


def _linear(b: Builder, x: Node, weight: Node, bias: Node | None = None) -> Node:
    from fuser.construct import views

    product = contraction.matmul(b, x, views.transpose(b, weight))
    return product if bias is None else ew.node(b, "add", product, bias)


def _multi_dot(b: Builder, items: Any) -> Node:
    """Matrices multiplied from the left (NumPy chooses an order by cost; sizes here may be symbols)."""
    result, *rest = items
    for x in rest:
        result = contraction.dot(b, result, x)
    return result  # type: ignore[no-any-return]


def _matrix_power(b: Builder, x: Node, n: Any) -> Node:
    """x multiplied with itself n times, n > 0."""
    count = static_int(b, n, "the power of a matrix")
    if count < 1:
        fail(
            b, UnsupportedError, f"matrix_power with n={count}", "matrix-power", "n must be positive: no inverses here"
        )
    result, square = None, x
    while count:
        if count & 1:
            result = square if result is None else contraction.matmul(b, result, square)
        count >>= 1
        square = contraction.matmul(b, square, square) if count else square
    assert result is not None
    return result


ROWS = (
    MATMUL,
    function("multi_dot", listed(_multi_dot), numpy="linalg.multi_dot", torch="linalg.multi_dot chain_matmul"),
    function("matrix_power", arrays(1, _matrix_power), numpy="linalg.matrix_power", torch="linalg.matrix_power"),
    function("dot", arrays(2, contraction.dot), numpy="dot", torch="dot mv", methods="dot"),
    function("vdot", arrays(2, contraction.vdot), numpy="vdot", torch="vdot"),
    function("vecdot", arrays(2, contraction.vecdot), numpy="vecdot linalg.vecdot", torch="linalg.vecdot"),
    function("matvec", arrays(2, lambda b, x, y: einsum.einsum(b, "...ij,...j->...i", x, y)), numpy="matvec"),
    function("vecmat", arrays(2, lambda b, x, y: einsum.einsum(b, "...i,...ij->...j", x, y)), numpy="vecmat"),
    function("inner", arrays(2, contraction.inner), numpy="inner", torch="inner"),
    function("outer", arrays(2, contraction.outer), numpy="outer linalg.outer", torch="outer"),
    function("kron", arrays(2, contraction.kron), numpy="kron", torch="kron"),
    function("tensordot", arrays(2, contraction.tensordot), numpy="tensordot linalg.tensordot", torch="tensordot"),
    function("einsum", einsum.einsum, numpy="einsum", torch="einsum"),
    function("trace", arrays(1, contraction.trace), numpy="trace linalg.trace", torch="trace", methods="trace"),
    function("cross", arrays(2, contraction.cross), numpy="cross linalg.cross", torch="cross"),
    function("norm", arrays(1, norm), numpy="linalg.norm", torch="linalg.norm"),
    function("vector_norm", arrays(1, _vector_norm_function), numpy="linalg.vector_norm", torch="linalg.vector_norm"),
    function("matrix_norm", arrays(1, _matrix_norm), numpy="linalg.matrix_norm", torch="linalg.matrix_norm"),
    function("addmm", arrays(3, _addmm), torch="addmm baddbmm"),
    function("linear", arrays(3, _linear), torch="linear nn.functional.linear"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
