"""What a pass is, and the rewriter that most passes are made of.

In: a graph. Out: a graph; the very same object when nothing changed, so that callers can stop early. Passes are frozen
dataclasses whose fields are their options. `limit` permits only the first so many rewrites: halving it finds the
rewrite that breaks a program.
"""

from __future__ import annotations

from typing import ClassVar

from fuser.graph import Graph, Node, Rewriter
from fuser.record import dataclass


@dataclass(frozen=True)
class Pass:
    """A graph transformation. limit: rewrites permitted (None: all)."""

    name: ClassVar[str] = ""
    limit: int | None = None

    def run(self, graph: Graph) -> Graph:
        """The transformed graph, or `graph` itself when there was nothing to do."""
        raise NotImplementedError


class LocalRewriter(Rewriter):
    """Copies a graph, replacing nodes one by one: subclasses say in `replace` what a node becomes.

    `replace` gets the old node and its rewritten inputs, and returns a node of the same dtype and shape, or
    None to keep the node as it is. Whatever `replace` builds is offered to it again, until nothing applies.
    """

    def __init__(self, graph: Graph, limit: int | None) -> None:
        super().__init__(graph)
        self.limit = limit
        self.count = 0

    def replace(self, node: Node) -> Node | None:
        """What a node (of the new graph) becomes; None keeps it."""
        raise NotImplementedError

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        new = self.builder.make(node.op, inputs, node.attrs, node.dtype, node.shape)
        while self.limit is None or self.count < self.limit:
            better = self.replace(new)
            if better is None or better is new:
                break
            self.count += 1
            new = better
        return new


def finish(old: Graph, rewriter: LocalRewriter) -> Graph:
    """Run a rewriter; the old graph itself if no rewrite applied."""
    new = rewriter.run()
    return new if rewriter.count else old
