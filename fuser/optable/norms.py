"""Normalisations: softmax and its kin, and layer, RMS, group and batch norms, as composites.

In: nothing. Out: composite rows. Softmax and its kin take the maximum first and then one exponential an element: a row
is kept from one to the other. Only logsumexp of a whole array lowers to the reduction `max_sumexp`, which reads it
once. The norms centre in a second pass, as NumPy's var does. References are written in NumPy, in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.construct import elementwise as ew
from fuser.construct import reduction as red
from fuser.construct import views
from fuser.construct.common import describe, fail, normal_axes, normal_axis
from fuser.construct.composite import composite
from fuser.dtypes import DType, compute_dtype
from fuser.errors import ShapeError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, as_float, function, named
from fuser.optable.base import Composite, Table
from fuser.shapes import Shape, numel

Params = dict[str, Any]


def _like_first(b: Builder, inputs: Sequence[Node], params: Params) -> tuple[DType, Shape]:
    return inputs[0].dtype, inputs[0].shape


def _f64(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


# -- softmax ---------------------------------------------------------------------------------------
def top_of(b: Builder, x: Node, axes: tuple[int, ...]) -> Node:
    """The maximum over axes, kept with length 1; of nothing -inf."""
    nothing = numel(x.shape[a] for a in axes) == 0
    return red.reduce(b, "max", x, axes, keepdims=True, initial=float("-inf") if nothing else None)


def log_sumexp(b: Builder, x: Node, top: Node, axes: tuple[int, ...], keepdims: bool) -> tuple[Node, Node]:
    """(log of the sum of exp(x - shift) over axes, shift): the maximum, 0 in place of an infinite one."""
    shift = ew.where(b, ew.node(b, "isfinite", top), top, 0.0)
    e = ew.node(b, "exp", ew.node(b, "subtract", x, shift))
    return ew.node(b, "log", red.reduce(b, "sum", e, axes, keepdims=keepdims)), shift


def _softmax_build(name: str) -> Any:
    def build(b: Builder, x: Node, axis: Any = -1, dtype: Any = None) -> Node:
        x = as_float(b, x if dtype is None else ew.cast(b, x, dtype))
        return composite(b, name, [x], axis=tuple(sorted(normal_axes(b, axis, x.rank))))

    return build


def _softmax(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    (x,), axes = inputs, params["axis"]
    e = ew.node(b, "exp", ew.node(b, "subtract", x, top_of(b, x, axes)))
    return ew.node(b, "divide", e, red.reduce(b, "sum", e, axes, keepdims=True))


def _softmax_array(x: Any, axis: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        e = np.exp(_f64(x) - _f64(x).max(axis=axis, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    (x,), axes = inputs, params["axis"]
    shifted = ew.node(b, "subtract", x, top_of(b, x, axes))
    total = red.reduce(b, "sum", ew.node(b, "exp", shifted), axes, keepdims=True)
    return ew.node(b, "subtract", shifted, ew.node(b, "log", total))


def _log_softmax_array(x: Any, axis: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        shifted = _f64(x) - _f64(x).max(axis=axis, keepdims=True, initial=-np.inf)
        return (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(x.dtype)


def _logsumexp_build(b: Builder, x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    x = as_float(b, x)
    return composite(b, "logsumexp", [x], axis=tuple(sorted(normal_axes(b, axis, x.rank))), keepdims=bool(keepdims))


def _logsumexp_infer(b: Builder, inputs: Sequence[Node], params: Params) -> tuple[DType, Shape]:
    (x,) = inputs
    kept = [
        (1 if k in params["axis"] else d)
        for k, d in enumerate(x.shape)
        if params["keepdims"] or k not in params["axis"]
    ]
    return x.dtype, tuple(kept)


def _logsumexp(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    (x,), axes = inputs, params["axis"]
    if len(axes) == x.rank:
        top = red.raw(b, "max_sumexp", x, axes)
        result = ew.node(b, "add", top, ew.node(b, "log", red.item(b, top, 1)))
        return red.keep(b, result, axes) if params["keepdims"] else result
    logarithm, shift = log_sumexp(b, x, top_of(b, x, axes), axes, keepdims=True)
    result = ew.node(b, "add", shift, logarithm)
    return result if params["keepdims"] else views.squeeze(b, result, axes)


def _logsumexp_array(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    with np.errstate(all="ignore"):
        fold: Any = np.logaddexp
        return np.asarray(fold.reduce(_f64(x), axis=axis, keepdims=keepdims, initial=-np.inf)).astype(x.dtype)


SOFTMAX = (
    Composite(name="softmax", arity=1, infer=_like_first, lower=_softmax, reference=_softmax_array,
              build=arrays(1, _softmax_build("softmax")), names=named(torch="softmax", scipy="softmax"),
              notes="a row whose maximum is infinite gives NaN"),
    Composite(name="log_softmax", arity=1, infer=_like_first, lower=_log_softmax, reference=_log_softmax_array,
              build=arrays(1, _softmax_build("log_softmax")), names=named(torch="log_softmax", scipy="log_softmax")),
    Composite(name="logsumexp", arity=1, infer=_logsumexp_infer, lower=_logsumexp, reference=_logsumexp_array,
              build=arrays(1, _logsumexp_build), names=named(torch="logsumexp", scipy="logsumexp"),
              notes="a row of -inf gives -inf"),
)  # fmt: skip


# -- centred and scaled ----------------------------------------------------------------------------
def _operands(b: Builder, x: Node, weight: Any, bias: Any) -> tuple[list[Node], bool, bool]:
    found = [as_float(b, x)] + [as_float(b, ew.as_node(b, v)) for v in (weight, bias) if v is not None]
    return found, weight is not None, bias is not None


def _wide(b: Builder, x: Node) -> Node:
    """Statistics of halves are taken in f32 and the result rounded once, whatever the program's rounding rule."""
    return ew.cast(b, x, compute_dtype(x.dtype))


