"""Whether two traces of one function are the same program.

In: two graphs. Out: nothing, or a TraceError that names the first line where they differ: a function that draws
random numbers, reads a clock or counts its calls would repeat its first draw for ever once compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import Span, TraceError
from fuser.graph import Graph, Node
from fuser.trees import HostLeaf, OutputTree, StaticLeaf

ADVICE = "random numbers: fuser.ops.uniform(key, shape); state, clocks: pass the value as an argument"


def compare(first: Graph, second: Graph) -> None:
    """Raise TraceError [impure] unless the graphs are equal node by node, constants included."""
    for a, b in zip(first.nodes, second.nodes, strict=False):
        same = (a.op, a.attrs, a.dtype, a.shape) == (b.op, b.attrs, b.dtype, b.shape)
        if not same or [i.id for i in a.inputs] != [i.id for i in b.inputs]:
            raise _impure(first, a)
    if len(first.nodes) != len(second.nodes):
        longer = max(first, second, key=lambda g: len(g.nodes))
        raise _impure(longer, longer.nodes[min(len(first.nodes), len(second.nodes))])
    for k, (p, q) in enumerate(zip(_constants(first), _constants(second), strict=True)):
        if p is not q and not _equal(p, q):
            raise _impure(first, _reader(first, k))
    if [_leaf(x) for x in _leaves(first)] != [_leaf(x) for x in _leaves(second)]:
        raise _impure(first, None)


def _constants(graph: Graph) -> list[Any]:
    tree = graph.output_tree
    return [get() for get in tree.captured] if isinstance(tree, OutputTree) else []


def _equal(p: Any, q: Any) -> bool:
    same = p.shape == q.shape and p.dtype == q.dtype
    return same and np.ascontiguousarray(p).tobytes() == np.ascontiguousarray(q).tobytes()


def _reader(graph: Graph, k: int) -> Node | None:
    """A node that reads hidden input number k."""
    position = [i for i, a in enumerate(graph.arguments) if a.captured][k]
    node = graph.inputs.get(position)
    return graph.users[node][0] if node is not None and graph.users[node] else node


def _leaves(graph: Graph) -> tuple[Any, ...]:
    return graph.output_tree.leaves if isinstance(graph.output_tree, OutputTree) else ()


def _leaf(leaf: Any) -> Any:
    """A returned value in a form that compares; objects that do not compare by value are left out."""
    if isinstance(leaf, HostLeaf):
        return leaf.expr
    if isinstance(leaf, StaticLeaf):
        plain = isinstance(leaf.value, (bool, int, float, str, type(None)))
        return (type(leaf.value).__name__, repr(leaf.value) if plain else None)
    return leaf


def _impure(graph: Graph, node: Node | None) -> TraceError:
    spans: tuple[Span, ...] = graph.spans.get(node, ())[:1] if node is not None else ()
    message = f"`{graph.name}` traced twice gives two programs: it would not do at each call what it did at first"
    return TraceError(message, "impure", spans, (ADVICE,))
