"""Why operators share kernels: what each value that no longer goes through memory saves.

In: a plan. Out: `Edge`s (one an operand of an operator, sized at the plan's own dims) and `Flow`s, the lines of
`fused because`. Its own file because text, JSON and `why` tell the same story from it. What is saved adds up: over all
edges of a plan it is the bytes of the unfused program less those of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from fuser import accounting
from fuser.graph import Node, ReduceAttrs
from fuser.group import Group
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.plan import Plan

EdgeKind = Literal["input", "space", "view", "kept", "result"]
CHAIN = 4  # values that a line names one by one; more are counted
ROOM = 34  # characters for them


@dataclass(frozen=True)
class Edge:
    """Operator `reader` of kernel `group` takes `source` without memory traffic of its own.

    kind: "input" (read from memory by several operators at once), "space" (computed at the same point), "view"
    (computed at a mapped index), "kept" (a row's values held until a reduction between them is known), "result" (of a
    reduction).
    saves: bytes that the operators alone would move for it.
    """

    source: Node
    reader: Node
    group: int
    kind: EdgeKind
    saves: int


@dataclass(frozen=True)
class Flow:
    """One line of `fused because`: values in order, the reason, and what it saves."""

    group: int
    names: str
    text: str
    saves: int
    launches: int
    at: int  # program order


def stages_of(plan: Plan, group: Group) -> Mapping[int, int]:
    """1-based stage in which each member is first needed."""
    out: dict[int, int] = {}
    members = set(group.members)
    for stages in group.stages:
        for k, stage in enumerate(stages, 1):
            stack = [r.node for r in (*stage.reducers, *stage.across)] + [s.node for s in stage.stores]
            stack += [s.node for s in group.column_stores] if k == len(stages) else []
            while stack:
                m = stack.pop()
                if m not in out and m in members:
                    out[m] = k
                    stack.extend(i.id for i in plan.graph.by_id[m].inputs)
    return out


def edges(plan: Plan) -> Iterator[Edge]:
    """All edges inside kernels, in program order of each kernel."""
    for position, group in enumerate(plan.groups):
        if group.library is None:
            yield from _edges(plan, position, group)


def _edges(plan: Plan, position: int, group: Group) -> Iterator[Edge]:
    members = [plan.graph.by_id[m] for m in group.members]
    reads: dict[Node, list[tuple[Node, int, bool]]] = {}
    for reader in (n for n in members if accounting.is_launched(n)):
        for source, size, direct in accounting.operands(reader, plan.sizes):
            reads.setdefault(source, []).append((reader, size, direct))
    inside, stages = set(group.members), stages_of(plan, group)
    for source, readers in reads.items():
        if source.id not in inside or not accounting.is_launched(source):
            once = max(size for _, size, _ in readers)
            for k, (reader, size, _) in enumerate(readers):
                yield Edge(source, reader, position, "input", size - once if k == 0 else size)
            continue
        write = 0 if source.id in group.outputs else accounting.nbytes(source, plan.sizes)
        last = max(range(len(readers)), key=lambda k: (stages.get(readers[k][0].id, 1), k))
        for k, (reader, size, direct) in enumerate(readers):
            kind = _kind(source, reader, direct, stages)
            yield Edge(source, reader, position, kind, size + (write if k == last else 0))


def _kind(source: Node, reader: Node, direct: bool, stages: Mapping[int, int]) -> EdgeKind:
    if isinstance(source.attrs, ReduceAttrs):
        return "result"
    if stages.get(reader.id, 1) > stages.get(source.id, 1):
        return "kept"
    return "space" if direct else "view"


def reason(plan: Plan, edge: Edge) -> str:
    """The reason of an edge in words, with the names of what it waits for."""
    group = plan.groups[edge.group]
    part = next((g for g in group.parts if edge.reader.id in g.members), group)
    if edge.kind == "input":
        name, schedule = plan.names[edge.source.id], plan.schedules[edge.group]
        if sum(edge.source.id in part.inputs for part in group.parts) > 1:
            return "read once, then through the cache"
        return f"{name} stays in registers" if getattr(schedule, "resident", False) else "one read serves all"
    if edge.kind == "kept":
        waits = _between(plan, part, edge)
        return f"row kept until {', '.join(waits)} {'is' if len(waits) == 1 else 'are'} known"
    if edge.kind == "result":
        return "applied to the reduction's result"
    if edge.kind == "view":
        return "read through an index map"
    return "one row space" if part.space.reduced else "one iteration space"


def _between(plan: Plan, group: Group, edge: Edge) -> list[str]:
    """Names of the reductions that finish between the stages of an edge's ends."""
    stages = stages_of(plan, group)
    first, last = stages.get(edge.source.id, 1), stages.get(edge.reader.id, 1)
    found = [r.node for k, s in enumerate(group.stages[0], 1) if first <= k < last for r in s.reducers]
    return [plan.names[k] for k in found] or ["the reduction"]


