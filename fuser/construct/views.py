"""Views: broadcasts, permutations, reshapes, flips, rolls, diagonals.

In: a node and the arguments of NumPy's function of the name. Out: a `view` node with an index map, or the
node itself when nothing changes. No view moves data; what reads it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct.common import (
    assume,
    canonical_shape,
    describe,
    dim_of,
    fail,
    normal_axes,
    normal_axis,
    same_shape,
    shape_of,
    static_int,
)
from fuser.errors import ArgumentError, ShapeError
from fuser.graph import Builder, Node, ViewAttrs
from fuser.hostexpr import Dim, HostExpr, as_dim, call, lit, wrap
from fuser.indexmap import IndexMap, axes
from fuser.indexmap import axis as axis_var
from fuser.indexmap import broadcast as broadcast_map
from fuser.indexmap import reshape as reshape_map
from fuser.indexmap import transpose as transpose_map
from fuser.shapes import Shape, numel, text_of


def view(b: Builder, x: Node, exprs: Sequence[HostExpr], shape: Shape, operands: Sequence[Node] = ()) -> Node:
    """A view node; `x` itself for the identity map. `operands` are the values of `@0, @1, ...`."""
    mapping = IndexMap(tuple(exprs))
    if mapping.is_identity and same_shape(b, x.shape, shape):
        return x
    return b.make("view", (x, *operands), ViewAttrs(mapping), x.dtype, shape)


# -- broadcasting ----------------------------------------------------------------------------------
def broadcast_shape(b: Builder, nodes: Sequence[Node]) -> Shape:
    """The common shape of operands; ShapeError names those that clash."""
    shapes = [n.shape for n in nodes]
    if all(s == shapes[0] for s in shapes[1:]):
        return canonical_shape(b, shapes[0])
    try:
        return b.shapes.broadcast(shapes, b.span)
    except ShapeError as error:
        shown = " and ".join(describe(b, n) for n in dict.fromkeys(nodes) if n.shape)
        clash = error.message.rsplit(": ", 1)[-1]
        raise ShapeError(f"{shown} do not broadcast: {clash}", "broadcast", error.spans) from None


def broadcast_to(b: Builder, x: Node, shape: object) -> Node:
    """`x` repeated to `shape` without a copy; ShapeError where NumPy would refuse."""
    target = canonical_shape(b, shape_of(b, shape))
    if same_shape(b, x.shape, target):
        return x
    source = canonical_shape(b, x.shape)
    if len(source) > len(target):
        fail(b, ShapeError, f"{describe(b, x)} has more axes than the shape {text_of(target)}", "broadcast")
    for d, t in zip(source, target[len(target) - len(source) :], strict=True):
        if d != 1 and not b.shapes.unify(d, t, b.span):
            fail(
                b, ShapeError, f"{describe(b, x)} does not broadcast to {text_of(target)}: {d} against {t}", "broadcast"
            )
    return view(b, x, broadcast_map(source, target).exprs, target)


def broadcast_arrays(b: Builder, *arrays: Node) -> tuple[Node, ...]:
    """Every array broadcast to the common shape."""
    shape = broadcast_shape(b, arrays)
    return tuple(broadcast_to(b, x, shape) for x in arrays)


# -- permutations ----------------------------------------------------------------------------------
def transpose(b: Builder, x: Node, axes: object = None) -> Node:
    """Axes permuted (reversed by default)."""
    perm = tuple(range(x.rank))[::-1] if axes is None else normal_axes(b, axes, x.rank)
    if len(perm) != x.rank:
        fail(b, ShapeError, f"axes {perm} do not name every axis of {describe(b, x)} once", "axis")
    return view(b, x, transpose_map(perm).exprs, tuple(x.shape[p] for p in perm))


def swapaxes(b: Builder, x: Node, axis1: object, axis2: object) -> Node:
    """Two axes exchanged."""
    one, two = normal_axis(b, axis1, x.rank), normal_axis(b, axis2, x.rank)
    perm = list(range(x.rank))
    perm[one], perm[two] = perm[two], perm[one]
    return transpose(b, x, tuple(perm))


def moveaxis(b: Builder, x: Node, source: object, destination: object) -> Node:
    """Axes moved to new positions, the others kept in order."""
    sources, targets = normal_axes(b, source, x.rank), normal_axes(b, destination, x.rank)
    if len(sources) != len(targets):
        fail(b, ShapeError, "source and destination name different numbers of axes", "axis")
    order = [a for a in range(x.rank) if a not in sources]
    for target, moved in sorted(zip(targets, sources, strict=True)):
        order.insert(target, moved)
    return transpose(b, x, tuple(order))


def rollaxis(b: Builder, x: Node, axis: object, start: object = 0) -> Node:
    """NumPy's rollaxis: `axis` moved before position `start`."""
    a, to = normal_axis(b, axis, x.rank), static_int(b, start, "start")
    to = to + x.rank if to < 0 else to
    return moveaxis(b, x, a, to - 1 if a < to else to)


