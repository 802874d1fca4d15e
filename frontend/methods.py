"""Methods and subscripts of traced arrays that are more than a NumPy function of the same name.

In: a traced array and a method's arguments. Out: views, copies, stores. Every other method is looked up in NumPy by
name (`x.sum()` is `np.sum(x)`), so no list of operators is kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.construct import complexes, elementwise, indexing
from fuser.construct.common import fail
from fuser.dtypes import BOOL
from fuser.errors import DTypeError
from fuser.frontend import calls, scatter, selection
from fuser.frontend.poison import Poison
from fuser.frontend.scalar import Scalar
from fuser.frontend.storage import Index, Part
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node
from fuser.hostexpr import HostExpr, lit


def lookup(array: TracedArray, name: str) -> Any:
    """A method by name; AttributeError for what NumPy arrays (torch tensors) do not have."""
    if array._ctx.torch:
        from fuser.frontend import torch_methods

        return torch_methods.lookup(array, name)
    return of_numpy(array, name)


def of_numpy(array: TracedArray, name: str) -> Any:
    """A method of NumPy arrays; AttributeError for what they do not have."""
    own = _OWN.get(name)
    if own is not None:
        return partial(own, array)
    if name.startswith("__") or not hasattr(np.ndarray, name):
        raise AttributeError(f"'numpy.ndarray' object has no attribute '{name}'")
    function = getattr(np, name, None)
    if callable(function) and callable(getattr(np.ndarray, name)):
        return partial(function, array)
    return _Unsupported(array, name)


class _Unsupported:
    """A method or attribute without an operator: refused when it is called or used."""

    def __init__(self, array: TracedArray, name: str) -> None:
        self._array, self._name = array, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from fuser.frontend import advice

        ctx = self._array._ctx
        ctx.refuse(ctx.enter(), advice.unsupported(f"ndarray.{self._name}"))
        return Poison(ctx)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self(), name)

    def __getitem__(self, key: Any) -> Any:
        return self()

    def __setitem__(self, key: Any, value: Any) -> None:
        self()

    def __iter__(self) -> Any:
        return iter(self())


# -- subscripts --------------------------------------------------------------------------------------
def getitem(array: TracedArray, key: Any) -> Any:
    """`x[key]`: a view for ints, slices, None and Ellipsis (a value when all axes are ints), else a gather."""
    ctx = array._ctx
    frame = ctx.enter()
    if calls.is_poisoned(key):
        return Poison(ctx)
    plain = _key(array, key)
    if _is_mask(plain):
        return calls.attempt(ctx, frame, lambda: selection.select(ctx, array.node, plain, frame))
    if not _is_basic(plain):
        result = calls.attempt(ctx, frame, lambda: indexing.getitem(ctx.b, array.node, plain))
        return result if type(result) is Poison else calls.wrap(ctx, result, frame, ordered=not array.node.rank)
    view = array.through(Index(plain))
    result = calls.attempt(ctx, frame, lambda: view.node)
    if type(result) is Poison:
        return result
    if not result.rank and not _has_ellipsis(plain):
        return _element(array, view, result, frame)
    ctx.label(result, frame)
    return view


def _element(array: TracedArray, view: TracedArray, node: Any, frame: Any) -> Any:
    """One element: a value that later stores do not change."""
    made = calls.wrap(array._ctx, node, frame)
    known = view._known()
    if known is not None:
        made._storage.constant = lambda: known
    return made


def setitem(array: TracedArray, key: Any, value: Any) -> None:
    """`x[key] = value`: slices, integers, masks."""
    ctx = array._ctx
    frame = ctx.enter()
    if array.is_scalar:
        raise TypeError(f"'numpy.{array.dtype}' object does not support item assignment")
    if calls.is_poisoned(key, value):
        return
    if type(value) is TracedArray and _is_stored(array, key, value):
        return
    plain = _key(array, key)
    if type(value) is selection.Selection:
        if _is_mask(plain):
            calls.attempt(ctx, frame, lambda: array.assign(selection.stored(ctx, array.node, plain, value)))
        else:
            value._refused()
        return
    if isinstance(value, (list, tuple)):
        from fuser.frontend import creation

        value = creation.array(ctx, value)
    for place, part in scatter.parts(array, _known_key(array, key), calls.unwrap(ctx, value)):
        calls.store(ctx, array, place, part, frame)


def _is_stored(array: TracedArray, key: Any, value: TracedArray) -> bool:
    """Whether this is the end of `x[i:j] += y`, already stored through the view."""
    step, storage = value._step, array._storage
    if value._parent is not array or not isinstance(step, Index) or value._version != storage.version:
        return False
    return bool(step.key == _key(array, key))


def _key(array: TracedArray, key: Any) -> Any:
    """A key as construct takes it."""
    ctx = array._ctx
    if type(key) is tuple:
        return tuple(_key(array, k) for k in key)
    if type(key) is list:
        from fuser.frontend import creation

        known = not any(type(v) in (TracedArray, Scalar) for v in calls.leaves(key))
        return key if known else creation.array(ctx, key).node
    return calls.unwrap(ctx, key)


def _known_key(array: TracedArray, key: Any) -> Any:
    """The key of a store, with index arrays of constants as NumPy arrays."""
    if type(key) is tuple:
        return tuple(_known_key(array, k) for k in key)
    if type(key) is TracedArray and key.node.rank and key.node.dtype.is_integer:
        known = key._known()
        return _key(array, key) if known is None else np.asarray(known)
    return _key(array, key)


def _is_basic(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return all(
        i is None or i is Ellipsis or isinstance(i, (slice, HostExpr, np.integer)) or type(i) is int for i in items
    )


def _is_mask(key: Any) -> bool:
    return isinstance(key, Node) and key.dtype == BOOL


def _has_ellipsis(key: Any) -> bool:
    return any(k is Ellipsis for k in key) if isinstance(key, tuple) else key is Ellipsis


# -- views ---------------------------------------------------------------------------------------------
def transpose(array: TracedArray, *axes: Any) -> Any:
    """`x.transpose(1, 0)`, `x.transpose((1, 0))`, `x.T`."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes or None
    return np.transpose(array, order)


