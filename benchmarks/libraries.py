"""One namespace for each array library, so that a program is written once and run by all.

In: the library's name. Out: a namespace with NumPy's names plus `erf sigmoid gelu relu dropout cross_entropy put assign
written widened cast_like`; `programs(namespace)` is a copy of `benchmarks.programs` whose `xp` it is. Libraries are
imported when asked for.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

SHARED = [
    "abs",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "sum",
    "mean",
    "max",
    "min",
    "argmax",
    "count_nonzero",
    "where",
    "concatenate",
    "cumsum",
    "transpose",
    "var",
]


def programs(library: SimpleNamespace | ModuleType) -> ModuleType:
    """A fresh copy of the programs, bound to a library."""
    spec = importlib.util.find_spec("benchmarks.programs")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["xp"] = library
    return module


def _of(module: Any, **special: Any) -> SimpleNamespace:
    names: dict[str, Any] = {name: getattr(module, name) for name in SHARED if hasattr(module, name)}
    return SimpleNamespace(**{**names, **special})


def _stored(target: Any, value: Any) -> Any:
    target[...] = value
    return target


def _in_place(results: tuple[Any, ...], *targets: Any) -> Any:
    """What a program returns whose targets were written in place."""
    return results[0] if len(results) == 1 else (results or None)


def _gelu(library: Any) -> Callable[[Any], Any]:
    return lambda v: 0.5 * v * (1 + library.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)))


def _array_functions(module: Any) -> dict[str, Any]:
    """What NumPy and its likes lack a name for, in their own terms."""
    astype = getattr(module, "astype", lambda x, dtype: x.astype(dtype))

    def cross_entropy(logits: Any, target: Any) -> Any:
        top = module.max(logits, axis=-1, keepdims=True)
        shifted = logits - top
        chosen = module.take_along_axis(shifted, target[:, None], axis=-1)[:, 0]
        return module.mean(module.log(module.sum(module.exp(shifted), axis=-1)) - chosen)

    def dropout(x: Any, p: float, seed: int) -> Any:
        keep = module.random.random(x.shape) >= p
        return module.where(keep, x / (1 - p), 0)

    def put(array: Any, key: Any, value: Any) -> Any:
        new = module.copy(array)
        new[key] = value
        return new

    return {
        "relu": lambda x: module.maximum(x, 0),
        "gelu": _gelu(module),
        "sigmoid": lambda x: 1 / (1 + module.exp(-x)),
        "widened": lambda x: astype(x, module.promote_types(x.dtype, module.float32)),
        "cast_like": lambda x, like: astype(x, like.dtype),
        "cross_entropy": cross_entropy,
        "dropout": dropout,
        "put": put,
        "assign": _stored,
        "written": _in_place,
    }


def numpy() -> SimpleNamespace:
    """NumPy, with SciPy's `erf` and `expit` where it is installed."""
    special = {"erf": np.vectorize(math.erf, otypes=[np.float64])}
    if importlib.util.find_spec("scipy") is not None:
        from scipy.special import erf, expit

        special = {"erf": erf, "sigmoid": expit}
    return _of(np, **{**_array_functions(np), **special})


def fuser() -> ModuleType:
    """NumPy's functions on tracers; `fuser.ops` where NumPy has none.

    A module that passes for one of NumPy's: users' programs refer to `np`, which fuser knows not to change under it,
    and calls take their short road.
    """
    import fuser

    ops = fuser.ops
    special = {
        "erf": ops.erf,
        "sigmoid": ops.sigmoid,
        "gelu": lambda x: ops.gelu(x, approximate="tanh"),
        "cross_entropy": ops.cross_entropy,
        "dropout": ops.dropout,
        "widened": lambda x: np.astype(x, np.float32),
        "cast_like": lambda x, like: np.astype(
            x, str(like.dtype).removeprefix("torch.")
        ),  # tensors name torch's dtypes
    }
    module = ModuleType("numpy.and_fuser_ops")
    module.__dict__.update(vars(_of(np, **{**_array_functions(np), **special})))
    return module


def cupy() -> SimpleNamespace:
    """CuPy with its SciPy functions."""
    import cupy
    from cupyx.scipy import special

    return _of(cupy, **{**_array_functions(cupy), "erf": special.erf, "sigmoid": special.expit})


def jax() -> SimpleNamespace:
    """JAX: nothing is written in place, so stores return the new array."""
    import jax
    import jax.numpy as jnp

    def dropout(x: Any, p: float, seed: Any) -> Any:
        keep = jax.random.bernoulli(jax.random.key(seed), 1 - p, x.shape)
        return jnp.where(keep, x / (1 - p), 0)

    special = {
        "erf": jax.scipy.special.erf,
        "sigmoid": jax.nn.sigmoid,
        "gelu": lambda x: jax.nn.gelu(x, approximate=True),
        "dropout": dropout,
        "put": lambda array, key, value: array.at[key].set(value),
        "assign": lambda target, value: value.astype(target.dtype),
        "written": lambda results, *targets: (*results, *targets),
    }
    return _of(jnp, **{**_array_functions(jnp), **special})


def torch() -> SimpleNamespace:
    """PyTorch, under NumPy's names."""
    import torch
    from torch.nn import functional

    def over_axes(reduce: Any) -> Callable[..., Any]:
        def reduced(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
            return reduce(x) if axis is None else reduce(x, dim=axis, keepdim=keepdims)

        return reduced

    def put(array: Any, key: Any, value: Any) -> Any:
        new = array.clone()
        new[key] = value
        return new

    def assign(target: Any, value: Any) -> Any:
        target.copy_(value)
        return target

    return _of(
        torch,
        sum=over_axes(torch.sum),
        mean=over_axes(torch.mean),
        max=over_axes(torch.amax),
        min=over_axes(torch.amin),
        argmax=over_axes(torch.argmax),
        var=lambda x, axis, ddof=0: torch.var(x, dim=axis, correction=ddof),
        concatenate=lambda arrays, axis: torch.cat(arrays, dim=axis),
        cumsum=lambda x, axis: torch.cumsum(x, dim=axis),
        transpose=torch.permute,
        erf=torch.erf,
        sigmoid=torch.sigmoid,
        relu=torch.relu,
        gelu=lambda x: functional.gelu(x, approximate="tanh"),
        cross_entropy=functional.cross_entropy,
        dropout=lambda x, p, seed: functional.dropout(x, p),
        widened=lambda x: x.to(torch.promote_types(x.dtype, torch.float32)),
        cast_like=lambda x, like: x.to(like.dtype),
        put=put,
        assign=assign,
        written=_in_place,
    )