def matrix_transpose(b: Builder, x: Node) -> Node:
    """The last two axes exchanged (`.mT`)."""
    if x.rank < 2:
        fail(b, ShapeError, f"a matrix transpose needs two axes: {describe(b, x)}", "rank")
    return swapaxes(b, x, -1, -2)


# -- axes of length one ----------------------------------------------------------------------------
def expand_dims(b: Builder, x: Node, axis: object) -> Node:
    """New axes of length 1 at the given positions of the result."""
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = normal_axes(b, axis, x.rank + count)
    kept = [k for k in range(x.rank + count) if k not in new]
    shape: list[Dim] = [1] * (x.rank + count)
    for k, d in zip(kept, x.shape, strict=True):
        shape[k] = d
    return view(b, x, [axis_var(k) for k in kept], tuple(shape))


def squeeze(b: Builder, x: Node, axis: object = None) -> Node:
    """Axes of length 1 removed; naming a longer one is an error."""
    shape = canonical_shape(b, x.shape)
    gone = _axes_of_one(b, shape) if axis is None else normal_axes(b, axis, x.rank)
    for k in gone:
        if shape[k] != 1 and not b.shapes.unify(shape[k], 1, b.span):
            fail(b, ShapeError, f"cannot squeeze axis {k} of {describe(b, x)}: its length is not 1", "squeeze")
    kept = [k for k in range(x.rank) if k not in gone]
    exprs = [axis_var(kept.index(k)) if k in kept else lit(0) for k in range(x.rank)]
    return view(b, x, exprs, tuple(shape[k] for k in kept))


def _axes_of_one(b: Builder, shape: Shape) -> tuple[int, ...]:
    """The axes of length 1; others are guarded not to have it."""
    return tuple(k for k, d in enumerate(shape) if d == 1 or not b.shapes.guard(d, "!=", 1, b.span))


def atleast(b: Builder, x: Node, rank: int) -> Node:
    """NumPy's atleast_1d/2d/3d."""
    if x.rank >= rank:
        return x
    if rank == 3:
        where: tuple[int, ...] = ((0, 1, 2), (0, 2), (2,))[x.rank]
        return expand_dims(b, x, where)
    return expand_dims(b, x, tuple(range(rank - x.rank)))


# -- reshape ---------------------------------------------------------------------------------------
def reshape(b: Builder, x: Node, shape: object, order: str = "C") -> Node:
    """The same elements in row-major order under another shape; one length may be -1."""
    if order == "F":
        items = shape if isinstance(shape, tuple | list) else (shape,)
        return transpose(b, reshape(b, transpose(b, x), tuple(items[::-1])))
    if order not in ("C", "A", "K"):
        fail(b, ArgumentError, f"unknown order {order!r}", "order")
    source = canonical_shape(b, x.shape)
    target = _target_shape(b, x, source, shape)
    if source == target:
        return x
    return view(b, x, reshape_map(source, target).exprs, target)


def _target_shape(b: Builder, x: Node, source: Shape, shape: object) -> Shape:
    items: Sequence[Any] = shape if isinstance(shape, tuple | list) else (shape,)
    holes = [k for k, d in enumerate(items) if not isinstance(d, HostExpr) and static_int(b, d, "a length") == -1]
    if len(holes) > 1:
        fail(b, ShapeError, "only one length of a reshape can be -1", "reshape")
    dims: list[Dim] = [1 if k in holes else dim_of(b, d) for k, d in enumerate(items)]
    total, known = numel(source), b.shapes.canonical(numel(dims))
    if holes:
        if known == 0 or (isinstance(total, int) and isinstance(known, int) and total % known):
            fail(b, ShapeError, f"cannot reshape {describe(b, x)} into {_shown(items)}", "reshape")
        dims[holes[0]] = as_dim(call("//", total, known))
        total_again = numel(dims)
    else:
        total_again = known
    if not (total == total_again or b.shapes.unify(total, total_again, b.span)):
        fail(b, ShapeError, f"cannot reshape {describe(b, x)} into {_shown(items)}", "reshape")
    return tuple(dims)


