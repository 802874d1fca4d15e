"""A program bound to the shapes, strides and place of a call: all that can be worked out before pointers are known.

In: a `Program` and the host environment of one call. Out: `BoundProgram`, kept by launch key, whose `run` takes the
arrays' addresses and the run-time scalars, allocates results and scratch memory, and launches.

Addresses live in one table: arguments first (captured arrays last among them), then results, then scratch blocks. A
launch names its buffers by their place in that table. A bound program is immutable: many threads may run one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import shapes
from fuser.dtypes import DType
from fuser.graph import Graph, InputAttrs, Node
from fuser.hostexpr import HostExpr, is_scalar_symbol, wrap
from fuser.record import dataclass
from fuser.runtime import values
from fuser.runtime.arena import ALIGNMENT, Life, place
from fuser.toolchain import RESTORED, ZEROED, Built

if TYPE_CHECKING:
    from fuser.runtime.library import View

_CTYPES: dict[str, Any] = {
    "bool": ctypes.c_uint8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A fresh array that a call returns or writes back from."""

    node: Node
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Scratch:
    """Memory within a call: a temporary, a workspace, or counters and flags that start at zero; counters end there."""

    nbytes: int
    zeroed: bool = False
    restored: bool = False


@dataclass(frozen=True)
class Arena:
    """One block of memory for all scratch of a call: offsets in the order of `BoundProgram.scratch`.

    The first `zeroed` bytes are set to zero before the first launch: counters and flags, which live to the end.
    counters: the blocks (by number) in them, where all are zero again after every call; none where some are not.
    """

    offsets: tuple[int, ...] = ()
    nbytes: int = 0
    zeroed: int = 0
    counters: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel with everything but addresses and run-time scalars. `dynamic`: scalars to work out per call."""

    built: Built
    slots: tuple[int, ...]
    scalars: tuple[Any, ...]
    dynamic: tuple[tuple[int, DType, HostExpr], ...]
    grid: tuple[int, int]
    block: int
    grain: int

    def values(self, env: Mapping[str, Any], encode: Callable[[Any, DType], Any]) -> Sequence[Any]:
        """Encoded scalar arguments of this call."""
        if not self.dynamic:
            return self.scalars
        out = list(self.scalars)
        for k, dtype, expr in self.dynamic:
            out[k] = encode(values.convert(expr.evaluate(env), dtype), dtype)
        return out


@dataclass(frozen=True)
class Operand:
    """What a library call reads: the node in memory, its table place, and how it is looked at, if not as it is."""

    node: Node
    place: int
    view: View | None = None


@dataclass(frozen=True)
class Library:
    """A library call on whole arrays: operands, result and workspace by table place."""

    node: Node
    operands: tuple[Operand, ...]
    result: int
    workspace: int | None = None

    @property
    def touched(self) -> tuple[int, ...]:
        """Table places of all memory that the call sees."""
        places = (*(o.place for o in self.operands), self.result)
        return places if self.workspace is None else (*places, self.workspace)


@dataclass(frozen=True)
class BoundProgram:
    """See the module's docstring. `places`: table place of every node that lives in memory."""

    graph: Graph
    arguments: int
    results: tuple[Result, ...]
    scratch: tuple[Scratch, ...]
    arena: Arena
    steps: tuple[Launch | Library, ...]
    places: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]

    @property
    def result_bytes(self) -> int:
        """Bytes of fresh result arrays."""
        return sum(int(np.prod(r.shape, dtype=np.int64)) * r.dtype.bytes for r in self.results)


def encode_slot(value: Any, dtype: DType) -> Any:
    """A scalar for a CPU kernel: its bits in an 8-byte slot."""
    return values.slot_bits(value, dtype)


def encode_ctype(value: Any, dtype: DType) -> Any:
    """A scalar for a CUDA kernel: a ctypes value of the parameter's type."""
    if dtype.is_half:
        return ctypes.c_uint16(int(np.array(value, dtype.numpy).view(np.uint16)))
    return _CTYPES[dtype.name](value.item())


