"""Means, variances, scans' relatives and NaN-skipping reductions: rows over `fuser.construct.reduction`.

In: nothing. Out: `Function` rows with NumPy's signatures (so positional arguments mean what they mean there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.construct import creation
from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct.common import fail, normal_axis
from fuser.dtypes import F64
from fuser.errors import ArgumentError
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, as_float, function, no_out
from fuser.optable.base import Table


def _mean(
    b: Builder,
    x: Node,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Node:
    no_out(b, out)
    return red.mean(b, x, axis, bool(keepdims), dtype, where)


def _spread(root: bool) -> Callable[..., Node]:
    """var or std with NumPy's signature; `correction` is the array API's name of ddof."""

    def build(
        b: Builder, x: Node, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
        keepdims: bool = False, *, where: Any = None, mean: Node | None = None, correction: Any = None,
    ) -> Node:  # fmt: skip
        no_out(b, out)
        degrees = ddof if correction is None else correction
        return (red.std if root else red.var)(b, x, axis, bool(keepdims), degrees, dtype, where, mean)

    return build


def _torch_spread(root: bool) -> Callable[..., Node]:
    """torch's var or std: one degree of freedom less unless told otherwise."""

    def build(
        b: Builder, x: Node, axis: Any = None, correction: Any = 1, keepdims: bool = False, unbiased: Any = None
    ) -> Node:
        degrees = int(unbiased) if unbiased is not None else int(axis) if isinstance(axis, bool) else correction
        return (red.std if root else red.var)(b, x, None if isinstance(axis, bool) else axis, keepdims, degrees)

    return build


