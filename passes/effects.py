"""The order in which groups run, and which of them may write straight into an argument.

In: the units of a plan, then their groups with every group's walk. Out: an execution order (readers of an
argument's old value before the group that overwrites it, where no cycle forbids that), and `Group.in_place`.

A store into an argument is in place only if every read of its old value is in an earlier group, or in the
same group at the very index that is stored: then the thread that overwrites an element is the only one that
needed it. Everything else is stored apart and copied back at the end. (Arguments that overlap at a call take
that road too; the runtime sees that.)
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fuser.group import Group
from fuser.passes.cost import stage_reads
from fuser.passes.facts import Facts
from fuser.passes.repair import Unit
from fuser.passes.walk import Walk


def execution_order(facts: Facts, units: Mapping[int, Unit]) -> list[int]:
    """Unit ids in the order to run: data first, then old readers of updated arguments, then program order."""
    home = {v: u.id for u in units.values() for v in u.stored}
    before = {u.id: {home[v] for v in u.inputs if v in home} for u in units.values()}
    for e in facts.graph.effects:
        source = facts.graph.inputs.get(e.argument)
        writer = home.get(e.node.id)
        if source is None or writer is None:
            continue
        for reader in (u.id for u in units.values() if source.id in u.inputs and u.id != writer):
            if not _reaches(before, writer, reader):
                before[writer].add(reader)
    return _sorted({u.id: min(u.stored) for u in units.values()}, before)


def _sorted(first: Mapping[int, int], before: Mapping[int, set[int]]) -> list[int]:
    """A topological order, by `first` among those that are ready."""
    after: dict[int, list[int]] = {k: [] for k in before}
    for k, needed in before.items():
        for p in needed:
            after[p].append(k)
    missing = {k: len(needed) for k, needed in before.items()}
    ready = [(first[k], k) for k, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for u in after[k]:
            missing[u] -= 1
            if not missing[u]:
                heapq.heappush(ready, (first[u], u))
    assert len(order) == len(before), "groups form a cycle"
    return order


def _reaches(before: Mapping[int, set[int]], start: int, goal: int) -> bool:
    """Whether `goal` must run after `start`."""
    seen, stack = {goal}, [goal]
    while stack:
        k = stack.pop()
        if k == start:
            return True
        for p in before[k] - seen:
            seen.add(p)
            stack.append(p)
    return False


def in_place(facts: Facts, groups: Sequence[Group], walks: Sequence[Walk]) -> list[Group]:
    """Groups with `in_place` filled in: (stored node, argument position) pairs that are safe."""
    direct: dict[int, list[tuple[int, int]]] = {}
    taken: set[int] = set()
    for e in facts.graph.effects:
        home = next((k for k, g in enumerate(groups) if e.node.id in g.outputs), None)
        if home is None or groups[home].library is not None or e.node.id in taken:
            continue
        if _safe(facts, e.argument, e.node.id, home, groups, walks):
            direct.setdefault(home, []).append((e.node.id, e.argument))
            taken.add(e.node.id)
    return [replace(g, in_place=tuple(direct[k])) if k in direct else g for k, g in enumerate(groups)]


def _safe(facts: Facts, argument: int, node_id: int, home: int, groups: Sequence[Group], walks: Sequence[Walk]) -> bool:
    node, target = facts.nodes[node_id], facts.graph.arguments[argument]
    if node.storage != target.dtype or node.shape != target.shape or node in facts.graph.outputs:
        return False  # a value that is also returned has an array of its own
    source = facts.graph.inputs.get(argument)
    if source is None:
        return True
    if any(source.id in g.inputs for g in groups[home + 1 :]):
        return False
    group = groups[home]
    stage, store = next((k, s) for k, stage in enumerate(group.stages[0]) for s in stage.stores if s.node == node_id)
    if any(source.id in stage_reads(facts, group, later) for later in group.stages[0][stage + 1 :]):
        return False
    return all(index == store.index for index in walks[home].memory.get(source.id, ()))
