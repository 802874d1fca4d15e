"""torch functions and methods that are more than a row under another name.

In: a trace and arguments as torch takes them. Out: traced arrays, dims, dtypes. `OWN` serves functions (`torch.split`)
and methods (`x.split`) alike; every other method is looked up in the torch column of the operator table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import ArgumentError, UnsupportedError
from fuser.frontend import calls, methods, torch_calls
from fuser.frontend.context import Context
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node
from fuser.hostexpr import lit

PROPERTIES: dict[str, Callable[[TracedArray], Any]] = {
    "data": lambda x: x, "is_cuda": lambda x: False, "requires_grad": lambda x: False, "grad": lambda x: None,
    "H": lambda x: x.T.conj(), "mH": lambda x: x.mT.conj(), "is_leaf": lambda x: True,
}  # fmt: skip


def lookup(array: TracedArray, name: str) -> Any:
    """A method or attribute of a tensor, or of a NumPy array where tensors have none of that name: a function written
    for NumPy (`x.astype`, `x.copy`) takes tensors too. AttributeError for what neither has."""
    import torch

    if name in PROPERTIES:
        return PROPERTIES[name](array)
    if not name.startswith("__") and not hasattr(torch.Tensor, name) and hasattr(np.ndarray, name):
        return methods.of_numpy(array, name)
    if name.startswith("__") or not hasattr(torch.Tensor, name):
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")
    return lambda *args, **kwargs: torch_calls.named(array._ctx, name, (array, *args), kwargs)


# -- shapes ----------------------------------------------------------------------------------------
def size(ctx: Context, x: Any, dim: Any = None) -> Any:
    """`x.size()`, `x.size(0)`."""
    return x.shape if dim is None else x.shape[dim]


def _shape(items: tuple[Any, ...]) -> Any:
    return items[0] if len(items) == 1 and isinstance(items[0], (tuple, list)) else items


def reshape(ctx: Context, x: Any, *shape: Any, **named: Any) -> Any:
    """`x.view(2, -1)`, `x.reshape((2, -1))`, `x.view(torch.int32)`."""
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        return methods.view(x, shape[0])
    return np.reshape(x, tuple(_shape(shape or tuple(named.values()))))


def permute(ctx: Context, x: Any, *dims: Any, **named: Any) -> Any:
    return np.transpose(x, tuple(_shape(dims or tuple(named.values()))))


def transpose(ctx: Context, x: Any, dim0: Any, dim1: Any) -> Any:
    return np.swapaxes(x, dim0, dim1)


def expand(ctx: Context, x: Any, *sizes: Any) -> Any:
    shape = _shape(sizes)
    lead = len(shape) - x.ndim
    return np.broadcast_to(
        x, tuple(x.shape[k - lead] if type(d) is int and d == -1 else d for k, d in enumerate(shape))
    )


def repeat(ctx: Context, x: Any, *sizes: Any) -> Any:
    """`x.repeat(2, 3)`: `np.tile`."""
    return np.tile(x, tuple(_shape(sizes)))


def flip(ctx: Context, x: Any, *dims: Any) -> Any:
    return np.flip(x, tuple(_shape(dims)))


def split(ctx: Context, x: Any, split_size_or_sections: Any, dim: Any = 0) -> Any:
    """Parts of one length (the last may be shorter), or of the lengths given."""
    if isinstance(split_size_or_sections, (tuple, list)):
        bounds = [sum(split_size_or_sections[:k]) for k in range(1, len(split_size_or_sections))]
    else:
        bounds = list(range(split_size_or_sections, int(x.shape[dim]), split_size_or_sections))
    return tuple(np.split(x, bounds, axis=dim))


def unbind(ctx: Context, x: Any, dim: Any = 0) -> Any:
    return np.unstack(x, axis=dim)


def t(ctx: Context, x: Any) -> Any:
    return np.transpose(x)


# -- dtypes and copies -----------------------------------------------------------------------------
def _is_target(value: Any) -> bool:
    return isinstance(value, dtypes.DType)


def to(ctx: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
    """`x.to(torch.float16)`, `x.to(other)`; devices are the call's own."""
    wanted = [a for a in (*args, kwargs.get("dtype")) if _is_target(a)]
    wanted += [a.node.dtype for a in args if type(a) is TracedArray]
    return methods.astype(x, wanted[0], copy=False) if wanted else x


def _cast(target: dtypes.DType) -> Callable[..., Any]:
    return lambda ctx, x, **_: methods.astype(x, target, copy=False)


def same(ctx: Context, x: Any, *_: Any, **__: Any) -> Any:
    return x


