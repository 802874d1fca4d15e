"""Results get memory of their own where an argument's memory, or that of a rounded value, would not do.

In, out: a graph. A result that is an unchanged argument is handed back as it is, unless the program
overwrites that argument: then the old value is copied first. Writing an argument's own value back into it is
no effect. A rounded value is kept in its half type; where the program returns it as f32, f32 is what is stored.
before: x[...] = y; y[...] = x    after: both old values are copied (an identity view, which is a kernel's work)
"""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

from fuser.graph import Graph, InputAttrs, Node, Rewriter, ViewAttrs
from fuser.indexmap import identity
from fuser.passes.base import Pass
from fuser.record import dataclass


@dataclass(frozen=True)
class OwnResults(Pass):
    """Copies of overwritten arguments and of rounded results; no effect without a change."""

    name: ClassVar[str] = "results"

    def run(self, graph: Graph) -> Graph:
        effects = tuple(e for e in graph.effects if not _is_argument(e.node, e.argument))
        written = {e.argument for e in effects}
        copied = {n for n in graph.results if n.storage != n.dtype or _overwritten(n, written)}
        if len(effects) == len(graph.effects) and not copied:
            return graph
        return _Copying(graph.with_(effects=effects), copied).run()


def _overwritten(node: Node, written: Set[int]) -> bool:
    return isinstance(node.attrs, InputAttrs) and node.attrs.position in written


def _is_argument(node: Node, position: int) -> bool:
    return isinstance(node.attrs, InputAttrs) and node.attrs.position == position


class _Copying(Rewriter):
    def __init__(self, graph: Graph, copied: Set[Node]) -> None:
        super().__init__(graph)
        self.copied = copied

    def output(self, node: Node) -> Node:
        new = self.mapped[node]
        if node not in self.copied:
            return new
        return self.builder.make("view", (new,), ViewAttrs(identity(node.rank)), node.dtype, node.shape)
