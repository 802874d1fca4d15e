"""Transposed products become products of transposed factors: (x @ w).T is w.T @ x.T, which libraries take as flags.

In: a graph with library calls. Out: the same program in which no product is computed only to be turned afterwards.
before: %2 = matmul(%0, %1); %3 = view(%2) {($1, $0)}       after: %5 = matmul(view(%1), view(%0))
"""

from __future__ import annotations

from typing import ClassVar

from fuser.graph import Graph, Node, ViewAttrs
from fuser.indexmap import transpose
from fuser.passes.base import CountingRewriter, Pass, finish
from fuser.record import dataclass


@dataclass(frozen=True)
class Products(Pass):
    """Move a transposition of a product that nothing else needs to its factors."""

    name: ClassVar[str] = "products"

    def run(self, graph: Graph) -> Graph:
        if not any(n.op == "matmul" for n in graph.nodes):
            return graph
        return finish(graph, _Turning(graph, self.limit))


class _Turning(CountingRewriter):
    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if self.exhausted or not self._turns(node):
            return super().rewrite(node, inputs)
        self.count += 1
        product = inputs[0]
        left, right = (self._turned(x) for x in reversed(product.inputs))
        return self.builder.make(product.op, (left, right), product.attrs, node.dtype, node.shape)

    def _turns(self, node: Node) -> bool:
        """Whether a node is the only use of a product, with its last two axes exchanged."""
        if not isinstance(node.attrs, ViewAttrs) or len(node.inputs) != 1 or node.inputs[0].op != "matmul":
            return False
        product = node.inputs[0]
        alone = list(self.graph.users[product]) == [node] and product not in self.graph.results
        return alone and node.rank == product.rank and node.attrs.map == transpose(_exchanged(node.rank))

    def _turned(self, x: Node) -> Node:
        axes = _exchanged(x.rank)
        return self.builder.make("view", (x,), ViewAttrs(transpose(axes)), x.dtype, tuple(x.shape[k] for k in axes))


def _exchanged(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)
