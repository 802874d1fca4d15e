"""Other people's arrays, seen one way.

In: NumPy, CuPy and torch arrays (and NumPy scalars). Out: `ArrayInfo` (pointer, dtype, shape, strides, device),
and fresh arrays *in kind*. No array library but NumPy is imported here unless the caller already has it.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fuser import dtypes, trees
from fuser.dtypes import DType
from fuser.errors import DTypeError, GradientError, UnsupportedError
from fuser.record import dataclass
from fuser.runtime import foreign

Family = str  # "numpy", "cupy", "torch", or "foreign:" and a library's name


@dataclass(frozen=True)
class Place:
    """Where memory lives: `cpu`, or CUDA device number `ordinal`."""

    kind: Literal["cpu", "cuda"]
    ordinal: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"cuda:{self.ordinal}"


CPU = Place("cpu")


@dataclass(frozen=True)
class ArrayInfo:
    """An array as the runtime sees it: strides in elements, `base` keeps the memory alive."""

    family: Family
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    place: Place
    base: Any
    writable: bool = True
    is_scalar: bool = False  # a NumPy scalar rather than an array

    @property
    def contiguous(self) -> bool:
        """C order without gaps (axes of length 1 may have any stride)."""
        step = 1
        for d, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if d != 1 and s != step:
                return 0 in self.shape
            step *= d
        return True

    @property
    def spec(self) -> str:
        """The array as a spec, from which a plan for arrays that lie like it is made."""
        from fuser import specs

        if self.contiguous:
            return specs.text_of_array(self.dtype, self.shape, None, self.pointer % 16)
        return specs.text_of_array(self.dtype, self.shape, self.strides, 0)

    @property
    def extent(self) -> tuple[int, int]:
        """Byte range [low, high) that the elements occupy."""
        if 0 in self.shape:
            return (self.pointer, self.pointer)
        reach = [(d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0)
        return (self.pointer + low * self.dtype.bytes, self.pointer + (high + 1) * self.dtype.bytes)


@dataclass(frozen=True)
class SpecArray:
    """An array of which only dtype, shape and how it lies are known: enough to plan, nothing to run on."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0


DEFAULT_DIM = 1024  # size of a dim that nobody gave a size


def from_specs(tree: Any, sizes: Mapping[str, int] | None = None) -> Any:
    """Specs nested in arguments as `SpecArray`s: text like `"f32[n, 64]"`, `ArraySpec`s, torch's meta tensors, and what
    else is `only_shaped`. `sizes` binds named dims."""
    leaves, shape = trees.flatten(tree, is_leaf=lambda _: False)
    return trees.unflatten(shape, [_from_spec(leaf, sizes or {}) for leaf in leaves])


def _from_spec(value: Any, sizes: Mapping[str, int]) -> Any:
    from fuser import specs

    if isinstance(value, str) and specs.meant_as_array(value):
        value = specs.parse(value)
    if isinstance(value, specs.ArraySpec):
        free = {s for d in value.shape if not isinstance(d, int) for s in d.symbols}
        shape = specs.concrete(value, {**dict.fromkeys(free, DEFAULT_DIM), **sizes})
        return SpecArray(value.dtype, shape, value.strides, value.offset)
    if only_shaped(value):
        return SpecArray(_dtype(value.dtype, "spec"), tuple(map(_length, value.shape)))
    if family_of(value) == "torch" and value.is_meta:
        strides = None if value.is_contiguous() else tuple(value.stride())
        return SpecArray(_dtype(str(value.dtype).removeprefix("torch."), "spec"), tuple(value.shape), strides)
    return value


def only_shaped(value: object) -> bool:
    """Whether something has a shape and a dtype and is no array of a known library: `jax.ShapeDtypeStruct`, say."""
    shaped = hasattr(value, "shape") and hasattr(value, "dtype")
    shaped = shaped and not isinstance(value, (type, types.ModuleType))  # NumPy itself has functions of these names
    return shaped and not is_array(value)


def _length(dim: Any) -> int:
    """A dim of such a thing; one that is no number (None, a symbol) has the size of a named dim."""
    try:
        return operator.index(dim)
    except TypeError:
        return DEFAULT_DIM


