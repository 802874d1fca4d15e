"""A kernel's parameters and element accesses: what every lowering of a group shares.

In: graph, group, layouts, index width. Out: a `Frame` around a `KernelBuilder` with one buffer an input and
an output, and loads and stores of a body's sites. Its own file because all schedules need the same ABI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.evaluate import Loader, mask_operand
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import BufferRole, Operand
from fuser.codegen.program import Fetch, Program
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.body import Layouts, StoreSite, strides
from fuser.dtypes import BOOL, I32, I64, DType
from fuser.graph import Graph, InputAttrs, Node
from fuser.group import Group
from fuser.hostexpr import Dim, HostExpr, call, lit
from fuser.proofs import Ranges
from fuser.shapes import numel


class Frame:
    """The builder of one kernel and its buffers: inputs in order, then outputs in order of storing."""

    def __init__(
        self,
        graph: Graph,
        group: Group,
        layouts: Layouts,
        index_bits: int,
        target: Literal["cuda", "cpu"],
        alignment: Alignment,
        most: Mapping[str, int] | None = None,
    ) -> None:
        """most: of dims, where indices have 64 bits and are to be divided in 32 where that is enough."""
        self.graph, self.group, self.layouts, self.alignment = graph, group, layouts, alignment
        self.most = most or {}
        self.index = I64 if index_bits == 64 else I32
        self.builder = KernelBuilder(group.name, target)
        self.stream_from = 0  # bytes from which results are stored past the caches (0: none are)
        self._read: dict[int, str] = {}
        self._written: dict[int, str] = {}
        in_place = dict(group.in_place)
        shared = {graph.inputs[p].id for p in in_place.values() if p in graph.inputs}
        for node in group.inputs:
            self._read[node] = self._buffer(node, "inout" if node in shared else "in")
        for node in group.outputs:
            argument = graph.inputs.get(in_place.get(node, -1))
            known = self._read.get(argument.id) if argument is not None else None
            self._written[node] = known or self._buffer(node, "out")

    def _buffer(self, number: int, role: BufferRole) -> str:
        node = self.graph.by_id[number]
        return self.builder.buffer(self._name(node), node.storage, role, number, self._size(node))

    def _name(self, node: Node) -> str:
        names = self.graph.names.get(node)
        if names:
            return names[-1]
        if isinstance(node.attrs, InputAttrs):
            return self.graph.arguments[node.attrs.position].name
        return f"{node.op}_{node.id}"

    def size(self, number: int) -> Dim:
        """Elements from the first to the last one of a buffer, by its node."""
        return self._size(self.graph.by_id[number])

    def _size(self, node: Node) -> Dim:
        """Elements from the first to the last one of a node's memory."""
        if not (isinstance(node.attrs, InputAttrs) and self.layouts[node.attrs.position] == "s"):
            return numel(node.shape)
        reach = lit(1)
        for d, s in zip(node.shape, strides(self.graph, node.id, self.layouts), strict=True):
            reach = reach + (d - lit(1)) * call("max", s, 0)
        return reach

    def indices(self, ranges: Ranges, **bindings: Operand) -> IndexEmitter:
        """An emitter of index expressions with these loop variables bound."""
        return IndexEmitter(self.builder, bindings, ranges, self.index, self.alignment.divides, most=self.most)

    def number(self, value: int) -> Operand:
        """A literal of the index type."""
        return self.builder.literal(value, self.index)

    def host(self, e: HostExpr | int) -> Operand:
        """A value of the host's in the index type."""
        return self.builder.scalar(e, self.index)

    # -- accesses ----------------------------------------------------------------------------------
    def buffer_of(self, fetch: Fetch) -> str:
        return self._read[fetch.node]

    def loader(self, program: Program, valid: Operand | None = None) -> Loader:
        """Loads single elements of a program's fetches, where `valid` holds."""

        def load(step: int, indices: IndexEmitter, mask: Operand | None) -> Operand:
            fetch = program.fetch(step)
            (offset,) = fetch.index
            return self.builder.load(self._read[fetch.node], indices.value(offset), self.masked(mask, valid))

        return load

    def store(self, site: StoreSite, indices: IndexEmitter, value: Operand, mask: Operand | None = None) -> None:
        buffer = self._written[site.node]
        stream = self._streams(site) if self.stream_from and buffer not in self._read.values() else None
        self.builder.store(buffer, indices.value(site.offset), value, mask, stream)

    def _streams(self, site: StoreSite) -> Operand:
        """Whether a result is large enough to be stored past the caches."""
        nbytes = numel(self.graph.by_id[site.node].shape) * site.dtype.bytes
        large = self.builder.literal(self.stream_from, I64)
        return self.builder.apply("less_equal", (large, self.builder.scalar(nbytes, I64)), BOOL)

    def store_whole(
        self, site: StoreSite, indices: IndexEmitter, values: Sequence[Operand], mask: Operand | None = None
    ) -> None:
        """Stores neighbouring elements, the first at the site's offset, as vectors of at most 16 bytes."""
        at, step = indices.value(site.offset), _vector_limit(site.dtype)
        for k in range(0, len(values), step):
            self.builder.store_vec(self._written[site.node], self.add(at, k), values[k : k + step], mask)

    def load_whole(
        self, fetch: Fetch, indices: IndexEmitter, width: int, valid: Operand | None = None
    ) -> tuple[Operand, ...]:
        """Loads neighbouring elements, the first at the fetch's offset, as vectors of at most 16 bytes."""
        at, step = indices.value(fetch.index[0]), min(_vector_limit(fetch.dtype), width)
        mask = self.masked(mask_operand(self.builder, indices, fetch.mask), valid)
        out: list[Operand] = []
        for k in range(0, width, step):
            out += self.builder.load_vec(self.buffer_of(fetch), self.add(at, k), step, mask)
        return tuple(out)

    # -- arithmetic in the index type --------------------------------------------------------------
    def add(self, a: Operand, b: Operand | int) -> Operand:
        return self.builder.apply("add", (a, self._operand(b)), self.index)

    def mul(self, a: Operand, b: Operand | int) -> Operand:
        return self.builder.apply("multiply", (a, self._operand(b)), self.index)

    def div(self, a: Operand, b: Operand | int) -> Operand:
        return self.builder.apply("trunc_div", (a, self._operand(b)), self.index)

    def rem(self, a: Operand, b: Operand | int) -> Operand:
        return self.builder.apply("trunc_rem", (a, self._operand(b)), self.index)

    def masked(self, a: Operand | None, b: Operand | None) -> Operand | None:
        """`a and b`, an absent one holding; None if both are absent."""
        return b if a is None else self.both(a, b)

    def least(self, a: Operand, b: Operand) -> Operand:
        return self.builder.apply("min_num", (a, b), self.index)

    def both(self, a: Operand, b: Operand | None) -> Operand:
        """`a and b`; an absent `b` holds."""
        return a if b is None else self.builder.apply("logical_and", (a, b), BOOL)

    def less(self, a: Operand, b: Operand | int) -> Operand:
        return self.builder.apply("less", (a, self._operand(b)), BOOL)

    def thread(self) -> Operand:
        """The thread's number in its block, in the index type."""
        return self.builder.apply("cast", (self.builder.special("thread"),), self.index)

    def block(self) -> Operand:
        return self.builder.apply("cast", (self.builder.special("block"),), self.index)

    def block_y(self) -> Operand:
        return self.builder.apply("cast", (self.builder.special("block_y"),), self.index)

    def _operand(self, x: Operand | int) -> Operand:
        return self.number(x) if isinstance(x, int) else x


def _vector_limit(dtype: DType) -> int:
    """Elements of a 16-byte vector."""
    return 16 // dtype.bytes
