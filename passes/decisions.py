"""Decisions of a plan: one for every operand between two operators, every pair of siblings, every view.

In: the finished partition and what the search considered. Out: `Decision`s by node id: what was fused and how, what
stayed apart and why, with the numbers the verdict rested on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fuser.decision import Decision
from fuser.graph import OpaqueAttrs
from fuser.passes.clusters import Partition
from fuser.passes.facts import Facts, Read, is_reduction
from fuser.passes.reasons import PASSING, lasting, pair_of
from fuser.passes.repair import Unit
from fuser.passes.search import Considered, Search


def record(facts: Facts, search: Search) -> tuple[Decision, ...]:
    """All decisions of a search that is done, operands first in program order, then siblings, then views."""
    partition, told = search.partition, _Told(search)
    operands = [
        _operand(facts, partition, r, told) for k in facts.cores for r in facts.reads[k] if r.source in partition.of
    ]
    siblings = [_sibling(partition, c, told) for c in told.exact.values() if c.kind == "sibling"]
    views = [
        Decision("view", n.inputs[0].id, n.id, "fused", "view")
        for n in facts.graph.nodes
        if n.op == "view" and facts.is_free(n)
    ]
    return (*operands, *siblings, *views)


class _Told:
    """What was found of two cores: of themselves (`exact`), else of their clusters; what held for a while only is
    replaced by what holds now.
    """

    def __init__(self, search: Search) -> None:
        self.partition = search.partition
        self.exact = {(c.a, c.b): c for c in search.considered}
        self.last = {pair_of(self.partition, c.a, c.b): c for c in search.considered}
        self.lasting = lasting(search)

    def apart(self, a: int, b: int) -> Considered | None:
        """The refusal that keeps two cores apart."""
        pair = pair_of(self.partition, a, b)
        for found in (self.exact.get((a, b)), self.last.get(pair)):
            if found is not None and found.reason and found.reason not in PASSING:
                return found
        return self.lasting.get(pair) or self.exact.get((a, b)) or self.last.get(pair)


def _operand(facts: Facts, partition: Partition, read: Read, told: _Told) -> Decision:
    a, b = read.source, read.consumer
    numbers = {"saves_bytes": read.nbytes}
    if partition.of[a] == partition.of[b]:
        seen = told.exact.get((a, b))
        known = {**numbers, **(seen.numbers if seen else {})}
        reason = "marked" if known.pop("marked", 0) else _why_fused(facts, read)
        return Decision("vertical", a, b, "fused", reason, known)
    library = any(isinstance(facts.nodes[k].attrs, OpaqueAttrs) for k in (a, b))
    found = told.apart(a, b)
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


def _sibling(partition: Partition, c: Considered, told: _Told) -> Decision:
    if partition.of[c.a] == partition.of[c.b]:
        return Decision("sibling", c.a, c.b, "fused", "siblings", c.numbers)
    found = told.apart(c.a, c.b) or c
    return Decision("sibling", c.a, c.b, "apart", found.reason or "budget", found.numbers)


def settled(found: Iterable[Decision], units: Iterable[Unit]) -> tuple[Decision, ...]:
    """Decisions as they stand after repairs and batching.

    A value that a kernel computes for itself again is not apart from its reader there; what that copy reads of the
    kernel it was copied from is apart now, for the reason that the value was, and so are two readers of it. Readers
    of one value that share a launch after all have their batch's decision.
    """
    homes: dict[int, set[int]] = {}
    for u in units:
        for k in u.cores:
            homes.setdefault(k, set()).add(u.id)
    listed = list(found)
    why: dict[int, Decision] = {}  # of every kernel that computes a value again: what had kept the value away
    for d in listed:
        shared = homes.get(d.producer, set()) & homes.get(d.consumer, set())
        if d.kind == "vertical" and d.verdict == "apart":
            why.update((k, d) for k in shared)
    out = []
    for d in listed:
        one, other = homes.get(d.producer, set()), homes.get(d.consumer, set())
        together = bool(one & other)
        if d.kind == "vertical" and d.verdict == "apart" and together:
            out.append(replace(d, verdict="fused", reason="recompute"))
            out += _beside(d, listed, homes)
        elif d.kind == "vertical" and d.verdict == "fused" and one and not together and other & why.keys():
            cause = next(why[k] for k in sorted(other) if k in why)
            saves = {"saves_bytes": d.numbers.get("saves_bytes", 0)}
            out.append(replace(d, verdict="apart", reason=cause.reason, numbers={**cause.numbers, **saves}))
        elif d.kind != "sibling" or d.verdict == "fused" or not together:
            out.append(d)
    return tuple(out)


def _beside(d: Decision, listed: Iterable[Decision], homes: Mapping[int, set[int]]) -> list[Decision]:
    """The reader of a copied value, and one that reads it elsewhere: apart for the reason that the value was."""
    mine = homes.get(d.consumer, set())
    others = (e.consumer for e in listed if (e.kind, e.producer) == ("vertical", d.producer))
    other = next((k for k in others if homes.get(k) and not homes[k] & mine), None)
    return [] if other is None else [Decision("sibling", other, d.consumer, "apart", d.reason, d.numbers)]
