"""A bound CPU program that takes NumPy arrays and Python numbers: the short road's launch, in Python and natively.

In: a `Launchable`, where its arguments are among a call's, and how results are put together. Out: `CpuCall`, called with
the flat arguments of a call known to fit, and `CpuCall.entry`, the same as an entry of the native road.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.graph import Graph, InputAttrs
from fuser.runtime import bound, cpu
from fuser.runtime.bound import BoundProgram, Launch
from fuser.runtime.memory import SMALL, empty

if TYPE_CHECKING:
    from fuser.dtypes import DType
    from fuser.hostexpr import HostExpr
    from fuser.runtime.native_entry import Entry, Step

Array = np.ndarray[Any, Any]
_DATA_OFFSET = 16  # of `data` in PyArrayObject_fields (NumPy's documented C struct), after the object header
_read = ctypes.c_void_p.from_address
_BYTE = np.dtype(np.uint8)
SHORT_BYTES = 1 << 16  # a call that touches less is over before another thread could use the interpreter's lock


def _by_struct(array: Array) -> int:
    return _read(id(array) + _DATA_OFFSET).value or 0


def _by_interface(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _address_reader() -> Callable[[Array], int]:
    """How to get an array's address: read from its C struct (0.2 us) where that provably works, else asked for (0.7 us)."""
    probes = [np.empty(3), np.arange(10)[3:]]
    if sys.implementation.name == "cpython" and all(_by_struct(p) == _by_interface(p) for p in probes):
        return _by_struct
    return _by_interface


address = _address_reader()


@dataclass(frozen=True)
class Places:
    """Where a program's inputs are among the flat arguments of a call.

    arrays: position of each of the graph's arguments. scalars: (position, symbol). fixed: symbols that no argument
    changes (defaults). out: position of the array that receives the only result.
    """

    arrays: tuple[int, ...]
    scalars: tuple[tuple[int, str], ...]
    fixed: tuple[tuple[str, Any], ...] = ()
    out: int | None = None


def suits(program: BoundProgram) -> bool:
    """Whether a program is kernels only, and its effects and results are values that these kernels compute."""
    graph = program.graph
    effects_fresh = all(
        not isinstance(e.node.attrs, InputAttrs) or program.places[e.node.id] == e.argument for e in graph.effects
    )
    outputs_fresh = all(n.op != "input" for n in graph.outputs)
    return effects_fresh and outputs_fresh and all(isinstance(s, Launch) for s in program.steps)


