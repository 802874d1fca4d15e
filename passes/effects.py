"""The order in which groups run, and which of them may write straight into an argument.

In: the units of a plan, then their groups with every group's walk. Out: an execution order (readers of an
argument's old value before the group that overwrites it, where no cycle forbids that), and `Group.in_place`.

A store into an argument is in place only if every read of its old value is in an earlier group, or in the
same group at the very index that is stored: then the thread that overwrites an element is the only one that
needed it. Everything else is stored apart and copied back at the end. (Arguments that overlap at a call take
that road too; the runtime sees that.) An argument that is never read has no strides among a kernel's parameters:
it is stored into only where it is C-contiguous.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fuser.group import Group, batch
from fuser.passes.cost import stage_reads
from fuser.passes.facts import Facts
from fuser.passes.repair import Unit
from fuser.passes.walk import Walk


def execution_order(facts: Facts, units: Mapping[int, Unit]) -> list[int]:
    """Unit ids in the order to run: data first, then old readers of updated arguments, then program order."""
    return _sorted({u.id: min(u.stored) for u in units.values()}, constraints(facts, units))


def constraints(facts: Facts, units: Mapping[int, Unit]) -> dict[int, set[int]]:
    """Of every unit: those that run before it, for their data or because they read an argument that it updates."""
    home = {v: u.id for u in units.values() for v in u.stored}
    readers: dict[int, list[int]] = {}
    for u in units.values():
        for k in u.inputs:
            readers.setdefault(k, []).append(u.id)
    before = {u.id: {home[v] for v in u.inputs if v in home} for u in units.values()}
    for e in facts.graph.effects:
        source = facts.graph.inputs.get(e.argument)
        writer = home.get(e.node.id)
        if source is None or writer is None:
            continue
        for reader in readers.get(source.id, ()):
            if reader != writer and not _reaches(before, writer, reader):
                before[writer].add(reader)
    return before


def depths(before: Mapping[int, set[int]]) -> dict[int, int]:
    """Of every unit: the length of the longest way to it. Units of one depth wait for nothing of each other."""
    out: dict[int, int] = {}
    for k in _sorted({k: k for k in before}, before):
        out[k] = 1 + max((out[p] for p in before[k]), default=0)
    return out


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


def in_place(
    facts: Facts, groups: Sequence[Group], walks: Sequence[Sequence[Walk]], contiguous: Collection[int]
) -> list[Group]:
    """Groups with `in_place` filled in: (stored node, argument position) pairs that are safe. walks: of each part.
    contiguous: positions of arguments known to be C-contiguous."""
    homes = {n: (k, p) for k, g in enumerate(groups) for p, part in enumerate(g.singles) for n in part.outputs}
    last = {n: k for k, g in enumerate(groups) for n in g.inputs}
    direct: dict[tuple[int, int], list[tuple[int, int]]] = {}
    taken: set[int] = set()
    for e in facts.graph.effects:
        home = homes.get(e.node.id)
        if home is None or groups[home[0]].library is not None or e.node.id in taken:
            continue
        group = groups[home[0]].singles[home[1]]
        source = facts.graph.inputs.get(e.argument)
        if (source is not None and last.get(source.id, -1) > home[0]) or (
            source is None and e.argument not in contiguous
        ):
            continue
        if _safe(facts, e.argument, e.node.id, group, walks[home[0]][home[1]]):
            direct.setdefault(home, []).append((e.node.id, e.argument))
            taken.add(e.node.id)
    return [_storing(g, k, direct) for k, g in enumerate(groups)]


def _storing(group: Group, position: int, direct: Mapping[tuple[int, int], list[tuple[int, int]]]) -> Group:
    """The group with what its parts may store into arguments."""
    found = [tuple(direct.get((position, p), ())) for p in range(len(group.singles))]
    if not any(found):
        return group
    if not group.parts:
        return replace(group, in_place=found[0])
    return batch(group.name, [replace(g, in_place=pairs) for g, pairs in zip(group.parts, found, strict=True)])


def _safe(facts: Facts, argument: int, node_id: int, group: Group, walk: Walk) -> bool:
    """Whether a group may store straight into an argument that no later group reads. (No other part of a batch reads
    it either: that part would have been put before this one.)"""
    node, target = facts.nodes[node_id], facts.graph.arguments[argument]
    if node.storage != target.dtype or node.shape != target.shape or node in facts.graph.outputs:
        return False  # a value that is also returned has an array of its own
    source = facts.graph.inputs.get(argument)
    if source is None:
        return True
    columns = next((s for s in group.column_stores if s.node == node_id), None)
    if columns is not None:  # stored when all rows are done
        return all(index == columns.index for index in walk.memory.get(source.id, ()))
    stage, store = next((k, s) for k, stage in enumerate(group.stages[0]) for s in stage.stores if s.node == node_id)
    if any(source.id in stage_reads(facts, group, later) for later in group.stages[0][stage + 1 :]):
        return False
    return all(index == store.index for index in walk.memory.get(source.id, ()))
