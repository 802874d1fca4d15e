"""Runs kernels as native code, on NumPy arrays, without the rest of the runtime.

In: kernels of the kernel language, arrays by buffer name or node. Out: the arrays, changed. Also the reduction order of
`fuser.order`, written down once more with NumPy and nothing of fuser's code generators.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser import shapes
from fuser.codegen.expand import expand
from fuser.codegen.llvm import jit
from fuser.codegen.loops import Kernel
from fuser.codegen.verify import check
from fuser.hostexpr import HostExpr
from fuser.order import Order
from fuser.runtime import values
from tests.codegen.corpus import Case

Array = np.ndarray[Any, Any]
Launch = Callable[[Any, Sequence[int], Sequence[int], int, int], None]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def compiled(kernel: Kernel) -> jit.NativeKernel:
    """Native code, the kernel verified on the way."""
    ready = expand(kernel)
    check(ready)
    return jit.compile(ready)


def whole(native: Any, buffers: Sequence[int], scalars: Sequence[int], trips: int, grain: int) -> None:
    """All iterations in one call on this thread."""
    pointers = (ctypes.c_void_p * max(len(buffers), 1))(*buffers)
    slots = (ctypes.c_int64 * max(len(scalars), 1))(*scalars)
    _ENTRY(native.address)(ctypes.addressof(pointers), ctypes.addressof(slots), 0, trips)


def backwards(native: Any, buffers: Sequence[int], scalars: Sequence[int], trips: int, grain: int) -> None:
    """Iterations one by one, the last first: independent ones cannot tell."""
    pointers = (ctypes.c_void_p * max(len(buffers), 1))(*buffers)
    slots = (ctypes.c_int64 * max(len(scalars), 1))(*scalars)
    for k in reversed(range(trips)):
        _ENTRY(native.address)(ctypes.addressof(pointers), ctypes.addressof(slots), k, k + 1)


def run(
    kernel: Kernel, buffers: Mapping[str, Array], env: Mapping[str, Any], launch: Launch = whole, native: Any = None
) -> None:
    """Run a kernel on arrays by buffer name."""
    native = native or compiled(kernel)
    pointers = [buffers[b.name].__array_interface__["data"][0] for b in kernel.buffers]
    slots = [values.slot_bits(values.convert(number(p.expr, env), p.dtype), p.dtype) for p in kernel.scalars]
    trips = int(number(kernel.launch.grid[0], env))
    if trips:
        launch(native, pointers, slots, trips, kernel.launch.grain)


def run_case(case: Case, kernels: Sequence[Kernel] | None = None, launch: Launch = whole) -> list[Array]:
    """The outputs of a corpus case planned for the CPU."""
    graph, env = case.graph, case.env
    memory: dict[Any, Array] = {n.id: case.memory[p] for p, n in graph.inputs.items()}
    for kernel in case.kernels if kernels is None else kernels:
        buffers = {}
        for p in kernel.buffers:
            if p.node is None:
                size = int(number(p.size, env))
                buffers[p.name] = memory.setdefault((p.name, size), np.full(size, 77).astype(p.dtype.numpy))
            else:
                node = graph.by_id[p.node]
                count = int(np.prod(shapes.evaluate(node.shape, env), dtype=np.int64))
                buffers[p.name] = memory.setdefault(p.node, np.empty(count, p.dtype.numpy))
        run(kernel, buffers, env, launch)
    return [memory[n.id].reshape(shapes.evaluate(n.shape, env)) for n in graph.outputs]


def number(x: Any, env: Mapping[str, Any]) -> Any:
    return x.evaluate(env) if isinstance(x, HostExpr) else x


def in_order(x: Array, order: Order, combine: Callable[[Array, Array], Array], identity: float) -> Any:
    """The fold of a vector as `fuser.order` says: lanes, then lanes pairwise, then shares pairwise."""
    share = int(number(order.share(len(x)), {})) if order.segments > 1 else len(x)
    parts = []
    for s in range(order.segments):
        piece = x[s * share : (s + 1) * share] if order.segments > 1 else x
        lanes = np.full(order.lanes, identity, x.dtype)
        for start in range(0, len(piece), order.lanes):
            chunk = piece[start : start + order.lanes]
            lanes[: len(chunk)] = combine(lanes[: len(chunk)], chunk)
        parts.append(pairwise(lanes, combine))
    return pairwise(np.array(parts, x.dtype), combine)


def pairwise(values_: Array, combine: Callable[[Array, Array], Array]) -> Any:
    while len(values_) > 1:
        values_ = combine(values_[0::2], values_[1::2])
    return values_[0]


def same_bits(a: Array, b: Array) -> bool:
    """Equal to the last bit; NaNs equal NaNs."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    raw = np.dtype(f"u{a.dtype.itemsize}")
    x, y = np.ascontiguousarray(a).view(raw), np.ascontiguousarray(b).view(raw)
    with np.errstate(invalid="ignore"):
        nan = (a != a) & (b != b)
    return bool(np.all((x == y) | nan))