def _average(
    b: Builder, x: Node, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    given = None if weights is None else creation.array(b, weights)
    result = red.average(b, x, axis, given, keepdims)
    if not returned:
        return result
    total = red.reduce(b, "sum", given if given is not None else creation.ones_like(b, result), axis)
    return result, total


def _nan(name: str) -> Callable[..., Node]:
    """A NaN-skipping reduction with NumPy's signature."""
    if name in ("argmax", "argmin"):

        def position(b: Builder, x: Node, axis: Any = None, out: Any = None, keepdims: bool = False) -> Node:
            no_out(b, out)
            return red.nan_reduce(b, name, x, axis, keepdims)

        return position
    if name in ("var", "std"):

        def spread(
            b: Builder,
            x: Node,
            axis: Any = None,
            dtype: Any = None,
            out: Any = None,
            ddof: Any = 0,
            keepdims: bool = False,
        ) -> Node:
            no_out(b, out)
            return red.nan_reduce(b, name, x, axis, bool(keepdims), ddof=ddof, dtype=dtype)

        return spread

    def build(
        b: Builder, x: Node, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Node:
        no_out(b, out)
        return red.nan_reduce(b, name, x, axis, bool(keepdims), **({} if dtype is None else {"dtype": dtype}))

    return build


def _extreme(name: str) -> Callable[..., Node]:
    def build(b: Builder, x: Node, axis: Any = None, out: Any = None, keepdims: bool = False) -> Node:
        no_out(b, out)
        return red.nan_reduce(b, name, x, axis, bool(keepdims))

    return build


def _nan_scan(name: str, neutral: int) -> Callable[..., Node]:
    def build(b: Builder, x: Node, axis: Any = None, dtype: Any = None) -> Node:
        clean = ew.where(b, ew.node(b, "isnan", x), neutral, x) if x.dtype.is_float else x
        return red.scan(b, name, clean, axis, dtype)

    return build


def _cumulative(name: str) -> Callable[..., Node]:
    """The array API's cumulative functions: an axis is needed beyond one dimension."""

    def build(b: Builder, x: Node, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Node:
        from fuser.construct import joining

        if axis is None and x.rank != 1:
            fail(b, ArgumentError, f"`{name}` of {x.rank} axes needs an axis", "axis")
        k = normal_axis(b, 0 if axis is None else axis, x.rank)
        result = red.scan(b, name, x, k, dtype)
        if not include_initial:
            return result
        shape = tuple(1 if a == k else d for a, d in enumerate(result.shape))
        first = creation.full(b, shape, 0 if name == "cumsum" else 1, result.dtype)
        return joining.concat(b, [first, result], k)

    return build


def _ptp(b: Builder, x: Node, axis: Any = None, out: Any = None, keepdims: bool = False) -> Node:
    no_out(b, out)
    return red.ptp(b, x, axis, bool(keepdims))


def _torch_var_mean(
    b: Builder, x: Node, axis: Any = None, correction: Any = 1, keepdims: bool = False
) -> tuple[Node, Node]:
    return red.var(b, x, axis, keepdims, correction), red.mean(b, x, axis, keepdims)


def _torch_extreme(name: str) -> Callable[..., Any]:
    """torch's max/min: of everything, with another array, or (values, indices) along an axis."""

    def build(b: Builder, x: Node, axis: Any = None, keepdims: bool = False, other: Any = None) -> Any:
        second = other if other is not None else axis if isinstance(axis, Node) else None
        if second is not None:
            return ew.node(b, "maximum" if name == "max" else "minimum", x, second)
        if axis is None:
            return red.reduce(b, name, x)
        return red.reduce(b, name, x, axis, keepdims), red.arg(b, f"arg{name}", x, axis, keepdims)

    return build


def _cov(b: Builder, x: Node, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Node:
    """Covariance matrix of variables in rows (columns with rowvar=False)."""
    from fuser.construct import contraction, joining, views
    from fuser.shapes import numel

    def variables(v: Node) -> Node:
        v = views.atleast(b, ew.cast(b, v, F64), 2)
        single = v.shape[0] == 1 or not b.shapes.guard(v.shape[0], "!=", 1, b.span)
        return v if rowvar or single else views.transpose(b, v)

    data = variables(x)
    if y is not None:
        data = joining.concat(b, [data, variables(creation.array(b, y))], 0)
    count = b.shapes.canonical(numel(data.shape[1:]))
    degrees = (0 if bias else 1) if ddof is None else ddof
    centred = ew.node(b, "subtract", data, red.mean(b, data, 1, keepdims=True))
    product = contraction.matmul(b, centred, views.transpose(b, centred))
    left = ew.apply(b, "maximum", ew.apply(b, "subtract", count, degrees), 0)  # no degree of freedom: NaN
    return views.squeeze(b, ew.node(b, "divide", product, left))


def _corrcoef(b: Builder, x: Node, y: Any = None, rowvar: bool = True) -> Node:
    """Correlation matrix, held in [-1, 1]."""
    from fuser.construct import views

    c = _cov(b, x, y, rowvar)
    if c.rank == 0:
        return ew.node(b, "divide", c, c)
    spread = ew.node(b, "sqrt", views.diagonal(b, c))
    scaled = ew.node(b, "divide", ew.node(b, "divide", c, views.expand_dims(b, spread, 1)), spread)
    return ew.node(b, "clip", scaled, -1, 1)


def _rms(b: Builder, x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    values = as_float(b, x)
    return ew.node(b, "sqrt", red.mean(b, ew.node(b, "multiply", values, values), axis, keepdims))


ROWS = (
    function("mean", arrays(1, _mean), numpy="mean", torch="mean", methods="mean"),
    function("var", arrays(1, _spread(False)), numpy="var", methods="var"),
    function("std", arrays(1, _spread(True)), numpy="std", methods="std"),
    function("torch.var", arrays(1, _torch_spread(False)), torch="var"),
    function("torch.std", arrays(1, _torch_spread(True)), torch="std"),
    function("torch.var_mean", arrays(1, _torch_var_mean), torch="var_mean"),
    function("torch.max", arrays(1, _torch_extreme("max")), torch="max"),
    function("torch.min", arrays(1, _torch_extreme("min")), torch="min"),
    function("average", arrays(1, _average), numpy="average"),
    function("count_nonzero", arrays(1, red.count_nonzero), numpy="count_nonzero", torch="count_nonzero"),
    function("ptp", arrays(1, _ptp), numpy="ptp"),
    function("rms", arrays(1, _rms)),
    function("cov", arrays(1, _cov), numpy="cov"),
    function("corrcoef", arrays(1, _corrcoef), numpy="corrcoef"),
    *(function(f"nan{n}", arrays(1, _nan(n)), numpy=f"nan{n}", torch=f"nan{n}" if n in ("sum", "mean") else "")
      for n in ("sum", "prod", "mean", "var", "std", "argmax", "argmin")),
    function("nanmax", arrays(1, _extreme("max")), numpy="nanmax"),
    function("nanmin", arrays(1, _extreme("min")), numpy="nanmin"),
    function("nancumsum", arrays(1, _nan_scan("cumsum", 0)), numpy="nancumsum"),
    function("nancumprod", arrays(1, _nan_scan("cumprod", 1)), numpy="nancumprod"),
    function("cumulative_sum", arrays(1, _cumulative("cumsum")), numpy="cumulative_sum"),
    function("cumulative_prod", arrays(1, _cumulative("cumprod")), numpy="cumulative_prod"),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