def reshape(array: TracedArray, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    """`x.reshape(2, 3)`, `x.reshape((2, 3))`."""
    target = shape[0] if len(shape) == 1 and type(shape[0]) in (tuple, list) else shape
    source: Any = array.copy() if copy else array
    options: dict[str, Any] = {"order": order}
    return np.reshape(source, target, **options)


def squeeze(array: TracedArray, axis: Any = None) -> Any:
    return np.squeeze(array, axis) if axis is not None else np.squeeze(array)


def flatten(array: TracedArray, order: str = "C") -> Any:
    """A copy along one axis."""
    options: dict[str, Any] = {"order": order}
    whole: Any = array
    flat: Any = np.ravel(whole, **options)
    return copy(flat)


def view(array: TracedArray, dtype: Any = None, type: Any = None) -> Any:
    """`x.view(np.int32)`: the bits as a dtype of the same width. Reading only: stores go to a value of its own."""
    if dtype is None:
        return array.through(Index(Ellipsis))
    ctx = array._ctx
    frame = ctx.enter()
    target = _dtype(array, dtype)
    result = calls.attempt(ctx, frame, lambda: elementwise.bitcast(ctx.b, array.node, target))
    made = calls.wrap(ctx, result, frame)
    made._storage.uncertain = array._storage.uncertain = lit(1)
    return made


def part(array: TracedArray, name: str) -> Any:
    """`z.real` or `z.imag` of a complex array: a view that can be stored into; a value of a scalar."""
    ctx = array._ctx
    frame = ctx.enter()
    if array.is_scalar:
        return calls.wrap(ctx, getattr(complexes, name)(ctx.b, array.node), frame)
    view = array.through(Part(name))
    ctx.label(view.node, frame)
    return view


# -- copies and conversions ----------------------------------------------------------------------------
def astype(
    array: TracedArray, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Any:
    """Convert to a dtype; a copy unless `copy=False` and nothing changes."""
    ctx = array._ctx
    frame = ctx.enter()
    target = _dtype(array, dtype)
    if not copy and target == array.node.dtype:
        return array
    calls.check_casting(ctx, array.node.dtype, target, casting)
    result = calls.attempt(ctx, frame, lambda: elementwise.cast(ctx.b, array.node, target))
    return calls.wrap(ctx, result, frame, array.ordered or order == "C")


def _dtype(array: TracedArray, spelling: Any) -> dtypes.DType:
    found = dtypes.find(dtypes.in_python(spelling))
    if found is None:
        fail(array._ctx.b, DTypeError, f"dtype {spelling!r} is not supported", "dtype")
    return found


def copy(array: TracedArray, order: str = "C") -> Any:
    """The same values in memory of their own."""
    frame = array._ctx.enter()
    made = calls.wrap(array._ctx, array.node, frame, array.ordered or order == "C")
    made.is_scalar = array.is_scalar
    return made


def fill(array: TracedArray, value: Any) -> None:
    """Store one value everywhere."""
    setitem(array, Ellipsis, value)


def round_(array: TracedArray, decimals: Any = 0, out: Any = None) -> Any:
    return np.round(array, decimals, out=out)


def conjugate(array: TracedArray) -> Any:
    """The method gives a real array itself (the function `np.conj` a copy)."""
    return np.conjugate(array) if array.node.dtype.is_complex else array


_OWN: dict[str, Callable[..., Any]] = {
    "transpose": transpose, "reshape": reshape, "squeeze": squeeze, "flatten": flatten, "view": view,
    "astype": astype, "copy": copy, "fill": fill, "round": round_, "conj": conjugate, "conjugate": conjugate,
}  # fmt: skip
