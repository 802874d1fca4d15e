"""From a front end's graph to the graph that is planned: one visible list of passes.

In: a graph with composites, half arithmetic, views of views. Out: the same program in which only inputs,
scalars, iotas, views, pieces, reductions and their items, scans, casts, roundings, library calls and scalar
rows are left.
"""

from __future__ import annotations

from fuser import dumps
from fuser.errors import InternalError
from fuser.graph import Graph
from fuser.passes.base import Pass
from fuser.passes.cse import Prune, Share
from fuser.passes.divisible import Divisible
from fuser.passes.fold import Fold
from fuser.passes.loops import LoopBodies
from fuser.passes.lower import Lower
from fuser.passes.products import Products
from fuser.passes.results import OwnResults
from fuser.passes.simplify import Simplify
from fuser.passes.split import Split
from fuser.passes.unroll import UnrollSmall
from fuser.passes.variants import Variants
from fuser.passes.widen import Rounding, Widen
from fuser.runtime.quiet import collection_paused
from fuser.settings import Settings, settings

# The order: dims as their guards make them, so that views fold. Composites next, because what they are made of may be
# half arithmetic, views, or casts; complex numbers in two likewise, before anything looks at arithmetic. Transposed
# products while nothing stands between product and view. Then widening, so that every later pass sees roundings as
# nodes and cannot remove one; and small reductions, in the types they add in. Simplify before fold: a cast between two
# views goes, and the views meet. Sharing after both, when equal values look equal; simplify again finds `where` on what
# became literal. Variants when literals and single uses are what they will be. Results last: the copies it adds are
# identity views, which fold would remove.
PIPELINE: tuple[Pass, ...] = (
    Divisible(),
    Lower(),
    Split(),
    Products(),
    Widen(),
    LoopBodies(),
    UnrollSmall(),
    Simplify(),
    Fold(),
    Share(),
    Simplify(),
    Variants(),
    Prune(),
    OwnResults(),
)


@collection_paused()
def prepare(graph: Graph, *, rounding: Rounding = "graph", fast_math: bool = False) -> Graph:
    """The graph ready for planning. rounding: where half values are rounded (see `widen`).

    fast_math: cheaper operators everywhere, not only where a rounding hides their error (see `variants`). The
    setting `debug` verifies between passes (InternalError lists the findings) and, at 2, writes numbered dumps.
    """
    observe(graph, "traced")
    for step in PIPELINE:
        configured = _configured(step, rounding, fast_math)
        if configured is None:
            continue
        before = graph
        graph = configured.run(graph)
        if graph is not before:
            observe(graph, configured.name)
    return graph


def _configured(step: Pass, rounding: Rounding, fast_math: bool) -> Pass | None:
    """The pass with the caller's options; None to leave it out."""
    if isinstance(step, Widen):
        return Widen(rounding=rounding)
    if isinstance(step, LoopBodies):
        return LoopBodies(variants=rounding == "graph" or fast_math, fast_math=fast_math)
    if isinstance(step, Variants):  # NumPy's bits after every operator leave no room for a cheaper one
        return None if rounding == "each-op" and not fast_math else Variants(fast_math=fast_math)
    return step


def observe(graph: Graph, by: str, options: Settings | None = None) -> None:
    """Verify and dump a graph as the settings say; InternalError names the pass that broke it."""
    options = options or settings()
    if dumps.wanted(options):
        from fuser.text import print_graph

        dumps.write(graph.name, by, print_graph(graph), options=options)
    if options.debug >= 1:
        from fuser.verify import verify

        findings = verify(graph)
        if findings:
            message = f"the graph after `{by}` is not sound"
            raise InternalError(message, "unsound-graph", notes=findings[:20])
