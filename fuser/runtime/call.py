"""Running a bound program on the arrays of one call.

In: a `BoundProgram`, the call's arrays and run-time scalars. Out: result arrays in kind, arguments updated. All state
of a call is local to it. Order of work: allocate results and scratch memory, run the steps, write effects back in
program order.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from fuser.dtypes import DType
from fuser.graph import InputAttrs, Node
from fuser.runtime import arrays, bound, memory
from fuser.runtime.arrays import ArrayInfo, Family, Place
from fuser.runtime.bound import Arena, BoundProgram, Launch, Library
from fuser.toolchain import Built

Everything = tuple[Sequence[ArrayInfo], Sequence[ArrayInfo], Sequence[int]]  # arguments, results, the address table
Observer = Callable[[int, Callable[[], None]], None]


def bind(
    graph: Any, steps: Sequence[tuple[Any, tuple[Built, ...]]], place: Place, env: Mapping[str, Any]
) -> BoundProgram:
    """Bind a plan's groups and kernels to a call's shapes."""
    if place.kind == "cpu":
        return bound.Binder(graph, env, bound.encode_slot).bind(steps)
    return bound.Binder(graph, env, bound.encode_ctype, functools.partial(_workspace_bytes, place)).bind(steps)


def _workspace_bytes(place: Place, node: Node) -> int:
    from fuser.runtime import library

    return library.workspace_bytes(node, place)


def run(
    program: BoundProgram,
    infos: Sequence[ArrayInfo],
    family: Family,
    place: Place,
    env: Mapping[str, Any],
    out: Sequence[ArrayInfo | None],
    observe: Observer | None = None,
) -> list[ArrayInfo]:
    """Execute; returns an array for each of the graph's outputs. `observe` is given each step to run (and time) itself.

    infos: array arguments in graph order. env: run-time scalars (`=h`). out: arrays to write results into, or None
    each.
    """
    with _explained(program, place), ExitStack() as stack:
        results = _results(program, family, place, out)
        stream = 0
        if place.kind == "cuda":
            from fuser.runtime import cuda

            stream = stack.enter_context(cuda.current(place, family))
        held, scratch = _scratch(program.arena, place, stream)
        table = [*(i.pointer for i in infos), *(r.pointer for r in results), *scratch]
        everything = (infos, results, table)
        for k, step in enumerate(program.steps):
            work = functools.partial(_step, program, step, everything, place, stream, env)
            if observe is None:
                work()
            else:
                observe(k, work)
        _write_effects(program, everything, place)
        del held
    fresh = {r.node: a for r, a in zip(program.results, results, strict=True)}
    return [infos[n.attrs.position] if isinstance(n.attrs, InputAttrs) else fresh[n] for n in program.graph.outputs]


@contextmanager
def _explained(program: BoundProgram, place: Place) -> Iterator[None]:
    """A GPU's error that memory is out says what the program takes of it."""
    try:
        yield
    except Exception as error:
        if place.kind == "cuda":
            from fuser.runtime import cuda

            cuda.raise_out_of_memory(error, program.result_bytes, program.arena.nbytes)
        raise


def _results(program: BoundProgram, family: Family, place: Place, out: Sequence[ArrayInfo | None]) -> list[ArrayInfo]:
    """The arrays that results go to: the caller's where given and fit, else fresh ones."""
    given: dict[Node, ArrayInfo] = {}
    for node, info in zip(program.graph.outputs, out, strict=True):
        if info is not None:
            given.setdefault(node, info)
    return [given.get(r.node) or arrays.empty(family, r.shape, r.dtype, place) for r in program.results]


def _scratch(arena: Arena, place: Place, stream: int) -> tuple[Any, list[int]]:
    """(object to keep alive, addresses) of a call's scratch memory."""
    if not arena.nbytes:
        return None, [0] * len(arena.offsets)
    if place.kind == "cpu":
        held = memory.empty((arena.nbytes,), _BYTE)
        base = held.__array_interface__["data"][0]
        held[: arena.zeroed] = 0
    else:
        from fuser.runtime import cuda

        held = cuda.scratch(arena.nbytes, arena.zeroed, stream)
        base = held.ptr
    return held, [base + offset for offset in arena.offsets]


