"""Functions that rearrange arrays without touching an element: rows over `fuser.construct.views` and `joining`.

In: nothing. Out: `Function` rows named as NumPy names them. None of them has a node of its own: views and
piecewise nodes carry index maps.
"""

from __future__ import annotations

from typing import Any

from fuser.construct import editing, joining, views
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, function, listed, spread
from fuser.optable.base import Table
from fuser.shapes import Shape


def _flatten(b: Builder, x: Node, start_dim: int = 0, end_dim: int = -1, order: str = "C") -> Node:
    """torch's flatten: a range of axes merged; all of them for NumPy's method."""
    from fuser.construct.common import normal_axis
    from fuser.shapes import numel

    if x.rank == 0:
        return views.ravel(b, x)
    lo, hi = normal_axis(b, start_dim, x.rank), normal_axis(b, end_dim, x.rank)
    if order == "F":
        return views.ravel(b, x, "F")
    return views.reshape(b, x, (*x.shape[:lo], numel(x.shape[lo : hi + 1]), *x.shape[hi + 1 :]))


def _array_split(b: Builder, x: Node, indices_or_sections: Any, axis: Any = 0) -> list[Node]:
    return list(joining.split(b, x, indices_or_sections, axis, even=False))


def _split(b: Builder, x: Node, indices_or_sections: Any, axis: Any = 0) -> list[Node]:
    return list(joining.split(b, x, indices_or_sections, axis))


