"""The search: from one operator a kernel, take the merge that saves most bytes, again and again.

In: a partition. Out: the same partition, merged; and why each pair of clusters that was looked at stayed apart.
A candidate is a producer and its consumer, or two readers of the same data. Candidates wait in a priority
queue keyed by bytes saved, then by structural hash, so the result does not depend on the order in which nodes
were made. An entry is scored again when it comes out and its clusters have changed; each operand and each
pair of neighbours in a list of readers enters once, so the work is near-linear in the size of the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Set
from itertools import pairwise
from typing import Literal

from fuser.hostexpr import HostExpr
from fuser.passes import cost, margins, registers
from fuser.passes.clusters import Cluster, Partition
from fuser.passes.facts import is_reduction
from fuser.passes.legality import Formed, Refusal, examine
from fuser.passes.limits import Limits
from fuser.passes.place import split_axes
from fuser.record import dataclass

RETRIES = 6  # times a pair that was refused for its surroundings is looked at again
RETRIED = ("cycle", "budget", "space")  # refusals that a merge with a third cluster can lift
FIRST = 1 << 62  # bytes that a marked pair counts for: more than any saving
LIVE_CHECK = 48  # registers alive (as a bound) above which they are counted exactly

PairKind = Literal["vertical", "sibling"]
Numbers = dict[str, "float | int | str"]


@dataclass(eq=False, slots=True)
class Candidate:
    """A pair of cores whose clusters might merge, as last scored: bytes saved at these versions of the clusters."""

    a: int
    b: int
    kind: PairKind
    saved: int = 0
    versions: tuple[int, int] = (0, 0)
    tries: int = 0


# Bytes saved (negated: most first), the lower and higher hash of the pair, its kind, a serial number.
Rank = tuple[int, int, int, str, int]


@dataclass(frozen=True)
class Considered:
    """The last verdict about two clusters, by a core of each; reason is empty when they merged."""

    a: int
    b: int
    kind: PairKind
    reason: str
    numbers: Numbers


@dataclass(frozen=True)
class Wishes:
    """What is asked of the search beside its own judgement.

    always: merge whatever is legal. apart: pairs of cores that must not share a kernel. together: pairs that must,
    whether or not that pays.
    """

    always: bool = False
    apart: frozenset[tuple[int, int]] = frozenset()
    together: frozenset[tuple[int, int]] = frozenset()

    def keep_apart(self, one: Set[int], other: Set[int]) -> bool:
        """Whether a pair that must stay apart would come together."""
        return _joins(self.apart, one, other)

    def insist(self, one: Set[int], other: Set[int]) -> bool:
        """Whether a pair that must share a kernel comes together."""
        return self.always or _joins(self.together, one, other)


def _joins(pairs: Iterable[tuple[int, int]], one: Set[int], other: Set[int]) -> bool:
    return any((x in one and y in other) or (y in one and x in other) for x, y in pairs)


class Search:
    """One run of the search on a partition."""

    def __init__(self, partition: Partition, limits: Limits, wishes: Wishes) -> None:
        self.wishes = wishes
        self.partition, self.facts, self.device, self.limits = partition, partition.facts, limits.device, limits
        self.heap: list[tuple[Rank, Candidate]] = []
        self.serial = 0
        self.waiting: dict[int, list[Candidate]] = {}
        self.settled: dict[tuple[int, int], tuple[int, int]] = {}
        self.considered: list[Considered] = []

    def run(self) -> None:
        """Merge until no candidate is left."""
        producers = dict.fromkeys(self._producers())
        siblings = (pair for pair in self._siblings() if pair not in producers and pair[::-1] not in producers)
        marked = [pair for pair in self.wishes.together if pair not in producers and pair[::-1] not in producers]
        kinds: tuple[tuple[PairKind, Iterable[tuple[int, int]]], ...] = (
            ("vertical", producers), ("sibling", dict.fromkeys((*marked, *siblings))),
        )  # fmt: skip
        for kind, pairs in kinds:
            for a, b in pairs:
                self._push(Candidate(a, b, kind))
        while self.heap:
            self._step(heapq.heappop(self.heap)[1])

    # -- candidates --------------------------------------------------------------------------------
    def _producers(self) -> Iterator[tuple[int, int]]:
        for k in self.facts.cores:
            for r in self.facts.reads[k]:
                if r.source in self.partition.of and self.partition.of[r.source] != self.partition.of[k]:
                    yield r.source, k

    def _siblings(self) -> Iterator[tuple[int, int]]:
        """Readers of one value: neighbours in hash order within each kind of space, and the kinds' first ones."""
        for readers in self.facts.readers.values():
            kinds: dict[object, list[int]] = {}
            for k in sorted(set(readers), key=self.facts.digests.__getitem__):
                kinds.setdefault(self._space_kind(k), []).append(k)
            chains = [*kinds.values(), [members[0] for _, members in sorted(kinds.items(), key=lambda i: str(i[0]))]]
            for chain in chains:
                yield from pairwise(chain)

    def _space_kind(self, core: int) -> object:
        node = self.facts.nodes[core]
        if not is_reduction(node):
            return ("pointwise", node.shape)
        kept, folded = split_axes(node)
        shape = node.inputs[0].shape
        return ("fold", tuple(shape[k] for k in kept), tuple(shape[k] for k in folded), len(shape) - 1 in folded)

    def _push(self, c: Candidate) -> None:
        a, b = self.partition.cluster(c.a), self.partition.cluster(c.b)
        if a is b:
            return
        low, high = sorted((self.facts.digests[c.a], self.facts.digests[c.b]))
        c.saved = self.partition.saved(*self._in_order(a, b))
        c.versions = (a.version, b.version)
        self.serial += 1
        first = FIRST if {(c.a, c.b), (c.b, c.a)} & self.wishes.together else 0
        heapq.heappush(self.heap, ((-c.saved - first, low, high, c.kind, self.serial), c))

    @staticmethod
    def _in_order(a: Cluster, b: Cluster) -> tuple[Cluster, Cluster]:
        return (a, b) if a.position < b.position else (b, a)

    # -- one candidate -----------------------------------------------------------------------------
    def _step(self, c: Candidate) -> None:
        a, b = self.partition.cluster(c.a), self.partition.cluster(c.b)
        if a is b:
            return
        key, versions = (
            (min(a.id, b.id), max(a.id, b.id)),
            (a.version, b.version) if a.id < b.id else (b.version, a.version),
        )
        if self.settled.get(key) == versions:
            return
        if c.versions != (a.version, b.version):
            self._push(c)
            return
        self.settled[key] = versions
        a, b = self._in_order(a, b)
        verdict = self.judge(a, b, c.saved)
        if isinstance(verdict, Refusal):
            self.considered.append(Considered(c.a, c.b, c.kind, verdict.reason, dict(verdict.numbers)))
            if verdict.reason in RETRIED and c.tries < RETRIES:
                c.tries += 1
                self.waiting.setdefault(a.id, []).append(c)
                self.waiting.setdefault(b.id, []).append(c)
            return
        self.considered.append(Considered(c.a, c.b, c.kind, "", verdict.numbers))
        self._merge(a, b, verdict)

    def _merge(self, a: Cluster, b: Cluster, verdict: Merge) -> None:
        merged = self.partition.merge(a, b, verdict.after, verdict.before)
        merged.kind = "scan" if "scan" in (a.kind, b.kind) else "fused"
        merged.plain, merged.formed = verdict.plain, verdict.formed
        merged.live, merged.time = verdict.live, verdict.time
        for k in (a.id, b.id):
            for c in self.waiting.pop(k, ()):
                self._push(c)

    def judge(self, a: Cluster, b: Cluster, saved: int, alone: bool = False) -> Merge | Refusal:
        """Whether `a` (the earlier) and `b`, which save so many bytes, become one kernel: cheap refusals first.

        alone: as if no third cluster lay between them.
        """
        numbers: Numbers = {"saves_bytes": saved, "saves_launches": 1}
        refusal = self._limits(a, b)
        if refusal is not None:
            return Refusal(refusal.reason, numbers={**numbers, **refusal.numbers})
        path, after, before = ("none", [], []) if alone else self.partition.path(a, b)
        if path != "none":
            return Refusal(path, numbers=numbers)
        return self._form(a, b, numbers, after, before)

    def _form(self, a: Cluster, b: Cluster, numbers: Numbers, after: list[int], before: list[int]) -> Merge | Refusal:
        """The two as one kernel, if registers, legality and cost let them."""
        flows = self.partition.flows(a, b)
        stored = self.partition.stored(a.cores, flows, b) | self.partition.stored(b.cores)
        live = self._live(a, b, flows, stored)
        needs, refusal = self.limits.registers(live, {*a.inputs, *b.inputs})
        insisted = self.wishes.insist(a.cores, b.cores)
        if refusal is not None and not insisted:
            return Refusal("registers", numbers={**numbers, **refusal.numbers})
        numbers["registers"] = needs
        if a.plain is not None and a.plain == b.plain and self._direct(a, b, flows):
            return Merge(after, before, numbers, live, plain=a.plain)
        formed = examine(self.facts, a.cores | b.cores, stored)
        if isinstance(formed, Refusal):
            return Refusal(formed.reason, formed.node, {**numbers, **formed.numbers})
        together = cost.group_load(self.facts, formed, self._inputs(a, b, flows), stored, self.device)
        before_us = self._time(a) + self._time(b)
        after_us = together.time_us(self.device)
        numbers |= {"us_apart": round(before_us, 2), "us_together": round(after_us, 2)}
        if after_us > before_us and insisted:
            numbers["marked"] = 1
        elif after_us > before_us:
            if together.share == 1:
                return Refusal("cost", numbers=numbers)
            space = formed.group.space
            if formed.group.across:
                numbers["strips"] = margins.strips(self.facts, formed.group)
                return Refusal("strips", numbers=numbers)
            numbers["rows" if space.inner else "columns"] = self.facts.count(space.parallel)
            numbers["awaits"] = next(r.node for stage in formed.group.stages[0] for r in stage.reducers)
            return Refusal("barrier", numbers=numbers)
        return Merge(after, before, numbers, live, formed=formed, time=after_us)

    def _limits(self, a: Cluster, b: Cluster) -> Refusal | None:
        if "library" in (a.kind, b.kind):
            return Refusal("library")
        if self.wishes.keep_apart(a.cores, b.cores):
            return Refusal("marked")
        scans = [c.kind == "scan" for c in (a, b)]
        if all(scans) or (any(scans) and all(c.kind == "scan" or c.plain is None for c in (a, b))):
            return Refusal("scan")
        return self.limits.members(len(a.cores) + len(b.cores)) or self._arguments(a, b)

    def _arguments(self, a: Cluster, b: Cluster) -> Refusal | None:
        inputs = a.inputs.keys() | b.inputs.keys()
        inputs = {k for k in inputs if self.partition.of.get(k) not in (a.id, b.id)}
        outputs = self.partition.stored(a.cores, self.partition.flows(a, b), b) | self.partition.stored(b.cores)
        return self.limits.arguments(inputs, len(outputs), a.scalars | b.scalars)

    def _live(self, a: Cluster, b: Cluster, flows: list[int], stored: set[int]) -> int:
        bound = a.live + b.live + len(flows)
        if bound <= LIVE_CHECK or self.device.kind == "cpu":
            return bound
        cores = a.cores | b.cores
        return registers.peak(self.facts, cores, stored) + registers.accumulators(self.facts, cores)

    def _direct(self, a: Cluster, b: Cluster, flows: list[int]) -> bool:
        """Whether every value that flows is read at the reader's own index."""
        wanted = set(flows)
        if not wanted:
            return True
        if len(b.cores) < sum(len(self.facts.readers[v]) for v in flows):
            return all(r.direct for k in b.cores for r in self.facts.reads[k] if r.source in wanted)
        readers = {k for v in flows for k in self.facts.readers[v] if k in b.cores}
        return all(r.direct for k in readers for r in self.facts.reads[k] if r.source in wanted)

    def _inputs(self, a: Cluster, b: Cluster, flows: list[int]) -> dict[int, int]:
        gone = set(flows)
        inputs = dict(a.inputs)
        for v, size in b.inputs.items():
            if v not in gone:
                inputs[v] = max(size, inputs.get(v, 0))
        return inputs

    def _time(self, c: Cluster) -> float:
        """Predicted time of a cluster as it stands."""
        if c.time is None:
            stored = self.partition.stored(c.cores)
            if c.plain is not None:
                load = cost.plain_load(self.facts, c.cores, c.inputs, stored, self.device)
            else:
                formed = self.formed(c)
                load = cost.group_load(self.facts, formed, c.inputs, stored, self.device)
            c.time = load.time_us(self.device)
        return c.time

    def formed(self, c: Cluster) -> Formed:
        """The exact form of a cluster; it exists, because no merge is made without one."""
        if c.formed is None:
            found = examine(self.facts, c.cores, self.partition.stored(c.cores))
            assert not isinstance(found, Refusal), (found, sorted(c.cores))
            c.formed = found
        return c.formed


@dataclass(frozen=True)
class Merge:
    """A merge that is legal and pays: what `path` found, numbers, and what is known of the result."""

    after: list[int]
    before: list[int]
    numbers: Numbers
    live: int
    plain: tuple[int | HostExpr, ...] | None = None
    formed: Formed | None = None
    time: float | None = None
