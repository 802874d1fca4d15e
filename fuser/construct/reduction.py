"""Reductions, what is made of them (mean, var, std, norms of data), and scans.

In: a row's name, a node, and NumPy's arguments (axis, keepdims, dtype, where, initial, ddof). Out: a reduce or
scan node behind the casts that NumPy's accumulator rules ask for, and a view for `keepdims`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.construct import complexes, views
from fuser.construct import elementwise as ew
from fuser.construct.common import (
    Value,
    assume,
    canonical_shape,
    check_value,
    describe,
    dtype_of,
    fail,
    is_host,
    maybe_empty,
    normal_axes,
    normal_axis,
    static_int,
)
from fuser.dtypes import BOOL, F32, F64, I64, U64, DType
from fuser.errors import ArgumentError, DTypeError, ShapeError
from fuser.graph import Builder, ItemAttrs, Node, ReduceAttrs, ScanAttrs, ViewAttrs
from fuser.hostexpr import Dim, call, wrap
from fuser.indexmap import IndexMap, axis
from fuser.optable import table
from fuser.optable.base import Reduction, Scan
from fuser.shapes import numel

_BINARY = {
    "sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip
_NUMPY_NAME = {"min": "minimum", "max": "maximum"}  # as NumPy's messages call them


def widened(dtype: DType) -> DType:
    """The accumulator of sum, prod and their scans: small integers and bool become 64 bits wide."""
    if dtype == BOOL or dtype.kind == "i":
        return I64
    return U64 if dtype.kind == "u" else dtype


def reduce(
    b: Builder,
    name: str,
    x: Value,
    axis: object = None,
    keepdims: bool = False,
    dtype: object = None,
    where: Value | None = None,
    initial: Value | None = None,
) -> Node:
    """Reduce by row `name` over `axis` (None: all, an int, or a tuple).

    Raises ShapeError ("no identity") for min/max over an axis of length 0 without `initial`; DTypeError where the
    row refuses the dtype or `where` needs an `initial`.
    """
    row = table().reduction(name)
    array = _accumulator(b, row, ew.as_node(b, x), dtype)
    if where is not None:
        array = _select(b, row, array, where, initial)
    axes = _reduced_axes(b, axis, array.rank)
    if is_host(initial) and wrap(initial).is_literal:  # type: ignore[arg-type]
        check_value(b, wrap(initial).value, row.results(array.dtype)[0])  # type: ignore[arg-type]
    if row.empty == "error":
        if initial is not None and numel(array.shape[a] for a in axes) == 0:
            return _filled(b, array, axes, keepdims, initial)
        _check_empty(b, row, array, axes, initial)
    result = raw(b, name, array, axes)
    if dtype is not None and name in _BINARY:
        result = ew.cast(b, result, dtype)
    if initial is not None:
        if name not in _BINARY:
            fail(b, ArgumentError, f"`{name}` takes no `initial`", "initial")
        result = ew.node(b, _BINARY[name], result, ew.as_node(b, initial, result.dtype))
    return keep(b, result, axes) if keepdims else result


def _reduced_axes(b: Builder, axis: object, rank: int) -> tuple[int, ...]:
    """Ascending axes. An array of no axes may be reduced over 0 or -1, as in NumPy and torch."""
    if rank == 0 and axis is not None and not isinstance(axis, tuple | list) and static_int(b, axis, "axis") in (0, -1):
        return ()
    return tuple(sorted(normal_axes(b, axis, rank)))


def raw(b: Builder, name: str, x: Node, axes: tuple[int, ...]) -> Node:
    """The bare reduce node over ascending axes; `x` already has an accepted dtype."""
    row = table().reduction(name)
    shape = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    return b.make(name, (x,), ReduceAttrs(axes), row.results(x.dtype)[0], shape)


def item(b: Builder, reduced: Node, k: int) -> Node:
    """Result `k` of a reduction with several."""
    if k == 0:
        return reduced
    dtypes = table().reduction(reduced.op).results(reduced.inputs[0].dtype)
    return b.make("item", (reduced,), ItemAttrs(k), dtypes[k], reduced.shape)


def keep(b: Builder, reduced: Node, axes: tuple[int, ...]) -> Node:
    """Reduced axes put back with length 1."""
    return views.expand_dims(b, reduced, axes) if axes else reduced


def _accumulator(b: Builder, row: Reduction, x: Node, dtype: object) -> Node:
    """The operand in the dtype that the reduction accumulates."""
    if dtype is not None:
        target = dtype_of(b, dtype)
        x = ew.cast(b, x, target)
    elif row.name in ("sum", "prod"):
        x = ew.cast(b, x, widened(x.dtype))
    accepted = row.accepts(x.dtype)
    if accepted is None and x.dtype.is_complex:
        complexes.refuse(b, row.name)
    if accepted is None:
        fail(b, DTypeError, f"`{row.name}` does not take {describe(b, x)}", "dtype")
    return ew.cast(b, x, accepted)


def _select(b: Builder, row: Reduction, x: Node, where: Value, initial: Value | None) -> Node:
    """Elements that `where` excludes become neutral."""
    if row.empty == "error" and initial is None:
        message = f"reduction operation '{_NUMPY_NAME.get(row.name, row.name)}' does not have an identity, so"
        fail(b, ArgumentError, f"{message} to use a where mask one has to specify 'initial'", "no-identity")
    if len(row.state(x.dtype)) != 1:
        fail(b, ArgumentError, f"`{row.name}` takes no `where`", "where")
    neutral = ew.as_node(b, row.identity(x.dtype)[0], x.dtype)
    return ew.where(b, ew.cast(b, where, BOOL), x, neutral)


def _check_empty(b: Builder, row: Reduction, x: Node, axes: tuple[int, ...], initial: Value | None) -> None:
    """No identity: a reduced axis of length 0 is an error, decided now or guarded."""
    if initial is not None:
        return
    shape = canonical_shape(b, x.shape)
    if row.name not in ("argmax", "argmin") and numel(d for k, d in enumerate(shape) if k not in axes) == 0:
        return
    for k in axes:
        if maybe_empty(shape[k]) and not assume(b, shape[k], ">=", 1):
            if row.name in ("argmax", "argmin"):
                message = f"attempt to get {row.name} of an empty sequence: {describe(b, x)} has no identity"
            else:
                operation = _NUMPY_NAME.get(row.name, row.name)
                message = f"zero-size array to reduction operation {operation} which has no identity"
            fail(b, ShapeError, message, "no-identity", f"axis {k} of {describe(b, x)} has length 0; pass initial=")


def _filled(b: Builder, x: Node, axes: tuple[int, ...], keepdims: bool, initial: Value) -> Node:
    shape = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    result = views.broadcast_to(b, ew.as_node(b, initial, x.dtype), shape)
    return keep(b, result, axes) if keepdims else result


# -- arg reductions and counts ---------------------------------------------------------------------
def arg(b: Builder, name: str, x: Value, axis: object = None, keepdims: bool = False) -> Node:
    """`argmax` or `argmin`: i64 index of the first extreme (NaN counts as extreme); None: over the flat array."""
    array = ew.as_node(b, x)
    if axis is not None:
        static_int(b, axis, "axis")
    return reduce(b, name, array, axis, keepdims)


def argmax(b: Builder, x: Value, axis: object = None, keepdims: bool = False) -> Node:
    """Index of the first largest element."""
    return arg(b, "argmax", x, axis, keepdims)


def argmin(b: Builder, x: Value, axis: object = None, keepdims: bool = False) -> Node:
    """Index of the first smallest element."""
    return arg(b, "argmin", x, axis, keepdims)


def count_nonzero(b: Builder, x: Value, axis: object = None, keepdims: bool = False) -> Node:
    """How many elements are not zero, as i64."""
    return reduce(b, "sum", ew.cast(b, x, BOOL), axis, keepdims, dtype=I64)


def ptp(b: Builder, x: Value, axis: object = None, keepdims: bool = False) -> Node:
    """Maximum minus minimum."""
    return ew.node(b, "subtract", reduce(b, "max", x, axis, keepdims), reduce(b, "min", x, axis, keepdims))


# -- means and variances ---------------------------------------------------------------------------
def mean(
    b: Builder, x: Value, axis: object = None, keepdims: bool = False, dtype: object = None, where: Value | None = None
) -> Node:
    """Arithmetic mean: the sum over the count. Integers are averaged in f64, halves in f32; an empty one is NaN."""
    array = ew.as_node(b, x)
    acc, result = _float_dtypes(b, array.dtype, dtype)
    axes = tuple(sorted(normal_axes(b, axis, array.rank)))
    total = reduce(b, "sum", array, axes, dtype=acc, where=where)
    averaged = _over_count(b, total, _count(b, array, axes, where), acc)
    averaged = ew.cast(b, averaged, result)
    return keep(b, averaged, axes) if keepdims else averaged


def _float_dtypes(b: Builder, dtype: DType, asked: object) -> tuple[DType, DType]:
    """(accumulator, result) dtypes of a mean or variance."""
    result = dtype_of(b, asked) if asked is not None else (dtype if dtype.is_inexact else F64)
    if asked is not None:
        return (F32 if result.is_half else result), result
    return (F32 if dtype.is_half else result), result


def _count(b: Builder, x: Node, axes: tuple[int, ...], where: Value | None) -> Dim | Node:
    if where is not None:
        mask = views.broadcast_to(b, ew.cast(b, where, BOOL), x.shape)
        return count_nonzero(b, mask, axes)
    return numel(b.shapes.canonical(x.shape[a]) for a in axes)


def _over_count(b: Builder, total: Node, count: Dim | Node, dtype: DType) -> Node:
    divisor = ew.cast(b, count, dtype) if isinstance(count, Node) else ew.as_node(b, count, dtype)
    return ew.node(b, "divide", total, divisor)


def var(
    b: Builder,
    x: Value,
    axis: object = None,
    keepdims: bool = False,
    ddof: Any = 0,
    dtype: object = None,
    where: Value | None = None,
    mean: Node | None = None,
) -> Node:
    """Variance in one pass over deviations from a value amid the data (see `_typical`); divides by max(n - ddof, 0).

    The pass sums the deviations and their squares; the square of the first sum over n takes out what the centre missed
    the mean by. With `where` or a given mean, and where an axis may be empty, the centre is the mean: two passes.
    """
    array = ew.as_node(b, x)
    acc, result = _float_dtypes(b, array.dtype, dtype)
    axes = tuple(sorted(normal_axes(b, axis, array.rank)))
    if array.dtype.is_complex:
        return _complex_var(b, array, axes, keepdims, ddof, where, mean)
    wide = ew.cast(b, array, acc)
    centre = ew.cast(b, mean, acc) if mean is not None else _centre(b, wide, axes, where)
    centred = ew.node(b, "subtract", wide, centre)
    squares = reduce(b, "sum", ew.node(b, "multiply", centred, centred), axes, where=where)
    count = _count(b, array, axes, where)
    if mean is None:
        drift = reduce(b, "sum", centred, axes, where=where)
        excess = ew.node(b, "multiply", drift, _over_count(b, drift, count, acc))
        squares = ew.node(b, "maximum", ew.node(b, "subtract", squares, excess), 0)  # never below 0 by rounding
    averaged = _over_count(b, squares, _degrees(b, count, ddof), acc)
    averaged = ew.cast(b, averaged, result)
    return keep(b, averaged, axes) if keepdims else averaged


def _complex_var(
    b: Builder, x: Node, axes: tuple[int, ...], keepdims: bool, ddof: Any, where: Value | None, centre: Node | None
) -> Node:
    """The mean squared modulus of the deviations from the mean: a real."""
    if centre is None:
        total = reduce(b, "sum", x, axes, where=where)
        centre = keep(b, _over_count(b, total, _count(b, x, axes, where), x.dtype), axes)
    squares = complexes.squared_modulus(b, ew.node(b, "subtract", x, centre))
    count = _count(b, x, axes, where)
    averaged = _over_count(b, reduce(b, "sum", squares, axes, where=where), _degrees(b, count, ddof), squares.dtype)
    return keep(b, averaged, axes) if keepdims else averaged


def _centre(b: Builder, x: Node, axes: tuple[int, ...], where: Value | None) -> Node:
    """A value to measure deviations from, with the reduced axes of length 1."""
    if where is None and not any(maybe_empty(b.shapes.canonical(x.shape[a])) for a in axes):
        return _typical(b, x, axes)
    total = reduce(b, "sum", x, axes, where=where)
    return keep(b, _over_count(b, total, _count(b, x, axes, where), x.dtype), axes)


def _typical(b: Builder, x: Node, axes: tuple[int, ...]) -> Node:
    """The median of the elements a quarter, half and three quarters along each reduced axis (NaN if one is).

    Shifted sums lose about (centre - mean)^2 / variance in relative accuracy. For the median of the data that is at
    most 1, whatever their distribution; of three samples two must be rare values (a share f of them) for it to reach
    1/f.
    """
    first, middle, last = (_sample(b, x, axes, quarter) for quarter in (1, 2, 3))
    low, high = ew.node(b, "minimum", first, middle), ew.node(b, "maximum", first, middle)
    return ew.node(b, "maximum", low, ew.node(b, "minimum", high, last))


def _sample(b: Builder, x: Node, axes: tuple[int, ...], quarter: int) -> Node:
    shape = tuple(1 if k in axes else d for k, d in enumerate(x.shape))
    places = (call("//", wrap(d) * quarter, 4) if k in axes else axis(k) for k, d in enumerate(x.shape))
    return b.make("view", (x,), ViewAttrs(IndexMap(tuple(places))), x.dtype, shape)


def _degrees(b: Builder, count: Dim | Node, ddof: Any) -> Any:
    """max(count - ddof, 0)."""
    if isinstance(ddof, Node) or not is_host(ddof):
        fail(b, ArgumentError, f"ddof must be a number, not {describe(b, ddof)}", "ddof")
    if isinstance(count, Node):
        return ew.node(b, "maximum", ew.node(b, "subtract", count, ddof), 0)
    if isinstance(ddof, int) and ddof == 0:
        return count
    return call("max", wrap(count) - ddof, 0)


def std(
    b: Builder,
    x: Value,
    axis: object = None,
    keepdims: bool = False,
    ddof: Any = 0,
    dtype: object = None,
    where: Value | None = None,
    mean: Node | None = None,
) -> Node:
    """Square root of the variance."""
    return ew.node(b, "sqrt", var(b, x, axis, keepdims, ddof, dtype, where, mean))


def average(b: Builder, x: Value, axis: object = None, weights: Node | None = None, keepdims: bool = False) -> Node:
    """Weighted mean; 1-d weights run along one axis."""
    if weights is None:
        return mean(b, x, axis, keepdims)
    array = ew.as_node(b, x)
    if weights.rank != array.rank:
        if axis is None or weights.rank != 1:
            fail(b, ShapeError, f"weights {describe(b, weights)} do not fit {describe(b, array)}", "average")
        k = normal_axis(b, axis, array.rank)
        weights = views.expand_dims(b, weights, tuple(a for a in range(array.rank) if a != k))
    weights = views.broadcast_to(b, weights, array.shape)
    scaled = ew.node(b, "multiply", array, weights)
    if not scaled.dtype.is_inexact:
        scaled = ew.cast(b, scaled, F64)
    total = reduce(b, "sum", ew.cast(b, weights, scaled.dtype), axis, keepdims)
    return ew.node(b, "divide", reduce(b, "sum", scaled, axis, keepdims), total)


# -- NaN-skipping forms ----------------------------------------------------------------------------
def nan_reduce(b: Builder, name: str, x: Value, axis: object = None, keepdims: bool = False, **options: Any) -> Node:
    """nansum, nanprod, nanmin, nanmax, nanmean, nanvar, nanstd, nanargmax/min by masking NaNs."""
    array = ew.as_node(b, x)
    plain: Callable[..., Node] = _PLAIN[name]
    if not array.dtype.is_inexact:
        return plain(b, array, axis, keepdims, **options)
    valid = ew.node(b, "logical_not", ew.node(b, "isnan", array))
    if name in ("min", "max"):
        neutral = float("inf") if name == "min" else float("-inf")
        extreme = reduce(b, name, ew.where(b, valid, array, neutral), axis, keepdims, **options)
        return ew.where(b, reduce(b, "any", valid, axis, keepdims), extreme, float("nan"))
    if name in ("argmin", "argmax"):
        neutral = float("inf") if name == "argmin" else float("-inf")
        return arg(b, name, ew.where(b, valid, array, neutral), axis, keepdims)
    cleaned = ew.where(b, valid, array, 1 if name == "prod" else 0)
    if name in ("sum", "prod"):
        return reduce(b, name, cleaned, axis, keepdims, **options)
    return plain(b, cleaned, axis, keepdims, where=valid, **options)


_PLAIN: dict[str, Any] = {
    "mean": mean,
    "var": var,
    "std": std,
    "argmax": argmax,
    "argmin": argmin,
    **{name: (lambda b, x, axis, keepdims, _n=name, **o: reduce(b, _n, x, axis, keepdims, **o)) for name in _BINARY},
}


# -- scans -----------------------------------------------------------------------------------------
def scan(
    b: Builder,
    name: str,
    x: Value,
    axis: object = None,
    dtype: object = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Node:
    """Prefix fold by scan row `name` (cumsum, cumprod, cummax, ...); over the flat array without an axis."""
    row = table().known[name]
    assert isinstance(row, Scan), name
    array = ew.as_node(b, x)
    if axis is None:
        array, axis = views.ravel(b, array), 0
    along = normal_axis(b, axis, array.rank)
    if name == "cumprod" and (array.dtype.is_complex or (dtype is not None and dtype_of(b, dtype).is_complex)):
        complexes.refuse(b, name)
    array = _accumulator(b, table().reduction(row.reduction), array, dtype)
    result = table().reduction(row.reduction).results(array.dtype)[0]
    made = b.make(name, (array,), ScanAttrs(along, exclusive, reverse), result, array.shape)
    return made if dtype is None else ew.cast(b, made, dtype)  # small integers wrap at their own width
