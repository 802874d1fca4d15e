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


class CountingRewriter(Rewriter):
    """A rewriter that counts what it does. limit: rewrites permitted (None: all)."""

    def __init__(self, graph: Graph, limit: int | None) -> None:
        super().__init__(graph)
        self.limit = limit
        self.count = 0

    @property
    def exhausted(self) -> bool:
        """Whether no further rewrite is permitted."""
        return self.limit is not None and self.count >= self.limit


class LocalRewriter(CountingRewriter):
    """Copies a graph, replacing nodes one by one: subclasses say in `replace` what a node becomes.

    `replace` gets a node of the new graph, and returns a node of the same dtype and shape, or None to keep it. Whatever
    `replace` builds is offered to it again, until nothing applies.
    """

    def replace(self, node: Node) -> Node | None:
        """What a node (of the new graph) becomes; None keeps it."""
        raise NotImplementedError

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        return self.settled(super().rewrite(node, inputs))

    def settled(self, node: Node) -> Node:
        """What a node of the new graph becomes in the end."""
        while not self.exhausted:
            better = self.replace(node)
            if better is None or better is node:
                break
            self.count += 1
            node = better
        return node


def finish(old: Graph, rewriter: CountingRewriter) -> Graph:
    """Run a rewriter; the old graph itself if no rewrite applied."""
    new = rewriter.run()
    return new if rewriter.count else old