def _chunk(b: Builder, x: Node, chunks: Any, axis: Any = 0) -> tuple[Node, ...]:
    """torch's chunk: parts of equal length (the last may be shorter)."""
    from fuser.construct.common import normal_axis, static_int

    n = b.shapes.canonical(x.shape[normal_axis(b, axis, x.rank)])
    count = static_int(b, chunks, "chunks")
    if not isinstance(n, int):
        return joining.split(b, x, count, axis)
    size = -(-n // count)
    return joining.split(b, x, list(range(size, n, size)), axis)


def _hsplit(b: Builder, x: Node, indices_or_sections: Any) -> list[Node]:
    return _split(b, x, indices_or_sections, 0 if x.rank == 1 else 1)


def _dsplit(b: Builder, x: Node, indices_or_sections: Any) -> list[Node]:
    return _split(b, x, indices_or_sections, 2)


def _vsplit(b: Builder, x: Node, indices_or_sections: Any) -> list[Node]:
    return _split(b, x, indices_or_sections, 0)


def _broadcast_arrays(b: Builder, *args: Any) -> tuple[Node, ...]:
    from fuser.construct import creation

    return views.broadcast_arrays(b, *(creation.array(b, a) for a in args))


def _atleast(rank: int) -> Any:
    """One array, or a tuple of several."""

    def build(b: Builder, *arys: Any) -> Any:
        from fuser.construct import creation

        made = tuple(views.atleast(b, creation.array(b, a), rank) for a in arys)
        return made[0] if len(made) == 1 else made

    return build


def _block(b: Builder, rows: Any) -> Node:
    from fuser.construct import creation

    if not isinstance(rows, list):
        return creation.array(b, rows)
    parts = [[creation.array(b, x) for x in row] if isinstance(row, list) else creation.array(b, row) for row in rows]
    if all(isinstance(p, list) for p in parts):
        return joining.vstack(b, [joining.hstack(b, p) for p in parts if isinstance(p, list)])
    return joining.hstack(b, [p for p in parts if isinstance(p, Node)])


def _unstack(b: Builder, x: Node, axis: Any = 0) -> tuple[Node, ...]:
    from fuser.construct import indexing
    from fuser.construct.common import normal_axis, static_int

    k = normal_axis(b, axis, x.rank)
    count = static_int(b, b.shapes.canonical(x.shape[k]), "the length of an unstacked axis")
    return tuple(indexing.getitem(b, x, (*(slice(None),) * k, i)) for i in range(count))


def _insert(b: Builder, x: Node, obj: Any, values: Any, axis: Any = None) -> Node:
    from fuser.construct import creation

    return editing.insert(b, x, obj, creation.array(b, values), axis)


def _expand_as(b: Builder, x: Node, other: Node) -> Node:
    return views.broadcast_to(b, x, other.shape)


def _expand(b: Builder, x: Node, shape: Any) -> Node:
    """torch's expand: -1 keeps a length."""
    shift = len(shape) - x.rank
    kept: Shape = tuple(x.shape[k - shift] if isinstance(d, int) and d == -1 else d for k, d in enumerate(shape))
    return views.broadcast_to(b, x, kept)


ROWS = (
    function("broadcast_to", arrays(1, views.broadcast_to), numpy="broadcast_to", torch="broadcast_to", looks="read"),
    function("expand", spread(_expand, "shape"), torch="expand"),
    function("expand_as", arrays(2, _expand_as), torch="expand_as"),
    function("broadcast_arrays", _broadcast_arrays, numpy="broadcast_arrays", torch="broadcast_tensors"),
    function("transpose", spread(views.transpose, "axes"), numpy="transpose permute_dims", torch="permute",
             dsl="permute_dims", methods="transpose", looks="permute"),
    function("matrix_transpose", arrays(1, views.matrix_transpose), numpy="matrix_transpose linalg.matrix_transpose",
             looks="permute"),
    function("swapaxes", arrays(1, views.swapaxes), numpy="swapaxes", torch="transpose swapaxes", methods="swapaxes",
             looks="permute"),
    function("moveaxis", arrays(1, views.moveaxis), numpy="moveaxis", torch="moveaxis movedim", looks="permute"),
    function("rollaxis", arrays(1, views.rollaxis), numpy="rollaxis", looks="permute"),
    function("expand_dims", arrays(1, views.expand_dims), numpy="expand_dims", torch="unsqueeze", looks="reshape"),
    function("squeeze", arrays(1, views.squeeze), numpy="squeeze", torch="squeeze", methods="squeeze", looks="reshape"),
    function("reshape", spread(views.reshape, "shape"), numpy="reshape", torch="reshape view", methods="reshape",
             looks="reshape"),
    function("ravel", arrays(1, views.ravel), numpy="ravel", torch="ravel", methods="ravel", looks="reshape"),
    function("flatten", arrays(1, _flatten), torch="flatten", methods="flatten"),
    function("flip", arrays(1, views.flip), numpy="flip", torch="flip", looks="flip"),
    function("flipud", arrays(1, lambda b, x: views.flip(b, x, 0)), numpy="flipud", torch="flipud", looks="flip"),
    function("fliplr", arrays(1, lambda b, x: views.flip(b, x, 1)), numpy="fliplr", torch="fliplr", looks="flip"),
    function("roll", arrays(1, views.roll), numpy="roll", torch="roll"),
    function("rot90", arrays(1, views.rot90), numpy="rot90", torch="rot90", looks="read"),
    function("diagonal", arrays(1, views.diagonal), numpy="diagonal linalg.diagonal", torch="diagonal",
             methods="diagonal", looks="read"),
    function("atleast_1d", _atleast(1), numpy="atleast_1d", torch="atleast_1d", looks="reshape"),
    function("atleast_2d", _atleast(2), numpy="atleast_2d", torch="atleast_2d", looks="reshape"),
    function("atleast_3d", _atleast(3), numpy="atleast_3d", torch="atleast_3d", looks="reshape"),
    function("concatenate", listed(joining.concat), numpy="concatenate concat", torch="cat concat concatenate",
             dsl="concat cat"),
    function("stack", listed(joining.stack), numpy="stack", torch="stack"),
    function("hstack", listed(joining.hstack), numpy="hstack", torch="hstack"),
    function("vstack", listed(joining.vstack), numpy="vstack row_stack", torch="vstack row_stack"),
    function("dstack", listed(joining.dstack), numpy="dstack", torch="dstack"),
    function("column_stack", listed(joining.column_stack), numpy="column_stack", torch="column_stack"),
    function("block", _block, numpy="block"),
    function("delete", arrays(1, editing.delete), numpy="delete"),
    function("insert", arrays(1, _insert), numpy="insert"),
    function("resize", arrays(1, editing.resize), numpy="resize"),
    function("append", arrays(2, joining.append), numpy="append"),
    function("split", arrays(1, _split), numpy="split", looks="index"),
    function("array_split", arrays(1, _array_split), numpy="array_split", torch="tensor_split", looks="index"),
    function("chunk", arrays(1, _chunk), torch="chunk"),
    function("hsplit", arrays(1, _hsplit), numpy="hsplit", torch="hsplit", looks="index"),
    function("vsplit", arrays(1, _vsplit), numpy="vsplit", torch="vsplit", looks="index"),
    function("dsplit", arrays(1, _dsplit), numpy="dsplit", torch="dsplit", looks="index"),
    function("unstack", arrays(1, _unstack), numpy="unstack", torch="unbind"),
    function("repeat", arrays(1, joining.repeat), numpy="repeat", torch="repeat_interleave", methods="repeat"),
    function("tile", arrays(1, joining.tile), numpy="tile", torch="tile"),
    function("pad", arrays(1, joining.pad), numpy="pad"),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