def _affine(b: Builder, y: Node, extra: Sequence[Node], params: Params, dtype: DType) -> Node:
    """Scale and shift by what was given, then the dtype of the input."""
    rest = list(extra)
    if params["scale"]:
        y = ew.node(b, "multiply", y, rest.pop(0))
    if params["shift"]:
        y = ew.node(b, "add", y, rest.pop(0))
    return ew.cast(b, y, dtype)


def _affine_array(y: Any, extra: Sequence[Any], scale: bool, shift: bool, dtype: Any) -> Any:
    rest = [_f64(e) for e in extra]
    y = y * rest.pop(0) if scale else y
    return (y + rest.pop(0) if shift else y).astype(dtype)


def _last(b: Builder, x: Node, axis: Any, normalized_shape: Any) -> tuple[int, ...]:
    """The axes a layer norm covers: by number, or as torch says it, by trailing shape."""
    if normalized_shape is None:
        return tuple(sorted(normal_axes(b, axis, x.rank)))
    dims = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    for d, have in zip(reversed(dims), reversed(x.shape), strict=False):
        if not b.shapes.unify(d, have, b.span):
            fail(b, ShapeError, f"normalized_shape {tuple(dims)} does not end {describe(b, x)}", "norm-shape")
    return tuple(range(x.rank - len(dims), x.rank))


def _layer_norm_build(
    b: Builder,
    x: Node,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
    axis: Any = -1,
    normalized_shape: Any = None,
) -> Node:
    inputs, scale, shift = _operands(b, x, weight, bias)
    axes = _last(b, x, axis, normalized_shape)
    return composite(b, "layer_norm", inputs, axis=axes, eps=eps, scale=scale, shift=shift)


