"""A CPU launch of the short road as an entry of the native road.

In: a `CpuCall` and the arguments of a call that it took. Out: an `Entry` for calls like that one, or None where
native code cannot do what the program needs: run-time scalars that are expressions, counters, values copied out of
temporaries, products (which NumPy multiplies).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.dtypes import U8
from fuser.runtime import native_torch, tensors
from fuser.runtime.bound import Launch
from fuser.runtime.native_entry import ArrayNeed, Entry, Need, NumberNeed, SameNeed, Step
from fuser.runtime.native_numbers import mode_of, number_need
from fuser.runtime.quickcpu import CpuCall, address

SHORT_BYTES = 1 << 16  # a call that touches less is over before another thread could use the interpreter's lock
RESULT, SCALAR, ARGUMENT = range(3)  # kinds of outputs, see `native_call`

Maker = tuple[Callable[..., Any], tuple[Any, ...], int]


def entry(call: CpuCall, args: Sequence[Any]) -> Entry | None:
    """The entry for calls whose arguments are of the kinds of `args`."""
    plain = call.torch or all(type(args[k]) is np.ndarray for k in call.places.arrays)
    if not plain or call.products or call.arena.zeroed or any(number < 0 for _, (number, *_) in call.effects):
        return None
    steps = [_step(call, s) for s in call.program.steps if isinstance(s, Launch)]
    kept = tuple(s for s in steps if s is not None)
    if len(kept) < len(steps):
        return None
    needs = [_need(call, k, a) for k, a in enumerate(args)]
    if any(need is None for need in needs):
        return None
    results, temps = _memory(call)
    library = native_torch.library() if call.torch else None
    whole = call.places.out is not None  # the answer is the array given as `out`
    return Entry(
        needs=tuple(need for need in needs if need is not None),
        results=results,
        temps=temps,
        steps=kept,
        effects=tuple((argument, number) for argument, (number, *_) in call.effects),
        pairs=call.pairs,
        outputs=_outputs(call),
        single=call.finish is None or whole,
        finish=None if whole or call.finish is tuple else call.finish,
        table=len(call.places.arrays) + len(call.results) + len(temps) + 1,
        release=_bytes(call, args) > SHORT_BYTES,
        keep=(call, library, [s.built for s in call.program.steps if isinstance(s, Launch)]),
        library=ctypes.addressof(library) if library is not None else 0,
        written=tuple(sorted(call.written)) if call.torch else (),
        bump=tensors.bump() if call.torch else None,
    )


def _memory(call: CpuCall) -> tuple[tuple[Maker, ...], tuple[tuple[int, int, int], ...]]:
    """What makes results and the block of temporaries, with their table places; (block's place, offset, place) of
    each."""
    first = len(call.places.arrays)
    scratch = first + len(call.results)
    makers = [] if call.places.out is not None else [(*m, first + k) for k, m in enumerate(call.makers)]
    if not call.arena.nbytes:
        return tuple(makers), tuple((first, 0, scratch + k) for k in range(len(call.arena.offsets)))
    block = scratch + len(call.arena.offsets)
    makers.append((*call.maker((call.arena.nbytes,), U8), block))
    return tuple(makers), tuple((block, offset, scratch + k) for k, offset in enumerate(call.arena.offsets))


def _outputs(call: CpuCall) -> tuple[tuple[int, int], ...]:
    if call.places.out is not None:
        return ((ARGUMENT, call.places.out),)
    outputs = [(SCALAR if scalar else RESULT, k) for k, scalar in call.outputs]
    for k, argument in call.returned.items():
        outputs[k] = (ARGUMENT, call.places.arrays[argument])
    return tuple(outputs)


def _bytes(call: CpuCall, args: Sequence[Any]) -> int:
    read = sum(int(args[k].nbytes) for k in call.places.arrays)
    return read + call.arena.nbytes + sum(int(np.prod(s)) * d.itemsize for s, d in call.results)


def _need(call: CpuCall, position: int, value: Any) -> Need | None:
    """What an argument must be; None where native code cannot tell."""
    arrays = call.places.arrays
    if position == call.places.out or position in arrays:
        slot = len(arrays) if position == call.places.out else arrays.index(position)
        if call.torch:
            return native_torch.need(value, slot)
        phase = address(value) & 15
        return ArrayNeed(value.dtype, value.shape, value.strides, phase, slot, position in call.written)
    if type(value) is float:
        return NumberNeed(float)
    if type(value) is not int:
        return SameNeed(value)
    return number_need(call.program, dict(call.places.scalars)[position], int)


def _step(call: CpuCall, launch: Launch) -> Step | None:
    """A launch as native code runs it."""
    positions = {symbol: k for k, symbol in call.places.scalars}
    dynamic = []
    for slot, dtype, expr in launch.dynamic:
        mode = mode_of(expr, dtype)
        if mode is None or expr.value not in positions:
            return None
        dynamic.append((slot, positions[expr.value], mode))
    scalars = tuple(0 if v is None else int(v) for v in launch.scalars)
    return Step(launch.built.binary.address, launch.slots, scalars, tuple(dynamic), launch.grid[0], launch.grain)
