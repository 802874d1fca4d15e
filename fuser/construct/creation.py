"""Arrays made inside a program: constants, ranges, masks, small literal arrays.

In: shapes (ints or host expressions over dims), values, dtypes. Out: scalar nodes under broadcast views, and
`iota` nodes. Nothing is stored: a constant array costs its readers one register.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.construct import elementwise as ew
from fuser.construct import views
from fuser.construct.common import (
    NeedsStatic,
    Value,
    assume,
    dim_of,
    dtype_of,
    fail,
    has,
    is_host,
    operand_of,
    shape_of,
    static_int,
)
from fuser.dtypes import BOOL, F64, I64, DType, find, promote
from fuser.errors import ArgumentError, DTypeError, ShapeError
from fuser.graph import Builder, IotaAttrs, Node
from fuser.hostexpr import Dim, HostExpr, as_dim, call, is_scalar_symbol, wrap
from fuser.indexmap import axis as axis_var
from fuser.shapes import Shape

LITERAL_ELEMENTS = 64  # each is a piece of its own; a longer array is better passed as an argument


def full(b: Builder, shape: object, fill_value: Value, dtype: object = None) -> Node:
    """An array of one value; its dtype is the value's by default."""
    made = ew.as_node(b, fill_value) if dtype is None else _converted(b, fill_value, dtype_of(b, dtype))
    return views.broadcast_to(b, made, shape_of(b, shape))


def _converted(b: Builder, value: Value, dtype: DType) -> Node:
    if is_host(value) and ((dtype.kind != "b" and wrap(value).kind != "float") or dtype.is_inexact):  # type: ignore[arg-type]
        return ew.as_node(b, value, dtype)
    return ew.cast(b, ew.as_node(b, value), dtype)


def zeros(b: Builder, shape: object, dtype: object = None) -> Node:
    """Zeros, f64 by default."""
    return full(b, shape, 0, F64 if dtype is None else dtype)


def ones(b: Builder, shape: object, dtype: object = None) -> Node:
    """Ones, f64 by default."""
    return full(b, shape, 1, F64 if dtype is None else dtype)


def full_like(b: Builder, x: Value, fill_value: Value, dtype: object = None, shape: object = None) -> Node:
    """As `full`, with the shape and dtype of `x` unless given."""
    like = ew.as_node(b, x)
    return full(b, like.shape if shape is None else shape, fill_value, like.dtype if dtype is None else dtype)


def zeros_like(b: Builder, x: Value, dtype: object = None, shape: object = None) -> Node:
    """Zeros of the shape and dtype of `x`."""
    return full_like(b, x, 0, dtype, shape)


def ones_like(b: Builder, x: Value, dtype: object = None, shape: object = None) -> Node:
    """Ones of the shape and dtype of `x`."""
    return full_like(b, x, 1, dtype, shape)


# -- ranges ----------------------------------------------------------------------------------------
def iota(b: Builder, shape: Shape, axis: int, dtype: DType = I64) -> Node:
    """The index along one axis."""
    return b.make("iota", (), IotaAttrs(axis), dtype, shape)


def arange(b: Builder, start: Any, stop: Any = None, step: Any = None, dtype: object = None) -> Node:
    """`np.arange`: its length must be known from static numbers and dims."""
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    numbers = [_range_number(b, v) for v in (start, stop, step)]
    target = dtype_of(b, dtype) if dtype is not None else promote([operand_of(b, v) for v in (start, stop, step)])
    if not isinstance(numbers[2], HostExpr) and numbers[2] == 0:
        fail(b, ArgumentError, "arange's step cannot be zero", "arange")
    count = _range_length(b, *numbers)
    if target == BOOL:
        fail(b, DTypeError, "arange has no bool form", "dtype")
    if target.is_complex:
        return ew.cast(b, arange(b, start, stop, step, target.component), target)
    index = ew.cast(b, iota(b, (count,), 0), target)
    first, delta = _range_fill(numbers[0], numbers[2], target)
    scaled = index if _is(delta, 1) else ew.combine(b, "multiply", [index, ew.as_node(b, delta, target)], target)
    return scaled if _is(first, 0) else ew.combine(b, "add", [ew.as_node(b, first, target), scaled], target)


def _is(value: Any, number: int) -> bool:
    return not isinstance(value, HostExpr) and bool(value == number)


