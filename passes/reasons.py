"""Why two kernels of a finished search are apart, where the search itself only saw that they were at the time.

In: a search that is done. Out: for pairs of clusters that were last refused because of a third one (`cycle`), or were
not examined (`budget`), a reason that holds now. What would keep the two apart even if nothing lay between them comes
first: a sum that every element waits for is a barrier, whatever else the sum is needed for. Only where nothing does is
it the third kernel, which is then named. Its own file because the search asks what to merge next, this what to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fuser.graph import OpaqueAttrs, ScanAttrs
from fuser.passes.clusters import Cluster, Partition
from fuser.passes.facts import is_reduction
from fuser.passes.legality import Refusal
from fuser.passes.search import Considered, Search

PASSING = ("cycle", "budget")  # refusals that tell of the search's state
EXAMINED = 1 << 14  # operators looked at in all, so that this stays a small part of planning

Pair = tuple[int, int]


def pair_of(partition: Partition, a: int, b: int) -> Pair:
    """The clusters of two cores, unordered."""
    one, other = partition.of[a], partition.of[b]
    return (min(one, other), max(one, other))


def lasting(search: Search) -> Mapping[Pair, Considered]:
    """By pair of cluster ids: the reason that holds between them, where the search's last word was a passing one."""
    partition = search.partition
    last = {pair_of(partition, c.a, c.b): c for c in search.considered}
    open_pairs: dict[Pair, Considered] = {}
    for a, b in _neighbours(search):
        pair = pair_of(partition, a, b)
        seen = last.get(pair) or Considered(a, b, "vertical", "budget", {})
        if pair[0] != pair[1] and (seen.reason in PASSING or not seen.reason):
            open_pairs.setdefault(pair, seen)
    found: dict[Pair, Considered] = {}
    left = EXAMINED
    for pair in sorted(open_pairs, key=lambda p: sorted(partition.clusters[k].digest for k in p)):
        one, other = sorted((partition.clusters[k] for k in pair), key=lambda c: c.position)
        left -= len(one.cores) + len(other.cores)
        if left < 0:
            break
        found[pair] = _reason(search, open_pairs[pair], one, other)
    return found


def _neighbours(search: Search) -> Iterator[Pair]:
    """Producers with their consumers, and what the search took for siblings."""
    of = search.partition.of
    for k in search.facts.cores:
        yield from ((r.source, k) for r in search.facts.reads[k] if r.source in of)
    yield from ((c.a, c.b) for c in search.considered)


def _reason(search: Search, seen: Considered, a: Cluster, b: Cluster) -> Considered:
    verdict = search.judge(a, b, search.partition.saved(a, b), alone=True)
    if isinstance(verdict, Refusal):
        return Considered(seen.a, seen.b, seen.kind, verdict.reason, dict(verdict.numbers))
    between = _between(search.partition, a, b)
    if not between:
        return Considered(seen.a, seen.b, seen.kind, "budget", verdict.numbers)
    return Considered(seen.a, seen.b, seen.kind, "cycle", {**verdict.numbers, "between": _teller(search, between)})


def _between(partition: Partition, a: Cluster, b: Cluster) -> list[Cluster]:
    """Clusters on one way from `a` to `b` (later) that is not the straight one; none if there is no such way."""
    came: dict[int, int] = {}
    stack = [(k, a.id) for k in sorted(a.succs - {b.id}, key=lambda k: partition.clusters[k].digest)]
    while stack and len(came) <= partition.budget:
        k, source = stack.pop()
        c = partition.clusters[k]
        if k in came or c.position > b.position:
            continue
        came[k] = source
        if k == b.id:
            break
        stack.extend((n, k) for n in sorted(c.succs, key=lambda n: partition.clusters[n].digest))
    way, k = [], came.get(b.id, a.id)
    while k != a.id:
        way.append(partition.clusters[k])
        k = came[k]
    return way


def _teller(search: Search, way: Iterable[Cluster]) -> int:
    """The operator that says best what lies between: a library call, a scan, a reduction, or whatever is last."""
    nodes, rank = search.facts.nodes, search.facts.rank

    def weight(k: int) -> tuple[bool, bool, bool, int]:
        n = nodes[k]
        return isinstance(n.attrs, OpaqueAttrs), isinstance(n.attrs, ScanAttrs), is_reduction(n), rank[k]

    return max((k for c in way for k in c.cores), key=weight)