class Binder:
    """Lays out the table of one program for one call's shapes."""

    def __init__(
        self,
        graph: Graph,
        env: Mapping[str, Any],
        encode: Callable[[Any, DType], Any],
        workspace: Callable[[Node], int] = lambda node: 0,
    ) -> None:
        self.graph, self.env, self.encode, self.room = graph, env, encode, workspace
        self.places = {n.id: position for position, n in graph.inputs.items()}
        self.count = len(graph.arguments)
        self.results: list[Result] = []
        self.scratch: list[Scratch] = []
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.workspaces: dict[str, int] = {}  # of the group being bound: its kernels share them by name
        self.libraries: dict[str, int] = {}  # of all library calls

    def bind(self, steps: Sequence[tuple[Any, tuple[Built, ...]]]) -> BoundProgram:
        """steps: groups with their kernels, in order."""
        for node in dict.fromkeys(self.graph.outputs):
            if not isinstance(node.attrs, InputAttrs):
                self.places[node.id] = self.count + len(self.results)
                self.results.append(Result(node, self._shape(node), node.storage))
        bound: list[Launch | Library] = []
        for group, _ in steps:
            self.places.update(group.in_place)
        for group, kernels in steps:
            self.workspaces = {}
            if group.library is not None:
                node = self.graph.by_id[group.library]
                operands = tuple(self._operand(n, group.inputs) for n in node.inputs)
                bound.append(Library(node, operands, self._place(node), self._library_room(node)))
            bound += [launch for k in kernels if (launch := self._launch(k)) is not None]
        for effect in self.graph.effects:
            self._place(effect.node)
        for node_id in self.places:
            self._shape(self.graph.by_id[node_id])
        scratch = tuple(self.scratch)
        arena = self._arena(bound)
        results = tuple(self.results)
        return BoundProgram(self.graph, self.count, results, scratch, arena, tuple(bound), self.places, self.shapes)

    def _library_room(self, node: Node) -> int | None:
        """Table place of the workspace that all library calls of the program take in turn; None for one without."""
        nbytes = self.room(node)
        return self._workspace("library", Scratch(nbytes), self.libraries) if nbytes else None

    def _operand(self, node: Node, inputs: Collection[int]) -> Operand:
        """An operand of a library call: a value that is in memory, or a view of one."""
        if node.id in inputs:
            return Operand(node, self._place(node))
        from fuser.runtime.library import view_of
        from fuser.strided import strided

        found = strided(node)
        assert found is not None, node
        return Operand(found.source, self._place(found.source), view_of(found, self._shape(node), self.env))

    def _arena(self, steps: Sequence[Launch | Library]) -> Arena:
        """Scratch memory by liveness; effects are written back after the last step."""
        used: dict[int, list[int]] = {}
        for at, step in enumerate(steps):
            for k in step.slots if isinstance(step, Launch) else step.touched:
                used.setdefault(k, []).append(at)
        for effect in self.graph.effects:
            used.setdefault(self.places[effect.node.id], []).append(len(steps))
        base = self.count + len(self.results)
        lives, counters, zeroed = [], {}, 0
        for k, block in enumerate(self.scratch):
            touched = used.get(base + k, [0])
            lives.append(Life(0 if block.zeroed else block.nbytes, min(touched), max(touched)))
            if block.zeroed:
                counters[k] = zeroed
                zeroed += -(-block.nbytes // ALIGNMENT) * ALIGNMENT
        offsets, total = place(lives)
        placed = tuple(counters.get(k, zeroed + o) for k, o in enumerate(offsets))
        restored = all(self.scratch[k].restored for k in counters)
        return Arena(placed, zeroed + total, zeroed, tuple(counters) if restored else ())

    def _shape(self, node: Node) -> tuple[int, ...]:
        if node.id not in self.shapes:
            self.shapes[node.id] = shapes.evaluate(node.shape, self.env)
        return self.shapes[node.id]

    def _place(self, node: Node) -> int:
        """Table place of a node; a node seen first becomes a temporary."""
        if node.id not in self.places:
            count = int(np.prod(self._shape(node), dtype=np.int64))
            self.places[node.id] = self._scratch(Scratch(count * node.storage.bytes))
        return self.places[node.id]

    def _scratch(self, block: Scratch) -> int:
        self.scratch.append(block)
        return self.count + len(self.results) + len(self.scratch) - 1

    def _workspace(self, name: str, block: Scratch, known: dict[str, int]) -> int:
        """Table place of a workspace, by its name among the known ones: the same memory in each kernel of a group."""
        if name not in known:
            known[name] = self._scratch(block)
        return known[name]

    def _launch(self, built: Built) -> Launch | None:
        kernel = built.kernel
        grid = tuple(int(wrap(g).evaluate(self.env)) for g in kernel.launch.grid)
        slots = []
        for b in kernel.buffers:
            if b.node is not None:
                slots.append(self._place(self.graph.by_id[b.node]))
            else:
                nbytes = int(wrap(b.size).evaluate(self.env)) * b.dtype.bytes
                block = Scratch(nbytes, b.role in ZEROED, b.role in RESTORED)
                slots.append(self._workspace(b.name, block, self.workspaces))
        if 0 in grid:
            return None  # nothing to do; the buffers above exist all the same
        fixed: list[Any] = []
        dynamic = []
        for k, s in enumerate(kernel.scalars):
            if any(is_scalar_symbol(name) for name in s.expr.symbols):
                dynamic.append((k, s.dtype, s.expr))
                fixed.append(None)
            else:
                fixed.append(self.encode(values.convert(s.expr.evaluate(self.env), s.dtype), s.dtype))
        launch = kernel.launch
        return Launch(built, tuple(slots), tuple(fixed), tuple(dynamic), (grid[0], grid[1]), launch.block, launch.grain)
