"""Small compositions of rows that users know by one name: diff, clip, select, nan_to_num, isclose, ...

In: nodes and the arguments of NumPy's function. Out: nodes built from scalar rows, views and reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.construct import complexes, indexing, joining, views
from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct.common import (
    Value,
    canonical_shape,
    describe,
    fail,
    has,
    is_host,
    normal_axes,
    normal_axis,
    static_int,
)
from fuser.construct.formula import handle, node_of
from fuser.dtypes import BOOL, F16, F64, I32, I64, compute_dtype
from fuser.errors import ArgumentError, ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr, call, wrap
from fuser.optable import table


def clip(b: Builder, x: Value, low: Any = None, high: Any = None) -> Node:
    """Limited to [low, high]; a None bound is none, nor is a Python int beyond all integers of the dtype."""
    if isinstance(x, Node) and x.dtype.is_integer:
        info = np.iinfo(x.dtype.numpy)
        low, high = _at_least(low, int(info.min)), _at_most(high, int(info.max))
    if low is not None and high is not None:
        return ew.node(b, "clip", x, low, high)
    if low is not None:
        return ew.node(b, "maximum", x, low)
    return ew.node(b, "minimum", x, high) if high is not None else ew.as_node(b, x)


def _at_least(bound: Any, lowest: int) -> Any:
    return call("max", bound, lowest) if is_host(bound) and wrap(bound).kind == "int" else bound


def _at_most(bound: Any, largest: int) -> Any:
    return call("min", bound, largest) if is_host(bound) and wrap(bound).kind == "int" else bound


def diff(b: Builder, x: Node, n: object = 1, axis: object = -1, prepend: Any = None, append: Any = None) -> Node:
    """n-th difference along an axis (`!=` for bool)."""
    along = normal_axis(b, axis, x.rank)
    parts = [_edge(b, x, v, along) for v in (prepend, append)]
    joined = [p for p in (parts[0], x, parts[1]) if p is not None]
    x = joining.concat(b, joined, along) if len(joined) > 1 else x
    before = (slice(None),) * along
    for _ in range(static_int(b, n, "n")):
        later, earlier = (indexing.getitem(b, x, (*before, s)) for s in (slice(1, None), slice(None, -1)))
        x = ew.node(b, "not_equal" if x.dtype == BOOL else "subtract", later, earlier)
    return x


def _edge(b: Builder, x: Node, value: Any, axis: int) -> Node | None:
    if value is None:
        return None
    node = ew.as_node(b, value)
    return (
        node if node.rank else views.broadcast_to(b, node, tuple(1 if k == axis else d for k, d in enumerate(x.shape)))
    )


def gradient(b: Builder, x: Node, *spacing: Any, axis: object = None) -> Node | tuple[Node, ...]:
    """Central differences inside, one-sided at the ends; spacing by numbers only."""
    axes = normal_axes(b, axis, x.rank)
    steps = list(spacing) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes) or not all(is_host(s) or isinstance(s, np.generic) for s in steps):
        fail(b, UnsupportedError, "np.gradient takes one number, or one a axis, as spacing here", "gradient")
    x = x if x.dtype.is_inexact else ew.cast(b, x, F64)
    for k in axes:
        if not has(b, x.shape[k], 2):
            fail(b, ShapeError, f"a slope needs two elements along axis {k} of {describe(b, x)}", "gradient")
    found = tuple(_slope(b, x, k, h) for k, h in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _slope(b: Builder, x: Node, axis: int, h: Any) -> Node:
    before = (slice(None),) * axis

    def part(lo: int | None, hi: int | None) -> Node:
        return indexing.getitem(b, x, (*before, slice(lo, hi)))

    def quotient(later: Node, earlier: Node, width: Any) -> Node:
        return ew.node(b, "divide", ew.node(b, "subtract", later, earlier), width)

    first = quotient(part(1, 2), part(0, 1), h)
    inner = quotient(part(2, None), part(None, -2), ew.apply(b, "multiply", h, 2.0))
    last = quotient(part(-1, None), part(-2, -1), h)
    return joining.concat(b, [first, inner, last], axis)


def trapezoid(b: Builder, y: Node, x: Any = None, dx: Any = 1.0, axis: object = -1) -> Node:
    """Trapezoidal rule along an axis."""
    along = normal_axis(b, axis, y.rank)
    before = (slice(None),) * along
    later, earlier = (indexing.getitem(b, y, (*before, s)) for s in (slice(1, None), slice(None, -1)))
    width = dx
    if x is not None:
        width = diff(b, ew.as_node(b, x), 1, -1 if ew.as_node(b, x).rank == 1 else along)
        if width.rank == 1 and y.rank > 1:
            width = views.expand_dims(b, width, tuple(k for k in range(y.rank) if k != along))
    scaled = ew.node(b, "multiply", width, ew.node(b, "add", later, earlier))
    return red.reduce(b, "sum", ew.node(b, "divide", scaled, 2.0), along)


def select(b: Builder, conditions: Sequence[Value], choices: Sequence[Value], default: Value = 0) -> Node:
    """The choice of the first condition that holds."""
    if len(conditions) != len(choices) or not conditions:
        fail(b, ArgumentError, "select needs as many choices as conditions, and at least one", "select")
    result: Value = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = ew.where(b, condition, choice, result)
    assert isinstance(result, Node)
    return result


def piecewise(b: Builder, x: Node, conditions: Sequence[Value], functions: Sequence[Any]) -> Node:
    """`np.piecewise` with functions of arrays or constants; the last one more than conditions is the default."""
    extra = functions[len(conditions)] if len(functions) == len(conditions) + 1 else 0

    def value(f: Any) -> Value:
        made = f(x) if callable(f) else f
        return ew.cast(b, made, x.dtype)

    result: Value = value(extra)
    for condition, f in zip(conditions, functions, strict=False):  # later conditions win, as in NumPy
        result = ew.where(b, condition, value(f), result)
    return ew.as_node(b, result)


def choose(b: Builder, index: Node, choices: Sequence[Value], mode: str = "raise") -> Node:
    """The choice numbered by `index`; out-of-range numbers are clamped ("raise", "clip") or wrapped."""
    if not choices:
        fail(b, ArgumentError, "choose needs at least one choice", "choose")
    if mode == "wrap":
        index = ew.node(b, "remainder", index, len(choices))
    result: Value = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        result = ew.where(b, ew.node(b, "less_equal", index, k), choices[k], result)
    return views.broadcast_arrays(b, ew.as_node(b, result), index)[0]


def nan_to_num(b: Builder, x: Node, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    """NaN and infinities replaced (by the largest finite values unless given), in the dtype of `x`."""
    if x.dtype.is_complex:
        return complexes.by_part(b, x, lambda p: nan_to_num(b, p, nan, posinf, neginf))
    if not x.dtype.is_float:
        return x
    top = float(np.finfo(np.float32).max) if x.dtype.name == "bf16" else float(np.finfo(x.dtype.numpy).max)
    if x.dtype.name == "bf16":
        top = float.fromhex("0x1.fep+127")
    high, low = (top if posinf is None else posinf), (-top if neginf is None else neginf)
    nan, high, low = (ew.as_node(b, v, x.dtype) for v in (nan, high, low))
    result = ew.where(b, ew.node(b, "isnan", x), nan, x)
    result = ew.where(b, ew.node(b, "equal", x, float("inf")), high, result)
    return ew.where(b, ew.node(b, "equal", x, float("-inf")), low, result)


def round_(b: Builder, x: Value, decimals: object = 0) -> Node:
    """Rounded half to even, to a number of decimals, as NumPy does it (scale, rint, scale back)."""
    places = static_int(b, decimals, "decimals")
    node = ew.as_node(b, x)
    if node.dtype == BOOL:
        return ew.cast(b, node, F16)
    if node.dtype.is_complex:
        return complexes.by_part(b, node, lambda p: round_(b, p, places))
    if not node.dtype.is_float:
        if places >= 0:
            return node
        factor = 10**-places
        half = ew.node(b, "divide", ew.cast(b, node, F64), float(factor))
        return ew.cast(b, ew.node(b, "multiply", ew.node(b, "rint", half), float(factor)), node.dtype)
    if places == 0:
        return ew.node(b, "rint", node)
    factor = 10 ** abs(places)
    there, back = ("multiply", "divide") if places > 0 else ("divide", "multiply")
    return ew.node(b, back, ew.node(b, "rint", ew.node(b, there, node, float(factor))), float(factor))


def isclose(b: Builder, x: Value, y: Value, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Node:
    """|x - y| <= atol + rtol * |y|, infinities equal to themselves."""
    x, y = ew.as_node(b, x), ew.as_node(b, y)
    x = x if x.dtype.is_inexact else ew.cast(b, x, F64)
    y = y if y.dtype.is_inexact else ew.cast(b, y, F64)
    bound = ew.node(b, "add", ew.node(b, "multiply", ew.node(b, "absolute", y), rtol), atol)
    near = ew.node(b, "less_equal", ew.node(b, "absolute", ew.node(b, "subtract", x, y)), bound)
    near = ew.node(b, "logical_and", near, ew.node(b, "isfinite", y))
    result = ew.node(b, "logical_or", near, ew.node(b, "equal", x, y))
    if equal_nan:
        both = ew.node(b, "logical_and", ew.node(b, "isnan", x), ew.node(b, "isnan", y))
        result = ew.node(b, "logical_or", result, both)
    return result


def array_equal(b: Builder, x: Node, y: Node, equal_nan: bool = False) -> Node:
    """Whether two arrays of one shape agree everywhere; False at once for shapes known to differ."""
    if x.rank != y.rank or any(
        isinstance(p, int) and isinstance(q, int) and p != q
        for p, q in zip(canonical_shape(b, x.shape), canonical_shape(b, y.shape), strict=True)
    ):
        return ew.as_node(b, False)
    same = ew.node(b, "equal", x, y)
    if equal_nan and x.dtype.is_inexact and y.dtype.is_inexact:
        both = ew.node(b, "logical_and", ew.node(b, "isnan", x), ew.node(b, "isnan", y))
        same = ew.node(b, "logical_or", same, both)
    return red.reduce(b, "all", same)


def polyval(b: Builder, coefficients: Any, x: Value) -> Node:
    """Horner's rule, highest power first."""
    if isinstance(coefficients, Node):
        length = static_int(b, coefficients.shape[0], "the number of coefficients")
        items: list[Value] = [indexing.getitem(b, coefficients, k) for k in range(length)]
    else:  # NumPy makes an array of them: strong numbers
        items = [ew.as_node(b, c) if is_host(c) else c for c in coefficients]
    result: Value = ew.node(b, "multiply", x, 0)
    for c in items:
        result = ew.node(b, "add", ew.node(b, "multiply", result, x), c)
    return ew.as_node(b, result)