def clone(ctx: Context, x: Any, **_: Any) -> Any:
    return methods.copy(x)


# -- arithmetic with torch's options ------------------------------------------------------------------
def scaled(name: str) -> Callable[..., Any]:
    """`torch.add(x, y, alpha=2)`, `torch.sub`."""

    def apply(ctx: Context, input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
        value = other if type(alpha) is int and alpha == 1 else _row(ctx, "mul", other, alpha)
        return _row(ctx, name, input, value, **({} if out is None else {"out": out}))

    return apply


def divided(ctx: Context, input: Any, other: Any, *, rounding_mode: Any = None, out: Any = None) -> Any:
    """`torch.div` with its rounding modes."""
    options = {} if out is None else {"out": out}
    if rounding_mode == "floor":
        return _row(ctx, "floor_divide", input, other, **options)
    quotient = _row(ctx, "divide", input, other, **options)
    if rounding_mode is None:
        return quotient
    if torch_calls.result_type([calls.unwrap(ctx, v) for v in (input, other)]).is_integer:
        raise UnsupportedError(
            "torch.div(rounding_mode='trunc') of integers", "unsupported-call", notes=["floor, or floats"]
        )
    return np.trunc(quotient)


def _row(ctx: Context, name: str, *args: Any, **options: Any) -> Any:
    from fuser.optable import table

    row = table().find("torch", name)
    assert row is not None
    return torch_calls.call_row(ctx, name, row, args, options, ctx.enter())


def clamp(ctx: Context, x: Any, min: Any = None, max: Any = None, **_: Any) -> Any:
    """`torch.clamp`: the bounds promote as operands do."""
    for name, bound in (("maximum", min), ("minimum", max)):
        x = x if bound is None else _row(ctx, name, x, bound)
    return x


def dropout(ctx: Context, x: Any, p: Any = 0.5, training: Any = True, inplace: bool = False) -> Any:
    """`F.dropout`: the identity outside training; else an error that points to a keyed generator."""
    if training is False or p == 0:
        return x
    note = "write fuser.ops.dropout(x, p, key), whose key you pass"
    raise UnsupportedError("F.dropout would draw once, while tracing", "random", notes=[note])


def masked_fill(ctx: Context, x: Any, mask: Any, value: Any) -> Any:
    return np.where(mask, calls.fresh(ctx, _as(ctx, value, x)), x)


def _as(ctx: Context, value: Any, like: Any) -> Node:
    from fuser.construct import elementwise

    return elementwise.as_node(ctx.b, calls.unwrap(ctx, value), like.node.dtype)


def fill(ctx: Context, x: Any, value: Any = 0) -> Any:
    methods.setitem(x, Ellipsis, value)
    return x


def copy(ctx: Context, x: Any, source: Any, *_: Any, **__: Any) -> Any:
    """`x.copy_(y)`: a store that converts."""
    methods.setitem(x, Ellipsis, methods.astype(source, x.node.dtype, copy=False))
    return x


def new(name: str) -> Callable[..., Any]:
    """`x.new_zeros(2, 3)`."""

    def make(ctx: Context, x: Any, *shape: Any, dtype: Any = None, **_: Any) -> Any:
        from fuser.frontend import creation

        target = (x.node.dtype if dtype is None else dtype).numpy
        if name == "full":
            return creation.by_row(ctx, np.full, shape, {"dtype": target})
        return creation.by_row(ctx, getattr(np, name), (tuple(_shape(shape)),), {"dtype": target})

    return make


def norm(
    ctx: Context, x: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False, out: Any = None, dtype: Any = None
) -> Any:
    """`torch.norm`: of vectors, along one axis or over several; without `dim` over all elements."""
    x = x if dtype is None else methods.astype(x, dtype, copy=False)
    order = 2.0 if p in ("fro", None) else p
    return _row(ctx, "linalg.vector_norm", x, order, dim, bool(keepdim))


def normalize(ctx: Context, x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12, out: Any = None) -> Any:
    """`F.normalize`."""
    size = np.linalg.norm(x, ord=p, axis=dim, keepdims=True)
    return _row(ctx, "div", x, _row(ctx, "maximum", size, eps))


def softmin(ctx: Context, x: Any, dim: Any = None, **_: Any) -> Any:
    return _row(ctx, "softmax", -x, dim)


def softplus(ctx: Context, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    from fuser.optable import table

    return calls.invoke(ctx, table().rows["softplus_beta"], (x,), {"beta": beta, "threshold": threshold}, ctx.enter())


def pad(ctx: Context, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """`F.pad`: pairs from the last axis backwards."""
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    kinds = {"constant": "constant", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}
    if mode not in kinds:
        raise ArgumentError(f"F.pad has no mode {mode!r}", "pad")
    options: dict[str, Any] = {"constant_values": 0 if value is None else value} if mode == "constant" else {}
    return np.pad(x, widths, mode=kinds[mode], **options)  # type: ignore[call-overload]


def view_as_real(ctx: Context, x: Any) -> Any:
    """Parts along a new last axis; a look into the tensor, so neither side may be stored into from here on."""
    joined: Any = np.stack([x.real, x.imag], axis=-1)
    joined._storage.uncertain = x._storage.uncertain = lit(1)
    return joined


def view_as_complex(ctx: Context, x: Any) -> Any:
    """Pairs of the last axis as complex numbers; as `view_as_real`."""
    joined = _row(ctx, "complex", x[..., 0], x[..., 1])
    joined._storage.uncertain = x._storage.uncertain = lit(1)
    return joined


def polar(ctx: Context, abs: Any, angle: Any, *, out: Any = None) -> Any:
    """A complex tensor of moduli and angles."""
    return _row(ctx, "complex", abs * np.cos(angle), abs * np.sin(angle))


def is_tensor(ctx: Context, x: Any) -> bool:
    return type(x) is TracedArray


OWN: dict[str, Callable[..., Any]] = {
    "size": size, "dim": lambda ctx, x: x.ndim, "ndimension": lambda ctx, x: x.ndim, "view": reshape,
    "reshape": reshape,
    "numel": lambda ctx, x: _count(x), "nelement": lambda ctx, x: _count(x),
    "view_as": lambda ctx, x, y: np.reshape(x, y.shape), "reshape_as": lambda ctx, x, y: np.reshape(x, y.shape),
    "expand_as": lambda ctx, x, y: np.broadcast_to(x, y.shape), "permute": permute, "transpose": transpose,
    "swapaxes": transpose, "swapdims": transpose, "expand": expand, "repeat": repeat, "flip": flip, "split": split,
    "unbind": unbind, "t": t, "unflatten": lambda ctx, x, dim, sizes: _unflatten(x, dim, sizes),
    "view_as_real": view_as_real, "view_as_complex": view_as_complex, "polar": polar, "resolve_conj": same,
    "resolve_neg": same, "conj_physical": lambda ctx, x: np.conjugate(x), "is_conj": lambda ctx, x: False,
    "is_neg": lambda ctx, x: False, "is_complex": lambda ctx, x: x.node.dtype.is_complex,
    "adjoint": lambda ctx, x: x.mT.conj(),
    "to": to, "type": to, "type_as": to, "contiguous": same, "detach": same, "cpu": same, "cuda": same, "clone": clone,
    "is_contiguous": lambda ctx, x: True, "is_floating_point": lambda ctx, x: x.node.dtype.is_float,
    "is_tensor": is_tensor, "element_size": lambda ctx, x: x.itemsize, "requires_grad_": same,
    **{n: _cast(d) for n, d in {
        "float": dtypes.F32, "double": dtypes.F64, "half": dtypes.F16, "bfloat16": dtypes.BF16, "int": dtypes.I32,
        "long": dtypes.I64, "short": dtypes.I16, "char": dtypes.I8, "byte": dtypes.U8, "bool": dtypes.BOOL,
        "cfloat": dtypes.C64, "cdouble": dtypes.C128,
    }.items()},
    "add": scaled("add"), "sub": scaled("sub"), "subtract": scaled("sub"), "div": divided, "divide": divided,
    "true_divide": divided, "clamp": clamp, "clip": clamp, "dropout": dropout, "masked_fill": masked_fill,
    "clamp_min": lambda ctx, x, min: clamp(ctx, x, min), "clamp_max": lambda ctx, x, max: clamp(ctx, x, None, max),
    "fill_": fill, "zero_": fill, "copy_": copy, "new_zeros": new("zeros"), "new_ones": new("ones"),
    "new_empty": new("empty"), "new_full": new("full"), "normalize": normalize, "softmin": softmin,
    "norm": norm,
    "softplus": softplus,
    "frac": lambda ctx, x: x - np.trunc(x), "pad": pad, "rsub": lambda ctx, x, y: _row(ctx, "sub", y, x),
}  # fmt: skip


def _count(x: Any) -> Any:
    count: Any = 1
    for d in x.shape:
        count = count * d
    return count


def _unflatten(x: Any, dim: int, sizes: Any) -> Any:
    k = dim % x.ndim
    return np.reshape(x, (*x.shape[:k], *sizes, *x.shape[k + 1 :]))
