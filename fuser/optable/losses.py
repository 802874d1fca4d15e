"""Losses: cross entropy as a composite, the elementwise ones as functions.

In: nothing. Out: rows `cross_entropy nll_loss mse_loss l1_loss huber_loss smooth_l1_loss binary_cross_entropy...`.
`reduction` is "mean", "sum" or "none".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.construct import elementwise as ew
from fuser.construct import indexing, views
from fuser.construct import reduction as red
from fuser.construct.common import describe, fail, normal_axis
from fuser.construct.composite import composite
from fuser.construct.formula import handle, node_of
from fuser.dtypes import DType, compute_dtype, promote
from fuser.errors import ArgumentError, DTypeError, ShapeError
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, as_float, function, named
from fuser.optable.base import Composite, S, Table
from fuser.optable.norms import log_sumexp, top_of
from fuser.shapes import Shape

Params = dict[str, Any]


def _check_reduction(b: Builder, reduction: Any) -> None:
    if reduction not in ("mean", "sum", "none"):
        fail(b, ArgumentError, f"reduction is 'mean', 'sum' or 'none', not {reduction!r}", "parameter")


# -- cross entropy ---------------------------------------------------------------------------------
def _cross_entropy_build(
    b: Builder,
    logits: Node,
    target: Node,
    axis: Any = -1,
    ignore_index: Any = -100,
    reduction: str = "mean",
    label_smoothing: Any = 0.0,
) -> Node:
    """logsumexp(row) - row[target]; rows whose target is `ignore_index` count neither in sum nor in mean."""
    _check_reduction(b, reduction)
    logits = as_float(b, logits)
    k = normal_axis(b, axis, logits.rank)
    if not target.dtype.is_integer:
        fail(b, DTypeError, f"cross_entropy's target holds class numbers, not {describe(b, target)}", "dtype")
    rows = tuple(d for a, d in enumerate(logits.shape) if a != k)
    if len(rows) != target.rank or not all(
        b.shapes.unify(p, q, b.span) for p, q in zip(rows, target.shape, strict=True)
    ):
        fail(b, ShapeError, f"target {describe(b, target)} does not fit logits {describe(b, logits)}", "cross-entropy")
    return composite(
        b, "cross_entropy", [logits, target],
        axis=k, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
    )  # fmt: skip


def _cross_entropy_infer(b: Builder, inputs: Sequence[Node], params: Params) -> tuple[DType, Shape]:
    return inputs[0].dtype, inputs[1].shape if params["reduction"] == "none" else ()


def _cross_entropy(b: Builder, inputs: Sequence[Node], params: Params) -> Node:
    logits, target = inputs
    k = params["axis"]
    valid, picked = _picked(b, logits, target, k, params["ignore_index"])
    top = top_of(b, logits, (k,))
    logarithm, _ = log_sumexp(b, logits, top, (k,), keepdims=False)
    top = views.squeeze(b, top, k)
    # No element is above the maximum; saying so (NaN stays) tells that the sum below cancels nothing.
    below = ew.node(b, "maximum", ew.node(b, "subtract", top, picked), 0.0)
    loss = ew.node(b, "add", logarithm, below)
    smoothing = params["label_smoothing"]
    if smoothing != 0.0:
        even = ew.node(b, "add", logarithm, ew.node(b, "subtract", top, red.mean(b, logits, k)))
        kept = ew.node(b, "multiply", loss, 1.0 - smoothing)
        loss = ew.node(b, "add", kept, ew.node(b, "multiply", even, smoothing))
    return _over_valid(b, loss, valid, params["reduction"])


def _picked(b: Builder, rows: Node, target: Node, axis: int, ignored: Any) -> tuple[Node, Node]:
    """(which rows count, each row's element at its target)."""
    valid = ew.node(b, "not_equal", target, ignored)
    label = views.expand_dims(b, ew.where(b, valid, target, 0), axis)
    return valid, views.squeeze(b, indexing.take_along_axis(b, rows, label, axis), axis)


def _over_valid(b: Builder, loss: Node, valid: Node, reduction: str) -> Node:
    """Losses of the rows that count: as they are, summed, or averaged."""
    loss = ew.where(b, valid, loss, 0.0)
    if reduction == "none":
        return loss
    summed = red.reduce(b, "sum", loss)
    if reduction == "sum":
        return summed
    count = ew.cast(b, red.count_nonzero(b, valid), compute_dtype(summed.dtype))  # bf16 holds few whole numbers
    return ew.cast(b, ew.node(b, "divide", summed, count), summed.dtype)


def _cross_entropy_array(
    logits: Any, target: Any, axis: int, ignore_index: int, reduction: str, label_smoothing: float
) -> Any:
    with np.errstate(all="ignore"):
        x = np.moveaxis(logits.astype(np.float64), axis, -1)
        x = x - np.logaddexp.reduce(x, axis=-1, keepdims=True)
        valid = target != ignore_index
        count = x.shape[-1]
        index = np.where(valid, target, 0)
        index = np.clip(np.where(index < 0, index + count, index), 0, count - 1)
        loss = -np.take_along_axis(x, index[..., None], axis=-1)[..., 0] * (1 - label_smoothing)
        if label_smoothing:
            loss = loss - x.mean(axis=-1) * label_smoothing
        loss = np.where(valid, loss, 0)
        result = loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / valid.sum()
        return np.asarray(result).astype(logits.dtype)


CROSS_ENTROPY = Composite(
    name="cross_entropy", arity=2, infer=_cross_entropy_infer, lower=_cross_entropy, reference=_cross_entropy_array,
    build=arrays(2, _cross_entropy_build), names=named(),
    notes="mean over rows that are not ignored; out-of-range targets follow the gather rule",
)  # fmt: skip


def _torch_cross_entropy(
    b: Builder, logits: Node, target: Node, weight: Any = None, size_average: Any = None, ignore_index: Any = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0.0,
) -> Node:  # fmt: skip
    """torch's order of arguments; classes are axis 1."""
    if weight is not None or size_average is not None or reduce is not None:
        fail(
            b, ArgumentError, "cross_entropy takes no class weights here, nor torch's deprecated arguments", "parameter"
        )
    return _cross_entropy_build(
        b, logits, target, 0 if logits.rank == 1 else 1, ignore_index, reduction, label_smoothing
    )


def _nll_loss(
    b: Builder, log_probs: Node, target: Node, axis: Any = 1, ignore_index: Any = -100, reduction: str = "mean"
) -> Node:
    """The negative log-probability of the target class."""
    _check_reduction(b, reduction)
    k = normal_axis(b, axis, log_probs.rank)
    valid, picked = _picked(b, log_probs, target, k, ignore_index)
    return _over_valid(b, ew.node(b, "negative", picked), valid, reduction)


# -- elementwise losses ----------------------------------------------------------------------------
Formula = Callable[..., S]


def _elementwise(formula: Formula, **defaults: Any) -> Callable[..., Node]:
    """A loss of prediction and target, reduced as asked."""

    def build(b: Builder, x: Node, target: Node, reduction: str = "mean", **params: Any) -> Node:
        _check_reduction(b, reduction)
        if unknown := params.keys() - defaults.keys():
            fail(b, ArgumentError, f"this loss has no parameter `{min(unknown)}`", "parameter")
        dtype = promote([as_float(b, x).dtype, as_float(b, target).dtype])
        loss = node_of(b, formula(*(handle(b, ew.cast(b, v, dtype)) for v in (x, target)), **(defaults | params)))
        if reduction == "none":
            return loss
        return red.mean(b, loss) if reduction == "mean" else red.reduce(b, "sum", loss)

    return build


def _mse(x: S, y: S) -> S:
    d = x - y
    return d * d


def _huber(x: S, y: S, delta: float) -> S:
    d = (x - y).op("absolute")
    return (d <= delta).where(d * d * 0.5, (d - delta * 0.5) * delta)


def _smooth_l1(x: S, y: S, beta: float) -> S:
    d = (x - y).op("absolute")
    return (d < beta).where(d * d * 0.5 / beta, d - beta * 0.5)


def _bce(x: S, y: S) -> S:
    """Logarithms are held at or above -100, as torch's."""
    yes, no = x.op("log").op("maximum", -100.0), (-x).op("log1p").op("maximum", -100.0)
    return -(y * yes + (1.0 - y) * no)


def _bce_logits(x: S, y: S) -> S:
    return x.op("maximum", 0.0) - x * y + (-x.op("absolute")).op("exp").op("log1p")


def _kl(x: S, y: S) -> S:
    """Pointwise y * (log y - x), x holding log-probabilities."""
    return y.op("xlogy", y) - y * x


FUNCTIONS = (
    function("torch.cross_entropy", arrays(2, _torch_cross_entropy), torch="cross_entropy"),
    function("nll_loss", arrays(2, _nll_loss), torch="nll_loss"),
    function("mse_loss", arrays(2, _elementwise(_mse)), torch="mse_loss"),
    function("l1_loss", arrays(2, _elementwise(lambda x, y: (x - y).op("absolute"))), torch="l1_loss"),
    function("huber_loss", arrays(2, _elementwise(_huber, delta=1.0)), torch="huber_loss"),
    function("smooth_l1_loss", arrays(2, _elementwise(_smooth_l1, beta=1.0)), torch="smooth_l1_loss"),
    function("binary_cross_entropy", arrays(2, _elementwise(_bce)), torch="binary_cross_entropy"),
    function("bce_with_logits", arrays(2, _elementwise(_bce_logits)), torch="binary_cross_entropy_with_logits"),
    function("kl_div", arrays(2, _elementwise(_kl)), torch="kl_div"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in (CROSS_ENTROPY, *FUNCTIONS):
        table.register(row)
