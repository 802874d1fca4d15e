"""Reading by subscripts: `x[key]`.

In: a node and a key. Out: one view. Ints, slices, None and Ellipsis give an affine map; integer arrays become
index operands (`@k`) of the same view, placed by NumPy's rules. An index array's values are wrapped (negative
counts from the end) and clamped into range: fuser's rule for out-of-range gathers, the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct import elementwise as ew
from fuser.construct import views
from fuser.construct.common import canonical_shape, describe, fail, has
from fuser.construct.keys import Entry, Gather, Mask, NewAxis, Point, Range, parse
from fuser.dtypes import I64
from fuser.errors import IndexingError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostexpr import Dim, HostExpr, as_dim, lit, wrap
from fuser.indexmap import axis as axis_var
from fuser.indexmap import broadcast as broadcast_map
from fuser.indexmap import operand
from fuser.shapes import Shape, numel


def getitem(b: Builder, x: Node, key: Any) -> Node:
    """`x[key]`. Raises IndexingError, and UnsupportedError for masks, whose result's shape depends on data."""
    entries = parse(b, x, key)
    masks = [e for e in entries if isinstance(e, Mask)]
    if masks:
        message = f"x[mask] with {describe(b, masks[0].mask)}: the result's shape depends on data"
        hint = "keep the shape: np.where(mask, x, 0), x.sum(where=mask); or store: x[mask] = v"
        fail(b, UnsupportedError, message, "data-dependent-shape", hint)
    gathers = [e for e in entries if isinstance(e, Gather)]
    if not gathers:
        return _basic(b, x, entries)
    return _advanced(b, x, entries, gathers)


def _basic(b: Builder, x: Node, entries: Sequence[Entry]) -> Node:
    exprs: list[HostExpr] = []
    shape: list[Dim] = []
    for e in entries:
        if isinstance(e, Point):
            exprs.append(e.position)
        elif isinstance(e, Range):
            exprs.append(axis_var(len(shape)) * e.step + e.start)
            shape.append(e.length)
        else:
            shape.append(1)
    return views.view(b, x, exprs, tuple(shape))


def _advanced(b: Builder, x: Node, entries: Sequence[Entry], gathers: Sequence[Gather]) -> Node:
    """Index arrays broadcast together; their axes stand where the arrays stood if adjacent, else in front."""
    block = views.broadcast_shape(b, [g.index for g in gathers])
    places = [k for k, e in enumerate(entries) if isinstance(e, Gather | Point)]
    adjacent = places[-1] - places[0] + 1 == len(places)
    basic_before = sum(isinstance(e, Range | NewAxis) for e in entries[: places[0]]) if adjacent else 0
    basic = [e for e in entries if isinstance(e, Range | NewAxis)]
    dims: list[Dim] = [1 if isinstance(e, NewAxis) else e.length for e in basic]
    shape: Shape = (*dims[:basic_before], *block, *dims[basic_before:])
    exprs: list[HostExpr] = []
    operands: list[Node] = []
    seen, axis = 0, 0
    for e in entries:
        if isinstance(e, Range | NewAxis):
            position = seen + (len(block) if seen >= basic_before else 0)
            seen += 1
            if isinstance(e, NewAxis):
                continue
            exprs.append(axis_var(position) * e.step + e.start)
        elif isinstance(e, Gather):
            index = wrapped(b, e.index, x, axis)
            exprs.append(operand(len(operands)))
            operands.append(_placed(b, index, shape, basic_before, len(block)))
        else:
            assert isinstance(e, Point)
            exprs.append(e.position)
        axis += 1
    return views.view(b, x, exprs, shape, operands)


def wrapped(b: Builder, index: Node, x: Node, axis: int) -> Node:
    """An index array in [0, n): negatives wrapped, the rest clamped."""
    n = b.shapes.canonical(x.shape[axis])
    if numel(canonical_shape(b, index.shape)) == 0:
        return ew.cast(b, index, I64)
    if not has(b, n):
        fail(b, IndexingError, f"cannot take elements of an empty axis: axis {axis} of {describe(b, x)}", "index-range")
    wide = ew.cast(b, index, I64)
    if index.dtype.kind == "i":
        from_end = ew.node(b, "add", wide, wrap(n))
        wide = ew.where(b, ew.node(b, "less", wide, 0), from_end, wide)
    low = ew.node(b, "maximum", wide, 0)
    return ew.node(b, "minimum", low, wrap(n) - 1)


def _placed(b: Builder, index: Node, shape: Shape, before: int, rank: int) -> Node:
    """An index array broadcast to the result, its own axes at [before, before + rank)."""
    whole = broadcast_map(index.shape, shape[before : before + rank])
    shift = {f"${k}": axis_var(k + before) for k in range(rank)}
    return views.view(b, index, [e.substitute(shift) for e in whole.exprs], shape)


# -- take and its kin ------------------------------------------------------------------------------
def take(b: Builder, x: Node, indices: Any, axis: object = None, mode: str = "raise") -> Node:
    """`np.take`: index one axis (the flat array without one). Out-of-range indices follow fuser's gather rule."""
    from fuser.construct.common import normal_axis

    if axis is None:
        x, axis = views.ravel(b, x), 0
    a = normal_axis(b, axis, x.rank)
    index = _index_array(b, indices)
    if mode == "wrap":
        index = ew.node(b, "remainder", ew.cast(b, index, I64), wrap(x.shape[a])) if has(b, x.shape[a]) else index
    elif mode == "clip":
        index = ew.node(b, "maximum", index, 0)
    elif mode != "raise":
        fail(b, IndexingError, f"unknown mode {mode!r} of take", "take-mode")
    return getitem(b, x, (*(slice(None),) * a, index))


def _index_array(b: Builder, indices: Any) -> Any:
    if isinstance(indices, list | tuple):
        from fuser.construct.creation import array

        return array(b, list(indices))
    return indices if not isinstance(indices, HostExpr) else as_dim(indices)


def take_along_axis(b: Builder, x: Node, indices: Node, axis: object = -1) -> Node:
    """One element a position of `indices` along `axis`; the other axes broadcast."""
    from fuser.construct.common import normal_axis

    if axis is None:
        x, axis = views.ravel(b, x), 0
    a = normal_axis(b, axis, x.rank)
    if indices.rank != x.rank:
        message = f"indices {describe(b, indices)} and array {describe(b, x)} must have the same rank"
        fail(b, IndexingError, message, "take-along-axis")
    if not indices.dtype.is_integer:
        fail(b, IndexingError, f"indices must be integers: {describe(b, indices)}", "index-dtype")
    source = tuple(1 if k == a else d for k, d in enumerate(x.shape))
    target = tuple(1 if k == a else d for k, d in enumerate(indices.shape))
    joined = b.shapes.broadcast([source, target], b.span)
    shape = tuple(indices.shape[a] if k == a else d for k, d in enumerate(joined))
    index = views.broadcast_to(b, wrapped(b, indices, x, a), shape)
    exprs = list(broadcast_map(source, joined).exprs)
    exprs[a] = operand(0)
    exprs = [lit(0) if k != a and b.shapes.canonical(x.shape[k]) == 1 else e for k, e in enumerate(exprs)]
    return views.view(b, x, exprs, shape, [index])