def _range_number(b: Builder, value: Any) -> Any:
    """A static number, or an integer expression over dims."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, HostExpr):
        if value.is_literal:
            return value.value
        if value.kind != "int" or any(is_scalar_symbol(s) for s in value.symbols):
            spans = (b.span,) if b.span else ()
            raise NeedsStatic(f"arange needs `{value}` while tracing: it decides a shape", "static", value, spans)
        return value
    if not isinstance(value, int | float):
        fail(b, ArgumentError, f"arange takes numbers, not {value!r}", "arange")
    return value


def _range_length(b: Builder, start: Any, stop: Any, step: Any) -> Dim:
    if not any(isinstance(v, HostExpr) for v in (start, stop, step)):
        return max(_ceiling((stop - start) / step), 0)
    stride = static_int(b, step, "arange's step")
    gap = stop - start if stride > 0 else start - stop
    if not assume(b, gap, ">=", 0):
        return 0
    return as_dim(call("//", wrap(gap) + (abs(stride) - 1), abs(stride)))


def _ceiling(x: float) -> int:
    return math.ceil(x)


def _range_fill(start: Any, step: Any, dtype: DType) -> tuple[Any, Any]:
    """First value and increment as NumPy computes them: from the first two elements, in the result's dtype."""
    if isinstance(start, HostExpr) or isinstance(step, HostExpr) or not dtype.is_float:
        if not isinstance(start, HostExpr) and not dtype.is_float:
            return int(start), int(int(start + step) - int(start))
        return start, step
    as_type = dtype.numpy.type
    first = as_type(start)
    return float(first), float(as_type(start + step) - first)


def linspace(
    b: Builder, start: Value, stop: Value, num: object = 50, endpoint: bool = True, dtype: object = None, axis: int = 0
) -> Node:
    """`num` evenly spaced values from `start` to `stop`; f64 by default."""
    if axis != 0:
        fail(b, ArgumentError, "linspace makes its axis the first", "linspace")
    count = dim_of(b, num, "num")
    acc = promote([operand_of(b, start), operand_of(b, stop), "float"])
    first, last = ew.as_node(b, start, acc), ew.as_node(b, stop, acc)
    rank = max(first.rank, last.rank)
    shape = (count, *views.broadcast_shape(b, [first, last]))
    index = ew.cast(b, iota(b, shape, 0), acc)
    div = count - 1 if endpoint else count
    delta = ew.node(b, "subtract", last, first)
    if div == 0:
        values = ew.combine(b, "add", [ew.node(b, "multiply", index, delta), first], acc)
    else:
        step = ew.node(b, "divide", delta, ew.as_node(b, div, acc))
        values = ew.node(b, "add", ew.node(b, "multiply", index, step), first)
        if endpoint:
            at_end = ew.node(b, "equal", iota(b, shape, 0), wrap(count) - 1)
            values = ew.where(b, at_end, last, values)
    assert values.rank == rank + 1
    target = acc if dtype is None else dtype_of(b, dtype)
    if target.is_integer:
        values = ew.node(b, "floor", values)
    return ew.cast(b, values, target)


def logspace(
    b: Builder, start: Value, stop: Value, num: object = 50, endpoint: bool = True, base: Value = 10.0
) -> Node:
    """Powers of `base` at evenly spaced exponents."""
    return ew.node(b, "power", ew.as_node(b, base), linspace(b, start, stop, num, endpoint))


def meshgrid(b: Builder, *arrays: Node, indexing: str = "xy", sparse: bool = False) -> tuple[Node, ...]:
    """Coordinate arrays of a grid."""
    if indexing not in ("xy", "ij"):
        fail(b, ArgumentError, "meshgrid's indexing is 'xy' or 'ij'", "meshgrid")
    rank = len(arrays)
    placed = []
    for k, x in enumerate(arrays):
        flat = views.ravel(b, x)
        position = {0: 1, 1: 0}.get(k, k) if indexing == "xy" and rank > 1 else k
        placed.append(views.expand_dims(b, flat, tuple(a for a in range(rank) if a != position)))
    return tuple(placed) if sparse else views.broadcast_arrays(b, *placed)


# -- masks by position -----------------------------------------------------------------------------
def eye(b: Builder, n: object, m: object = None, k: object = 0, dtype: object = None) -> Node:
    """Ones on the k-th diagonal."""
    rows = dim_of(b, n)
    shape = (rows, rows if m is None else dim_of(b, m))
    on = ew.node(b, "equal", _shifted(b, shape, k), iota(b, shape, 1))
    return ew.cast(b, on, F64 if dtype is None else dtype)