def overlaps(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Whether two arrays' byte ranges meet (conservative: interleaved strided arrays count as overlapping)."""
    return a.place == b.place and a.extent[0] < b.extent[1] and b.extent[0] < a.extent[1]


def repeats(a: ArrayInfo) -> bool:
    """Whether two elements of an array may be the same memory: some step is no longer than what shorter steps reach."""
    reach = 0
    for step, length in sorted((abs(s), d) for d, s in zip(a.shape, a.strides, strict=True) if d > 1):
        if step <= reach:
            return 0 not in a.shape
        reach += step * (length - 1)
    return False


def share_memory(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Whether two arrays have an element's byte in common; decided exactly for NumPy arrays, unless that is too
    hard."""
    if not overlaps(a, b):
        return False
    if a.family != "numpy" or b.family != "numpy":
        return True
    try:
        shares: Any = np.shares_memory  # its stub knows two values of max_work only
        return bool(shares(a.base, b.base, max_work=4096))
    except np.exceptions.TooHardError:
        return True


def is_array(value: object) -> bool:
    """Whether a call's argument is an array rather than a scalar or a static value."""
    return isinstance(value, SpecArray) or family_of(value) is not None


def family_of(value: object) -> Family | None:
    """The library an argument belongs to; None when it is no array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return "numpy"
    root = type(value).__module__.partition(".")[0]
    if root == "cupy" and _is_instance(value, "cupy", "ndarray"):
        return "cupy"
    if root == "torch" and _is_instance(value, "torch", "Tensor"):
        return "torch"
    return "torch" if _is_instance(value, "torch", "Tensor") else foreign.family_of(value)


def _is_instance(value: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def describe(value: Any, name: str = "argument") -> ArrayInfo:
    """The array behind an argument; raises DTypeError, GradientError or UnsupportedError naming it."""
    family = family_of(value)
    if isinstance(value, SpecArray):
        strides = c_strides(value.shape) if value.strides is None else value.strides
        return ArrayInfo("numpy", value.dtype, value.shape, strides, value.offset, CPU, value)
    if family == "numpy":
        return _describe_numpy(value, name)
    if family == "cupy":
        return _describe_cupy(value, name)
    if family == "torch":
        return _describe_torch(value, name)
    if family is not None:
        return _describe_foreign(value, name, family)
    raise UnsupportedError(f"`{name}` is a {type(value).__name__}, not an array", "not-an-array")


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements of a concrete shape."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def _dtype(found: object, name: str) -> DType:
    dtype = dtypes.find(found)
    if dtype is None:
        known = ", ".join(t.name for t in (*dtypes.ALL, *dtypes.COMPLEX))
        raise DTypeError(f"`{name}` has dtype {found}, which fuser does not have", "dtype", notes=[f"it has {known}"])
    return dtype


def _describe_numpy(value: Any, name: str) -> ArrayInfo:
    masked = sys.modules.get("numpy.ma")  # not imported here for the sake of arrays that cannot exist without it
    if isinstance(value, np.matrix) or (masked is not None and isinstance(value, masked.MaskedArray)):
        raise UnsupportedError(
            f"`{name}` is a {type(value).__name__}",
            "array-subclass",
            notes=["pass a plain array: np.asarray(x)"],
        )
    array = np.asarray(value)
    dtype = _dtype(array.dtype, name)
    if not array.dtype.isnative or any(s % array.itemsize for s in array.strides) or not array.flags.aligned:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        writable = False  # a copy: stores into it would be lost
    else:
        writable = bool(array.flags.writeable)
    strides = tuple(s // array.itemsize for s in array.strides)
    pointer = array.__array_interface__["data"][0]
    return ArrayInfo("numpy", dtype, array.shape, strides, pointer, CPU, array, writable, isinstance(value, np.generic))


def _describe_cupy(value: Any, name: str) -> ArrayInfo:
    dtype = _dtype(value.dtype, name)
    writable = value.data.ptr % value.itemsize == 0
    if not writable:  # a complex view of parts at an odd place: kernels load both parts at once
        value = value.copy()
    strides = tuple(s // value.itemsize for s in value.strides)
    place = Place("cuda", value.device.id)
    return ArrayInfo("cupy", dtype, value.shape, strides, value.data.ptr, place, value, writable)


def _describe_foreign(value: Any, name: str, family: Family) -> ArrayInfo:
    view = foreign.view(value, name)
    if view is None:
        raise UnsupportedError(
            f"`{name}` is a {type(value).__name__} on a device that fuser does not run on", "foreign-device"
        )
    known = _describe_numpy(view, name) if isinstance(view, np.ndarray) else _describe_cupy(view, name)
    return replace(known, family=family, writable=known.writable and family != foreign.IMMUTABLE)


def _describe_torch(value: Any, name: str) -> ArrayInfo:
    if value.is_nested:
        raise UnsupportedError(f"`{name}` is a nested tensor", "torch-layout")
    if records_gradients(value):
        raise GradientError(
            f"`{name}` requires grad, and fuser has no gradients yet",
            "requires-grad",
            notes=["call it under torch.no_grad(), or pass x.detach(), where no gradient is wanted"],
        )
    if not all(type(d) is int for d in value.shape):
        hint = "call it outside of torch.jit.trace"
        raise UnsupportedError(f"`{name}` has no sizes yet: torch traces a program", "torch-layout", notes=[hint])
    dtype = _dtype(str(value.dtype).removeprefix("torch."), name)
    if value.device.type not in ("cpu", "cuda") or str(value.layout) != "torch.strided":
        raise UnsupportedError(f"`{name}` lives on {value.device} with layout {value.layout}", "torch-layout")
    if value.is_conj() or value.is_neg():
        raise UnsupportedError(
            f"`{name}` is a lazy conjugate: its memory holds other numbers than it shows",
            "lazy-conjugate",
            notes=["pass x.resolve_conj() (and resolve_neg()), or conjugate inside the function"],
        )
    place = CPU if value.device.type == "cpu" else Place("cuda", value.device.index or 0)
    address = _address_of_tensor(value, name)
    odd = place != CPU and address % dtype.bytes != 0
    writable = not odd and not is_fixed(value)
    if odd:
        value = value.clone()
    return ArrayInfo(
        "torch", dtype, tuple(value.shape), tuple(value.stride()), value.data_ptr(), place, value, writable
    )


def _address_of_tensor(value: Any, name: str) -> int:
    """Where a tensor's elements are; UnsupportedError where they are nowhere."""
    try:
        address = int(value.data_ptr())
        if address or not value.numel():
            return address
    except RuntimeError:
        pass
    hint = "call it outside of torch.func.vmap and grad, of FakeTensorMode, and not while torch.compile traces"
    raise UnsupportedError(f"`{name}` stands for a tensor and has no memory", "torch-layout", notes=[hint]) from None


def is_fixed(value: Any) -> bool:
    """Whether a tensor was made in torch's inference mode and is not to be written outside of it."""
    return bool(value.is_inference()) and not sys.modules["torch"].is_inference_mode_enabled()


def records_gradients(value: Any) -> bool:
    """Whether torch would differentiate through this tensor here, backwards or forwards."""
    if value.requires_grad and sys.modules["torch"].is_grad_enabled():
        return True
    forward = sys.modules.get("torch.autograd.forward_ad")
    if forward is None or forward._current_level < 0:
        return False
    return forward.unpack_dual(value).tangent is not None


def empty(family: Family, shape: Sequence[int], dtype: DType, place: Place) -> ArrayInfo:
    """A fresh C-contiguous array of a library, uninitialised, as that library's own allocator gives it."""
    shape = tuple(shape)
    if family.startswith(foreign.PREFIX):
        return replace(empty("numpy" if place == CPU else "cupy", shape, dtype, place), family=family)
    if family == "numpy":
        from fuser.runtime.memory import empty as pooled

        return _describe_numpy(pooled(shape, dtype.numpy), "output")
    if family == "cupy":
        import cupy

        with cupy.cuda.Device(place.ordinal):
            return _describe_cupy(cupy.empty(shape, dtype.numpy), "output")
    from fuser.runtime import tensors

    make, given = tensors.maker(shape, dtype, place)
    return _describe_torch(make(*given), "output")


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype of a fuser dtype; DTypeError where torch lacks it."""
    import torch

    found = getattr(torch, dtype.long_name, None)
    if found is None:
        raise DTypeError(f"torch has no {dtype}", "dtype")
    return found
