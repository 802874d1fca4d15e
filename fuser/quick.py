"""The short road of a call: arguments seen before in kind go from a key straight to the launches.

In: positional arguments that are plain NumPy arrays, Python ints or floats. Out: results, with none of the binding, tracing
and planning looked at again. Everything else (keyword arguments, `out=`, other libraries, effects, library calls,
captured arrays) takes the long road, which is also where a key is learned.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.runtime import bound, cpu
from fuser.runtime.arrays import CPU
from fuser.runtime.bound import Launch
from fuser.runtime.memory import empty

if TYPE_CHECKING:
    from fuser.traces import Launchable

Array = np.ndarray[Any, Any]
_DATA_OFFSET = 16  # of `data` in PyArrayObject_fields (NumPy's documented C struct), after the object header
_read = ctypes.c_void_p.from_address


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


def key_of(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a call's program depends on; None where some argument is not plain."""
    parts: list[Any] = []
    for a in args:
        kind = type(a)
        if kind is np.ndarray:
            parts += (a.dtype, a.shape, a.strides, address(a) & 15, a.flags.aligned)
        elif kind is float or kind is int:
            parts.append(kind)
        else:
            return None
    return tuple(parts)


class QuickCall:
    """A bound CPU program that takes plain arguments.

    arrays: which arguments are arrays, in the graph's order. scalars: (argument, symbol) of run-time scalars.
    """

    def __init__(self, launchable: Launchable, arrays: Sequence[int], scalars: Sequence[tuple[int, str]]) -> None:
        program = launchable.program
        self._arrays, self._scalars = tuple(arrays), tuple(scalars)
        self._results = tuple((r.shape, r.dtype.numpy) for r in program.results)
        self._scratch = tuple((s.nbytes, s.zeroed) for s in program.scratch)
        self._steps = tuple(self._prepare(s) for s in program.steps if isinstance(s, Launch))
        order = [r.node for r in program.results]
        self._outputs = tuple((order.index(n), n.shape == ()) for n in program.graph.outputs)
        self._single = program.graph.output_tree is None or program.graph.output_tree.tree.kind == "leaf"

    @staticmethod
    def suits(launchable: Launchable, argument_count: int) -> bool:
        """Whether a program can be run this way: CPU kernels only, plain results, no arguments written."""
        program, graph = launchable.program, launchable.program.graph
        tree = graph.output_tree
        plain = tree is None or (
            tree.tree.kind in ("leaf", "tuple")
            and all(c.kind == "leaf" for c in tree.tree.children)
            and all(hasattr(leaf, "index") and leaf.argument is None for leaf in tree.leaves)
        )
        return (
            launchable.place == CPU
            and launchable.family == "numpy"
            and plain
            and not graph.effects
            and len(graph.arguments) == argument_count
            and all(isinstance(s, Launch) for s in program.steps)
            and all(n.op != "input" for n in graph.outputs)
        )

    @staticmethod
    def _prepare(step: Launch) -> tuple[Any, ...]:
        packed = cpu.pack_scalars(step.scalars) if not step.dynamic else None
        return step, step.slots, packed, cpu.Task(step.built.binary, len(step.slots), step.grid[0], step.grain)

    def __call__(self, args: Sequence[Any]) -> Any:
        results = [empty(shape, dtype) for shape, dtype in self._results]
        scratch = [
            np.zeros(max(n, 1), np.uint8) if zeroed else empty((max(n, 1),), _BYTE) for n, zeroed in self._scratch
        ]
        table = [address(args[k]) for k in self._arrays]
        table += map(address, results)
        table += map(address, scratch)
        env = {symbol: args[k] for k, symbol in self._scalars}
        for step, slots, packed, task in self._steps:
            if packed is None:
                packed = cpu.pack_scalars(step.values(env, bound.encode_slot))
            task.run([table[k] for k in slots], packed)
        values = [results[k][()] if scalar else results[k] for k, scalar in self._outputs]
        return values[0] if self._single else tuple(values)


_BYTE = np.dtype(np.uint8)