def interp(b: Builder, x: Value, xp: Node, fp: Node, left: Any = None, right: Any = None) -> Node:
    """Linear interpolation in a table of static length (compared with every knot)."""
    knots = static_int(b, b.shapes.canonical(xp.shape[0]), "the number of knots of interp")
    if xp.rank != 1 or fp.rank != 1 or not b.shapes.unify(fp.shape[0], knots, b.span):
        fail(b, ShapeError, f"interp needs 1-d tables of one length: {describe(b, xp)}, {describe(b, fp)}", "interp")
    at = ew.cast(b, x, F64)
    lower = red.count_nonzero(
        b, ew.node(b, "greater_equal", views.expand_dims(b, at, at.rank), ew.cast(b, xp, F64)), -1
    )
    k = ew.node(b, "clip", ew.node(b, "subtract", lower, 1), 0, max(knots - 2, 0))
    x0, f0 = (ew.cast(b, indexing.take(b, t, k), F64) for t in (xp, fp))
    after = ew.node(b, "minimum", ew.node(b, "add", k, 1), knots - 1)
    x1, f1 = (ew.cast(b, indexing.take(b, t, after), F64) for t in (xp, fp))
    slope = ew.node(b, "divide", ew.node(b, "subtract", f1, f0), ew.node(b, "subtract", x1, x0))

    def line(x: Node, f: Node) -> Node:
        return ew.node(b, "add", ew.node(b, "multiply", slope, ew.node(b, "subtract", at, x)), f)

    value = _finite(b, line(x0, f0), line(x1, f1), f0, f1)
    value = ew.where(b, ew.node(b, "equal", at, x0), f0, ew.where(b, ew.node(b, "isnan", at), at, value))
    first, last = (ew.cast(b, indexing.getitem(b, fp, e), F64) for e in (0, -1))
    value = ew.where(b, ew.node(b, "less", at, indexing.getitem(b, xp, 0)), first if left is None else left, value)
    at_end = ew.node(b, "greater_equal", at, indexing.getitem(b, xp, -1))
    beyond = ew.node(b, "greater", at, indexing.getitem(b, xp, -1))
    value = ew.where(b, at_end, last, value)
    return value if right is None else ew.where(b, beyond, right, value)