class CpuCall:
    """See the module's docstring. finish: makes the program's answer of its result arrays; None: the only one itself.

    pairs: flat positions of an array that is written and of another array, which must not overlap at a call.
    """

    def __init__(
        self,
        program: BoundProgram,
        places: Places,
        returned: Sequence[tuple[int, int]],
        finish: Callable[[tuple[Any, ...]], Any] | None,
    ) -> None:
        graph: Graph = program.graph
        self.misses = 0  # calls that came here although native code might have taken them
        self._program, self._places, self._finish = program, places, finish
        self._results = tuple((r.shape, r.dtype.numpy) for r in program.results)
        self._arena = program.arena
        self._steps = tuple(self._prepare(s) for s in program.steps if isinstance(s, Launch))
        order = [r.node for r in program.results]
        self._outputs = [(order.index(n), n.shape == ()) for n in graph.outputs]
        self._returned = dict(returned)
        self._effects = tuple(
            (places.arrays[e.argument], self._source(e.node, order))
            for e in graph.effects
            if program.places[e.node.id] != e.argument  # the others are stored by a kernel
        )
        self._written = {places.arrays[e.argument] for e in graph.effects}
        if places.out is not None:
            self._written.add(places.out)
        read = dict.fromkeys(places.arrays)
        self.pairs = tuple((w, k) for w in sorted(self._written) for k in read if k != w)

    @staticmethod
    def _prepare(step: Launch) -> tuple[Any, ...]:
        packed = cpu.pack_scalars(step.scalars) if not step.dynamic else None
        return step, step.slots, packed, cpu.Task(step.built.binary, len(step.slots), step.grid[0], step.grain)

    def _source(self, node: Any, order: list[Any]) -> tuple[int, int, Any, tuple[int, ...]]:
        """Where an effect's value is: (result number, or -1 with arena offset), dtype, shape."""
        shape = self._program.shapes[node.id]
        if node in order:
            return order.index(node), 0, node.storage.numpy, shape
        k = self._program.places[node.id] - self._program.arguments - len(self._results)
        return -1, self._arena.offsets[k], node.storage.numpy, shape

    def __call__(self, args: Sequence[Any]) -> Any:
        places = self._places
        inputs = [np.asarray(args[k]) for k in places.arrays]
        results: list[Any] = [empty(shape, dtype) for shape, dtype in self._results]
        if places.out is not None:
            results[0] = args[places.out]
        table = [*map(address, inputs), *map(address, results)]
        arena = None
        if self._arena.nbytes:
            arena = empty((self._arena.nbytes,), _BYTE)
            arena[: self._arena.zeroed] = 0
            base = address(arena)
            table += [base + offset for offset in self._arena.offsets]
        env = {**dict(places.fixed), **{symbol: args[k] for k, symbol in places.scalars}}
        for step, slots, packed, task in self._steps:
            if packed is None:
                packed = cpu.pack_scalars(step.values(env, bound.encode_slot))
            task.run([table[k] for k in slots], packed)
        for argument, (number, offset, dtype, shape) in self._effects:
            value = results[number] if number >= 0 else np.ndarray(shape, dtype, arena, offset)
            args[argument][...] = value
        if places.out is not None:
            return results[0]
        values = [results[k][()] if scalar else results[k] for k, scalar in self._outputs]
        for k, argument in self._returned.items():
            values[k] = args[places.arrays[argument]]
        return values[0] if self._finish is None else self._finish(tuple(values))

    # -- natively ----------------------------------------------------------------------------------
    def entry(self, args: Sequence[Any]) -> Entry | None:
        """The native entry for calls whose arguments are of the kinds of `args`; None where native code cannot do it."""
        from fuser.runtime import native_entry as n

        places = self._places
        steps = [self._step(s) for s in self._program.steps if isinstance(s, Launch)]
        plain = all(type(args[k]) is np.ndarray for k in places.arrays)
        simple = not self._arena.zeroed and all(e[1][0] >= 0 for e in self._effects)
        if not plain or not simple or any(s is None for s in steps):
            return None
        count = len(self._results)
        results = [(*_maker(shape, dtype), len(places.arrays) + k) for k, (shape, dtype) in enumerate(self._results)]
        if places.out is not None:
            results = []
        temps = []
        if self._arena.nbytes:
            block = len(places.arrays) + count + len(self._arena.offsets)
            results.append((*_maker((self._arena.nbytes,), _BYTE), block))
            temps = [(block, o, len(places.arrays) + count + k) for k, o in enumerate(self._arena.offsets)]
        outputs = [(int(scalar), k) for k, scalar in self._outputs] if places.out is None else [(2, places.out)]
        for k, argument in self._returned.items():
            outputs[k] = (2, places.arrays[argument])
        kept = tuple(s for s in steps if s is not None)
        return n.Entry(
            needs=tuple(self._need(k, a) for k, a in enumerate(args)),
            results=tuple(results), temps=tuple(temps), steps=kept,
            effects=tuple((argument, source[0]) for argument, source in self._effects), outputs=tuple(outputs),
            pairs=self.pairs, single=self._finish is None or places.out is not None, finish=None if self._finish in (None, tuple) or places.out is not None else self._finish,
            table=len(places.arrays) + count + 1 + len(temps), release=self._bytes(args) > SHORT_BYTES,
            keep=(self, [s.built for s in self._program.steps if isinstance(s, Launch)]),
        )  # fmt: skip

    def _bytes(self, args: Sequence[Any]) -> int:
        read = sum(int(args[k].nbytes) for k in self._places.arrays)
        return read + self._arena.nbytes + sum(int(np.prod(s)) * d.itemsize for s, d in self._results)

    def _need(self, position: int, value: Any) -> Any:
        from fuser.runtime import native_entry as n

        if type(value) is np.ndarray:
            out = position == self._places.out
            slot = len(self._places.arrays) if out else self._places.arrays.index(position)
            phase = address(value) & 15
            return n.ArrayNeed(value.dtype, value.shape, value.strides, phase, slot, position in self._written)
        if type(value) is float:
            return n.NumberNeed(float)
        if type(value) is not int:
            return n.SameNeed(value)
        low, high = -(1 << 63), (1 << 63) - 1
        for launch in self._program.steps:
            for _, dtype, expr in launch.dynamic if isinstance(launch, Launch) else ():
                if expr.symbols == {dict(self._places.scalars)[position]} and dtype.is_integer:
                    info = np.iinfo(dtype.numpy)
                    low, high = max(low, int(info.min)), min(high, int(info.max))
        return n.NumberNeed(int, low, high)

    def _step(self, launch: Launch) -> Step | None:
        from fuser.runtime.native_entry import Step

        symbols = {symbol: k for k, symbol in self._places.scalars}
        dynamic = []
        for slot, dtype, expr in launch.dynamic:
            mode = _mode(expr, dtype)
            if mode is None or expr.value not in symbols:
                return None
            dynamic.append((slot, symbols[expr.value], mode))
        scalars = tuple(0 if v is None else int(v) for v in launch.scalars)
        return Step(
            launch.built.binary.address, launch.slots, scalars, tuple(dynamic), launch.grid[0], launch.grain
        )


def _maker(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What makes an array, and its arguments."""
    small = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize < SMALL
    return (np.empty if small else empty), (shape, dtype)


def _mode(expr: HostExpr, dtype: DType) -> int | None:
    """How native code turns the number itself into a kernel's scalar; None where it is an expression or of another dtype."""
    from fuser.runtime import native_words as w

    if expr.op != "sym":
        return None
    known = {
        ("float", "f64"): w.F64_OF_FLOAT, ("float", "f32"): w.F32_OF_FLOAT, ("int", "f64"): w.F64_OF_INT,
        ("int", "f32"): w.F32_OF_INT, **{("int", f"i{n}"): w.I64_OF_INT for n in (32, 64)},
    }  # fmt: skip
    return known.get((expr.kind, dtype.name))
