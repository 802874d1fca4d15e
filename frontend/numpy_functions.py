"""NumPy functions that are about arrays as Python objects, not about their elements.

In: the calls that NumPy's function protocol hands over. Out: shapes, dtypes, copies and stores; none of these has a
row in the operator table because none is an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from fuser.construct import elementwise
from fuser.dtypes import BOOL, I8
from fuser.frontend import calls, methods
from fuser.frontend.context import Context
from fuser.frontend.scalar import Scalar
from fuser.frontend.tracer import TracedArray

Frame = FrameType | None


def _shape(ctx: Context, frame: Frame, a: Any) -> Any:
    return a.shape if type(a) is TracedArray else ()


def _ndim(ctx: Context, frame: Frame, a: Any) -> int:
    return len(_shape(ctx, frame, a))


def _size(ctx: Context, frame: Frame, a: Any, axis: Any = None) -> Any:
    if axis is not None:
        return _shape(ctx, frame, a)[axis]
    return a.size if type(a) is TracedArray else 1


def _copy(ctx: Context, frame: Frame, a: Any, order: str = "K", subok: bool = False) -> Any:
    return methods.copy(a, order) if type(a) is TracedArray else calls.fresh(ctx, _node(ctx, a))


def _node(ctx: Context, value: Any) -> Any:
    return elementwise.as_node(ctx.b, calls.unwrap(ctx, value))


def _copyto(ctx: Context, frame: Frame, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """`np.copyto`: a store, masked by `where`."""
    calls.check_out(ctx, dst)
    value = calls.unwrap(ctx, src)
    if type(src) is TracedArray:
        calls.check_casting(ctx, value.dtype, dst.node.dtype, casting)
    if where is True:
        methods.setitem(dst, Ellipsis, src)
    else:
        _masked(ctx, dst, value, where)


def _masked(ctx: Context, dst: TracedArray, value: Any, where: Any) -> None:
    mask = calls.unwrap(ctx, where)
    chosen = elementwise.where(ctx.b, mask, elementwise.cast(ctx.b, value, dst.node.dtype), dst.node)
    calls.store_out(ctx, dst, chosen, "same_kind")


def _putmask(ctx: Context, frame: Frame, a: Any, mask: Any, values: Any) -> Any:
    """`np.putmask`, `np.place` with one value, or (putmask) with an array of the shape of `a`."""
    if type(values) is TracedArray and values.node.rank != a.node.rank:
        ctx.refuse(frame, "repeats its values; write np.copyto(a, values, where=mask)", "np.putmask")
        return None
    if type(values) is TracedArray and values.node.rank:
        return _copyto(ctx, frame, a, values, "unsafe", mask)
    return methods.setitem(a, mask, values)


def _fill_diagonal(ctx: Context, frame: Frame, a: Any, val: Any, wrap: bool = False) -> None:
    """`np.fill_diagonal` of a matrix, by a mask."""
    rows, columns = a.shape
    row = np.arange(rows) if isinstance(rows, int) and type(rows) is int else None
    on = np.eye(rows, columns, dtype=bool) if row is not None and type(columns) is int else None
    if on is not None:
        methods.setitem(a, on, val)
        return
    from fuser.construct import creation

    node = creation.eye(ctx.b, a._dims[0], a._dims[1], dtype=bool)
    methods.setitem(a, calls.fresh(ctx, node), val)


def _result_type(ctx: Context, frame: Frame, *operands: Any) -> Any:
    plain = [o.dtype if type(o) is TracedArray else _sample(o) for o in operands]
    return np.result_type(*plain)


def _sample(value: Any) -> Any:
    """A Python number of the kind that a run-time scalar has."""
    return {"int": 0, "float": 0.0, "bool": True}[value.expr.kind] if type(value) is Scalar else value


def _can_cast(ctx: Context, frame: Frame, from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(from_.dtype if type(from_) is TracedArray else from_, to, casting)


def _kind(answer: bool) -> Callable[..., Any]:
    """Whether the elements are complex (True) or not."""
    return lambda ctx, frame, x: (type(x) is TracedArray and x.node.dtype.is_complex) == answer


def _real(ctx: Context, frame: Frame, val: Any) -> Any:
    return val.real if type(val) is TracedArray else val


def _imag(ctx: Context, frame: Frame, val: Any) -> Any:
    return val.imag if type(val) is TracedArray else np.zeros_like(val)


def _text(ctx: Context, frame: Frame, a: Any, *args: Any, **kwargs: Any) -> str:
    return repr(a)


def _share(ctx: Context, frame: Frame, a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays look into one storage."""
    if type(a) is TracedArray and type(b) is TracedArray:
        return a._storage is b._storage
    return False


def conjugate(ctx: Context, frame: Frame, x: Any) -> Any:
    """The conjugate; of real numbers a copy (NumPy has no loop for bool and gives int8)."""
    node = _node(ctx, x)
    if node.dtype.is_complex:
        return calls.wrap(ctx, elementwise.node(ctx.b, "conjugate", node), frame, calls.are_ordered([x]))
    return calls.wrap(ctx, elementwise.cast(ctx.b, node, I8) if node.dtype == BOOL else node, frame)


def _apply_over_axes(ctx: Context, frame: Frame, func: Any, a: Any, axes: Any) -> Any:
    """`np.apply_over_axes`: a reduction along one axis after another, axes kept."""
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        result = func(a, axis)
        a = result if result.ndim == a.ndim else np.expand_dims(result, axis)
    return a


def _unstack(ctx: Context, frame: Frame, x: Any, axis: int = 0) -> Any:
    """`np.unstack`: views along an axis."""
    first = np.moveaxis(x, axis, 0)
    return tuple(first[k] for k in range(len(first)))


OWN: dict[str, Callable[..., Any]] = {
    "shape": _shape, "ndim": _ndim, "size": _size, "copy": _copy, "copyto": _copyto, "fill_diagonal": _fill_diagonal,
    "result_type": _result_type, "can_cast": _can_cast, "iscomplexobj": _kind(True), "isrealobj": _kind(False),
    "real": _real, "imag": _imag, "array_repr": _text, "array_str": _text, "array2string": _text,
    "unstack": _unstack, "apply_over_axes": _apply_over_axes, "putmask": _putmask, "may_share_memory": _share,
    "shares_memory": _share,
}  # fmt: skip
