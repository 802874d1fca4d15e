"""Library calls on the short road of a CPU program: how arrays lie is settled once, addresses are left open.

In: a bound program and the arrays of a call. Out: by step, a `ProductCall`, run with the addresses of a call like that
one; None where a call would have to look at its arrays again. Its own file because a program without products needs
none of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.graph import Node
from fuser.record import dataclass
from fuser.runtime import arrays, library
from fuser.runtime.bound import BoundProgram, Library
from fuser.runtime.cublas import Memory, in_c_order


@dataclass(frozen=True)
class Side:
    """An array at a place of the address table. block: the ctypes array over its bytes; strides in bytes."""

    place: int
    offset: int
    block: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    def over(self, table: Sequence[int]) -> np.ndarray[Any, Any]:
        """The array in memory that someone else keeps alive."""
        return np.ndarray(
            self.shape, self.dtype, self.block.from_address(table[self.place] + self.offset), 0, self.strides
        )


@dataclass(frozen=True)
class ProductCall:
    """A product with everything but addresses. multiply: takes both operands, and where to."""

    multiply: Callable[[Any, Any, Any], object]
    a: Side
    b: Side
    result: Side

    def run(self, table: Sequence[int]) -> None:
        """Multiply; `table` has the address of every array of the call."""
        self.multiply(self.a.over(table), self.b.over(table), self.result.over(table))


def products_of(program: BoundProgram, inputs: Sequence[Any]) -> dict[int, ProductCall] | None:
    """By step, the product of each library call; None where one copies an operand, has nothing to add, or stores into
    an array that is not in C order. inputs: arrays in the order of the program's arguments."""

    def at(node: Node, place: int) -> Memory:
        shape, itemsize = program.shapes[node.id], node.storage.bytes
        if place >= len(inputs):
            return Memory(0, shape, in_c_order(shape, itemsize), itemsize)
        return Memory(0, shape, tuple(s * itemsize for s in arrays.describe(inputs[place]).strides), itemsize)

    found: dict[int, ProductCall] = {}
    for k, step in enumerate(program.steps):
        if isinstance(step, Library):
            call = _planned(step, at)
            if call is None:
                return None
            found[k] = call
    return found


def _planned(step: Library, at: Callable[[Node, int], Memory]) -> ProductCall | None:
    sides = [at(o.node, o.place).through(o.view) for o in step.operands]
    out = at(step.node, step.result)
    if step.node.op != "matmul" or out.strides != in_c_order(out.shape, out.itemsize):
        return None
    whole = [m for m in (*sides, out) if m is not None and 0 not in m.shape]
    if len(whole) < 3 or any(library.layout(m.shape, m.strides, m.itemsize) is None for m in whole):
        return None
    places = (*(o.place for o in step.operands), step.result)
    a, b, result = (_side(m, place, step.node) for m, place in zip(whole, places, strict=True))
    return ProductCall(library.multiply(step.node.storage), a, b, result)


def _side(memory: Memory, place: int, node: Node) -> Side:
    """Memory with positive steps only (`layout` sees to the last two axes, `strided` to the others)."""
    nbytes = sum((d - 1) * s for d, s in zip(memory.shape, memory.strides, strict=True)) + memory.itemsize
    block = ctypes.c_uint8 * nbytes
    return Side(place, memory.pointer, block, memory.shape, node.storage.numpy, memory.strides)
