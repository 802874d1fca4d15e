"""What fusion needs to know of a prepared graph, computed once: which nodes can be stored, who reads what, how big.

In: a prepared graph and representative sizes. Out: `Facts`. A node is *free* when it is never worth memory of its own
(scalars, iotas, views, widening casts): it is computed again in every kernel that uses it. Every other operator is a
*core*: it belongs to one group and may be stored. A free node that the caller or a library call must see in memory
becomes a core. `reads` looks through free nodes: from each core to the cores and graph inputs it needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from fuser.graph import Graph, ItemAttrs, Node, OpaqueAttrs, ReduceAttrs, ScalarAttrs
from fuser.hostexpr import Dim, HostExpr
from fuser.record import dataclass
from fuser.shapes import Shape
from fuser.strided import strided

UNKNOWN_DIM = 1024  # a dim that the sizes do not bind (one computed from a run-time scalar)


@dataclass(frozen=True)
class Read:
    """Core `consumer` needs `source`: at its own index (`direct`) or through index maps; `nbytes` of it at most."""

    source: int
    consumer: int
    direct: bool
    nbytes: int


class Facts:
    """Derived facts of one graph; all dictionaries are keyed by node id. across: bytes of rows that can wait in shared
    memory beside the one whose columns a block adds up (on CUDA); None where kernels of rows cannot reduce across them.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int] | None = None, across: int | None = None) -> None:
        self.graph, self.across = graph, across
        self.sizes = dict(sizes or {})
        self.nodes = graph.by_id
        self._counts: dict[Shape, int] = {}
        self._remembered: dict[tuple[Any, ...], dict[Any, Any]] = {}
        wanted = {n.id for n in graph.results}
        called = [i for n in graph.nodes if isinstance(n.attrs, OpaqueAttrs) for i in n.inputs]
        views = {i.id: v.source.id for i in called if i.id not in wanted and (v := strided(i)) is not None}
        wanted.update(views.get(i.id, i.id) for i in called)
        self.anchored = frozenset(k for k in wanted if self.nodes[k].op != "input")

    def remembered(self, what: str, extents: Mapping[str, Dim]) -> dict[Any, Any]:
        """What was worked out in an index space, kept for the next group that is tried in the same one."""
        return self._remembered.setdefault((what, *extents.items()), {})

    # -- kinds -------------------------------------------------------------------------------------
    def is_free(self, node: Node) -> bool:
        """Whether a node is recomputed in every group that uses it."""
        if node.op in ("scalar", "iota", "view"):
            return node.id not in self.anchored
        if node.op == "cast":
            source = node.inputs[0]
            return node.id not in self.anchored and (source.op == "scalar" or node.dtype.bytes >= source.storage.bytes)
        return False

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Ids of all cores in program order."""
        return tuple(n.id for n in self.graph.nodes if n.op != "input" and not self.is_free(n))

    @cached_property
    def core_set(self) -> frozenset[int]:
        return frozenset(self.cores)

    # -- sizes -------------------------------------------------------------------------------------
    def dim(self, d: Dim) -> int:
        """A dim at the representative sizes."""
        if not isinstance(d, HostExpr):
            return d
        missing = {s: UNKNOWN_DIM for s in d.symbols if s not in self.sizes}
        try:
            return max(int(d.evaluate({**missing, **self.sizes})), 0)
        except (ArithmeticError, ValueError):
            return UNKNOWN_DIM

    def count(self, shape: Shape) -> int:
        """Elements of a shape at the representative sizes."""
        got = self._counts.get(shape)
        if got is None:
            got = 1
            for d in shape:
                got *= self.dim(d)
            self._counts[shape] = got
        return got

    def nbytes(self, node_id: int) -> int:
        """Bytes of a node's value in memory."""
        n = self.nodes[node_id]
        return self.count(n.shape) * n.storage.bytes

    # -- reads -------------------------------------------------------------------------------------
    @cached_property
    def reads(self) -> Mapping[int, tuple[Read, ...]]:
        """Of every core: what it needs from memory or other cores, in operand order."""
        return {k: self._reads_of(self.nodes[k]) for k in self.cores}

    def _reads_of(self, core: Node) -> tuple[Read, ...]:
        found: dict[int, Read] = {}
        mapped = core.op in ("view", "piecewise")
        stack = [(i, mapped, -1) for i in reversed(core.inputs)]
        seen: set[tuple[int, bool, int]] = set()
        while stack:
            n, through, limit = stack.pop()
            if (n.id, through, limit) in seen:
                continue
            seen.add((n.id, through, limit))
            if n.op == "input" or n.id in self.core_set:
                size = self.count(n.shape) if limit < 0 else min(limit, self.count(n.shape))
                self._note(found, Read(n.id, core.id, not through, size * n.storage.bytes))
                continue
            here = self.count(n.shape)
            if n.op == "view":
                through, limit = True, here if limit < 0 else min(limit, here)
            stack.extend((i, through, limit) for i in reversed(n.inputs))
        return tuple(found.values())

    @staticmethod
    def _note(found: dict[int, Read], read: Read) -> None:
        old = found.get(read.source)
        if old is None:
            found[read.source] = read
        else:
            found[read.source] = Read(
                read.source, read.consumer, old.direct and read.direct, max(old.nbytes, read.nbytes)
            )

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Of every core and graph input: the cores that need it, in program order."""
        found: dict[int, list[int]] = {}
        for k in self.cores:
            for r in self.reads[k]:
                found.setdefault(r.source, []).append(k)
        return {k: tuple(v) for k, v in found.items()}

    @cached_property
    def scalars(self) -> Mapping[int, frozenset[int]]:
        """Of every core: the non-literal scalar nodes it uses, each a kernel parameter."""
        out: dict[int, frozenset[int]] = {}
        for k in self.cores:
            found: set[int] = set()
            stack, seen = list(self.nodes[k].inputs), set()
            while stack:
                n = stack.pop()
                if n.id in seen or n.op == "input" or n.id in self.core_set:
                    continue
                seen.add(n.id)
                if isinstance(n.attrs, ScalarAttrs) and not n.attrs.expr.is_literal:
                    found.add(n.id)
                stack.extend(n.inputs)
            out[k] = frozenset(found)
        return out

    # -- order that does not depend on insertion ---------------------------------------------------
    @cached_property
    def digests(self) -> Mapping[int, int]:
        """A structural hash of every node: equal for equal nodes whatever the order they were made in."""
        out: dict[int, int] = {}
        for n in self.graph.nodes:
            ins = ",".join(str(out[i.id]) for i in n.inputs)
            text = f"{n.op}|{n.attrs!r}|{n.dtype}|{n.shape!r}|{ins}"
            out[n.id] = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return out

    @cached_property
    def rank(self) -> Mapping[int, int]:
        """A topological numbering that does not depend on insertion: by distance from the arguments, then by hash."""
        height: dict[int, int] = {}
        for n in self.graph.nodes:
            height[n.id] = 1 + max((height[i.id] for i in n.inputs), default=0)
        order = sorted(height, key=lambda k: (height[k], self.digests[k], k))
        return {k: place for place, k in enumerate(order)}

    @cached_property
    def by_rank(self) -> tuple[Node, ...]:
        """Nodes in the order of `rank`."""
        return tuple(self.nodes[k] for k in self.rank)


def is_reduction(node: Node) -> bool:
    """Whether a node folds elements of its operand; a further result of one (`item`) does not."""
    return isinstance(node.attrs, ReduceAttrs)


def base_of(node: Node) -> Node:
    """The reduction behind an `item`, any other node itself."""
    return node.inputs[0] if isinstance(node.attrs, ItemAttrs) else node
