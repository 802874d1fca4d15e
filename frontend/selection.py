"""`x[mask]`: elements chosen by data, as far as they can be computed without knowing how many there are.

In: a traced array and a bool mask. Out: a `Selection`, which keeps the full shape and remembers the mask: elementwise
operators work on it, sums and means of it are masked reductions, and a store under the same mask
(`y[mask] = 2 * x[mask]`) is a `where`. Every other use would need the number of chosen elements, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.construct import elementwise, views
from fuser.dtypes import BOOL
from fuser.errors import UnsupportedError
from fuser.frontend import calls, locations
from fuser.graph import Node
from fuser.optable.base import ScalarOp

if TYPE_CHECKING:
    from fuser.frontend.context import Context

HINT = "keep the shape: np.where(mask, x, 0), x.sum(where=mask); or store: x[mask] = v"
REDUCTIONS = frozenset({"sum", "prod", "mean", "var", "std", "any", "all", "count_nonzero"})


class Selection:
    """Elements of `node` where `mask` (over its leading axes) holds. A copy, as NumPy's is."""

    __array_priority__ = 2500
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, ctx: Context, node: Node, mask: Node, text: str) -> None:
        self._ctx, self._node, self._mask = ctx, node, mask
        self._span, self._text = ctx.b.span, text

    def _refused(self, *_: Any, **__: Any) -> Any:
        """Collect the selection as a call without an operator."""
        from fuser.frontend.poison import Poison

        self._ctx.refuse(None, HINT, self._text, self._span)
        return Poison(self._ctx)

    def _wider_mask(self) -> Node:
        """The mask over all axes of the array."""
        b, extra = self._ctx.b, self._node.rank - self._mask.rank
        mask = views.expand_dims(b, self._mask, tuple(range(self._mask.rank, self._node.rank))) if extra else self._mask
        return views.broadcast_to(b, mask, self._node.shape)

    # -- NumPy -----------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from fuser.frontend import protocols

        frame = self._ctx.enter()
        row = protocols.row_of(ufunc)
        if method != "__call__" or not isinstance(row, ScalarOp) or "out" in kwargs or "where" in kwargs:
            return self._refused()
        return self._elementwise(row, inputs, kwargs, frame)

    def _elementwise(
        self, row: ScalarOp, inputs: Sequence[Any], options: Mapping[str, Any], frame: FrameType | None
    ) -> Any:
        ctx, rest = self._ctx, self._node.rank - self._mask.rank
        values = []
        for v in inputs:
            if type(v) is Selection:
                if v._mask is not self._mask or v._node.rank != self._node.rank:
                    return v._refused()
                values.append(v._node)
                continue
            plain = calls.unwrap(ctx, v)
            if isinstance(plain, Node) and plain.rank > rest:
                return self._refused()  # as long as the selection, whose length nobody knows
            values.append(plain)
        node = calls.attempt(ctx, frame, lambda: calls.build(ctx, row, values, dict(options)))
        return Selection(ctx, node, self._mask, self._text) if isinstance(node, Node) else node

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in REDUCTIONS and args and args[0] is self:
            return self._reduced(func, args[1:], kwargs)
        return self._refused()

    def _reduced(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A masked reduction over the selected axis (all axes by default)."""
        options = {k: v for k, v in kwargs.items() if v is not np._NoValue}
        axis = args[0] if args else options.pop("axis", None)
        if len(args) > 1 or axis not in (None, 0) or "out" in options or (axis == 0 and options.get("keepdims")):
            return self._refused()
        whole = calls.fresh(self._ctx, self._node)
        mask = calls.fresh(self._ctx, self._wider_mask())
        axes = None if axis is None else tuple(range(self._mask.rank))
        if func.__name__ == "count_nonzero":
            chosen: Any = whole.astype(bool) & mask
            return np.count_nonzero(chosen, axis=axes, **options)
        return func(whole, axis=axes, where=mask, **options)

    def astype(self, dtype: Any, **_: Any) -> Any:
        """Converted elements."""
        ctx = self._ctx
        node = calls.attempt(ctx, ctx.enter(), lambda: elementwise.cast(ctx.b, self._node, dtype))
        return Selection(ctx, node, self._mask, self._text) if isinstance(node, Node) else node

    def copy(self) -> Any:
        return self

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._node.dtype.numpy

    @property
    def ndim(self) -> int:
        return self._node.rank - self._mask.rank + 1

    def __getattr__(self, name: str) -> Any:
        if name in REDUCTIONS:
            return lambda *args, **kwargs: self._reduced(getattr(np, name), args, kwargs)
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refused()

    def __getitem__(self, key: Any) -> Any:
        return self._refused()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refused()

    def __iter__(self) -> Any:
        return iter(self._refused())

    def __len__(self) -> int:
        return len(self._refused())

    def __bool__(self) -> bool:
        return bool(self._refused())

    def __float__(self) -> float:
        return float(self._refused())

    def __int__(self) -> int:
        return int(self._refused())


def _operators() -> None:
    binary = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
        "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        "lshift": np.left_shift, "rshift": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    }  # fmt: skip
    for name, ufunc in binary.items():
        setattr(Selection, f"__{name}__", lambda self, other, ufunc=ufunc: ufunc(self, other))
        setattr(Selection, f"__r{name}__", lambda self, other, ufunc=ufunc: ufunc(other, self))
    for name, one in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
        setattr(Selection, f"__{name}__", lambda self, one=one: one(self))


_operators()


def select(ctx: Context, node: Node, mask: Node, frame: FrameType | None) -> Selection:
    """`x[mask]`; the mask must cover leading axes of `x`."""
    b = ctx.b
    if mask.rank > node.rank or not mask.rank:
        raise UnsupportedError(f"x[mask] with a mask of {mask.rank} axes", "data-dependent-shape", notes=(HINT,))
    wide = views.broadcast_to(b, mask, node.shape[: mask.rank])
    return Selection(ctx, node, wide, locations.source_text(frame) if frame is not None else "x[mask]")


def stored(ctx: Context, node: Node, mask: Node, value: Selection) -> Node:
    """The value of `x` after `x[mask] = selection`: the masks must be one."""
    wide = views.broadcast_to(ctx.b, mask, node.shape[: mask.rank])
    if wide is not value._mask or value._node.rank != node.rank:
        value._refused()
        return node
    new = elementwise.cast(ctx.b, value._node, node.dtype)
    return elementwise.where(ctx.b, elementwise.cast(ctx.b, value._wider_mask(), BOOL), new, node)
