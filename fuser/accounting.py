"""Bytes, launches and floors of a plan: what moves through memory, fused and unfused.

In: a graph, its groups, dims. Out: byte counts. Rules: a kernel reads each distinct input once and writes each
stored output once; an operator run alone reads its operands and writes its result; views are free; a broadcast
operand counts at its own size; a gathered operand counts at the size of what is gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from fuser import shapes
from fuser.graph import Graph, InputAttrs, Node, ScalarAttrs, ViewAttrs
from fuser.group import Group
from fuser.runtime.arena import Life, place

# Operators that are no kernel of their own.
FREE = frozenset({"input", "scalar", "iota", "view", "item", "round", "real", "imag"})


def elements(node: Node, env: Mapping[str, Any]) -> int:
    """Number of elements of a node's value."""
    return prod(shapes.evaluate(node.shape, env))


def nbytes(node: Node, env: Mapping[str, Any]) -> int:
    """Bytes of a node's value in memory."""
    return elements(node, env) * node.storage.bytes


def materialised(node: Node) -> Node:
    """The node whose memory an unfused operator would read for this operand: through views, items, rounds, parts of
    complex values and the widening of stored half-precision values."""
    while node.op in ("view", "item", "round", "real", "imag") or _widens(node):
        node = node.inputs[0]
    return node


def _widens(node: Node) -> bool:
    """A cast that only brings a stored half-precision value to the dtype it is computed in."""
    return node.op == "cast" and node.inputs[0].op in ("round", "input", "view") and node.inputs[0].storage.is_half


def operands(node: Node, env: Mapping[str, Any]) -> Iterator[tuple[Node, int, bool]]:
    """(memory, bytes, read at its own index) of each distinct array that an operator run alone would read.

    Each counts once, at the smaller of view and source; scalars and indices are free.
    """
    sizes: dict[Node, tuple[int, bool]] = {}
    for n in node.inputs:
        source = materialised(n)
        if _is_host(source) or source.op == "iota":
            continue
        size = min(elements(n, env), elements(source, env)) * source.storage.bytes
        before, direct = sizes.get(source, (0, True))
        sizes[source] = (max(before, size), direct and _unmoved(n))
    for source, (size, direct) in sizes.items():
        yield source, size, direct


def _unmoved(node: Node) -> bool:
    """Whether an operand is read at its reader's own index: through broadcasts and axes of length 1 at most."""
    while node is not materialised(node):
        if isinstance(node.attrs, ViewAttrs):
            used = [e.value for e in node.attrs.map.exprs if e.op == "sym"]
            constant = all(e.op in ("sym", "lit") for e in node.attrs.map.exprs)
            if len(node.inputs) > 1 or not constant or used != sorted(set(used), key=lambda s: int(s[1:])):
                return False
        node = node.inputs[0]
    return True


def group_reads(graph: Graph, group: Group, env: Mapping[str, Any]) -> dict[int, int]:
    """Bytes that a group reads of each of its inputs, by node id."""
    members = set(group.members)
    reads: dict[int, int] = {}
    for k in group.inputs:
        source = graph.by_id[k]
        wanted = 0
        for u in graph.users[source]:
            if u.id in members:
                wanted = max(wanted, nbytes(u, env) if u.op in ("view", "piecewise") else nbytes(source, env))
        reads[k] = min(wanted, nbytes(source, env))
    return reads


def group_writes(graph: Graph, group: Group, env: Mapping[str, Any]) -> dict[int, int]:
    """Bytes that a group writes of each of its outputs, by node id."""
    return {k: nbytes(graph.by_id[k], env) for k in group.outputs}


def is_operator(node: Node) -> bool:
    """Whether a node counts as an operator (the widening and rounding of half precision is part of its operator)."""
    return node.op not in FREE and not _widens(node) and not (node.op == "cast" and node.inputs[0].op == "round")


def is_launched(node: Node) -> bool:
    """Whether a node is a kernel when nothing is fused: an operator on arrays rather than on the call's scalars."""
    return is_operator(node) and not all(_is_host(i) for i in node.inputs)


def unfused(graph: Graph, env: Mapping[str, Any]) -> tuple[int, int]:
    """(kernels, bytes) when every operator runs alone, complex ones as the program has them."""
    graph = graph.whole or graph
    operators = [n for n in graph.nodes if is_launched(n)]
    moved = sum(sum(size for _, size, _ in operands(n, env)) + nbytes(n, env) for n in operators)
    return len(operators), moved


def _is_host(node: Node) -> bool:
    node = materialised(node)
    return isinstance(node.attrs, ScalarAttrs) or (node.op == "complex" and all(map(_is_host, node.inputs)))


def floor(graph: Graph, env: Mapping[str, Any]) -> int:
    """Fewest bytes any plan moves: every argument read once, every result written once."""
    read = sum(nbytes(n, env) for n in graph.inputs.values())
    results = dict.fromkeys(n for n in graph.results if not isinstance(n.attrs, InputAttrs))
    return read + sum(nbytes(n, env) for n in results)


def temporaries(graph: Graph, groups: Sequence[Group], env: Mapping[str, Any]) -> int:
    """Peak bytes of values that live between kernels only, laid out in one block as calls do it."""
    kept = {n.id for n in graph.outputs} | {n.id for n in graph.inputs.values()}
    kept |= {node_id for g in groups for node_id, _ in g.in_place}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, group in enumerate(groups):
        for k in (*group.inputs, *group.outputs):
            if k not in kept:
                first.setdefault(k, at)
                last[k] = at
    for effect in graph.effects:  # copied into their arguments after the last kernel
        if effect.node.id in first:
            last[effect.node.id] = len(groups)
    return place([Life(nbytes(graph.by_id[k], env), first[k], last[k]) for k in first])[1]
