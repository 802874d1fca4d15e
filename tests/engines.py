"""One way to run a program on every backend that is here: what tests ask of an engine, and nothing else.

In: anything `fuser.compile` takes. Out: a callable on NumPy arrays that answers in NumPy arrays and updates its
arguments in place, whichever backend computed. `llvm` is the CPU; `simt` runs the CUDA kernels in the interpreter;
`cuda` copies arrays to a GPU and back. `fused=False` gives every operator a kernel of its own. Own file because the
matrix, the fuzzer and the GPU tests all need the same three engines.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import trees
from fuser.compiled import Compiled
from fuser.dtypes import BF16
from fuser.toolchain import Toolchain
from fuser.wiring import toolchain
from tests.conftest import why_no_gpu
from tests.simulate import Simulated

Array = np.ndarray[Any, Any]
Program = Callable[..., Any]
LINE = 256  # bytes; GPU allocations start at a multiple


@dataclass(frozen=True)
class Engine:
    """A backend by name; `kind` is the device kind, whose reduction order it follows."""

    name: str
    kind: str

    def compile(self, fn: Any, fused: bool = True, **options: Any) -> Program:
        """The program on this engine: NumPy arrays (in trees) in, NumPy arrays out."""
        make = {"llvm": fuser.compile, "simt": Simulated, "cuda": OnDevice}[self.name]
        made = make(fn, **options)
        if not fused:
            if isinstance(made, Compiled):
                made = apart(made)
            else:
                made.compiled = apart(made.compiled)
        return made

    @property
    def missing(self) -> str | None:
        """Why the engine cannot run here."""
        return why_no_cuda() if self.name == "cuda" else None

    def __str__(self) -> str:
        return self.name


LLVM, SIMT, CUDA = Engine("llvm", "cpu"), Engine("simt", "cuda"), Engine("cuda", "cuda")
NO_GPU_NEEDED = (LLVM, SIMT)
each = pytest.mark.parametrize("engine", NO_GPU_NEEDED, ids=str)


@cache
def why_no_cuda() -> str | None:
    """Why programs cannot run on a GPU here: the driver's reason, or CuPy's."""
    if reason := why_no_gpu():
        return reason
    try:
        import cupy
    except ImportError as error:
        return f"a GPU, but no CuPy: {error}"
    return None if cupy.cuda.runtime.getDeviceCount() else "a GPU, but CuPy sees none"


# -- other toolchains ------------------------------------------------------------------------------
def with_tools(compiled: Compiled, change: Callable[[Toolchain], Toolchain]) -> Compiled:
    """The same program with another toolchain, such as one that counts."""
    tools = change(toolchain())
    return Compiled(compiled._source, compiled._options, lambda: tools)


def apart(compiled: Compiled) -> Compiled:
    """The same program with no two operators in one kernel."""
    return with_tools(compiled, lambda t: replace(t, plan_groups=partial(t.plan_groups, merge=False)))


# -- a GPU, seen from the host ---------------------------------------------------------------------
class OnDevice:
    """`OnDevice(fn)(*arrays)`: copied to the GPU with their strides, run there, results and updates copied back."""

    def __init__(self, fn: Any, **options: Any) -> None:
        self.compiled: Compiled = fuser.compile(fn, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = trees.flatten((args, kwargs))
        sent = [to_device(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        device_args, device_kwargs = trees.unflatten(tree, sent)
        result = self.compiled(*device_args, **device_kwargs)
        for host, device in zip(leaves, sent, strict=True):
            if isinstance(host, np.ndarray) and host.flags.writeable:
                host[...] = to_host(device)
        found, tree = trees.flatten(result)
        return trees.unflatten(tree, [to_host(leaf) for leaf in found])


def to_device(array: Array) -> Any:
    """The array on the GPU with the strides and the alignment it has here; bfloat16 as a torch tensor."""
    import cupy

    if array.dtype == BF16.numpy:
        torch = pytest.importorskip("torch", reason="CuPy has no bfloat16, and torch is not here")
        flat = torch.from_numpy(np.ascontiguousarray(array).view(np.int16))
        return flat.view(torch.bfloat16).reshape(array.shape).cuda()
    if array.size == 0 or not array.flags.aligned:
        return cupy.array(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    start = int(array.__array_interface__["data"][0])
    shift = low % LINE
    memory = cupy.empty(shift + high - low, np.uint8)  # starts at a multiple of LINE
    memory[shift:].set(np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8))
    return cupy.ndarray(array.shape, array.dtype, memory.data + (shift + start - low), strides=array.strides)


def to_host(value: Any) -> Any:
    """A result or argument as NumPy has it; 0-d arrays as NumPy scalars."""
    if type(value).__module__.startswith("torch"):
        import torch

        half = value.dtype == torch.bfloat16
        array = (value.view(torch.int16) if half else value).cpu().numpy()
        return (array.view(BF16.numpy) if half else array)[()]
    return value.get()[()] if hasattr(value, "get") and hasattr(value, "shape") else value


# -- comparing -------------------------------------------------------------------------------------
def unlike(got: Any, want: Any) -> str | None:
    """Where two trees of results are not the same bits; None where they are. Any NaN equals any NaN."""
    mine, theirs = trees.flatten(got)[0], trees.flatten(want)[0]
    if len(mine) != len(theirs):
        return f"{len(mine)} results instead of {len(theirs)}"
    for k, (a, b) in enumerate(zip(map(np.asarray, mine), map(np.asarray, theirs), strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k} is {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        wrong = different_bits(a, b)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"result {k} ({a.dtype}{a.shape}): {int(wrong.sum())} differ, first at {at}: {a[at]!r} and {b[at]!r}"
    return None


def different_bits(a: Array, b: Array) -> Array:
    """Where two arrays of one dtype and shape differ in any bit, NaNs apart."""
    bits = f"u{a.dtype.itemsize}"
    differ = np.asarray(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)).reshape(a.shape)
    if a.dtype.kind in "biu":
        return differ
    with np.errstate(all="ignore"):
        return np.asarray(differ & ~(np.isnan(a) & np.isnan(b)))