def tri(b: Builder, n: object, m: object = None, k: object = 0, dtype: object = None) -> Node:
    """Ones at and below the k-th diagonal."""
    rows = dim_of(b, n)
    shape = (rows, rows if m is None else dim_of(b, m))
    return ew.cast(b, _below(b, shape, k), F64 if dtype is None else dtype)


def _shifted(b: Builder, shape: Shape, k: object) -> Node:
    row = iota(b, shape, len(shape) - 2)
    shift = k if isinstance(k, HostExpr) else static_int(b, k, "k")
    return row if _is(shift, 0) else ew.node(b, "add", row, shift)


def _below(b: Builder, shape: Shape, k: object) -> Node:
    return ew.node(b, "greater_equal", _shifted(b, shape, k), iota(b, shape, len(shape) - 1))


def tril(b: Builder, x: Node, k: object = 0) -> Node:
    """`x` with zeros above the k-th diagonal."""
    if x.rank < 2:
        fail(b, ShapeError, "tril needs at least two axes", "rank")
    return ew.where(b, _below(b, x.shape, k), x, ew.as_node(b, 0, x.dtype))


def triu(b: Builder, x: Node, k: object = 0) -> Node:
    """`x` with zeros below the k-th diagonal."""
    if x.rank < 2:
        fail(b, ShapeError, "triu needs at least two axes", "rank")
    above = call("-", k, 1) if isinstance(k, HostExpr) else static_int(b, k, "k") - 1
    return ew.where(b, _below(b, x.shape, above), ew.as_node(b, 0, x.dtype), x)


def diag(b: Builder, x: Node, k: object = 0) -> Node:
    """A diagonal matrix from a vector, or the diagonal of a matrix."""
    if x.rank == 2:
        return views.diagonal(b, x, k)
    if x.rank != 1:
        fail(b, ShapeError, f"diag takes one or two axes, not {x.rank}", "rank")
    shift = static_int(b, k, "k")
    n = as_dim(wrap(b.shapes.canonical(x.shape[0])) + abs(shift))
    shape = (n, n)
    if not has(b, x.shape[0]):
        return zeros(b, shape, x.dtype)
    position = axis_var(1) - shift if shift > 0 else axis_var(1)
    within = call("min", call("max", position, 0), wrap(x.shape[0]) - 1)
    spread = views.view(b, x, [within], shape)
    on = ew.node(b, "equal", _shifted(b, shape, shift), iota(b, shape, 1))
    return ew.where(b, on, spread, ew.as_node(b, 0, x.dtype))


# -- literal arrays --------------------------------------------------------------------------------
def array(b: Builder, value: Any, dtype: object = None) -> Node:
    """A nested list of values, or a small NumPy array, as a node."""
    if isinstance(value, Node) or is_host(value) or isinstance(value, np.generic):
        return ew.as_node(b, value) if dtype is None else ew.cast(b, value, dtype)
    if isinstance(value, np.ndarray):
        return _constant(b, value if dtype is None else value.astype(dtype_of(b, dtype).numpy))
    if not isinstance(value, list | tuple):
        fail(b, ArgumentError, f"cannot make an array of {value!r}", "array")
    leaves = _flat(value)
    if not any(isinstance(v, Node | HostExpr) for v in leaves):
        target = dtype_of(b, dtype).numpy if dtype is not None else None
        return _constant(b, np.array(value, dtype=target))
    from fuser.construct.joining import stack

    made = stack(b, [array(b, v) for v in value])
    return made if dtype is None else ew.cast(b, made, dtype)


def _flat(value: Any) -> list[Any]:
    out, queue = [], [value]
    while queue:
        v = queue.pop()
        if isinstance(v, list | tuple):
            queue.extend(v)
        else:
            out.append(v)
    return out


def _constant(b: Builder, value: np.ndarray[Any, Any]) -> Node:
    dtype = find(value.dtype)
    if dtype is None or value.dtype.hasobject:
        fail(b, DTypeError, f"an array of dtype {value.dtype} has no counterpart here", "dtype")
    if value.size > LITERAL_ELEMENTS:
        message = f"a literal array of {value.size} elements is too long"
        fail(b, ArgumentError, message, "literal-array", "pass it as an argument")
    if value.size == 0:
        return full(b, value.shape, 0, dtype)
    if value.ndim == 0:
        return ew.as_node(b, value.reshape(-1)[0], dtype)
    from fuser.construct.joining import stack

    return views.reshape(b, stack(b, [ew.as_node(b, v) for v in value.reshape(-1)]), value.shape)
