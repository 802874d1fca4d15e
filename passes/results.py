"""Results get memory of their own where an argument's memory would not do.

In, out: a graph. A result that is an unchanged argument is handed back as it is, unless the program
overwrites that argument: then the old value is copied first. Writing an argument's own value back into it is
no effect.
before: x[...] = y; y[...] = x    after: both old values are copied (an identity view, which is a kernel's work)
"""

from __future__ import annotations

from typing import ClassVar

from fuser.graph import Graph, InputAttrs, Node, Rewriter, ViewAttrs
from fuser.indexmap import identity
from fuser.passes.base import Pass
from fuser.record import dataclass


@dataclass(frozen=True)
class OwnResults(Pass):
    """Copies of overwritten arguments; no effect without a change."""

    name: ClassVar[str] = "results"

    def run(self, graph: Graph) -> Graph:
        effects = tuple(e for e in graph.effects if not _is_argument(e.node, e.argument))
        written = {e.argument for e in effects}
        overwritten = {n for n in graph.results if isinstance(n.attrs, InputAttrs) and n.attrs.position in written}
        if len(effects) == len(graph.effects) and not overwritten:
            return graph
        return _Copying(graph.with_(effects=effects), overwritten).run()


def _is_argument(node: Node, position: int) -> bool:
    return isinstance(node.attrs, InputAttrs) and node.attrs.position == position


class _Copying(Rewriter):
    def __init__(self, graph: Graph, overwritten: set[Node]) -> None:
        super().__init__(graph)
        self.overwritten = overwritten

    def output(self, node: Node) -> Node:
        new = self.mapped[node]
        if node not in self.overwritten:
            return new
        return self.builder.make("view", (new,), ViewAttrs(identity(node.rank)), node.dtype, node.shape)
