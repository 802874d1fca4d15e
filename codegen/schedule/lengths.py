"""Buckets of reduced lengths: the one number of a size class that reduction orders depend on.

In: a graph, a length, a size class. Out: the power-of-two bucket of the length itself (a product of dims has another
bucket than the product of their buckets, so the size class lists lengths beside dims).
"""

from __future__ import annotations

from functools import lru_cache

from fuser.graph import Graph, ReduceAttrs
from fuser.hostexpr import HostExpr, lit
from fuser.keys import SizeClass
from fuser.order import bucket
from fuser.shapes import numel


def length_bucket(graph: Graph, size_class: SizeClass, length: HostExpr) -> int:
    """The bucket of a reduced length; of the representative's length where the size class does not list it (scans)."""
    known = dict(zip(_lengths(graph), size_class.lengths, strict=True)) if size_class.lengths else {}
    return known[length] if length in known else bucket(int(length.evaluate(size_class.representative)))


@lru_cache(maxsize=8)
def _lengths(graph: Graph) -> tuple[HostExpr, ...]:
    """Distinct reduced lengths in program order: what `SizeClass.lengths` lists."""
    found: dict[HostExpr, None] = {}
    for n in graph.nodes:
        if isinstance(n.attrs, ReduceAttrs):
            found[lit(1) * numel(n.inputs[0].shape[a] for a in n.attrs.axes)] = None
    return tuple(found)