def _shown(items: Sequence[Any]) -> str:
    return "[" + ", ".join(str(d) for d in items) + "]"


def ravel(b: Builder, x: Node, order: str = "C") -> Node:
    """All elements along one axis."""
    return reshape(b, x, (-1,) if numel(x.shape) != 0 else (0,), order)


# -- mirrored, rolled and diagonal -----------------------------------------------------------------
def flip(b: Builder, x: Node, axis: object = None) -> Node:
    """Elements in reverse order along the given axes (all by default)."""
    chosen = normal_axes(b, axis, x.rank)
    exprs = [x.shape[k] - 1 - axis_var(k) if k in chosen else axis_var(k) for k in range(x.rank)]
    return view(b, x, [wrap(e) for e in exprs], x.shape)


def roll(b: Builder, x: Node, shift: Any, axis: object = None) -> Node:
    """Elements moved cyclically; without an axis, over the flattened array. A run-time shift is allowed."""
    if axis is None:
        return reshape(b, roll(b, ravel(b, x), shift, 0), x.shape)
    named = [normal_axis(b, a, x.rank) for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    shifts = list(shift) if isinstance(shift, tuple | list) else [shift]
    if len(shifts) != len(named) and 1 not in (len(shifts), len(named)):
        fail(b, ShapeError, f"{len(shifts)} shifts for {len(named)} axes", "roll")
    count = max(len(shifts), len(named))
    exprs = list(axes(x.rank))
    for k, s in zip(named * (count // len(named)), shifts * (count // len(shifts)), strict=True):
        amount = s if isinstance(s, HostExpr) else static_int(b, s, "shift")
        n = b.shapes.canonical(x.shape[k])
        if n != 0:
            exprs[k] = call("%", exprs[k] - amount, n)
    return view(b, x, exprs, x.shape)


def rot90(b: Builder, x: Node, k: object = 1, axes: object = (0, 1)) -> Node:
    """Quarter turns in the plane of two axes."""
    plane = normal_axes(b, axes, x.rank)
    if len(plane) != 2:
        fail(b, ShapeError, "rot90 turns in a plane of two axes", "axis")
    turns = static_int(b, k, "k") % 4
    if turns == 2:
        return flip(b, x, plane)
    if turns == 1:
        return swapaxes(b, flip(b, x, plane[1]), *plane)
    return flip(b, swapaxes(b, x, *plane), plane[1]) if turns == 3 else x


def diagonal(b: Builder, x: Node, offset: object = 0, axis1: object = 0, axis2: object = 1) -> Node:
    """The elements `x[i, i + offset]` of two axes, as a new last axis."""
    if x.rank < 2:
        fail(b, ShapeError, f"a diagonal needs two axes: {describe(b, x)}", "rank")
    shift = static_int(b, offset, "offset")
    one, two = normal_axes(b, (axis1, axis2), x.rank)
    shape = canonical_shape(b, x.shape)
    down, right = max(-shift, 0), max(shift, 0)
    rest = [k for k in range(x.rank) if k not in (one, two)]
    position = axis_var(len(rest))
    exprs = [position] * x.rank
    for new, k in enumerate(rest):
        exprs[k] = axis_var(new)
    exprs[one], exprs[two] = position + down, position + right
    length = _diagonal_length(b, shape[one], shape[two], down, right)
    return view(b, x, exprs, (*(shape[k] for k in rest), length))


def _diagonal_length(b: Builder, rows: Dim, columns: Dim, down: int, right: int) -> Dim:
    if isinstance(rows, int) and isinstance(columns, int):
        return max(min(rows - down, columns - right), 0)
    if not (assume(b, rows, ">=", down) and assume(b, columns, ">=", right)):
        return 0
    return as_dim(call("min", rows - down, columns - right))
