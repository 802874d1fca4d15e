"""Lengths changed by position: delete, insert, resize.

In: an array and positions known while tracing. Out: pieces of it side by side. Positions that only a call knows are
refused (a static argument helps), because they decide which pieces there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.construct import elementwise as ew
from fuser.construct import indexing, joining, views
from fuser.construct.common import fail, normal_axis, shape_of, static_int
from fuser.errors import ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.shapes import numel


def delete(b: Builder, x: Node, obj: Any, axis: Any = None) -> Node:
    """`np.delete` of an integer, a slice or a list of integers along an axis (the flat array without one)."""
    x, k = _along(b, x, axis)
    gone = sorted(set(_positions(b, x, k, obj, "delete")))
    pieces, start = [], 0
    for position in gone:
        if position > start:
            pieces.append(_part(b, x, k, start, position))
        start = position + 1
    pieces.append(_part(b, x, k, start, None))
    return joining.concat(b, pieces, k) if len(pieces) > 1 else pieces[0]


def insert(b: Builder, x: Node, obj: Any, values: Any, axis: Any = None) -> Node:
    """`np.insert` before one position; `values` broadcast against the other axes."""
    x, k = _along(b, x, axis)
    if not isinstance(obj, int | np.integer):
        fail(b, UnsupportedError, "np.insert takes one integer position here", "insert", "join slices: np.concatenate")
    (position,) = _positions(b, x, k, obj, "insert", 1)
    new = ew.cast(b, ew.as_node(b, values), x.dtype)
    if new.rank > x.rank:
        fail(b, ShapeError, f"cannot insert an array of rank {new.rank} into one of rank {x.rank}", "insert")
    new = views.expand_dims(b, new, tuple(range(x.rank - new.rank))) if new.rank < x.rank else new
    new = views.moveaxis(b, new, 0, k)
    new = views.broadcast_to(b, new, tuple(new.shape[k] if a == k else d for a, d in enumerate(x.shape)))
    return joining.concat(b, [_part(b, x, k, 0, position), new, _part(b, x, k, position, None)], k)


def resize(b: Builder, x: Node, new_shape: Any) -> Node:
    """`np.resize`: the elements in order, repeated as often as it takes."""
    shape = shape_of(b, new_shape)
    flat = views.ravel(b, x)
    have, want = (static_int(b, b.shapes.canonical(n), "a length of resize") for n in (flat.shape[0], numel(shape)))
    if have == 0 and want:
        fail(b, UnsupportedError, "np.resize of an empty array", "resize", "make it with np.zeros")
    repeated = joining.tile(b, flat, -(-want // max(have, 1))) if want > have else flat
    return views.reshape(b, _part(b, repeated, 0, 0, want), shape)


def _along(b: Builder, x: Node, axis: Any) -> tuple[Node, int]:
    return (views.ravel(b, x), 0) if axis is None else (x, normal_axis(b, axis, x.rank))


def _positions(b: Builder, x: Node, axis: int, obj: Any, name: str, beyond: int = 0) -> list[int]:
    """Positions counted from the start, `beyond` the end allowed."""
    if isinstance(obj, Node) or (isinstance(obj, np.ndarray) and obj.dtype == bool):
        fail(b, UnsupportedError, f"np.{name} at positions that are data", name, "keep the shape: np.where(mask, x, 0)")
    n = b.shapes.canonical(x.shape[axis])
    if isinstance(obj, slice):
        return list(range(*obj.indices(static_int(b, n, f"the length under {name}"))))
    asked = [static_int(b, p, f"a position of {name}") for p in np.atleast_1d(np.asarray(obj)).tolist()]
    if not all(p >= 0 for p in asked) or isinstance(n, int):
        length = static_int(b, n, f"the length under {name}")
        for p in asked:
            if not -length <= p < length + beyond:
                fail(b, ShapeError, f"index {p} is out of bounds for axis {axis} with size {length}", "index")
        return [p % length if p < 0 else p for p in asked]
    for p in asked:  # a guard: the array is long enough
        b.shapes.guard(n, ">=", p + 1 - beyond, b.span)
    return asked


def _part(b: Builder, x: Node, axis: int, start: int, stop: int | None) -> Node:
    return indexing.getitem(b, x, (*(slice(None),) * axis, slice(start, stop)))
