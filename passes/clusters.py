"""The partition that the search works on: clusters of cores, who reads whom, and a topological order kept up to date.

In: facts of a graph, one cluster a core at first. Out: merges that never make a cycle. Positions are kept as Pearce and
Kelly keep them: a merge moves only clusters between the two merged ones that depend on the first or feed the second,
and looks at no more than `budget` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal

from fuser.graph import ItemAttrs, OpaqueAttrs, ScanAttrs
from fuser.passes.facts import Facts, is_reduction
from fuser.passes.legality import Formed
from fuser.passes.place import full_shape
from fuser.record import dataclass
from fuser.shapes import Shape

ClusterKind = Literal["fused", "scan", "library"]
Path = Literal["none", "cycle", "budget"]


@dataclass(eq=False)
class Cluster:
    """One kernel to be, while it grows.

    inputs: bytes read of each value made elsewhere. uses: how many members read it. plain: the one shape of all
    members when every member is elementwise and reads other members at its own index (then it is legal as it is).
    live: upper bound of values alive at once. formed: its exact form, where it has been worked out.
    """

    id: int
    cores: set[int]
    inputs: dict[int, int]
    uses: dict[int, int]
    kind: ClusterKind = "fused"
    plain: Shape | None = None
    position: int = 0
    digest: int = 0
    live: int = 1
    version: int = 0
    scalars: set[int] = field(default_factory=set)
    preds: set[int] = field(default_factory=set)
    succs: set[int] = field(default_factory=set)
    formed: Formed | None = None
    time: float | None = None


class Partition:
    """Clusters by id; `of` tells the cluster of a core."""

    def __init__(self, facts: Facts, budget: int) -> None:
        self.facts, self.budget = facts, budget
        self.clusters: dict[int, Cluster] = {}
        self.of: dict[int, int] = {}
        self.outside: dict[int, int] = {}  # of every core: readers in other clusters
        for k in facts.cores:
            if not isinstance(facts.nodes[k].attrs, ItemAttrs):
                self._start(k)
        for k in facts.cores:
            node = facts.nodes[k]
            if isinstance(node.attrs, ItemAttrs):  # further results live and die with their reduction
                home = self.clusters[self.of[node.inputs[0].id]]
                home.cores.add(k)
                self.of[k] = home.id
        self._connect()

    def _start(self, core: int) -> None:
        facts, node = self.facts, self.facts.nodes[core]
        reads = facts.reads[core]
        one = Cluster(core, {core}, {r.source: r.nbytes for r in reads}, {r.source: 1 for r in reads})
        if isinstance(node.attrs, OpaqueAttrs):
            one.kind = "library"
        elif isinstance(node.attrs, ScanAttrs):
            one.kind = "scan"
        elif not is_reduction(node):
            one.plain = full_shape(node.shape)
        one.digest = facts.digests[core]
        one.scalars = set(facts.scalars[core])
        one.live = len(reads) + 1
        one.position = facts.rank[core]
        self.clusters[core] = one
        self.of[core] = core

    def _connect(self) -> None:
        for k, readers in self.facts.readers.items():
            if k not in self.of:
                continue
            home = self.of[k]
            for r in readers:
                if self.of[r] != home:
                    self.outside[k] = self.outside.get(k, 0) + 1
                    self.clusters[home].succs.add(self.of[r])
                    self.clusters[self.of[r]].preds.add(home)

    # -- questions ---------------------------------------------------------------------------------
    def cluster(self, core: int) -> Cluster:
        return self.clusters[self.of[core]]

    def flows(self, a: Cluster, b: Cluster) -> list[int]:
        """Values made in `a` that `b` reads."""
        if len(b.inputs) <= len(a.cores):
            return [v for v in b.inputs if self.of.get(v) == a.id]
        return [v for v in a.cores if v in b.inputs]

    @staticmethod
    def shared(a: Cluster, b: Cluster) -> list[int]:
        """Values made elsewhere that both read."""
        small, big = (a, b) if len(a.inputs) <= len(b.inputs) else (b, a)
        return [v for v in small.inputs if v in big.inputs]

    def stored(self, cores: Iterable[int], flows: Iterable[int] = (), reader: Cluster | None = None) -> set[int]:
        """Cores that must be stored; `flows` into `reader` no longer count, as when the two are merged."""
        inner = {v: reader.uses[v] for v in flows} if reader else {}
        anchored = self.facts.anchored
        return {v for v in cores if v in anchored or self.outside.get(v, 0) > inner.get(v, 0)}

    def saved(self, a: Cluster, b: Cluster) -> int:
        """Bytes that no longer move when the two are one kernel."""
        total = sum(min(a.inputs[v], b.inputs[v]) for v in self.shared(a, b))
        for first, second in ((a, b), (b, a)):
            for v in self.flows(first, second):
                total += second.inputs[v]
                if v not in self.facts.anchored and self.outside.get(v, 0) == second.uses[v]:
                    total += self.facts.nbytes(v)
        return total

    # -- cycles ------------------------------------------------------------------------------------
    def path(self, a: Cluster, b: Cluster) -> tuple[Path, list[int], list[int]]:
        """Whether a way leads from `a` to `b` (later) through a third cluster; the clusters between that a merge moves.

        Returns the verdict, those that depend on `a` and those that feed `b`, among positions between the two.
        """
        if a.succs <= {b.id} or b.preds <= {a.id}:
            return "none", [], []
        after = self._reach(a.succs - {b.id}, b, forward=True)
        if after is None:
            return "budget", [], []
        if b.id in after:
            return "cycle", [], []
        before = self._reach(b.preds - {a.id}, a, forward=False)
        if before is None:
            return "budget", [], []
        return "none", list(after), list(before)

    def _reach(self, start: set[int], limit: Cluster, forward: bool) -> dict[int, None] | None:
        seen: dict[int, None] = {}
        stack = list(start)
        while stack:
            k = stack.pop()
            c = self.clusters[k]
            beyond = c.position > limit.position if forward else c.position < limit.position
            if k in seen or beyond:
                continue
            seen[k] = None
            if k == limit.id:
                continue
            if len(seen) > self.budget:
                return None
            stack.extend(c.succs if forward else c.preds)
        return seen

    # -- change ------------------------------------------------------------------------------------
    def merge(self, a: Cluster, b: Cluster, after: list[int], before: list[int]) -> Cluster:
        """One cluster of two (`a` before `b`), given what `path` found; the larger one's id stays."""
        self._reorder(a, b, after, before)
        big, small = (a, b) if len(a.cores) >= len(b.cores) else (b, a)
        for v in [*self.flows(a, b), *self.flows(b, a)]:
            reader = b if v in a.cores else a
            self.outside[v] -= reader.uses.pop(v)
            del reader.inputs[v]
        for v, size in small.inputs.items():
            big.inputs[v] = max(big.inputs.get(v, 0), size)
            big.uses[v] = big.uses.get(v, 0) + small.uses[v]
        big.cores |= small.cores
        big.scalars |= small.scalars
        for core in small.cores:
            self.of[core] = big.id
        self._rewire(big, small)
        big.digest = (big.digest + small.digest) % (1 << 64)
        big.version = max(a.version, b.version) + 1
        big.formed = big.time = None
        del self.clusters[small.id]
        return big

    def _rewire(self, big: Cluster, small: Cluster) -> None:
        for k in small.preds:
            self.clusters[k].succs.discard(small.id)
            if k != big.id:
                self.clusters[k].succs.add(big.id)
        for k in small.succs:
            self.clusters[k].preds.discard(small.id)
            if k != big.id:
                self.clusters[k].preds.add(big.id)
        big.preds = (big.preds | small.preds) - {big.id, small.id}
        big.succs = (big.succs | small.succs) - {big.id, small.id}

    def _reorder(self, a: Cluster, b: Cluster, after: list[int], before: list[int]) -> None:
        """What feeds `b` first, then the merged pair, then what depends on `a`, in the positions these had."""
        if not after and not before:
            place = b.position if a.succs <= {b.id} else a.position
            a.position = b.position = place
            return
        first = sorted((self.clusters[k] for k in before if k != a.id), key=lambda c: c.position)
        last = sorted((self.clusters[k] for k in after if k != b.id), key=lambda c: c.position)
        slots = sorted([c.position for c in (*first, *last)] + [a.position, b.position])
        for c, slot in zip((*first, a), slots, strict=False):
            c.position = slot
        b.position = a.position
        for c, slot in zip(last, slots[len(first) + 2 :], strict=True):
            c.position = slot

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters.values())
