"""NumPy's functions whose results are views: which steps they are.

In: a row of the operator table, an array and the call's other arguments. Out: a view of the array, sharing its storage.
Only aliasing is decided here; axes and shapes are normalised by the row's own construction, and the step is
read off the view node that it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from fuser.frontend import calls
from fuser.frontend.context import Context
from fuser.frontend.storage import Flip, Index, Permute, ReadOnly, Reshape, Step, merges_axes
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node, ViewAttrs
from fuser.hostexpr import HostExpr, as_dim, lit
from fuser.indexmap import axis as axis_var
from fuser.indexmap import coefficient
from fuser.optable.base import Function, Looks, Row
from fuser.shapes import numel


def looks(row: Row, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Looks | None:
    """How what this call gives looks into a traced array; None where it is no view of one, or in another order."""
    if not args or type(args[0]) is not TracedArray or not isinstance(row, Function):
        return None
    several = row.name.startswith("atleast") and len(args) > 1
    return None if several or kwargs.get("order", "C") not in (None, "C", "K", "A") else row.looks


def call(
    ctx: Context, row: Row, kind: Looks, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType | None
) -> Any:
    """The view(s) that a call of such a row gives."""
    array: TracedArray = args[0]
    plain = [calls.unwrap(ctx, a) for a in args[1:]]
    named = {k: calls.unwrap(ctx, v) for k, v in kwargs.items()}

    def again(b: Any, node: Node) -> Any:
        return calls.build(ctx, row, [node, *plain], dict(named))

    result = calls.attempt(ctx, frame, lambda: again(ctx.b, array.node))
    if isinstance(result, (tuple, list)):
        return type(result)(_view(array, "index", r, again) for r in result)
    if not isinstance(result, Node):
        return result
    if result is array.node:
        return array
    made = _view(array, kind, result, again)
    ctx.label(result, frame)
    return made


def _view(array: TracedArray, kind: Looks, result: Node, again: Any) -> TracedArray:
    if result is array.node:
        return array
    if kind == "reshape":
        return reshaped(array, result)
    return array.through(_step(kind, result, again))


def _step(kind: Looks, result: Node, again: Any) -> Step:
    if kind == "read" or not isinstance(result.attrs, ViewAttrs):
        return ReadOnly(again)
    exprs = result.attrs.map.exprs
    if kind == "permute":
        return Permute(tuple(exprs.index(axis_var(k)) for k in range(result.rank)))
    if kind == "flip":
        return Flip(tuple(k for k, e in enumerate(exprs) if e != axis_var(k)))
    return Index(tuple(_range(e, k, result) for k, e in enumerate(exprs)))


def _range(e: HostExpr, k: int, result: Node) -> slice:
    """The slice that reads `start + $k`."""
    name = f"${k}"
    assert coefficient(e, name) == lit(1)
    start = e.substitute({name: lit(0)})
    return slice(as_dim(start), as_dim(start + result.shape[k]))


def reshaped(array: TracedArray, result: Node) -> TracedArray:
    """A reshape: a view where NumPy's surely is one, else a copy whose two sides may no longer be stored to."""
    ctx, storage = array._ctx, array._storage
    source = array._dims
    if not merges_axes(source, result.shape):
        return array.through(Reshape(result.shape))
    if array.contiguous:
        storage.merged = True
        return array.through(Reshape(result.shape))
    copy = calls.fresh(ctx, result)
    copy.is_scalar = False
    copy._storage.uncertain = storage.uncertain = lit(1) * numel(source)
    return copy
