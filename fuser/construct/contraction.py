"""Products that contract axes: matmul and what reduces to it (dot, tensordot, einsum), inner and outer products.

In: nodes and NumPy's arguments. Out: opaque `matmul` nodes where both sides have a free axis, so that a library
does the work; multiply and sum where one side is a vector, so that it fuses with its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct import complexes, views
from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct.common import Value, canonical_shape, describe, fail, normal_axes, normal_axis, static_int
from fuser.dtypes import BOOL, DType, promote
from fuser.errors import ShapeError
from fuser.graph import Builder, Node, OpaqueAttrs
from fuser.hostexpr import Dim
from fuser.indexmap import axis as axis_var
from fuser.shapes import Shape, numel


def matmul(b: Builder, x: Node, y: Node) -> Node:
    """`x @ y` by NumPy's rules: matrices over broadcast batches; a 1-d operand is a row or a column.

    A matmul node takes x [*B, m, k] with y [*B, k, n] (the same B) or y [k, n]. Vectors become multiply and sum.
    """
    if x.rank == 0 or y.rank == 0:
        fail(b, ShapeError, "matmul takes no scalars", "matmul", "use `*`")
    dtype = promote([x.dtype, y.dtype])
    x, y = ew.cast(b, x, dtype), ew.cast(b, y, dtype)
    inner = y.shape[-2] if y.rank > 1 else y.shape[0]
    if not b.shapes.unify(x.shape[-1], inner, b.span):
        message = f"matmul: the last axis of {describe(b, x)} and the first matrix axis of {describe(b, y)} differ"
        fail(b, ShapeError, f"{message}: {x.shape[-1]} against {inner}", "matmul")
    if y.rank == 1:
        return _dot_along(b, x, y, -1)
    if x.rank == 1:
        return _contract(b, views.expand_dims(b, x, 1), y, -2, dtype)
    if dtype == BOOL:
        spread = views.expand_dims(b, x, -1)
        return _contract(b, spread, views.expand_dims(b, y, -3), -2, dtype)
    return matmul_node(b, x, y)


def matmul_node(b: Builder, x: Node, y: Node) -> Node:
    """The opaque node over matrices of one dtype, batches made equal by views; four of them for complex ones."""
    if x.dtype.is_complex:
        return complexes.product(b, x, y, matmul_node)
    if y.rank > 2 or x.rank < y.rank:
        batch = b.shapes.broadcast([x.shape[:-2], y.shape[:-2]], b.span)
        x = views.broadcast_to(b, x, (*batch, *x.shape[-2:]))
        y = views.broadcast_to(b, y, (*batch, *y.shape[-2:]))
    dtype, shape = matmul_result(b, (x, y))
    return b.make("matmul", (x, y), OpaqueAttrs(), dtype, shape)


def matmul_result(b: Builder, inputs: Sequence[Node]) -> tuple[DType, Shape]:
    """Dtype and shape of a matmul node."""
    x, y = inputs
    return x.dtype, canonical_shape(b, (*x.shape[:-1], y.shape[-1]))


def _contract(b: Builder, x: Node, y: Node, axis: int, dtype: DType) -> Node:
    """Multiply and sum over one axis, in the operands' own dtype."""
    if dtype == BOOL:
        return red.reduce(b, "any", ew.node(b, "logical_and", x, y), axis)
    return red.reduce(b, "sum", ew.node(b, "multiply", x, y), axis, dtype=dtype)


def vecdot(b: Builder, x: Node, y: Node, axis: object = -1) -> Node:
    """Sum of products along one axis of both, the first conjugated."""
    return _dot_along(b, complexes.conjugate(b, x), y, axis)


def _dot_along(b: Builder, x: Node, y: Node, axis: object) -> Node:
    """Sum of products along one axis of both."""
    product_dtype = promote([x.dtype, y.dtype])
    k = static_int(b, axis, "axis")
    x, y = ew.cast(b, x, product_dtype), ew.cast(b, y, product_dtype)
    return _contract(b, x, y, k, product_dtype)


def dot(b: Builder, x: Node, y: Node) -> Node:
    """`np.dot`: for more than two axes, the last axis of x against the last but one of y."""
    if x.rank == 0 or y.rank == 0:
        return ew.node(b, "multiply", x, y)
    if x.rank <= 2 and y.rank <= 2:
        return matmul(b, x, y)
    return tensordot(b, x, y, ((x.rank - 1,), (max(y.rank - 2, 0),)))


def inner(b: Builder, x: Node, y: Node) -> Node:
    """Contraction of the last axes."""
    if x.rank == 0 or y.rank == 0:
        return ew.node(b, "multiply", x, y)
    return tensordot(b, x, y, ((-1,), (-1,)))