_BYTE = np.dtype(np.uint8)


def _step(
    program: BoundProgram, step: Launch | Library, everything: Everything, place: Place, stream: int, env: Any
) -> None:
    if isinstance(step, Launch):
        _launch(step, everything[2], place, stream, env)
    else:
        _library(program, step, everything, place)


def _launch(step: Launch, table: Sequence[int], place: Place, stream: int, env: Mapping[str, Any]) -> None:
    pointers = [table[k] for k in step.slots]
    if place.kind == "cpu":
        from fuser.runtime import cpu

        cpu.launch(step.built.binary, pointers, step.values(env, bound.encode_slot), step.grid[0], step.grain)
        return
    packed = [*(ctypes.c_void_p(p) for p in pointers), *step.values(env, bound.encode_ctype)]
    step.built.binary.launch(step.grid, step.block, packed, stream)


def _library(program: BoundProgram, step: Library, everything: Everything, place: Place) -> None:
    from fuser.runtime import library

    operands = [library.seen(_array(program, o.node, everything, place), o.view) for o in step.operands]
    workspace = None
    if step.workspace is not None:
        first = len(everything[0]) + len(everything[1])
        workspace = everything[2][step.workspace], program.scratch[step.workspace - first].nbytes
    library.call(step.node, operands, _array(program, step.node, everything, place), place, workspace)


def _write_effects(program: BoundProgram, everything: Everything, place: Place) -> None:
    """Copy computed values into arguments, at the end of the program; all are read before any is written."""
    written = {e.argument for e in program.graph.effects}
    copies = []
    for effect in program.graph.effects:
        source = effect.node.attrs.position if isinstance(effect.node.attrs, InputAttrs) else None
        if program.places[effect.node.id] == effect.argument:
            continue  # the argument itself, or stored into it by a kernel
        value = _array(program, effect.node, everything, place)
        copies.append((effect.argument, value.copy() if source in written else value))
    for argument, value in copies:
        as_place_array(everything[0][argument])[...] = value


def _array(program: BoundProgram, node: Node, everything: Everything, place: Place) -> Any:
    """A node's buffer as an array of the place's own library (NumPy or CuPy), without a copy."""
    infos, results, table = everything
    k = program.places[node.id]
    if k < len(infos):
        return as_place_array(infos[k])
    if k < len(infos) + len(results):
        return as_place_array(results[k - len(infos)])
    return wrap_pointer(table[k], program.shapes[node.id], node.storage, place)


def as_place_array(info: ArrayInfo) -> Any:
    """An argument or result as a NumPy or CuPy array, without a copy."""
    if info.family == "torch":
        return wrap_pointer(info.pointer, info.shape, info.dtype, info.place, info.strides)
    return info.base


def wrap_pointer(
    pointer: int, shape: tuple[int, ...], dtype: DType, place: Place, strides: tuple[int, ...] | None = None
) -> Any:
    """An array over memory that someone else keeps alive; strides in elements, C order where None."""
    step = strides if strides is not None else arrays.c_strides(shape)
    byte_strides = tuple(s * dtype.bytes for s in step)
    low = sum((d - 1) * s for d, s in zip(shape, step, strict=True) if s < 0 and d)
    high = sum((d - 1) * s for d, s in zip(shape, step, strict=True) if s > 0 and d)
    count = 0 if 0 in shape else high - low + 1
    if place.kind == "cpu":
        raw: Any = (ctypes.c_uint8 * (count * dtype.bytes)).from_address(pointer + low * dtype.bytes)
        flat: Any = np.ndarray((count,), dtype.numpy, buffer=raw)
        return np.lib.stride_tricks.as_strided(flat[-low:] if count else flat, shape, byte_strides)
    import cupy

    if not count:  # an empty array may have no address at all
        return cupy.ndarray(shape, dtype.numpy)
    block = cupy.cuda.UnownedMemory(pointer + low * dtype.bytes, count * dtype.bytes, owner=None)
    start = cupy.cuda.MemoryPointer(block, -low * dtype.bytes)
    return cupy.ndarray(shape, dtype.numpy, start, strides=byte_strides)
