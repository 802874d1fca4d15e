"""Bytes, launches and floors of a plan: what moves through memory, fused and unfused.

In: a graph, its groups, dims. Out: byte counts. Rules: a kernel reads each distinct input once and writes each
stored output once; an operator run alone reads its operands and writes its result; views are free; a broadcast
operand counts at its own size; a gathered operand counts at the size of what is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fuser import shapes
from fuser.graph import Graph, InputAttrs, Node, ScalarAttrs
from fuser.group import Group

FREE = frozenset({"input", "scalar", "iota", "view", "item", "round"})  # operators that are no kernel of their own


def nbytes(node: Node, env: Mapping[str, Any]) -> int:
    """Bytes of a node's value in memory."""
    count = 1
    for d in shapes.evaluate(node.shape, env):
        count *= d
    return count * node.storage.bytes


def materialised(node: Node) -> Node:
    """The node whose memory an unfused operator would read for this operand: through views, items and rounds."""
    while node.op in ("view", "item", "round"):
        node = node.inputs[0]
    return node


def read_bytes(operands: Iterable[Node], env: Mapping[str, Any]) -> int:
    """Bytes to read operands once each: the smaller of view and source, scalars free."""
    sizes: dict[Node, int] = {}
    for n in operands:
        source = materialised(n)
        if isinstance(source.attrs, ScalarAttrs) or source.op == "iota":
            continue
        size = min(nbytes(n, env), nbytes(source, env)) if n is not source else nbytes(n, env)
        sizes[source] = max(sizes.get(source, 0), size)
    return sum(sizes.values())


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
    """Whether a node counts as a kernel when nothing is fused (casts of a stored half are part of their operator)."""
    return node.op not in FREE and not (node.op == "cast" and node.inputs[0].op in ("round", "input"))


def unfused(graph: Graph, env: Mapping[str, Any]) -> tuple[int, int]:
    """(kernels, bytes) when every operator runs alone."""
    operators = [n for n in graph.nodes if is_operator(n) and not all(_is_host(i) for i in n.inputs)]
    moved = sum(read_bytes(n.inputs, env) + nbytes(n, env) for n in operators)
    return len(operators), moved


def _is_host(node: Node) -> bool:
    return isinstance(materialised(node).attrs, ScalarAttrs)


def floor(graph: Graph, env: Mapping[str, Any]) -> int:
    """Fewest bytes any plan moves: every argument read once, every result written once."""
    read = sum(nbytes(n, env) for n in graph.inputs.values())
    results = dict.fromkeys(n for n in graph.results if not isinstance(n.attrs, InputAttrs))
    return read + sum(nbytes(n, env) for n in results)
