"""Decisions of a plan: one for every operand between two operators, every pair of siblings, every view.

In: the finished partition and what the search considered. Out: `Decision`s by node id: what was fused and how, what
stayed apart and why, with the numbers the verdict rested on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.decision import Decision
from fuser.graph import OpaqueAttrs
from fuser.passes.clusters import Partition
from fuser.passes.facts import Facts, Read, is_reduction
from fuser.passes.search import Considered


def record(facts: Facts, partition: Partition, considered: Iterable[Considered]) -> tuple[Decision, ...]:
    """All decisions, operands first in program order, then siblings, then views."""
    last: dict[tuple[int, int], Considered] = {}
    exact: dict[tuple[int, int], Considered] = {}
    for c in considered:
        exact[c.a, c.b] = c
        last[_pair(partition, c.a, c.b)] = c
    operands = [
        _operand(facts, partition, r, exact, last)
        for k in facts.cores
        for r in facts.reads[k]
        if r.source in partition.of
    ]
    siblings = [_sibling(partition, c) for c in exact.values() if c.kind == "sibling"]
    views = [
        Decision("view", n.inputs[0].id, n.id, "fused", "view")
        for n in facts.graph.nodes
        if n.op == "view" and facts.is_free(n)
    ]
    return (*operands, *siblings, *views)


def _pair(partition: Partition, a: int, b: int) -> tuple[int, int]:
    one, other = partition.of[a], partition.of[b]
    return (min(one, other), max(one, other))


def _operand(
    facts: Facts,
    partition: Partition,
    read: Read,
    exact: Mapping[tuple[int, int], Considered],
    last: Mapping[tuple[int, int], Considered],
) -> Decision:
    a, b = read.source, read.consumer
    numbers = {"saves_bytes": read.nbytes}
    if partition.of[a] == partition.of[b]:
        seen = exact.get((a, b))
        return Decision(
            "vertical", a, b, "fused", _why_fused(facts, read), {**numbers, **(seen.numbers if seen else {})}
        )
    library = any(isinstance(facts.nodes[k].attrs, OpaqueAttrs) for k in (a, b))
    found = exact.get((a, b)) or last.get(_pair(partition, a, b))
    if found is None or not found.reason:
        found = last.get(_pair(partition, a, b))
    reason = "library" if library else (found.reason if found and found.reason else "budget")
    return Decision(
        "library" if library else "vertical", a, b, "apart", reason, {**numbers, **(found.numbers if found else {})}
    )


def _why_fused(facts: Facts, read: Read) -> str:
    source, consumer = facts.nodes[read.source], facts.nodes[read.consumer]
    if is_reduction(source):
        return "epilogue" if read.direct else "row-kept"
    if is_reduction(consumer):
        return "reduction-input"
    return "elementwise" if read.direct else "view"


def _sibling(partition: Partition, c: Considered) -> Decision:
    together = partition.of[c.a] == partition.of[c.b]
    reason = "siblings" if together else c.reason or "budget"
    return Decision("sibling", c.a, c.b, "fused" if together else "apart", reason, c.numbers)
