"""Selection and small elementwise compositions: rows over `fuser.construct.indexing` and `calculus`.

In: nothing. Out: `Function` rows with NumPy's signatures.
"""

from __future__ import annotations

import math
from typing import Any

from fuser.construct import calculus, complexes, creation, indexing
from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct.common import assume, describe, fail, has, is_host, normal_axes, normal_axis, static_int
from fuser.dtypes import BOOL
from fuser.errors import ArgumentError, ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, as_float, function, no_out
from fuser.optable.base import Table


def _clip(
    b: Builder, x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Node:
    """numpy.clip; `min`/`max` are the newer names of its bounds, and torch's."""
    no_out(b, out)
    return calculus.clip(b, x, a_min if min is None else min, a_max if max is None else max)


def _round(b: Builder, x: Node, decimals: Any = 0) -> Node:
    return calculus.round_(b, x, decimals)


def _select(b: Builder, condlist: Any, choicelist: Any, default: Any = 0) -> Node:
    return calculus.select(b, [_value(b, c) for c in condlist], [_value(b, c) for c in choicelist], _value(b, default))


def _value(b: Builder, x: Any) -> Any:
    return creation.array(b, x) if isinstance(x, list | tuple) else x


def _choose(b: Builder, x: Node, choices: Any, out: Any = None, mode: str = "raise") -> Node:
    no_out(b, out)
    items = [_value(b, c) for c in choices] if isinstance(choices, list | tuple) else [choices]
    return calculus.choose(b, x, items, mode)


def _piecewise(b: Builder, x: Node, condlist: Any, funclist: Any) -> Node:
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    return calculus.piecewise(b, x, conditions, list(funclist))


def _take(b: Builder, x: Node, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Node:
    no_out(b, out)
    return indexing.take(b, x, indices, axis, mode)


def _gather(b: Builder, x: Node, axis: Any, index: Node) -> Node:
    """torch.gather: take_along_axis on the corner of x that index covers."""
    k = normal_axis(b, axis, x.rank)
    corner = tuple(slice(None) if a == k else slice(0, d) for a, d in enumerate(index.shape))
    return indexing.take_along_axis(b, indexing.getitem(b, x, corner), index, k)


def _index_select(b: Builder, x: Node, axis: Any, index: Node) -> Node:
    return indexing.take(b, x, index, axis)


def _embedding(b: Builder, indices: Node, weight: Node) -> Node:
    """Rows of a table by index."""
    return indexing.take(b, weight, indices, 0)


def _narrow(b: Builder, x: Node, axis: Any, start: Any, length: Any) -> Node:
    k = normal_axis(b, axis, x.rank)
    return indexing.getitem(b, x, (*(slice(None),) * k, slice(start, ew.apply(b, "add", start, length))))


def _select_torch(b: Builder, x: Node, axis: Any, index: Any) -> Node:
    k = normal_axis(b, axis, x.rank)
    return indexing.getitem(b, x, (*(slice(None),) * k, index))


def _masked_fill(b: Builder, x: Node, mask: Any, value: Any) -> Node:
    filler = ew.as_node(b, value, x.dtype) if is_host(value) else ew.cast(b, value, x.dtype)
    return ew.where(b, mask, filler, x)


def _lerp(b: Builder, x: Node, end: Node, weight: Any) -> Node:
    return ew.node(b, "add", x, ew.node(b, "multiply", weight, ew.node(b, "subtract", end, x)))


def _addcmul(b: Builder, x: Node, one: Node, two: Node, value: Any = 1) -> Node:
    return ew.node(b, "add", x, ew.node(b, "multiply", ew.apply(b, "multiply", one, value), two))


def _addcdiv(b: Builder, x: Node, one: Node, two: Node, value: Any = 1) -> Node:
    return ew.node(b, "add", x, ew.node(b, "multiply", ew.node(b, "divide", one, two), value))


def _sinc(b: Builder, x: Node) -> Node:
    """sin(pi x) / (pi x), and 1 at 0."""
    scaled = ew.node(b, "multiply", as_float(b, x), math.pi)
    quotient = ew.node(b, "divide", ew.node(b, "sin", scaled), scaled)
    return ew.where(b, ew.node(b, "equal", scaled, 0), 1.0, quotient)


def _fix(b: Builder, x: Node) -> Node:
    return ew.node(b, "trunc", x)


def _astype(b: Builder, x: Node, dtype: Any) -> Node:
    return ew.cast(b, x, dtype)


def _sign_infinite(sign: float) -> Any:
    def build(b: Builder, x: Node) -> Node:
        return ew.node(b, "equal", as_float(b, x), sign * math.inf)

    return build


def _has_imaginary(answer: bool) -> Any:
    """Whether (or not) the imaginary part is not zero."""
    name = "not_equal" if answer else "equal"
    return lambda b, x: (
        ew.node(b, name, complexes.imag(b, x), 0) if x.dtype.is_complex else creation.full(b, x.shape, not answer, BOOL)
    )


def _real_if_close(b: Builder, x: Node, tol: Any = 100) -> Node:
    if x.dtype.is_complex:
        message = "whether the result of real_if_close is real depends on data"
        fail(b, UnsupportedError, message, "data-dependent-shape", "write z.real")
    return x


def _angle(b: Builder, x: Node, deg: bool = False) -> Node:
    """The argument in radians or degrees; of real numbers 0, or pi for negative ones."""
    found = complexes.angle(b, as_float(b, x))
    return ew.node(b, "multiply", found, 180 / math.pi) if deg else found


def _centred(direction: int) -> Any:
    """fftshift (1) or its inverse (-1): rolls by half of each axis."""

    def build(b: Builder, x: Node, axes: Any = None) -> Node:
        from fuser.construct import views

        for k in normal_axes(b, axes, x.rank):
            half = static_int(b, b.shapes.canonical(x.shape[k]), "the length of a shifted axis") // 2
            x = views.roll(b, x, direction * half, k)
        return x

    return build


def _isin(b: Builder, x: Node, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Node:
    """Membership by comparison with every element of a table of any length."""
    from fuser.construct import views

    members = views.ravel(b, creation.array(b, test_elements))
    hit = red.reduce(b, "any", ew.node(b, "equal", views.expand_dims(b, x, x.rank), members), -1)
    return ew.node(b, "logical_not", hit) if invert else hit


def _searchsorted(b: Builder, table: Node, v: Node, side: str = "left", sorter: Any = None) -> Node:
    """Insertion points in a sorted table, by comparison with every element."""
    from fuser.construct import views

    if sorter is not None or side not in ("left", "right") or table.rank != 1:
        message = "searchsorted takes a sorted 1-d table, side 'left' or 'right', and no sorter"
        fail(b, ArgumentError, message, "searchsorted")
    below = ew.node(b, "less" if side == "left" else "less_equal", table, views.expand_dims(b, v, v.rank))
    return red.count_nonzero(b, below, -1)


def _convolve(b: Builder, x: Node, kernel: Node, mode: str = "full", flip: bool = True) -> Node:
    """1-d convolution with a kernel of static length, as a sum of shifted products."""
    from fuser.construct import joining, views

    if x.rank != 1 or kernel.rank != 1 or mode not in ("full", "same", "valid"):
        fail(b, ArgumentError, "convolve takes two 1-d arrays and mode 'full', 'same' or 'valid'", "convolve")
    if not (has(b, x.shape[0]) and has(b, kernel.shape[0])):
        fail(b, ShapeError, f"nothing to convolve: {describe(b, x)} with {describe(b, kernel)}", "convolve")
    k = static_int(b, b.shapes.canonical(kernel.shape[0]), "the length of a kernel")
    if mode != "full" and not assume(b, x.shape[0], ">=", k):  # NumPy moves the shorter one over the longer one
        swapped = _convolve(b, kernel, x, mode, flip)
        return swapped if flip else views.flip(b, swapped)
    taps = views.flip(b, kernel) if flip else kernel
    before = {"full": k - 1, "same": k // 2, "valid": 0}[mode]
    after = {"full": k - 1, "same": (k - 1) // 2, "valid": 0}[mode]
    padded = joining.pad(b, x, ((before, after),))
    length = ew.apply(b, "add", ew.apply(b, "subtract", padded.shape[0], k), 1)
    total: Node | None = None
    for i in range(k):
        part = indexing.getitem(b, padded, slice(i, ew.apply(b, "add", length, i)))
        term = ew.node(b, "multiply", part, indexing.getitem(b, taps, i))
        total = term if total is None else ew.node(b, "add", total, term)
    assert total is not None
    return total


def _correlate(b: Builder, x: Node, kernel: Node, mode: str = "valid") -> Node:
    return _convolve(b, x, kernel, mode, flip=False)


def _geomspace(b: Builder, start: Any, stop: Any, num: Any = 50, endpoint: bool = True) -> Node:
    """Evenly spaced on a logarithmic scale; the ends are exact."""
    first, last = ew.as_node(b, start), ew.as_node(b, stop)
    lo, hi = (ew.node(b, "log10", as_float(b, ew.node(b, "absolute", v))) for v in (first, last))
    values = ew.node(b, "power", 10.0, creation.linspace(b, lo, hi, num, endpoint))
    signed = ew.node(b, "copysign", values, as_float(b, first))
    index = creation.iota(b, signed.shape, 0)
    signed = ew.where(b, ew.node(b, "equal", index, 0), as_float(b, first), signed)
    if not endpoint:
        return signed
    at_end = ew.node(b, "equal", index, ew.apply(b, "subtract", num, 1))
    return ew.where(b, at_end, as_float(b, last), signed)


def _unwrap(b: Builder, x: Node, discont: Any = None, axis: Any = -1, *, period: Any = 2 * math.pi) -> Node:
    """Jumps of more than half a period taken out, as NumPy does it for float periods."""
    from fuser.construct import joining

    x = as_float(b, x)
    k = normal_axis(b, axis, x.rank)
    step = calculus.diff(b, x, 1, k)
    half = ew.apply(b, "divide", period, 2.0)
    wrapped = ew.node(b, "subtract", ew.node(b, "remainder", ew.node(b, "add", step, half), period), half)
    at_low = ew.node(b, "equal", wrapped, ew.apply(b, "negative", half))
    wrapped = ew.where(b, ew.node(b, "logical_and", at_low, ew.node(b, "greater", step, 0)), half, wrapped)
    fix = ew.node(b, "subtract", wrapped, step)
    limit = half if discont is None else discont
    fix = ew.where(b, ew.node(b, "less", ew.node(b, "absolute", step), limit), 0.0, fix)
    first = indexing.getitem(b, x, (*(slice(None),) * k, slice(None, 1)))
    rest = indexing.getitem(b, x, (*(slice(None),) * k, slice(1, None)))
    return joining.concat(b, [first, ew.node(b, "add", rest, red.scan(b, "cumsum", fix, k))], k)


def _allclose(b: Builder, x: Node, y: Node, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Node:
    return red.reduce(b, "all", calculus.isclose(b, x, y, rtol, atol, equal_nan))


def _ediff1d(b: Builder, x: Node, to_end: Any = None, to_begin: Any = None) -> Node:
    from fuser.construct import joining, views

    inner = calculus.diff(b, views.ravel(b, x))
    ends = [views.ravel(b, creation.array(b, e)) if e is not None else None for e in (to_begin, to_end)]
    parts = [p for p in (ends[0], inner, ends[1]) if p is not None]
    return joining.concat(b, parts) if len(parts) > 1 else inner


def _one_hot(b: Builder, x: Node, num_classes: Any) -> Node:
    """i64 ones where the last axis equals the class."""
    from fuser.construct import views
    from fuser.dtypes import I64

    count = static_int(b, num_classes, "num_classes")
    classes = creation.arange(b, count)
    return ew.cast(b, ew.node(b, "equal", views.expand_dims(b, x, x.rank), classes), I64)


def _digitize(b: Builder, x: Node, bins: Any, right: bool = False) -> Node:
    """Bin numbers for a table of increasing edges, by comparison with each."""
    from fuser.construct import views

    edges = creation.array(b, bins)
    if edges.rank != 1:
        fail(b, ShapeError, "digitize takes a 1-d table of bins", "digitize")
    passed = ew.node(b, "greater" if right else "greater_equal", views.expand_dims(b, x, x.rank), edges)
    return red.count_nonzero(b, passed, -1)


ROWS = (
    function("clamp", _clip, numpy="clip", torch="clamp clip", methods="clip", dsl="clip"),
    function("around", arrays(1, _round), numpy="round around", torch="round", methods="round", dsl="round"),
    function("sinc", arrays(1, _sinc), numpy="sinc", torch="sinc"),
    function("fix", arrays(1, _fix), numpy="fix"),
    function("astype", arrays(1, _astype), numpy="astype"),
    function("isposinf", arrays(1, _sign_infinite(1.0)), numpy="isposinf", torch="isposinf"),
    function("isneginf", arrays(1, _sign_infinite(-1.0)), numpy="isneginf", torch="isneginf"),
    function("isin", arrays(1, _isin), numpy="isin", torch="isin"),
    function("searchsorted", arrays(2, _searchsorted), numpy="searchsorted", methods="searchsorted"),
    function("convolve", arrays(2, _convolve), numpy="convolve"),
    function("correlate", arrays(2, _correlate), numpy="correlate"),
    function("geomspace", _geomspace, numpy="geomspace"),
    function("unwrap", arrays(1, _unwrap), numpy="unwrap"),
    function("select", _select, numpy="select"),
    function("choose", arrays(1, _choose), numpy="choose", methods="choose"),
    function("piecewise_by", arrays(1, _piecewise), numpy="piecewise"),
    function("take", arrays(1, _take), numpy="take", methods="take"),
    function("take_along_axis", arrays(2, indexing.take_along_axis), numpy="take_along_axis", torch="take_along_dim"),
    function("gather", arrays(1, _gather), torch="gather"),
    function("index_select", arrays(1, _index_select), torch="index_select"),
    function("embedding", arrays(2, _embedding), torch="embedding nn.functional.embedding"),
    function("narrow", arrays(1, _narrow), torch="narrow"),
    function("torch.select", arrays(1, _select_torch), torch="select"),
    function("masked_fill", arrays(1, _masked_fill), torch="masked_fill"),
    function("lerp", arrays(2, _lerp), torch="lerp"),
    function("addcmul", arrays(3, _addcmul), torch="addcmul"),
    function("addcdiv", arrays(3, _addcdiv), torch="addcdiv"),
    function("diff", arrays(1, calculus.diff), numpy="diff", torch="diff"),
    function("ediff1d", arrays(1, _ediff1d), numpy="ediff1d"),
    function("gradient", arrays(1, calculus.gradient), numpy="gradient"),
    function("trapezoid", arrays(1, calculus.trapezoid), numpy="trapezoid", torch="trapezoid trapz"),
    function("nan_to_num", arrays(1, calculus.nan_to_num), numpy="nan_to_num", torch="nan_to_num"),
    function("isclose", arrays(2, calculus.isclose), numpy="isclose", torch="isclose"),
    function("allclose", arrays(2, _allclose), numpy="allclose", torch="allclose"),
    function("array_equal", arrays(2, calculus.array_equal), numpy="array_equal array_equiv"),
    function("polyval", calculus.polyval, numpy="polyval"),
    function("interp", arrays(3, calculus.interp), numpy="interp"),
    function("digitize", arrays(1, _digitize), numpy="digitize", torch="bucketize"),
    function("divmod", calculus.divmod_, numpy="divmod"),
    function("modf", arrays(1, calculus.modf), numpy="modf"),
    function("frexp", arrays(1, calculus.frexp), numpy="frexp", torch="frexp"),
    function("angle", arrays(1, _angle), numpy="angle", torch="angle", methods="angle"),
    function("real_part", arrays(1, complexes.real), numpy="real", torch="real", dsl="real"),
    function("imaginary_part", arrays(1, complexes.imag), numpy="imag", torch="imag", dsl="imag"),
    function("complex_of", arrays(2, complexes.join), torch="complex", dsl="complex"),
    function("real_if_close", arrays(1, _real_if_close), numpy="real_if_close"),
    function("fft.fftshift", arrays(1, _centred(1)), numpy="fft.fftshift", torch="fft.fftshift"),
    function("fft.ifftshift", arrays(1, _centred(-1)), numpy="fft.ifftshift", torch="fft.ifftshift"),
    function("isreal", arrays(1, _has_imaginary(False)), numpy="isreal", torch="isreal"),
    function("iscomplex", arrays(1, _has_imaginary(True)), numpy="iscomplex"),
    function("one_hot", arrays(1, _one_hot), torch="one_hot"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
