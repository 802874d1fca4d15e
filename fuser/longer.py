"""Calls some of whose axes have length 1, under the traces of longer axes: a batch of one takes no kernel of its own.

In: a bound call whose lone axes of length 1 are symbols, the traces kept under its key. Out: the trace that serves it;
None where the program means something else for those lengths, which then take a trace in which they are static. Its own
file because nothing else takes a dim of 1 for any other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from fuser import shapes
from fuser.errors import FuserError
from fuser.graph import Graph, OpaqueAttrs, ReduceAttrs, ScanAttrs
from fuser.hostexpr import wrap
from fuser.traces import Traced

if TYPE_CHECKING:
    from fuser.arguments import Bound


Trace = Callable[["Bound", Mapping[str, int]], Traced]  # makes the trace of a call, with some dims static


class Longer:
    """Finds traces, and remembers what takes a trace of its own."""

    def __init__(self) -> None:
        self.apart: set[Hashable] = set()

    def find(self, bound: Bound, key: Hashable, kept: list[Traced], trace: Trace) -> Traced | None:
        """The trace for a call, added to those kept where it is new."""
        for traced in kept:
            if traced.fits(bound.env) and not folded(traced.graph, bound.lone):
                return traced
        known = key, bound.lone
        if known in self.apart:
            return None
        try:
            made = _traced(bound, trace)
        except FuserError:
            made = None  # whether it is an error for this length, the other trace says
        if made is None:
            self.apart.add(known)
        else:
            kept.append(made)
        return made


def _traced(bound: Bound, trace: Trace) -> Traced | None:
    """The trace of longer axes, if it holds for this call. Dims that something is folded along are static all the
    same: one element has no order, and is no fold."""
    static = dict[str, int]()
    while True:
        traced = trace(bound, static)
        more = folded(traced.graph, bound.lone)
        if not more:
            return traced if traced.fits(bound.env) and _plain(traced.graph) else None
        static |= dict.fromkeys(more, 1)


def folded(graph: Graph, lone: frozenset[str]) -> frozenset[str]:
    """The dims of length 1 along which, and along nothing longer, something is reduced or scanned."""
    found = set[str]()
    for node in graph.nodes:
        if isinstance(node.attrs, (ReduceAttrs, ScanAttrs)):
            axes = node.attrs.axes if isinstance(node.attrs, ReduceAttrs) else (node.attrs.axis,)
            symbols = wrap(shapes.numel(node.inputs[0].shape[a] for a in axes)).symbols
            found |= symbols if symbols <= lone else set()
    return frozenset(found)


def _plain(graph: Graph) -> bool:
    """Whether a graph writes no argument and leaves nothing to a library."""
    return not graph.effects and not any(isinstance(n.attrs, OpaqueAttrs) for n in graph.nodes)
