"""Parsing of subscript keys: what each axis of `x` contributes in `x[key]`.

In: a node and a key as users write it (ints, slices, None, Ellipsis, arrays, masks, lists). Out: a `Parsed` key:
one `Span_`, `Point` or `Gather` a source axis, and where new axes go. Slices with symbolic lengths are resolved
under guards (`x[1:-1]` on length n assumes n >= 2); where a guard fails the call is traced again with that
length static, and then everything is clamped exactly as NumPy clamps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.construct.common import UNBOUNDED, assume, describe, difference, fail, static_int
from fuser.errors import IndexingError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostexpr import Dim, HostExpr, as_dim, call, is_scalar_symbol, wrap
from fuser.indexmap import bounds
from fuser.record import dataclass


@dataclass(frozen=True)
class Range:
    """A slice of one axis: `start + step * k` for k in [0, length)."""

    start: Dim
    step: int
    length: Dim


@dataclass(frozen=True)
class Point:
    """One element of an axis, in [0, n): the axis vanishes."""

    position: HostExpr


@dataclass(frozen=True, eq=False)
class Gather:
    """An integer index array for an axis."""

    index: Node


@dataclass(frozen=True)
class NewAxis:
    """A new axis of length 1; belongs to no source axis."""


@dataclass(frozen=True, eq=False)
class Mask:
    """A bool array covering `rank` source axes (stores only)."""

    mask: Node


Entry = Range | Point | Gather | NewAxis | Mask


def parse(b: Builder, x: Node, key: Any) -> tuple[Entry, ...]:
    """The key as entries in order, every source axis covered; IndexingError where it does not fit."""
    items = list(key) if isinstance(key, tuple) else [key]
    items = [_array_item(b, i) for i in items]
    used = sum(_axes_used(i) for i in items)
    ellipses = sum(i is Ellipsis for i in items)
    if ellipses > 1:
        fail(b, IndexingError, "an index can only have a single ellipsis ('...')", "ellipsis")
    if used > x.rank:
        message = f"too many indices: {describe(b, x)} has {x.rank} axes, but {used} were indexed"
        fail(b, IndexingError, message, "index-rank")
    if not ellipses:
        items.append(Ellipsis)
    entries: list[Entry] = []
    axis = 0
    for item in items:
        if item is Ellipsis:
            count = x.rank - used
            entries += [_whole(b, x.shape[a]) for a in range(axis, axis + count)]
            axis += count
        elif item is None:
            entries.append(NewAxis())
        else:
            entries.append(_entry(b, x, item, axis))
            axis += _axes_used(item)
    return tuple(entries)


def _array_item(b: Builder, item: Any) -> Any:
    """Lists and NumPy arrays of integers become nodes; bools are refused."""
    if isinstance(item, bool | np.bool_):
        fail(b, UnsupportedError, "a bool is not an index here", "bool-index", "use x[None] or np.where")
    if isinstance(item, list | np.ndarray):
        from fuser.construct.creation import array

        made = array(b, item)
        return array(b, item, np.int64) if made.shape == (0,) else made
    if isinstance(item, Node) and not item.dtype.is_integer and item.dtype.kind != "b":
        fail(
            b,
            IndexingError,
            f"arrays used as indices must be of integer or bool type, not {describe(b, item)}",
            "index-dtype",
        )
    return item


def _axes_used(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return item.rank if isinstance(item, Node) and item.dtype.kind == "b" else 1


def _entry(b: Builder, x: Node, item: Any, axis: int) -> Entry:
    if isinstance(item, slice):
        return slice_range(b, item, x.shape[axis])
    if isinstance(item, Node):
        if item.dtype.kind != "b":
            return Gather(item)
        for k, d in enumerate(item.shape):
            if not b.shapes.unify(x.shape[axis + k], d, b.span):
                message = f"mask {describe(b, item)} does not match {describe(b, x)} on axis {axis + k}"
                fail(b, IndexingError, message, "mask-shape")
        return Mask(item)
    return Point(_position(b, x, item, axis))


def _position(b: Builder, x: Node, item: Any, axis: int) -> HostExpr:
    """An integer index as a position in [0, n)."""
    n = b.shapes.canonical(x.shape[axis])
    if isinstance(item, HostExpr) and item.kind != "int":
        fail(
            b, IndexingError, f"an index must be an integer, a slice, None, ... or an array, not `{item}`", "index-type"
        )
    if not isinstance(item, HostExpr):
        if not isinstance(item, int | np.integer):
            fail(
                b,
                IndexingError,
                f"an index must be an integer, a slice, None, ... or an array, not {item!r}",
                "index-type",
            )
        item = wrap(int(item))
    item = wrap(b.shapes.canonical(as_dim(item)))
    low, high = _sign(item)
    if not low and not high:  # the sign is known at the call only: Python's wrap as a modulo
        inside = n != 0 and assume(b, item, ">=", wrap(0) - n) and assume(b, wrap(n) - 1, ">=", item)
        position = call("%", item, n)
    elif low:
        inside, position = assume(b, wrap(n) - 1, ">=", item), item
    else:
        inside, position = assume(b, wrap(n) + item, ">=", 0), wrap(n) + item
    if not inside:
        message = f"index {item} is out of bounds for axis {axis} of {describe(b, x)}"
        fail(b, IndexingError, message, "index-range")
    return position


def _sign(e: HostExpr) -> tuple[bool, bool]:
    """(known >= 0, known < 0), dims being at least 0."""
    ranges = {s: (0, UNBOUNDED) for s in e.symbols if not is_scalar_symbol(s)}
    found = bounds(e, ranges)
    return (False, False) if found is None else (found[0] >= 0, found[1] < 0)


# -- slices ----------------------------------------------------------------------------------------
def _whole(b: Builder, n: Dim) -> Range:
    return Range(0, 1, b.shapes.canonical(n))


def slice_range(b: Builder, s: slice, n: Dim) -> Range:
    """The range that `s` selects on an axis of length n; lengths and bounds exactly as NumPy clamps them."""
    n = b.shapes.canonical(n)
    step = 1 if s.step is None else static_int(b, s.step, "a slice step")
    if step == 0:
        fail(b, IndexingError, "slice step cannot be zero", "slice-step")
    if s.start is None and s.stop is None and step == 1:
        return Range(0, 1, n)
    start, stop = _bound(b, s.start), _bound(b, s.stop)
    if all(v is None or isinstance(v, int) for v in (start, stop)) and isinstance(n, int):
        picked = range(*slice(start, stop, step).indices(n))
        return Range(picked.start if len(picked) else 0, step, len(picked))
    return _forward(b, start, stop, step, n) if step > 0 else _backward(b, start, stop, step, n)


def _bound(b: Builder, value: Any) -> Dim | None:
    if value is None:
        return None
    if isinstance(value, HostExpr) and value.kind == "int" and not value.is_literal:
        if any(is_scalar_symbol(s) for s in value.symbols):
            static_int(b, value, "a slice bound")
        return b.shapes.canonical(value)
    if isinstance(value, Node):
        message = (
            f"a slice bound must be an integer, not the array {describe(b, value)}: the result's shape depends on data"
        )
        fail(b, UnsupportedError, message, "data-dependent-shape")
    if isinstance(value, float) or (isinstance(value, HostExpr) and value.kind == "float"):
        fail(b, IndexingError, f"a slice bound must be an integer, not {value}", "index-type")
    return static_int(b, value, "a slice bound")


def _clamped(b: Builder, value: Dim, n: Dim, low: int, top: Dim) -> Dim:
    """A bound counted from the front and clamped to [low, top], by guards where it is not known."""
    expr = wrap(value)
    nonnegative, negative = _sign(expr)
    if not nonnegative and not negative:
        nonnegative = assume(b, expr, ">=", 0)  # recorded; a call with a negative value traces again
    if nonnegative:
        return as_dim(expr) if assume(b, top, ">=", expr) else top
    placed = wrap(n) + expr
    return as_dim(placed) if assume(b, placed, ">=", low) else low


def _forward(b: Builder, start: Dim | None, stop: Dim | None, step: int, n: Dim) -> Range:
    first = 0 if start is None else _clamped(b, start, n, 0, n)
    last = n if stop is None else _clamped(b, stop, n, 0, n)
    if not assume(b, last, ">=", first):
        return Range(0, step, 0)
    return Range(first, step, _steps(b, difference(b, last, first), step))


def _backward(b: Builder, start: Dim | None, stop: Dim | None, step: int, n: Dim) -> Range:
    top = as_dim(wrap(n) - 1)
    first = top if start is None else _clamped(b, start, n, -1, top)
    last = -1 if stop is None else _clamped(b, stop, n, -1, top)
    if not assume(b, first, ">=", last):
        return Range(0, step, 0)
    return Range(first, step, _steps(b, difference(b, first, last), -step))


def _steps(b: Builder, gap: Dim, step: int) -> Dim:
    """Ceiling of gap / step."""
    return gap if step == 1 else as_dim(call("//", wrap(gap) + (step - 1), step))