def flows(plan: Plan) -> list[Flow]:
    """Edges gathered into lines, in program order; launches are counted where operators are first joined."""
    out: list[Flow] = []
    for position in range(len(plan.groups)):
        mine = [e for e in edges(plan) if e.group == position] if plan.groups[position].library is None else []
        joined = _Joined()
        if plan.groups[position].parts:
            out.append(_batched(plan, position, joined))
        for gathered in _gather(mine):
            out.append(_flow(plan, gathered, joined))
    return out


def _batched(plan: Plan, position: int, joined: _Joined) -> Flow:
    """The line of a batch: what its parts store, and the launches saved."""
    parts = plan.groups[position].parts
    names = list(dict.fromkeys(plan.names[part.outputs[0]] for part in parts))
    more = f", ... ({len(parts)})" if len(names) > CHAIN else ""
    first, *others = (_operator(plan, part) for part in parts)
    launches = sum(joined.join(first, k) for k in others)
    return Flow(
        position, ", ".join(names[:CHAIN]) + more, "independent, in one launch", 0, launches, min(first, *others)
    )


def _operator(plan: Plan, group: Group) -> int:
    """One operator of a group that counts as a launch of its own."""
    return next((m for m in group.members if accounting.is_launched(plan.graph.by_id[m])), group.outputs[0])


def _gather(found: Iterable[Edge]) -> list[list[Edge]]:
    """Edges of one point in space together, others by their source; in program order."""
    together = _Joined()
    batches: dict[tuple[str, int], list[Edge]] = {}
    listed = list(found)
    for e in listed:
        if e.kind == "space":
            together.join(e.source.id, e.reader.id)
    for e in listed:
        key = ("space", together.find(e.source.id)) if e.kind == "space" else (e.kind, e.source.id)
        batches.setdefault(key, []).append(e)
    useful = (b for b in batches.values() if b[0].kind != "input" or len(b) > 1)
    return sorted(useful, key=lambda b: (min(e.reader.id for e in b), b[0].kind != "input"))


def _flow(plan: Plan, batch: list[Edge], joined: _Joined) -> Flow:
    operators = {n.id for e in batch for n in ((e.reader,) if e.kind == "input" else (e.source, e.reader))}
    first, *others = sorted(operators)
    launches = sum(joined.join(first, k) for k in others)
    saves = sum(e.saves for e in batch)
    return Flow(batch[0].group, _names(plan, batch), reason(plan, batch[0]), saves, launches, batch[0].reader.id)


def _is_chain(batch: list[Edge]) -> bool:
    """Whether the edges form one path."""
    sources, readers = [e.source for e in batch], [e.reader for e in batch]
    return len(set(sources)) == len(sources) and len(set(readers)) == len(readers)


def _names(plan: Plan, batch: list[Edge]) -> str:
    name = plan.names
    if batch[0].kind != "space":
        readers = list(dict.fromkeys(name[e.reader.id] for e in batch))
        more = f", ... ({len(readers)})" if len(readers) > CHAIN else ""
        return f"{name[batch[0].source.id]} -> {', '.join(readers[:CHAIN])}{more}"
    ordered = sorted({n for e in batch for n in (e.source, e.reader)}, key=lambda n: n.id)
    labels = [name[n.id] for n in ordered]
    if len(labels) <= CHAIN and len(" -> ".join(labels)) <= ROOM:
        return (" -> " if _is_chain(batch) else ", ").join(labels)
    return f"{labels[0]}, ... {labels[-1]} ({len(labels)})"


class _Joined:
    """Which operators already share a kernel: union by smallest id."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, k: int) -> int:
        while self.parent.get(k, k) != k:
            self.parent[k] = self.parent.get(self.parent[k], self.parent[k])
            k = self.parent[k]
        return k

    def join(self, a: int, b: int) -> bool:
        """Join two; False when they were together already."""
        a, b = sorted((self.find(a), self.find(b)))
        self.parent[b] = a
        return a != b