def _finite(b: Builder, value: Node, other: Node, f0: Node, f1: Node) -> Node:
    """NumPy's answer between knots of infinite height: from the other knot where one gives NaN, else their common
    height."""
    level = ew.node(b, "logical_and", ew.node(b, "isnan", other), ew.node(b, "equal", f0, f1))
    return ew.where(b, ew.node(b, "isnan", value), ew.where(b, level, f0, other), value)


def divmod_(b: Builder, x: Value, y: Value) -> tuple[Node | HostExpr, Node | HostExpr]:
    """Floor quotient and remainder."""
    return ew.apply(b, "floor_divide", x, y), ew.apply(b, "remainder", x, y)


def as_ufunc_float(b: Builder, x: Value) -> Node:
    """An operand of a float function, in the dtype that NumPy's ufuncs compute it in (i8 in f16, i16 in f32, ...)."""
    return ew.as_node(b, x, ew.resolve(b, table().scalar("sqrt"), (x,)).operands[0])


def modf(b: Builder, x: Value) -> tuple[Node, Node]:
    """Fractional and integral part, both with the sign of x; the fraction of an infinity is 0."""
    node = as_ufunc_float(b, x)
    whole = ew.node(b, "trunc", node)
    infinite = ew.node(b, "isinf", node)
    fraction = ew.where(b, infinite, ew.as_node(b, 0.0, node.dtype), ew.node(b, "subtract", node, whole))
    return ew.node(b, "copysign", fraction, node), whole


def frexp(b: Builder, x: Value) -> tuple[Node, Node]:
    """x as mantissa * 2**exponent, 0.5 <= |mantissa| < 1; zeros, infinities and NaN are themselves with exponent 0."""
    node = as_ufunc_float(b, x)
    wide = handle(b, ew.cast(b, node, compute_dtype(node.dtype)))
    integer, digits, bias = (I32, 23, 126) if wide.dtype.bits == 32 else (I64, 52, 1022)
    tiny = wide.op("absolute") < 2.0 ** (1 - bias)  # subnormals are scaled into the normal range first
    bits = (wide * tiny.where(wide.like(2.0 ** (digits + 1)), 1.0)).bits(integer)
    field = (1 << (wide.dtype.bits - 1 - digits)) - 1
    exponent = ((bits >> digits) & field) - bias - tiny.where(bits.like(digits + 1), 0)
    mantissa = ((bits & ~(field << digits)) | (bias << digits)).bits(wide.dtype)
    plain = wide.op("isfinite", dtype=BOOL) & wide.ne(0)
    mantissa, exponent = plain.where(mantissa, wide), plain.where(exponent, 0)
    return ew.cast(b, node_of(b, mantissa), node.dtype), ew.cast(b, node_of(b, exponent), I32)
