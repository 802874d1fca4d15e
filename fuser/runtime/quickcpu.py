"""A bound CPU program that takes NumPy arrays and Python numbers: the short road's launch, in Python and natively.

In: a `Launchable`, where its arguments are among a call's, and how results are put together. Out: `CpuCall`, called
with the flat arguments of a call known to fit, and `CpuCall.entry`, the same as an entry of the native road.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fuser.dtypes import DType
from fuser.graph import Graph, InputAttrs
from fuser.record import dataclass
from fuser.runtime import bound, cpu
from fuser.runtime.bound import BoundProgram, Launch
from fuser.runtime.memory import SMALL, empty

if TYPE_CHECKING:
    from fuser.runtime.cpuproducts import ProductCall

Array = np.ndarray[Any, Any]
_Kernel: TypeAlias = "tuple[Launch, tuple[int, ...], bytes | None, cpu.Task]"
Maker = tuple[Callable[..., Any], tuple[Any, ...]]  # a callable and its arguments
_DATA_OFFSET = 16  # of `data` in PyArrayObject_fields (NumPy's documented C struct), after the object header
_read = ctypes.c_void_p.from_address
_BYTE = np.dtype(np.uint8)


def _by_struct(array: Array) -> int:
    return _read(id(array) + _DATA_OFFSET).value or 0


def _by_interface(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _address_reader() -> Callable[[Array], int]:
    """How to get an array's address: read from its C struct (0.2 us) where that provably works, else asked for (0.7
    us)."""
    probes = [np.empty(3), np.arange(10)[3:]]
    if sys.implementation.name == "cpython" and all(_by_struct(p) == _by_interface(p) for p in probes):
        return _by_struct
    return _by_interface


address = _address_reader()


@dataclass(frozen=True)
class Places:
    """Where a program's inputs are among the flat arguments of a call.

    arrays: position of each of the graph's arguments. scalars: (position, symbol). fixed: symbols that no argument
    changes (defaults). out: position of the array that receives the only result. complexes: (position, symbols of both
    parts).
    """

    arrays: tuple[int, ...]
    scalars: tuple[tuple[int, str], ...]
    fixed: tuple[tuple[str, Any], ...] = ()
    out: int | None = None
    complexes: tuple[tuple[int, tuple[str, str]], ...] = ()

    def numbers(self, args: Sequence[Any]) -> dict[str, Any]:
        """Every scalar symbol with its value at a call."""
        env = {**dict(self.fixed), **{symbol: args[k] for k, symbol in self.scalars}}
        for k, (re, im) in self.complexes:
            env[re], env[im] = args[k].real, args[k].imag
        return env


def returns_fresh(program: BoundProgram) -> bool:
    """Whether a program's effects and results are values that its steps compute."""
    graph = program.graph
    effects_fresh = all(
        not isinstance(e.node.attrs, InputAttrs) or program.places[e.node.id] == e.argument for e in graph.effects
    )
    return effects_fresh and all(n.op != "input" for n in graph.outputs)


class CpuCall:
    """See the module's docstring. finish: makes the program's answer of its result arrays; None: the only one itself.

    products: by step, what runs each library call.
    pairs: flat positions of an array that is written and of another array, which must not overlap at a call.
    """

    torch = False  # the family of the arrays: `TorchCall` has torch's

    def __init__(
        self,
        program: BoundProgram,
        places: Places,
        returned: Sequence[tuple[int, int]],
        finish: Callable[[tuple[Any, ...]], Any] | None,
        products: Mapping[int, ProductCall] | None = None,
    ) -> None:
        graph: Graph = program.graph
        self.misses = 0  # calls that came here although native code might have taken them
        self.program, self.places, self.finish = program, places, finish
        self.results = tuple((r.shape, r.dtype.numpy) for r in program.results)
        self.makers = [self.maker(r.shape, r.dtype) for r in program.results]
        self.arena = program.arena
        self.products = products or {}
        self._steps = tuple(
            self._prepare(s) if isinstance(s, Launch) else self.products[k] for k, s in enumerate(program.steps)
        )
        order = [r.node for r in program.results]
        self.outputs = [(order.index(n), n.shape == () and not self.torch) for n in graph.outputs]
        self.returned = dict(returned)
        self.effects = tuple(
            (places.arrays[e.argument], self._source(e.node, order))
            for e in graph.effects
            if program.places[e.node.id] != e.argument  # the others are stored by a kernel
        )
        self.written = {places.arrays[e.argument] for e in graph.effects}
        if places.out is not None:
            self.written.add(places.out)
        read = dict.fromkeys(places.arrays)
        self.pairs = tuple((w, k) for w in sorted(self.written) for k in read if k != w)

    def overlapping(self, args: Sequence[Any]) -> bool:
        """Whether an array that is written may share memory with another one in this call."""
        return any(np.may_share_memory(args[k], args[r]) for k, r in self.pairs)

    @staticmethod
    def _prepare(step: Launch) -> _Kernel:
        packed = cpu.pack_scalars(step.scalars) if not step.dynamic else None
        return step, step.slots, packed, cpu.Task(step.built.binary, len(step.slots), step.grid[0], step.grain)

    def _source(self, node: Any, order: list[Any]) -> tuple[int, int, Any, tuple[int, ...]]:
        """Where an effect's value is: (result number, or -1 with arena offset), dtype, shape."""
        shape = self.program.shapes[node.id]
        if node in order:
            return order.index(node), 0, node.storage.numpy, shape
        k = self.program.places[node.id] - self.program.arguments - len(self.results)
        return -1, self.arena.offsets[k], node.storage.numpy, shape

    def _tell(self, args: Sequence[Any]) -> None:
        """Tell the arrays' library of what was written."""

    def maker(self, shape: tuple[int, ...], dtype: DType) -> Maker:
        """What makes an array, and its arguments."""
        small = prod(shape) * dtype.bytes < SMALL
        return (np.empty if small else empty), (shape, dtype.numpy)

    def _addresses(self, args: Sequence[Any], results: Sequence[Any]) -> list[int]:
        inputs = [np.asarray(args[k]) for k in self.places.arrays]
        return [*map(address, inputs), *map(address, results)]

    def __call__(self, args: Sequence[Any]) -> Any:
        places = self.places
        results = [args[places.out]] if places.out is not None else [make(*given) for make, given in self.makers]
        table = self._addresses(args, results)
        arena, base = None, 0
        if self.arena.nbytes:
            arena = empty((self.arena.nbytes,), _BYTE)
            arena[: self.arena.zeroed] = 0
            base = address(arena)
        table += [base + offset for offset in self.arena.offsets]  # temporaries of no bytes have places too
        env = places.numbers(args)
        for prepared in self._steps:
            if not isinstance(prepared, tuple):
                prepared.run(table)
                continue
            step, slots, packed, task = prepared
            if packed is None:
                packed = cpu.pack_scalars(step.values(env, bound.encode_slot))
            task.run([table[k] for k in slots], packed)
        for argument, (number, offset, dtype, shape) in self.effects:
            value = results[number] if number >= 0 else np.ndarray(shape, dtype, arena, offset)
            args[argument][...] = value
        self._tell(args)
        if places.out is not None:
            return results[0]
        values = [results[k][()] if scalar else results[k] for k, scalar in self.outputs]
        for k, argument in self.returned.items():
            values[k] = args[places.arrays[argument]]
        return values[0] if self.finish is None else self.finish(tuple(values))