def _layer_norm(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    x, extra = _wide(b, inputs[0]), inputs[1:]
    centred = ew.node(b, "subtract", x, red.mean(b, x, params["axis"], keepdims=True))
    spread = red.mean(b, ew.node(b, "multiply", centred, centred), params["axis"], keepdims=True)
    scaled = ew.node(b, "multiply", centred, ew.node(b, "rsqrt", ew.node(b, "add", spread, params["eps"])))
    return _affine(b, scaled, extra, params, inputs[0].dtype)


def _layer_norm_array(x: Any, *extra: Any, axis: tuple[int, ...], eps: float, scale: bool, shift: bool) -> Any:
    with np.errstate(all="ignore"):
        mean, spread = _f64(x).mean(axis=axis, keepdims=True), _f64(x).var(axis=axis, keepdims=True)
        return _affine_array((_f64(x) - mean) / np.sqrt(spread + eps), extra, scale, shift, x.dtype)


def _rms_norm_build(
    b: Builder, x: Node, weight: Any = None, eps: Any = 1e-6, axis: Any = -1, normalized_shape: Any = None
) -> Node:
    inputs, scale, _ = _operands(b, x, weight, None)
    axes = _last(b, x, axis, normalized_shape)
    return composite(b, "rms_norm", inputs, axis=axes, eps=eps, scale=scale, shift=False)


def _rms_norm(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    x, extra = _wide(b, inputs[0]), inputs[1:]
    square = red.mean(b, ew.node(b, "multiply", x, x), params["axis"], keepdims=True)
    scaled = ew.node(b, "multiply", x, ew.node(b, "rsqrt", ew.node(b, "add", square, params["eps"])))
    return _affine(b, scaled, extra, params, inputs[0].dtype)


def _rms_norm_array(x: Any, *extra: Any, axis: tuple[int, ...], eps: float, scale: bool, shift: bool) -> Any:
    with np.errstate(all="ignore"):
        size = np.sqrt(np.square(_f64(x)).mean(axis=axis, keepdims=True) + eps)
        return _affine_array(_f64(x) / size, extra, scale, shift, x.dtype)


def _on_channels(b: Builder, v: Any, x: Node, axis: int) -> Any:
    """A per-channel vector with an axis of length 1 for every other axis of x."""
    if v is None:
        return None
    node = ew.as_node(b, v)
    return views.expand_dims(b, node, tuple(k for k in range(x.rank) if k != axis)) if node.rank == 1 else node


def _batch_norm_build(
    b: Builder,
    x: Node,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
    axis: Any = 1,
) -> Node:
    k = normal_axis(b, axis, x.rank)
    mean, var, w, c = (_on_channels(b, v, x, k) for v in (running_mean, running_var, weight, bias))
    inputs, scale, shift = _operands(b, x, w, c)
    return composite(
        b,
        "batch_norm",
        [inputs[0], as_float(b, mean), as_float(b, var), *inputs[1:]],
        eps=eps,
        scale=scale,
        shift=shift,
    )


def _batch_norm(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    x, mean, var, *extra = (_wide(b, n) for n in inputs)
    factor = ew.node(b, "rsqrt", ew.node(b, "add", var, params["eps"]))
    return _affine(b, ew.node(b, "multiply", ew.node(b, "subtract", x, mean), factor), extra, params, inputs[0].dtype)


def _batch_norm_array(x: Any, mean: Any, var: Any, *extra: Any, eps: float, scale: bool, shift: bool) -> Any:
    with np.errstate(all="ignore"):
        return _affine_array((_f64(x) - _f64(mean)) / np.sqrt(_f64(var) + eps), extra, scale, shift, x.dtype)


def _group_norm(b: Builder, x: Node, num_groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Node:
    """Channels (axis 1) in groups, each normalised over its channels and all later axes."""
    from fuser.construct.common import static_int
    from fuser.hostexpr import as_dim, call

    groups = static_int(b, num_groups, "num_groups")
    per = as_dim(call("//", b.shapes.canonical(x.shape[1]), groups))
    grouped = views.reshape(b, x, (x.shape[0], groups, per, *x.shape[2:]))
    axes = tuple(range(2, grouped.rank))
    plain = composite(b, "layer_norm", [as_float(b, grouped)], axis=axes, eps=eps, scale=False, shift=False)
    y = views.reshape(b, plain, x.shape)
    if weight is not None:
        y = ew.node(b, "multiply", y, _on_channels(b, weight, x, 1))
    y = y if bias is None else ew.node(b, "add", y, _on_channels(b, bias, x, 1))
    return ew.cast(b, y, plain.dtype)


def _batch_norm_train(
    b: Builder, x: Node, weight: Any = None, bias: Any = None, eps: Any = 1e-5, axis: Any = 1
) -> tuple[Node, Node, Node]:
    """Normalised by the batch's own statistics: (y, mean, variance), the latter two per channel."""
    x = as_float(b, x)
    k = normal_axis(b, axis, x.rank)
    others = tuple(a for a in range(x.rank) if a != k)
    mean, var = red.mean(b, x, others), red.var(b, x, others)
    return _batch_norm_build(b, x, mean, var, weight, bias, eps, k), mean, var


# -- torch's orders of arguments -------------------------------------------------------------------
def _torch_layer_norm(
    b: Builder, x: Node, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> Node:
    return _layer_norm_build(b, x, weight, bias, eps, normalized_shape=normalized_shape)


def _torch_rms_norm(b: Builder, x: Node, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Node:
    x = as_float(b, x)
    tiny = float(np.finfo(np.float32).eps) if x.dtype.bits < 64 else float(np.finfo(np.float64).eps)
    return _rms_norm_build(b, x, weight, tiny if eps is None else eps, normalized_shape=normalized_shape)


def _torch_batch_norm(
    b: Builder, x: Node, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: Any = 0.1, eps: Any = 1e-5,
) -> Node:  # fmt: skip
    if training and running_mean is not None:
        fail(
            b,
            UnsupportedError,
            "batch_norm(training=True) updates its statistics in place",
            "batch-norm",
            "use ops.batch_norm_train",
        )
    if training or running_mean is None:
        return _batch_norm_train(b, x, weight, bias, eps)[0]
    return _batch_norm_build(b, x, running_mean, running_var, weight, bias, eps)


NORMS = (
    Composite(name="layer_norm", arity=3, infer=_like_first, lower=_layer_norm, reference=_layer_norm_array,
              build=arrays(1, _layer_norm_build), names=named(), notes="weight and bias may be left out"),
    Composite(name="rms_norm", arity=2, infer=_like_first, lower=_rms_norm, reference=_rms_norm_array,
              build=arrays(1, _rms_norm_build), names=named(), notes="weight may be left out"),
    Composite(name="batch_norm", arity=5, infer=_like_first, lower=_batch_norm, reference=_batch_norm_array,
              build=arrays(3, _batch_norm_build), names=named(), notes="inference: with given statistics"),
)  # fmt: skip


FUNCTIONS = (
    function("group_norm", arrays(1, _group_norm), torch="group_norm"),
    function("batch_norm_train", arrays(1, _batch_norm_train)),
    function("torch.layer_norm", arrays(1, _torch_layer_norm), torch="layer_norm"),
    function("torch.rms_norm", arrays(1, _torch_rms_norm), torch="rms_norm"),
    function("torch.batch_norm", arrays(3, _torch_batch_norm), torch="batch_norm"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in (*SOFTMAX, *NORMS, *FUNCTIONS):
        table.register(row)
