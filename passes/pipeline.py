"""From a front end's graph to the graph that is planned: one visible list of passes.

In: a graph with composites, half arithmetic, views of views. Out: the same program in which only inputs,
scalars, iotas, views, pieces, reductions and their items, scans, casts, roundings, library calls and scalar
rows are left.
"""

from __future__ import annotations

from typing import Any

from fuser.errors import InternalError
from fuser.graph import Graph
from fuser.passes.base import Pass
from fuser.passes.cse import Prune, Share
from fuser.passes.fold import Fold
from fuser.passes.lower import Lower
from fuser.passes.results import OwnResults
from fuser.passes.simplify import Simplify
from fuser.passes.widen import Rounding, Widen
from fuser.settings import settings

# The order: composites first, because what they are made of may be half arithmetic, views, or casts. Widening
# next, so that every later pass sees roundings as nodes and cannot remove one. Simplify before fold: a cast
# between two views goes, and the views meet. Sharing after both, when equal values look equal; simplify again
# finds `where` on what became literal. Results last: the copies it adds are identity views, which fold would
# remove.
PIPELINE: tuple[Pass, ...] = (
    Lower(),
    Widen(),
    Simplify(),
    Fold(),
    Share(),
    Simplify(),
    Prune(),
    OwnResults(),
)


def prepare(graph: Graph, *, rounding: Rounding = "graph", fast_math: bool = False) -> Graph:
    """The graph ready for planning. rounding: where half values are rounded (see `widen`).

    fast_math changes nothing yet: contraction and approximate instructions are the kernels' own business.
    InternalError lists what `verify` found, when the setting `debug` asks for it.
    """
    del fast_math
    check(graph, "the front end")
    for step in PIPELINE:
        configured = Widen(rounding=rounding) if isinstance(step, Widen) else step
        before = graph
        graph = configured.run(graph)
        if graph is not before:
            check(graph, configured.name)
    return graph


def check(graph: Graph, by: str) -> None:
    """Verify a graph if the settings say so; InternalError names the pass that broke it."""
    if settings().debug < 1:
        return
    from fuser.verify import verify

    findings: Any = verify(graph)
    if findings:
        raise InternalError(f"the graph that `{by}` made is not sound", "unsound-graph", notes=list(findings)[:20])
