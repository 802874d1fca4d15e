"""Fresh torch tensors, by the shortest way that this torch has; and tensors as NumPy arrays.

In: shape, dtype, place. Out: what makes such a tensor, as a callable with its arguments. Its own file because the long
road, the short ones and native code make them alike. On a GPU memory is torch's allocator's; on the CPU large tensors
lie in recycled blocks (`memory`), since the first touch of fresh pages costs more than most kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.dtypes import DType
from fuser.runtime import arrays, memory
from fuser.runtime.arrays import CPU, Place, torch_dtype

Maker = tuple[Callable[..., Any], tuple[Any, ...]]


def maker(shape: Sequence[int], dtype: DType, place: Place) -> Maker:
    """What makes an uninitialised C-contiguous tensor."""
    import torch

    shape, wanted = tuple(shape), torch_dtype(dtype)
    if place == CPU and prod(shape) * dtype.bytes >= memory.SMALL:
        return _recycled, (shape, np.dtype(np.int16) if dtype == dtypes.BF16 else dtype.numpy, wanted)
    swift = _swift(place.kind)
    if swift is not None:
        return swift, (shape, _strides(shape), wanted)
    return functools.partial(torch.empty, shape, dtype=wanted, device=torch.device(str(place))), ()


@cache
def bump() -> Callable[[tuple[Any, ...]], Any]:
    """What tells autograd of tensors that were written: a `backward()` that needs what they were then raises."""
    import torch

    inner: Callable[[tuple[Any, ...]], Any] | None = getattr(torch._C, "_increment_version", None)
    if inner is not None:
        return inner
    known = getattr(torch.autograd.graph, "increment_version", None)  # takes one tensor in older versions
    return lambda written: [known(t) for t in written] if known is not None else None


def written(values: Iterable[Any]) -> None:
    """Tell autograd of those that are tensors."""
    found = tuple(v for v in values if arrays.family_of(v) == "torch")
    if found:
        bump()(found)


def _recycled(shape: tuple[int, ...], dtype: np.dtype[Any], wanted: Any) -> Any:
    """A tensor over a recycled block. bf16 comes as integers: torch takes no array of it."""
    import torch

    made = torch.from_numpy(memory.empty(shape, dtype))
    return made if made.dtype == wanted else made.view(wanted)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """C order, in elements; as torch has it for tensors of no elements."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    return tuple(reversed(strides))


@cache
def _swift(kind: str) -> Callable[..., Any] | None:
    """What torch.compile's programs allocate with: no parsing of keywords. It takes the current device."""
    import torch

    if kind == "cuda" and torch.cuda.device_count() > 1:
        return None
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, f"_empty_strided_{kind}", None)


def to_numpy(tensor: Any) -> Any:
    """A tensor's elements on the host; bfloat16, a type that torch gives NumPy no name for, as ml_dtypes stores it."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.BF16.numpy)
    return tensor.numpy()
