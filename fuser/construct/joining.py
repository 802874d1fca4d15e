"""Piecewise arrays: concat, stack, pad, and the views that repeat (repeat, tile) or part (split) an axis.

In: nodes and NumPy's arguments. Out: `piecewise` nodes, guarded selects over domains of the index. No copy is
made: a reader evaluates the piece that its index falls in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fuser.construct import elementwise as ew
from fuser.construct import indexing, views
from fuser.construct.common import (
    Value,
    canonical_shape,
    describe,
    dim_of,
    fail,
    has,
    normal_axis,
    operand_of,
    static_int,
)
from fuser.dtypes import promote
from fuser.errors import ArgumentError, ShapeError, UnsupportedError
from fuser.graph import Builder, Node, PieceAttrs
from fuser.hostexpr import Dim, HostExpr, as_dim, call, lit, wrap
from fuser.indexmap import IndexMap, Piece, axes
from fuser.indexmap import axis as axis_var
from fuser.shapes import Shape, numel


def piecewise(b: Builder, parts: Sequence[tuple[Sequence[HostExpr], Sequence[HostExpr], Node]], shape: Shape) -> Node:
    """The first part (domain, map, node) whose domain holds; the last has none. All nodes share a dtype."""
    pieces = tuple(Piece(tuple(domain), IndexMap(tuple(exprs))) for domain, exprs, _ in parts)
    if not pieces[0].domain:
        return views.view(b, parts[0][2], parts[0][1], shape)
    return b.make("piecewise", [n for _, _, n in parts], PieceAttrs(pieces), parts[0][2].dtype, shape)


def _common(b: Builder, arrays: Sequence[Value], what: str, dtype: object = None) -> list[Node]:
    if not arrays:
        fail(b, ArgumentError, f"need at least one array to {what}", what)
    target = dtype if dtype is not None else promote([operand_of(b, a) for a in arrays])
    return [ew.cast(b, a, target) for a in arrays]


def concat(b: Builder, arrays: Sequence[Value], axis: object = 0, dtype: object = None) -> Node:
    """Arrays joined along an existing axis; dtypes promote. axis=None joins the flattened arrays."""
    nodes = _common(b, arrays, "concatenate", dtype)
    if axis is None:
        nodes, axis = [views.ravel(b, n) for n in nodes], 0
    if nodes[0].rank == 0:
        fail(b, ShapeError, "zero-dimensional arrays cannot be concatenated", "concatenate")
    along = normal_axis(b, axis, nodes[0].rank)
    shape = _concat_shape(b, nodes, along)
    parts: list[tuple[list[HostExpr], list[HostExpr], Node]] = []
    end = lit(0)
    for node in nodes:
        if b.shapes.canonical(node.shape[along]) == 0:
            continue
        exprs = [*axes(len(shape))]
        exprs[along] = exprs[along] - end
        end = end + b.shapes.canonical(node.shape[along])
        parts.append(([end - 1 - axis_var(along)], exprs, node))
    if not parts:
        return nodes[0] if len(nodes) == 1 else ew.as_node(b, nodes[0])
    parts[-1] = ([], *parts[-1][1:])
    return piecewise(b, parts, (*shape[:along], as_dim(end), *shape[along + 1 :]))


def _concat_shape(b: Builder, nodes: Sequence[Node], along: int) -> Shape:
    first = nodes[0]
    for other in nodes[1:]:
        if other.rank != first.rank:
            fail(b, ShapeError, f"{describe(b, first)} and {describe(b, other)} differ in rank", "concatenate")
        for k in range(first.rank):
            if k != along and not b.shapes.unify(first.shape[k], other.shape[k], b.span):
                message = (
                    f"{describe(b, first)} and {describe(b, other)} differ on axis {k}, and are joined on axis {along}"
                )
                fail(b, ShapeError, message, "concatenate")
    return canonical_shape(b, first.shape)


def stack(b: Builder, arrays: Sequence[Value], axis: object = 0, dtype: object = None) -> Node:
    """Arrays of one shape joined along a new axis."""
    nodes = _common(b, arrays, "stack", dtype)
    first = nodes[0]
    for other in nodes[1:]:
        if other.rank != first.rank or not all(
            b.shapes.unify(p, q, b.span) for p, q in zip(first.shape, other.shape, strict=True)
        ):
            fail(
                b,
                ShapeError,
                f"all stacked arrays must have one shape: {describe(b, first)}, {describe(b, other)}",
                "stack",
            )
    along = normal_axis(b, axis, first.rank + 1)
    shape = list(canonical_shape(b, first.shape))
    shape.insert(along, len(nodes))
    kept = [axis_var(k) for k in range(first.rank + 1) if k != along]
    parts = [([k - axis_var(along)] if k < len(nodes) - 1 else [], kept, n) for k, n in enumerate(nodes)]
    return piecewise(b, parts, tuple(shape))


def column_stack(b: Builder, arrays: Sequence[Node]) -> Node:
    """1-d arrays as columns, 2-d arrays side by side."""
    return concat(b, [views.expand_dims(b, a, 1) if a.rank == 1 else a for a in arrays], 1)


def hstack(b: Builder, arrays: Sequence[Node], dtype: object = None) -> Node:
    """Joined along the second axis (the first for 1-d arrays)."""
    lifted = [views.atleast(b, ew.as_node(b, a), 1) for a in arrays]
    return concat(b, lifted, 0 if lifted and lifted[0].rank == 1 else 1, dtype)


def vstack(b: Builder, arrays: Sequence[Node], dtype: object = None) -> Node:
    """Joined along the first axis, 1-d arrays as rows."""
    return concat(b, [views.atleast(b, ew.as_node(b, a), 2) for a in arrays], 0, dtype)


def dstack(b: Builder, arrays: Sequence[Node]) -> Node:
    """Joined along the third axis."""
    return concat(b, [views.atleast(b, ew.as_node(b, a), 3) for a in arrays], 2)


def append(b: Builder, x: Node, values: Value, axis: object = None) -> Node:
    """`np.append`."""
    return concat(b, [x, ew.as_node(b, values)], axis)


# -- split -----------------------------------------------------------------------------------------
def split(b: Builder, x: Node, sections: Any, axis: object = 0, even: bool = True) -> tuple[Node, ...]:
    """Parts along an axis: a number of equal ones, or cut at the given positions. even=False: np.array_split."""
    along = normal_axis(b, axis, x.rank)
    n = b.shapes.canonical(x.shape[along])
    if isinstance(sections, list | tuple):
        cuts: list[Any] = [0, *sections, None]
    else:
        count = static_int(b, sections, "the number of sections")
        if count <= 0:
            fail(b, ArgumentError, "the number of sections must be larger than 0", "split")
        cuts = _even_cuts(b, x, n, count, even)
    before = (slice(None),) * along
    return tuple(indexing.getitem(b, x, (*before, slice(lo, hi))) for lo, hi in pairwise(cuts))


def _even_cuts(b: Builder, x: Node, n: Dim, count: int, even: bool) -> list[Any]:
    if not even:
        length = static_int(b, n, "the length of a split axis")
        size, extra = divmod(length, count)
        return [k * size + min(k, extra) for k in range(count + 1)]
    size_ = as_dim(call("//", n, count))
    whole = as_dim(wrap(size_) * count)
    if n != whole and not b.shapes.unify(n, whole, b.span):
        fail(b, ShapeError, f"{describe(b, x)} does not split into {count} equal parts", "split")
    return [wrap(size_) * k for k in range(count)] + [n]


# -- repetition ------------------------------------------------------------------------------------
def repeat(b: Builder, x: Node, repeats: Any, axis: object = None) -> Node:
    """Each element `repeats` times in a row along an axis (the flat array without one)."""
    if axis is None or (x.rank == 0 and axis in (0, -1)):  # NumPy repeats a 0-d array as if it had one axis
        x, axis = views.ravel(b, x), 0
    along = normal_axis(b, axis, x.rank)
    if isinstance(repeats, list | tuple) and len(repeats) == 1:
        repeats = repeats[0]
    if isinstance(repeats, list | tuple | Node):
        message = "repeat with a count for each element: the result's shape depends on data"
        fail(b, UnsupportedError, message, "data-dependent-shape", "use one count, or np.concatenate of slices")
    times = dim_of(b, repeats, "repeats")
    exprs = [*axes(x.rank)]
    exprs[along] = call("//", exprs[along], times) if times != 0 else lit(0)
    shape = list(x.shape)
    shape[along] = numel([b.shapes.canonical(shape[along]), times])
    return views.view(b, x, exprs, tuple(shape))


def tile(b: Builder, x: Node, reps: Any) -> Node:
    """The whole array repeated along its axes."""
    counts: list[Dim] = [dim_of(b, r, "reps") for r in (reps if isinstance(reps, list | tuple) else (reps,))]
    rank = max(len(counts), x.rank)
    x = views.expand_dims(b, x, tuple(range(rank - x.rank))) if x.rank < rank else x
    counts = [*[1] * (rank - len(counts)), *counts]
    exprs, shape = [], []
    for k, (n, r) in enumerate(zip(canonical_shape(b, x.shape), counts, strict=True)):
        exprs.append(
            axis_var(k) if r == 1 else lit(0) if n == 1 else call("%", axis_var(k), n) if n != 0 else axis_var(k)
        )
        shape.append(numel([n, r]))
    return views.view(b, x, exprs, tuple(shape))


# -- pad -------------------------------------------------------------------------------------------
def pad(b: Builder, x: Node, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """`np.pad` in modes constant, edge, reflect, symmetric, wrap, empty (as constant 0)."""
    pairs = _pad_pairs(b, x, pad_width)
    source = canonical_shape(b, x.shape)
    shape = tuple(as_dim(wrap(n) + lo + hi) for n, (lo, hi) in zip(source, pairs, strict=True))
    if mode in ("constant", "empty"):
        return _pad_constant(b, x, pairs, shape, constant_values if mode == "constant" else 0)
    if mode not in _FOLDS:
        fail(
            b,
            UnsupportedError,
            f"np.pad has no mode {mode!r} here",
            "pad-mode",
            f"modes: constant, {', '.join(_FOLDS)}",
        )
    exprs = []
    for k, (n, (lo, hi)) in enumerate(zip(source, pairs, strict=True)):
        plain = (lo, hi) == (0, 0)
        if not plain and not has(b, n):
            fail(b, ShapeError, f"can't extend empty axis {k} using modes other than 'constant'", "pad")
        n = 1 if mode == "reflect" and not plain and not has(b, n, 2) else n
        exprs.append(axis_var(k) if plain else lit(0) if n == 1 else _FOLDS[mode](axis_var(k) - lo, wrap(n)))
    return views.view(b, x, exprs, shape)


def _reflect(i: HostExpr, n: HostExpr) -> HostExpr:
    period = 2 * n - 2
    turned = call("%", i, period)
    return call("min", turned, period - turned)


def _symmetric(i: HostExpr, n: HostExpr) -> HostExpr:
    period = 2 * n
    turned = call("%", i, period)
    return call("min", turned, period - 1 - turned)


_FOLDS: dict[str, Any] = {
    "edge": lambda i, n: call("min", call("max", i, 0), n - 1),
    "wrap": lambda i, n: call("%", i, n),
    "reflect": _reflect,
    "symmetric": _symmetric,
}


def _pad_pairs(b: Builder, x: Node, widths: Any) -> list[tuple[Dim, Dim]]:
    def width(v: Any) -> Dim:
        return dim_of(b, v, "a pad width")

    def pair(v: Any) -> tuple[Dim, Dim]:
        items = list(v) if isinstance(v, tuple | list) else [v]
        if len(items) not in (1, 2):
            fail(b, ShapeError, f"a pad width is a number or a pair, not {v!r}", "pad")
        return width(items[0]), width(items[-1])

    if isinstance(widths, tuple | list) and any(isinstance(w, tuple | list) for w in widths):
        pairs = [pair(w) for w in widths]
        if len(pairs) == 1:
            pairs *= x.rank
        if len(pairs) != x.rank:
            fail(b, ShapeError, f"{len(pairs)} pad widths for {describe(b, x)}", "pad")
        return pairs
    return [pair(widths)] * x.rank


def _pad_constant(b: Builder, x: Node, pairs: Sequence[tuple[Dim, Dim]], shape: Shape, value: Any) -> Node:
    if isinstance(value, tuple | list):
        return _pad_by_axis(b, x, pairs, value)
    domain, exprs = [], []
    for k, (n, (lo, hi)) in enumerate(zip(x.shape, pairs, strict=True)):
        exprs.append(axis_var(k) - lo)
        domain += [axis_var(k) - lo] if lo != 0 else []
        domain += [wrap(n) + lo - 1 - axis_var(k)] if hi != 0 else []
    fill = ew.cast(b, ew.as_node(b, value), x.dtype)
    if numel(x.shape) == 0:
        return views.broadcast_to(b, fill, shape)
    return piecewise(b, [(domain, exprs, x), ([], (), fill)], shape)


def _pad_by_axis(b: Builder, x: Node, pairs: Sequence[tuple[Dim, Dim]], values: Any) -> Node:
    """Constants that differ by axis or side: one axis after the other, as NumPy fills them."""
    nested = values if isinstance(values[0], tuple | list) else [values] * x.rank
    for k, (lo, hi) in enumerate(pairs):
        sides = nested[k if len(nested) > 1 else 0]
        for width, value, front in ((lo, sides[0], True), (hi, sides[-1], False)):
            one: list[tuple[Dim, Dim]] = [(0, 0)] * x.rank
            one[k] = (width, 0) if front else (0, width)
            shape = tuple(as_dim(wrap(n) + p + q) for n, (p, q) in zip(x.shape, one, strict=True))
            if width != 0:
                x = _pad_constant(b, x, one, shape, value)
    return x
