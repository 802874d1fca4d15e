"""Running a compiled plan on the arrays of one call.

In: a `Program` (graph, groups, built kernels), the call's arrays and host environment. Out: result arrays in kind,
arguments updated. All state of a call is local to it, so one program may run in many threads.

Order of work: allocate results, run the groups in plan order, then write effects back in program order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import shapes
from fuser.dtypes import DType
from fuser.graph import Graph, InputAttrs, Node
from fuser.group import Group
from fuser.hostexpr import HostExpr
from fuser.keys import Layout
from fuser.runtime import arrays, values
from fuser.runtime.arrays import ArrayInfo, Family, Place
from fuser.toolchain import Built

_CTYPES: dict[str, Any] = {
    "bool": ctypes.c_uint8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A plan with its kernels: what is launched. `steps` pairs each group with its kernels (none for a library call)."""

    graph: Graph
    steps: tuple[tuple[Group, tuple[Built, ...]], ...]
    layouts: tuple[Layout, ...]
    place: Place


class Memory:
    """The buffers of one call by graph node, on one place; everything is kept alive until the call returns."""

    def __init__(self, program: Program, infos: Sequence[ArrayInfo], family: Family, env: Mapping[str, Any]) -> None:
        self.program, self.infos, self.family, self.env = program, infos, family, env
        self.results: dict[Node, ArrayInfo] = {}
        self._held: dict[int, Any] = {}
        self._pointers: dict[int, int] = {}
        self._keep: list[Any] = []
        self.workspaces: dict[str, int] = {}
        for position, node in program.graph.inputs.items():
            self._pointers[node.id] = infos[position].pointer

    def shape(self, node: Node) -> tuple[int, ...]:
        return shapes.evaluate(node.shape, self.env)

    def result(self, node: Node, given: ArrayInfo | None) -> None:
        """Provide the array of a result node: the caller's `out`, or a fresh one."""
        info = given or arrays.empty(self.family, self.shape(node), node.storage, self.program.place)
        self.results[node] = info
        self._pointers[node.id] = info.pointer

    def pointer(self, node: Node) -> int:
        """Address of a node's buffer; a temporary is allocated at first use."""
        if node.id not in self._pointers:
            count = int(np.prod(self.shape(node), dtype=np.int64))
            self._pointers[node.id] = self.scratch(count * node.storage.bytes)
        return self._pointers[node.id]

    def scratch(self, nbytes: int) -> int:
        """Uninitialised memory for the length of this call."""
        if self.program.place.kind == "cpu":
            from fuser.runtime.memory import empty as pooled

            block = pooled((max(nbytes, 1),), np.dtype(np.uint8))
            self._keep.append(block)
            return int(block.__array_interface__["data"][0])
        from fuser.runtime import cuda

        memory = cuda.allocate(nbytes)
        self._keep.append(memory)
        return int(memory.ptr)

    def workspace(self, name: str, nbytes: int) -> int:
        """Scratch memory by name: within a group, the same name is the same memory in every kernel."""
        if name not in self.workspaces:
            self.workspaces[name] = self.scratch(nbytes)
        return self.workspaces[name]

    def counters(self, nbytes: int, stream: int) -> int:
        """Zeroed memory for the length of this call."""
        if self.program.place.kind == "cpu":
            block = np.zeros(max(nbytes, 1), np.uint8)
            self._keep.append(block)
            return int(block.__array_interface__["data"][0])
        from fuser.runtime import cuda

        memory = cuda.zeroed(max(nbytes, 4), stream)
        self._keep.append(memory)
        return int(memory.ptr)

    def array(self, node: Node) -> Any:
        """The node's buffer as an array of the place's own library (NumPy or CuPy), for library calls."""
        if isinstance(node.attrs, InputAttrs):
            return as_place_array(self.infos[node.attrs.position])
        shape = self.shape(node)
        if node in self.results:
            return as_place_array(self.results[node])
        return _wrap_pointer(self.pointer(node), shape, node.storage, self.program.place)


def as_place_array(info: ArrayInfo) -> Any:
    """An argument or result as a NumPy or CuPy array, without a copy."""
    if info.family == "torch":
        return _wrap_pointer(info.pointer, info.shape, info.dtype, info.place, info.strides)
    return info.base


