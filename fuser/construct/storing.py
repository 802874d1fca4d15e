"""Storing by subscripts: `x[key] = value` as a functional update.

In: the array's present value, a key, the new elements. Out: the array's next value: a `piecewise` node (inside
the key's box read the new elements, elsewhere the old ones), or a `where` for masks. Aliasing and write-back are the
front ends' affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct import elementwise as ew
from fuser.construct import indexing, views
from fuser.construct.common import Value, canonical_shape, check_value, describe, fail, is_host
from fuser.construct.joining import piecewise
from fuser.construct.keys import Entry, Gather, Mask, NewAxis, Point, Range, parse
from fuser.dtypes import BOOL
from fuser.errors import ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr, as_dim, call, lit, wrap
from fuser.indexmap import axes
from fuser.indexmap import axis as axis_var
from fuser.shapes import numel, text_of


def setitem(b: Builder, x: Node, key: Any, value: Value) -> Node:
    """The value of `x` after `x[key] = value`; the value is cast to the dtype of `x`, as NumPy casts it.

    Raises IndexingError, ShapeError, and UnsupportedError for stores through index arrays (their order would matter).
    """
    entries = parse(b, x, key)
    new = _stored(b, value, x)
    if any(isinstance(e, Mask) for e in entries):
        return _masked(b, x, entries, new)
    gathers = [e for e in entries if isinstance(e, Gather)]
    if any(g.index.rank for g in gathers):
        message = f"x[index] = v with the index array {describe(b, gathers[0].index)}: repeated indices would race"
        fail(b, UnsupportedError, message, "scatter", "store through slices, an integer or a mask: x[mask] = v")
    if gathers:
        return _at_computed(b, x, entries, new)
    return _box(b, x, entries, new)


def _stored(b: Builder, value: Value, x: Node) -> Node:
    """The new elements in the dtype of the array; a Python int must fit it."""
    if is_host(value):
        host = wrap(value)  # type: ignore[arg-type]
        if host.is_literal:
            check_value(b, host.value, x.dtype)
        if (host.kind == "int" and x.dtype.is_integer) or (host.is_literal and x.dtype.is_float):
            return ew.as_node(b, host, x.dtype)
    return ew.cast(b, value, x.dtype)


# -- boxes -----------------------------------------------------------------------------------------
def _box(b: Builder, x: Node, entries: Sequence[Entry], new: Node) -> Node:
    """Ints and slices: inside the box the new elements, elsewhere the old."""
    shape = canonical_shape(b, x.shape)
    region = tuple(1 if isinstance(e, NewAxis) else e.length for e in entries if isinstance(e, NewAxis | Range))
    if numel(region) == 0:
        return x
    new = _fit(b, new, region, x)
    domain: list[HostExpr] = []
    exprs: list[HostExpr] = []
    axis = 0
    for e in entries:
        if isinstance(e, NewAxis):
            exprs.append(lit(0))
            continue
        here = axis_var(axis)
        if isinstance(e, Point):
            domain += [here - e.position, e.position - here]
        else:
            assert isinstance(e, Range)
            domain += _inside(b, e, here, shape[axis])
            exprs.append(lit(0) if e.length == 1 else _position(e, here))
        axis += 1
    return piecewise(b, [(domain, exprs, new), ([], axes(x.rank), x)], shape)


def _inside(b: Builder, e: Range, here: HostExpr, n: Any) -> list[HostExpr]:
    """Conditions (>= 0) that an index lies on a range; none for the sides that bound the whole axis."""
    span = (wrap(e.length) - 1) * abs(e.step)
    low = wrap(e.start) if e.step > 0 else wrap(e.start) - span
    high = low + span
    conditions = []
    if low != lit(0):
        conditions.append(here - low)
    if abs(e.step) == 1:
        if as_dim(high) != as_dim(wrap(n) - 1):
            conditions.append(high - here)
        return conditions
    if not _covers(e, low, n):
        conditions.append(high - here)
    return [*conditions, -call("%", here - low, abs(e.step))]


def _covers(e: Range, low: HostExpr, n: Any) -> bool:
    """Whether the strided range goes on to the end of the axis, known for certain."""
    step = abs(e.step)
    return as_dim(call("//", n - low + (step - 1), step)) == e.length


def _position(e: Range, here: HostExpr) -> HostExpr:
    """Which element of the range an index is."""
    if e.step > 0:
        return here - e.start if e.step == 1 else call("//", here - e.start, e.step)
    back = wrap(e.start) - here
    return back if e.step == -1 else call("//", back, -e.step)


def _fit(b: Builder, new: Node, region: Any, x: Node) -> Node:
    """The new elements broadcast to the region; leading axes of length 1 may be dropped."""
    while new.rank > len(region) and b.shapes.canonical(new.shape[0]) == 1:
        new = views.squeeze(b, new, 0)
    try:
        return views.broadcast_to(b, new, region)
    except ShapeError:
        message = f"cannot store {describe(b, new)} into a region {text_of(region)} of {describe(b, x)}"
        fail(b, ShapeError, message, "store-shape")


# -- masks and computed positions ------------------------------------------------------------------
def _masked(b: Builder, x: Node, entries: Sequence[Entry], new: Node) -> Node:
    """A mask, alone or beside ints and slices: the rest of the key selects a sub-array, the mask elements of it."""
    masks = [e for e in entries if isinstance(e, Mask)]
    if len(masks) > 1 or any(isinstance(e, Gather) for e in entries):
        fail(
            b,
            UnsupportedError,
            "a store through two masks, or a mask and an index array",
            "scatter",
            "combine the masks with &",
        )
    mask, place = masks[0].mask, entries.index(masks[0])
    after = sum(not isinstance(e, Point) for e in entries[place + 1 :])
    key = [*map(_again, entries[:place]), *(slice(None),) * mask.rank, *map(_again, entries[place + 1 :])]
    sub = indexing.getitem(b, x, tuple(key))
    placed = views.expand_dims(b, mask, tuple(range(mask.rank, mask.rank + after))) if after else mask
    if new.rank > after and not _one(b, new, after):
        message = f"x[mask] = v with v {describe(b, new)}: which element goes where depends on data"
        fail(b, UnsupportedError, message, "data-dependent-shape", "write x = np.where(mask, v_of_full_shape, x)")
    while new.rank > after:
        new = views.squeeze(b, new, 0)
    updated = ew.combine(b, "where", [ew.cast(b, placed, BOOL), new, sub], x.dtype)
    if len(updated.shape) != len(sub.shape):
        fail(b, ShapeError, f"cannot store {describe(b, new)} under mask {describe(b, mask)}", "store-shape")
    return setitem(b, x, tuple(key), updated)


def _one(b: Builder, new: Node, after: int) -> bool:
    return all(b.shapes.canonical(d) == 1 for d in new.shape[: new.rank - after])


def _again(e: Entry) -> Any:
    """A parsed entry as a key item that parses to the same entry."""
    if isinstance(e, Point):
        return e.position
    if isinstance(e, NewAxis):
        return None
    assert isinstance(e, Range)
    stop = wrap(e.start) + wrap(e.length) * e.step
    if e.step > 0:
        return slice(e.start, as_dim(stop), e.step)
    raise UnsupportedError("a mask beside a slice with a negative step in a store", "scatter")


def _at_computed(b: Builder, x: Node, entries: Sequence[Entry], new: Node) -> Node:
    """A 0-d index array, its value known at run time: compare every index of that axis with it."""
    from fuser.construct.creation import iota

    condition: Node | None = None
    plain: list[Entry] = []
    axis = 0
    for e in entries:
        if isinstance(e, NewAxis):
            plain.append(e)
            continue
        if isinstance(e, Gather):
            hit = ew.node(b, "equal", iota(b, x.shape, axis), indexing.wrapped(b, e.index, x, axis))
            condition = hit if condition is None else ew.node(b, "logical_and", condition, hit)
            plain += [Range(0, 1, b.shapes.canonical(x.shape[axis])), NewAxis()]
        else:
            plain.append(e)
        axis += 1
    assert condition is not None
    kept = [e for e in plain if not isinstance(e, NewAxis)]
    region = tuple(
        e.length for e, o in zip(kept, _sources(entries), strict=True) if isinstance(e, Range) and isinstance(o, Range)
    )
    new = _fit(b, new, region, x)
    spread = [
        k for k, (e, o) in enumerate(_ranged(kept, _sources(entries))) if isinstance(o, Gather) and isinstance(e, Range)
    ]
    updated = _box(b, x, kept, views.expand_dims(b, new, tuple(spread)) if spread else new)
    return ew.where(b, condition, updated, x)


def _sources(entries: Sequence[Entry]) -> list[Entry]:
    return [e for e in entries if not isinstance(e, NewAxis)]


def _ranged(kept: Sequence[Entry], sources: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """Pairs whose new entry is a range: the axes of the region in order."""
    return [(e, o) for e, o in zip(kept, sources, strict=True) if isinstance(e, Range)]