def outer(b: Builder, x: Node, y: Node) -> Node:
    """All products of two flattened arrays."""
    left = views.expand_dims(b, views.ravel(b, x), 1)
    return ew.node(b, "multiply", left, views.expand_dims(b, views.ravel(b, y), 0))


def vdot(b: Builder, x: Node, y: Node) -> Node:
    """Sum of products of two flattened arrays, the first conjugated."""
    return vecdot(b, views.ravel(b, x), views.ravel(b, y))


def kron(b: Builder, x: Node, y: Node) -> Node:
    """Kronecker product."""
    rank = max(x.rank, y.rank)
    x = views.expand_dims(b, x, tuple(range(rank - x.rank))) if x.rank < rank else x
    y = views.expand_dims(b, y, tuple(range(rank - y.rank))) if y.rank < rank else y
    left = views.expand_dims(b, x, tuple(range(1, 2 * rank, 2)))
    right = views.expand_dims(b, y, tuple(range(0, 2 * rank, 2)))
    shape = tuple(numel(pair) for pair in zip(x.shape, y.shape, strict=True))
    return views.reshape(b, ew.node(b, "multiply", left, right), shape)


def tensordot(b: Builder, x: Node, y: Node, axes: Any = 2) -> Node:
    """Contraction over the given axes of each, or over the last/first `axes` of them."""
    if isinstance(axes, tuple | list):
        first, second = (normal_axes(b, a, n.rank) for a, n in zip(axes, (x, y), strict=True))
    else:
        count = static_int(b, axes, "axes")
        if count > min(x.rank, y.rank):
            fail(b, ShapeError, f"tensordot over {count} axes of {describe(b, x)} and {describe(b, y)}", "tensordot")
        first, second = tuple(range(x.rank - count, x.rank)), tuple(range(count))
    if len(first) != len(second):
        fail(b, ShapeError, "tensordot needs as many axes of one array as of the other", "tensordot")
    left = [f"x{k}" for k in range(x.rank)]
    right = [f"y{k}" for k in range(y.rank)]
    for p, q in zip(first, second, strict=True):
        right[q] = left[p]
    result = [n for n in left if n not in right] + [n for n in right if n not in left]
    return contract(b, [(x, left), (y, right)], result)


# -- labelled contraction: einsum's engine ---------------------------------------------------------
Labelled = tuple[Node, list[str]]


def contract(b: Builder, operands: Sequence[Labelled], result: Sequence[str]) -> Node:
    """Products of all operands with axes matched by label, summed over labels that `result` lacks, left to right."""
    dtype = promote([n.dtype for n, _ in operands])
    sizes: dict[str, Dim] = {}
    terms = [_prepared(b, (ew.cast(b, n, dtype), labels), sizes) for n, labels in operands]
    terms = [_without_ones(b, t, sizes) for t in terms]
    done = _summed(b, terms[0], _needed(terms[1:], result))
    for k in range(1, len(terms)):
        needed = _needed(terms[k + 1 :], result)
        other = _summed(b, terms[k], {*needed, *done[1]})
        done = _pair(b, done, other, needed, dtype)
    node, labels = _summed(b, done, set(result))
    missing = [n for n in result if n not in labels]
    node = views.expand_dims(b, node, tuple(range(node.rank, node.rank + len(missing)))) if missing else node
    order = [*labels, *missing]
    return views.transpose(b, node, tuple(order.index(n) for n in result))


def _needed(later: Sequence[Labelled], result: Sequence[str]) -> set[str]:
    return {*result, *(n for _, labels in later for n in labels)}


def _prepared(b: Builder, term: Labelled, sizes: dict[str, Dim]) -> Labelled:
    """Repeated labels of one operand become its diagonal; every label's length is unified."""
    node, labels = term
    unique = list(dict.fromkeys(labels))
    for name, d in zip(labels, node.shape, strict=True):
        known = sizes.setdefault(name, d)
        if b.shapes.canonical(known) == 1:
            sizes[name] = d
        elif b.shapes.canonical(d) != 1 and not b.shapes.unify(known, d, b.span):
            fail(b, ShapeError, f"label `{name}` is {known} in one operand but {d} in {describe(b, node)}", "einsum")
    if len(unique) == len(labels):
        return node, labels
    exprs = [axis_var(unique.index(n)) for n in labels]
    return views.view(b, node, exprs, tuple(node.shape[labels.index(n)] for n in unique)), unique


