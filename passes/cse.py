"""Equal nodes become one; nodes that nothing needs go.

In, out: a graph. A builder shares equal nodes as they are made, so copying a graph through one is the whole
pass: it finds what earlier passes made equal. Nothing is commuted: a + b and b + a may differ in the payload
of a NaN.
before: t1 = exp(x); t2 = exp(x); t1 + t2    after: t1 = exp(x); t1 + t1
"""

from __future__ import annotations

from typing import ClassVar

from fuser.graph import Graph, Rewriter, reachable
from fuser.passes.base import Pass
from fuser.record import dataclass


@dataclass(frozen=True)
class Share(Pass):
    """Common subexpression elimination by structure."""

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph).run()
        return new if len(new.nodes) < len(graph.nodes) else graph


@dataclass(frozen=True)
class Prune(Pass):
    """Drop what neither a result nor an effect needs."""

    name: ClassVar[str] = "dce"

    def run(self, graph: Graph) -> Graph:
        needed = reachable(graph.results)
        return graph if len(needed) == len(graph.nodes) else graph.with_(nodes=needed)
