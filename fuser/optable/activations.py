"""Activation functions: composites of one array (or two, for gates).

In: nothing. Out: composite rows `relu gelu silu ...`. Each lowers to scalar rows; its reference is written in
NumPy, in f64, without looking at `lower`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.construct import elementwise as ew
from fuser.construct import indexing
from fuser.construct.common import fail, normal_axis
from fuser.construct.composite import composite
from fuser.construct.formula import handle, node_of
from fuser.dtypes import DType, promote
from fuser.errors import ArgumentError, ShapeError
from fuser.graph import Builder, Node
from fuser.hostexpr import as_dim, call
from fuser.optable.adapt import arrays, as_float, named
from fuser.optable.base import Composite, S, Table
from fuser.shapes import Shape

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al., 2017

Formula = Callable[
    ..., S
]  # (*operands, **params) -> value; params may be host expressions, which `S` takes as literals


def _same(b: Builder, inputs: Sequence[Node], params: dict[str, Any]) -> tuple[DType, Shape]:
    from fuser.construct import views

    return promote([n.dtype for n in inputs]), views.broadcast_shape(b, inputs)


def activation(
    name: str, formula: Formula, reference: Callable[..., Any], defaults: dict[str, Any], **columns: str
) -> Composite:
    """A composite of one float array with numeric parameters; integers compute in f64."""

    def build(b: Builder, x: Node, *values: Any, **params: Any) -> Node:
        if unknown := params.keys() - defaults.keys() - {"inplace"}:
            fail(b, ArgumentError, f"`{name}` has no parameter `{min(unknown)}`", "parameter")
        params.pop("inplace", None)
        given = dict(zip(defaults, values, strict=False)) | params
        if given.get("approximate", "none") not in ("none", "tanh"):
            fail(b, ArgumentError, f"gelu's approximate is 'none' or 'tanh', not {given['approximate']!r}", "parameter")
        return composite(b, name, [as_float(b, x)], **(defaults | given))

    def lowered(b: Builder, inputs: Sequence[Node], params: dict[str, Any]) -> Node:
        return node_of(b, formula(*(handle(b, x) for x in inputs), **params))

    def wide(x: Any, **params: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(reference(x.astype(np.float64), **params)).astype(x.dtype)

    build.__doc__ = f"{name}(x{''.join(f', {k}={v!r}' for k, v in defaults.items())})"
    return Composite(
        name=name, arity=1, infer=_same, lower=lowered, reference=wide, build=arrays(1, build), names=named(**columns)
    )


# -- formulas over rows ----------------------------------------------------------------------------
def _gelu(x: S, approximate: str) -> S:
    if approximate == "none":
        return x * 0.5 * ((x * math.sqrt(0.5)).op("erf") + 1.0)
    return x * 0.5 * (((x + x * x * x * 0.044715) * SQRT_2_OVER_PI).op("tanh") + 1.0)


def _sigmoid(x: S) -> S:
    return x.op("sigmoid")


def _silu(x: S) -> S:
    return x * _sigmoid(x)


def _relu(x: S) -> S:
    return x.op("maximum", 0.0)


def _elu(x: S, alpha: float) -> S:
    return (x > 0.0).where(x, x.op("minimum", 0.0).op("expm1") * alpha)


def _celu(x: S, alpha: float) -> S:
    return (x > 0.0).where(x, (x.op("minimum", 0.0) / alpha).op("expm1") * alpha)


def _softplus(x: S, beta: float, threshold: float) -> S:
    return (x * beta > threshold).where(x, (x * beta).op("softplus") / beta)


def _hardsigmoid(x: S) -> S:
    return (x + 3.0).op("clip", 0.0, 6.0) / 6.0


def _softshrink(x: S, lambd: float) -> S:
    inside = x.ne(x).where(x, 0.0)
    return (x > lambd).where(x - lambd, (x < -lambd).where(x + lambd, inside))


def _hardshrink(x: S, lambd: float) -> S:
    return ((x >= -lambd) & (x <= lambd)).where(0.0, x)


def _threshold(x: S, threshold: float, value: float) -> S:
    return (x <= threshold).where(value, x)


# -- formulas in NumPy -----------------------------------------------------------------------------
def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _logistic(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _gelu_array(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return x / 2 * (1 + _erf(x / math.sqrt(2)))
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ONE = (
    activation("relu", _relu, lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0)), {}, torch="relu"),
    activation("relu6", lambda x: x.op("clip", 0.0, 6.0), lambda x: np.minimum(np.maximum(x, 0), 6), {}, torch="relu6"),
    activation("leaky_relu", lambda x, negative_slope: (x >= 0.0).where(x, x * negative_slope),
               lambda x, negative_slope: np.where(x >= 0, x, x * negative_slope), {"negative_slope": 0.01},
               torch="leaky_relu"),
    activation("elu", _elu, lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)), {"alpha": 1.0}, torch="elu"),
    activation("celu", _celu, lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
               {"alpha": 1.0}, torch="celu"),
    activation("selu", lambda x: _elu(x, SELU_ALPHA) * SELU_SCALE,
               lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)), {}, torch="selu"),
    activation("gelu", _gelu, _gelu_array, {"approximate": "none"}, torch="gelu"),
    activation("quick_gelu", lambda x: x * _sigmoid(x * 1.702), lambda x: x * _logistic(1.702 * x), {}),
    activation("silu", _silu, lambda x: x * _logistic(x), {}, torch="silu", dsl="swish"),
    activation("mish", lambda x: x * x.op("softplus").op("tanh"), lambda x: x * np.tanh(np.logaddexp(0, x)), {},
               torch="mish"),
    activation("softplus_beta", _softplus,
               lambda x, beta, threshold: np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta),
               {"beta": 1.0, "threshold": 20.0}),
    activation("log_sigmoid", lambda x: -(-x).op("softplus"), lambda x: -np.logaddexp(0, -x), {},
               torch="logsigmoid log_sigmoid", scipy="log_expit"),
    activation("softsign", lambda x: x / (x.op("absolute") + 1.0), lambda x: x / (1 + abs(x)), {}, torch="softsign"),
    activation("tanhshrink", lambda x: x - x.op("tanh"), lambda x: x - np.tanh(x), {}, torch="tanhshrink"),
    activation("softshrink", _softshrink, lambda x, lambd: np.sign(x) * np.maximum(abs(x) - lambd, 0), {"lambd": 0.5},
               torch="softshrink"),
    activation("hardshrink", _hardshrink, lambda x, lambd: np.where(abs(x) <= lambd, 0, x), {"lambd": 0.5},
               torch="hardshrink"),
    activation("hardtanh", lambda x, min_val, max_val: x.op("clip", min_val, max_val),
               lambda x, min_val, max_val: np.minimum(np.maximum(x, min_val), max_val),
               {"min_val": -1.0, "max_val": 1.0}, torch="hardtanh"),
    activation("hardsigmoid", _hardsigmoid, lambda x: np.minimum(np.maximum(x / 6 + 0.5, 0), 1), {},
               torch="hardsigmoid"),
    activation("hardswish", lambda x: x * _hardsigmoid(x), lambda x: x * np.minimum(np.maximum(x / 6 + 0.5, 0), 1), {},
               torch="hardswish"),
    activation("threshold", _threshold, lambda x, threshold, value: np.where(x <= threshold, value, x),
               {"threshold": 0.0, "value": 0.0}, torch="threshold"),
)  # fmt: skip


# -- gates -----------------------------------------------------------------------------------------
def halves(b: Builder, x: Node, axis: Any = -1) -> tuple[Node, Node]:
    """The first and second half of an axis."""
    k = normal_axis(b, axis, x.rank)
    n = b.shapes.canonical(x.shape[k])
    half = as_dim(call("//", n, 2))
    if not b.shapes.unify(n, as_dim(call("*", half, 2)), b.span):
        fail(b, ShapeError, f"a gate needs an even axis, not {n}", "gate")
    before = (slice(None),) * k
    first, second = slice(0, half), slice(half, n)
    return indexing.getitem(b, x, (*before, first)), indexing.getitem(b, x, (*before, second))


def gate(name: str, act: Formula, act_array: Callable[[Any], Any], gated: str, **columns: str) -> Composite:
    """`act(a) * b` (gated="first") or `a * act(b)`, of two arrays or of the halves of one."""

    def build(b: Builder, x: Node, other: Any = None, axis: Any = -1) -> Node:
        pair = halves(b, x, axis) if other is None or isinstance(other, int) else (x, other)
        return composite(b, name, [as_float(b, v) for v in pair])

    def lowered(b: Builder, inputs: Sequence[Node], params: dict[str, Any]) -> Node:
        x, y = (handle(b, ew.cast(b, n, promote([m.dtype for m in inputs]))) for n in inputs)
        return node_of(b, act(x) * y if gated == "first" else x * act(y))

    def reference(x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            p, q = x.astype(np.float64), y.astype(np.float64)
            product = act_array(p) * q if gated == "first" else p * act_array(q)
            dtype = x.dtype if x.dtype == y.dtype else np.promote_types(x.dtype, y.dtype)
            return np.asarray(product).astype(dtype)

    return Composite(
        name=name,
        arity=2,
        infer=_same,
        lower=lowered,
        reference=reference,
        build=arrays(2, build),
        names=named(**columns),
    )


TWO = (
    gate("glu", _sigmoid, _logistic, "second", torch="glu"),
    gate("swiglu", _silu, lambda x: x * _logistic(x), "first"),
    gate("geglu", lambda x: _gelu(x, "tanh"), lambda x: _gelu_array(x, "tanh"), "first"),
    gate("reglu", _relu, lambda x: np.maximum(x, 0), "first"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in (*ONE, *TWO):
        table.register(row)