def _without_ones(b: Builder, term: Labelled, sizes: dict[str, Dim]) -> Labelled:
    """Axes of length 1 whose label is longer elsewhere are dropped: they broadcast."""
    node, labels = term
    gone = tuple(
        k for k, n in enumerate(labels) if b.shapes.canonical(node.shape[k]) == 1 and b.shapes.canonical(sizes[n]) != 1
    )
    return (views.squeeze(b, node, gone), [n for k, n in enumerate(labels) if k not in gone]) if gone else term


def _summed(b: Builder, term: Labelled, needed: set[str]) -> Labelled:
    """Labels that nothing needs any more, summed out in the operand's own dtype."""
    node, labels = term
    gone = tuple(k for k, n in enumerate(labels) if n not in needed)
    if not gone:
        return term
    name = "any" if node.dtype == BOOL else "sum"
    reduced = red.reduce(b, name, node, gone, dtype=None if node.dtype == BOOL else node.dtype)
    return reduced, [n for n in labels if n in needed]


def _pair(b: Builder, one: Labelled, two: Labelled, needed: set[str], dtype: DType) -> Labelled:
    """The product of two operands, shared labels that are no longer needed summed."""
    (x, left), (y, right) = one, two
    shared = [n for n in left if n in right]
    batch = [n for n in shared if n in needed]
    inner_ = [n for n in shared if n not in needed]
    rows, columns = [n for n in left if n not in shared], [n for n in right if n not in shared]
    if inner_ and rows and columns and dtype != BOOL:
        return _as_matmul(b, one, two, (batch, rows, inner_, columns))
    every = [*batch, *rows, *columns, *inner_]
    product = ew.node(
        b, "logical_and" if dtype == BOOL else "multiply", _spread(b, x, left, every), _spread(b, y, right, every)
    )
    return _summed(b, (product, every), needed)


def _spread(b: Builder, x: Node, labels: Sequence[str], every: Sequence[str]) -> Node:
    """Axes in the order of `every`, those that the operand lacks with length 1."""
    kept = [n for n in every if n in labels]
    ordered = views.transpose(b, x, tuple(labels.index(n) for n in kept))
    new = tuple(k for k, n in enumerate(every) if n not in labels)
    return views.expand_dims(b, ordered, new) if new else ordered


def _as_matmul(b: Builder, one: Labelled, two: Labelled, parts: tuple[list[str], ...]) -> Labelled:
    batch, rows, inner_, columns = parts
    x, m, k = _matrix(b, one, batch, rows, inner_)
    y, _, n = _matrix(b, two, batch, inner_, columns)
    product = matmul_node(b, x, y)
    head = product.shape[: len(batch)]
    assert len(k) == len(inner_)
    return views.reshape(b, product, (*head, *m, *n)), [*batch, *rows, *columns]


def _matrix(
    b: Builder, term: Labelled, batch: list[str], rows: list[str], columns: list[str]
) -> tuple[Node, Shape, Shape]:
    """The operand as [*batch, rows, columns], label groups merged; and the dims of the two groups."""
    node, labels = term
    ordered = views.transpose(b, node, tuple(labels.index(n) for n in (*batch, *rows, *columns)))
    split = len(batch) + len(rows)
    head, r, c = ordered.shape[: len(batch)], ordered.shape[len(batch) : split], ordered.shape[split:]
    return views.reshape(b, ordered, (*head, numel(r), numel(c))), r, c


def trace(b: Builder, x: Node, offset: object = 0, axis1: object = 0, axis2: object = 1, dtype: object = None) -> Node:
    """Sum along a diagonal."""
    return red.reduce(b, "sum", views.diagonal(b, x, offset, axis1, axis2), -1, dtype=dtype)


def cross(b: Builder, x: Node, y: Node, axis: object = -1) -> Node:
    """Cross product of 3-vectors along an axis."""
    from fuser.construct import indexing, joining

    x = views.moveaxis(b, x, normal_axis(b, axis, x.rank), -1)
    y = views.moveaxis(b, y, normal_axis(b, axis, y.rank), -1)
    for v in (x, y):
        if not b.shapes.unify(v.shape[-1], 3, b.span):
            fail(b, ShapeError, f"cross takes vectors of length 3: {describe(b, v)}", "cross")

    def component(v: Node, k: int) -> Node:
        return indexing.getitem(b, v, (Ellipsis, k))

    def minor(i: int, j: int) -> Value:
        left = ew.node(b, "multiply", component(x, i), component(y, j))
        return ew.node(b, "subtract", left, ew.node(b, "multiply", component(x, j), component(y, i)))

    made = joining.stack(b, [minor(1, 2), minor(2, 0), minor(0, 1)], -1)
    return views.moveaxis(b, made, -1, normal_axis(b, axis, made.rank))
