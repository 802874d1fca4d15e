"""Arrays that a program makes: `np.zeros(x.shape)`, `np.array([a, b])`, `np.asarray(x)`.

In: NumPy's creation functions with dims, run-time scalars or traced arrays among their arguments. Out: traced arrays.
NumPy offers no protocol for these, so `shims` hands them over by name. An array made of constants only is
also known to Python while tracing (`for k in np.arange(3)`), until something is stored to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.construct import creation, elementwise
from fuser.frontend import calls, locations, protocols
from fuser.frontend.context import Context
from fuser.frontend.poison import Poison
from fuser.frontend.scalar import Scalar
from fuser.frontend.storage import Index, Storage
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node
from fuser.optable import table

LITERAL = 64  # constant arrays up to this many elements are literals, longer ones hidden inputs
_IGNORED = {"order", "like", "device", "subok"}


def is_dynamic(value: Any) -> bool:
    """Whether anything of the trace is inside."""
    return any(type(v) in (TracedArray, Scalar, Poison) for v in calls.leaves(value))


def constant(ctx: Context, value: np.ndarray[Any, Any], make: Callable[[], Node] | None = None) -> TracedArray:
    """A traced array that Python may look at: it equals `value`."""

    def literal() -> Node:
        return creation.array(ctx.b, value) if value.size <= LITERAL else ctx.outside(value)

    return TracedArray(ctx, Storage(None, make=make or literal, constant=lambda: value))


def array(ctx: Context, value: Any, dtype: Any = None, copy: Any = True, ndmin: int = 0, **_: Any) -> Any:
    """`np.array`: copies arrays, stacks nested lists."""
    frame, dtype = ctx.enter(), dtypes.in_python(dtype)
    if calls.is_poisoned(value):
        return Poison(ctx)
    if type(value) is TracedArray:
        same = value if copy in (False, None) else value.copy()
        made = same if dtype is None else value.astype(dtype, copy=copy not in (False, None))
    elif not is_dynamic(value):
        made = constant(ctx, np.array(value, dtype=dtype))
    else:
        plain = calls.unwrap(ctx, value)
        node = calls.attempt(ctx, frame, lambda: _nested(ctx, plain, dtype))
        made = calls.wrap(ctx, node, frame)
    if type(made) is TracedArray:
        made.is_scalar = False
        if made.ndim < ndmin:
            made = made[(None,) * (ndmin - made.ndim)]
    return made


def _nested(ctx: Context, value: Any, dtype: Any) -> Node:
    made = creation.array(ctx.b, value) if dtype is None else creation.array(ctx.b, value, dtype)
    return elementwise.as_node(ctx.b, made)


def asarray(ctx: Context, value: Any, dtype: Any = None, order: Any = None, copy: Any = None, **_: Any) -> Any:
    """`np.asarray`: the array itself where it is one."""
    if type(value) is TracedArray:
        same = value.copy() if copy else value
        return same if dtype is None else same.astype(dtype, copy=False)
    return array(ctx, value, dtype)


def ascontiguousarray(ctx: Context, value: Any, dtype: Any = None, **_: Any) -> Any:
    """`np.ascontiguousarray`: the array itself if its memory is row-major without gaps, else a copy."""
    made = asarray(ctx, value, dtype)
    if type(made) is not TracedArray:
        return made
    if not made.contiguous:
        return made.copy()
    made._storage.merged = True  # a later store leans on the argument being contiguous
    return made


def by_row(ctx: Context, original: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A creation function with a row of the table: `zeros`, `arange`, `eye`, ..."""
    frame = ctx.enter()
    name = original.__name__
    row = table().find("numpy", "zeros" if name == "empty" else name)
    args, options = protocols.arranged(original, args, kwargs)
    args = [dtypes.in_python(a) for a in args]
    options = {k: dtypes.in_python(v) for k, v in options.items() if k not in _IGNORED}
    dynamic = is_dynamic([list(args), options])
    if row is None:
        return protocols.refused(ctx, frame, name) if dynamic else constant(ctx, original(*args, **options))
    if dynamic:
        made = calls.invoke(ctx, row, args, options, frame)
        if type(made) is TracedArray:
            made.is_scalar = False
        return made
    known = _once(lambda: original(*args, **options))
    node = calls.attempt(ctx, frame, lambda: calls.build(ctx, row, args, dict(options)))
    if type(node) is Poison:
        return constant(ctx, known())
    ctx.label(node, frame)
    made = TracedArray(ctx, Storage(node, constant=known))
    made._storage.name = locations.stored_name(frame)
    return made


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    kept: list[Any] = []

    def get() -> Any:
        if not kept:
            kept.append(make())
        return kept[0]

    return get


def whole(array: TracedArray) -> TracedArray:
    """A new view of all of an array (`x.view()`)."""
    return array.through(Index(Ellipsis))
