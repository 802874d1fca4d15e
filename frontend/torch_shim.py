"""`torch` as a traced function sees it: creation functions trace, random ones refuse, all else is torch's own.

In: the module. Out: a stand-in for the length of a trace. torch's functions of tensors need none: they hand traced
arrays over by themselves (`__torch_function__`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.dtypes import BOOL, F32, I64, DType
from fuser.frontend import calls, creation, torch_calls
from fuser.frontend.context import Context
from fuser.frontend.tracer import TracedArray

RANDOM = (
    "rand",
    "randn",
    "randint",
    "randperm",
    "normal",
    "bernoulli",
    "manual_seed",
    "rand_like",
    "randn_like",
    "randint_like",
)


def _dtype(given: Any, default: DType) -> np.dtype[Any]:
    found = torch_calls.plain(given)
    return (default if found is None else found).numpy


def _shape(size: tuple[Any, ...]) -> Any:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def _filled(name: str) -> Callable[..., Any]:
    def make(ctx: Context, *size: Any, dtype: Any = None, **_: Any) -> Any:
        return creation.by_row(ctx, getattr(np, name), (_shape(size),), {"dtype": _dtype(dtype, F32)})

    return make


def _kind(*values: Any) -> DType:
    """The dtype that torch gives Python numbers."""
    if all(isinstance(v, bool) for v in values):
        return BOOL
    return I64 if all(isinstance(v, int) for v in values) else F32


def full(ctx: Context, size: Any, fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return creation.by_row(ctx, np.full, (tuple(size), fill_value), {"dtype": _dtype(dtype, _kind(fill_value))})


def arange(ctx: Context, *limits: Any, dtype: Any = None, **_: Any) -> Any:
    return creation.by_row(ctx, np.arange, limits, {"dtype": _dtype(dtype, _kind(*limits))})


def linspace(ctx: Context, start: Any, end: Any, steps: Any, *, dtype: Any = None, **_: Any) -> Any:
    return creation.by_row(ctx, np.linspace, (start, end, steps), {"dtype": _dtype(dtype, F32)})


def eye(ctx: Context, n: Any, m: Any = None, *, dtype: Any = None, **_: Any) -> Any:
    return creation.by_row(ctx, np.eye, (n, m), {"dtype": _dtype(dtype, F32)})


def tensor(ctx: Context, data: Any, dtype: Any = None, **_: Any) -> Any:
    """`torch.tensor([[1.0, 2.0]])`: Python floats are f32."""
    if type(data) is TracedArray:
        return data if dtype is None else data.to(dtype)
    found = torch_calls.plain(dtype) or _kind(*calls.leaves(data))
    return creation.array(ctx, data, dtype=found.numpy)


CREATORS: dict[str, Callable[..., Any]] = {
    "zeros": _filled("zeros"), "ones": _filled("ones"), "empty": _filled("empty"), "full": full, "arange": arange,
    "linspace": linspace, "eye": eye, "tensor": tensor, "as_tensor": tensor, "asarray": tensor,
}  # fmt: skip


def replaced(ctx: Context) -> dict[str, Any]:
    """The names of `torch` that a traced function sees replaced."""
    from fuser.frontend.shims import random_shim

    made: dict[str, Any] = {name: _bound(ctx, f) for name, f in CREATORS.items()}
    return {**made, **{name: random_shim(ctx, f"torch.{name}") for name in RANDOM}}


def _bound(ctx: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(ctx, *args, **kwargs)