def _wrap_pointer(
    pointer: int, shape: tuple[int, ...], dtype: DType, place: Place, strides: tuple[int, ...] | None = None
) -> Any:
    """An array over memory that someone else keeps alive."""
    step = strides if strides is not None else arrays.c_strides(shape)
    if place.kind == "cpu":
        low = sum((d - 1) * s for d, s in zip(shape, step, strict=True) if s < 0 and d)
        high = sum((d - 1) * s for d, s in zip(shape, step, strict=True) if s > 0 and d)
        count = (high - low + 1) if 0 not in shape else 0
        raw = (ctypes.c_uint8 * (count * dtype.bytes)).from_address(pointer + low * dtype.bytes)
        flat = np.frombuffer(raw, dtype.numpy, count=count)
        byte_strides = tuple(s * dtype.bytes for s in step)
        return np.lib.stride_tricks.as_strided(flat[-low:] if count else flat, shape, byte_strides)
    import cupy

    span = sum((d - 1) * abs(s) for d, s in zip(shape, step, strict=True) if d) + 1
    memory = cupy.cuda.UnownedMemory(pointer, span * dtype.bytes, owner=None)
    byte_strides = tuple(s * dtype.bytes for s in step)
    return cupy.ndarray(shape, dtype.numpy, cupy.cuda.MemoryPointer(memory, 0), strides=byte_strides)


def run(
    program: Program,
    infos: Sequence[ArrayInfo],
    family: Family,
    env: Mapping[str, Any],
    out: Sequence[ArrayInfo | None],
) -> list[ArrayInfo]:
    """Execute a program; returns the flat results. `out` gives arrays to write results into where not None.

    `infos` are the call's array arguments in graph order, `env` binds dims, strides and scalars.
    """
    graph = program.graph
    memory = Memory(program, infos, family, env)
    with ExitStack() as stack:
        stream = 0
        if program.place.kind == "cuda":
            from fuser.runtime import cuda

            stream = stack.enter_context(cuda.current(program.place, family))
        for k, node in enumerate(graph.outputs):
            if not isinstance(node.attrs, InputAttrs) and node not in memory.results:
                memory.result(node, out[k] if k < len(out) else None)
        for group, kernels in program.steps:
            memory.workspaces.clear()
            if group.library is not None:
                _call_library(memory, graph, graph.by_id[group.library])
            for built in kernels:
                _launch(memory, graph, built, stream)
        for effect in graph.effects:
            _write_back(memory, infos[effect.argument], effect.node)
        return [
            infos[n.attrs.position] if isinstance(n.attrs, InputAttrs) else memory.results[n] for n in graph.outputs
        ]


def _call_library(memory: Memory, graph: Graph, node: Node) -> None:
    from fuser.runtime.library import call

    call(node, [memory.array(n) for n in node.inputs], memory.array(node), memory.program.place)


def _launch(memory: Memory, graph: Graph, built: Built, stream: int) -> None:
    """Bind a kernel's parameters and launch it."""
    kernel, env = built.kernel, memory.env
    grid = tuple(int(_value(g, env)) for g in kernel.launch.grid)
    if 0 in grid:
        return
    pointers = []
    for b in kernel.buffers:
        if b.node is not None:
            pointers.append(memory.pointer(graph.by_id[b.node]))
            continue
        nbytes = int(_value(b.size, env)) * b.dtype.bytes
        counter = b.role == "counter"
        pointers.append(memory.counters(nbytes, stream) if counter else memory.workspace(b.name, nbytes))
    scalars = [(s.dtype, values.convert(_value(s.expr, env), s.dtype)) for s in kernel.scalars]
    if memory.program.place.kind == "cpu":
        from fuser.runtime import cpu

        slots = [values.slot_bits(v, t) for t, v in scalars]
        cpu.launch(built.binary, pointers, slots, grid[0], kernel.launch.grain)
        return
    packed = [ctypes.c_void_p(p) for p in pointers]
    packed += [_as_ctype(v, t) for t, v in scalars]
    built.binary.launch(grid, kernel.launch.block, packed, stream)


def _as_ctype(value: Any, dtype: DType) -> Any:
    if values.is_half_storage(dtype):
        return ctypes.c_uint16(int(np.array(value, dtype.numpy).view(np.uint16)))
    return _CTYPES[dtype.name](value.item())


def _value(expr: Any, env: Mapping[str, Any]) -> Any:
    return expr.evaluate(env) if isinstance(expr, HostExpr) else expr


def _write_back(memory: Memory, target: ArrayInfo, node: Node) -> None:
    """Copy a computed value into an argument, at the end of the program."""
    if isinstance(node.attrs, InputAttrs) and memory.infos[node.attrs.position] is target:
        return
    destination = as_place_array(target)
    destination[...] = memory.array(node)
