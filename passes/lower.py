"""Composites become the rows they are made of.

In: a graph as a front end built it. Out: the same program without composite nodes.
before: softmax(x)    after: max_sumexp, subtract, exp, divide ... as the composite's row says
"""

from __future__ import annotations

from typing import ClassVar

from fuser.errors import InternalError
from fuser.graph import CompositeAttrs, Graph, Node
from fuser.optable import table
from fuser.optable.base import Composite
from fuser.passes.base import LocalRewriter, Pass, finish
from fuser.record import dataclass

DEPTH = 16  # composites may lower to composites, this many deep


@dataclass(frozen=True)
class Lower(Pass):
    """Replace composites by their rows' `lower`, until none is left."""

    name: ClassVar[str] = "lower"

    def run(self, graph: Graph) -> Graph:
        for _ in range(DEPTH):
            if not any(isinstance(n.attrs, CompositeAttrs) for n in graph.nodes):
                return graph
            lowered = finish(graph, _Lowering(graph, self.limit))
            if lowered is graph:
                return graph
            graph = lowered
        left = sorted({n.op for n in graph.nodes if isinstance(n.attrs, CompositeAttrs)})
        if left and self.limit is None:
            raise InternalError(f"composites lower to themselves: {', '.join(left)}", "lower-depth")
        return graph


class _Lowering(LocalRewriter):
    def replace(self, node: Node) -> Node | None:
        if not isinstance(node.attrs, CompositeAttrs):
            return None
        row = table().known[node.op]
        assert isinstance(row, Composite), node.op
        return row.lower(self.builder, node.inputs, dict(node.attrs.params))
