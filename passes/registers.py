"""How many registers a kernel will need, before it is compiled.

In: the cores of a group. Out: values alive at once in the emission order that code generation keeps to (depth
first from the stores, one vector lane at a time), and an estimate of registers a thread. A value of 8 bytes
takes two.

registers = loads in flight + peak of live values + rows kept + OVERHEAD. On 72 random expression graphs
against ptxas the prototype of this formula had a median error of 6%.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from fuser.graph import ReduceAttrs, ViewAttrs
from fuser.group import Group
from fuser.loopbody import LoopAttrs
from fuser.optable import table
from fuser.optable.base import Reduction, ScalarOp
from fuser.passes.facts import Facts
from fuser.schedule import CudaSchedule

OVERHEAD = 10  # addresses, loop counters, the thread's place (the prototype's constant)
LOADS_HOISTED = 32  # a schedule starts no more loads ahead than this: 32 x 4 bytes x 2048 threads is 256 KiB an SM
GRANULE = 8  # registers are granted to a warp in eights
# What finishing a reduction needs on top (lane numbers, shared addresses, the partner's state, a split's
# ticket); fitted to ptxas' counts for the kernels of the public workloads.
EXCHANGE = {"rows": 8, "columns": 12, "split": 12}
LOOP_VALUES = 6  # of one round of a loop inside a kernel, beside its states and operands: the round, a few values
# A scan holds its elements as loaded, as folded, and as the prefixes it stores, with their addresses; a block that
# transposes through shared memory, the addresses of both orders. Fitted likewise.
SCAN_COPIES, TRANSPOSED = 4, 28
SIMPLEST = CudaSchedule("pointwise", threads=0)  # one element a thread and time


def width(facts: Facts, node_id: int) -> int:
    """32-bit registers of one value in its compute dtype."""
    return 2 if facts.nodes[node_id].dtype.bytes == 8 else 1


def peak(facts: Facts, cores: Set[int], stored: Iterable[int]) -> int:
    """Most registers of values alive at once when the cores are computed depth first from the stored ones."""
    uses: dict[int, int] = {}
    for c in cores:
        for r in facts.reads[c]:
            uses[r.source] = uses.get(r.source, 0) + 1
    live = most = 0
    seen: set[int] = set()
    for root in sorted(stored, key=facts.rank.__getitem__):
        stack = [(root, False)]
        while stack:
            k, ready = stack.pop()
            if ready:
                live += width(facts, k)
                most = max(most, live)
                for r in facts.reads[k] if k in cores else ():
                    uses[r.source] -= 1
                    if uses[r.source] == 0:
                        live -= width(facts, r.source)
                if uses.get(k, 0) == 0:
                    live -= width(facts, k)
            elif k not in seen:
                seen.add(k)
                stack.append((k, True))
                stack.extend((r.source, False) for r in reversed(facts.reads[k] if k in cores else ()))
    return most


def estimate(facts: Facts, live: int, inputs: Iterable[int], kept: int = 0, lanes: int = 1) -> int:
    """Registers a thread: `live` values of one lane, loads of `lanes` lanes in flight, `kept` registers of
    resident rows.
    """
    loads = 0
    for k in inputs:
        if facts.nodes[k].shape:
            loads += max(facts.nodes[k].storage.bytes * lanes, 4) // 4
    needed = min(loads, LOADS_HOISTED) + live + kept + OVERHEAD
    return (needed + GRANULE - 1) // GRANULE * GRANULE


def state_width(facts: Facts, node_id: int) -> int:
    """Registers of one running state of a reduction."""
    node = facts.nodes[node_id]
    row = table().reduction(node.op)
    return sum(max(t.bytes, 4) // 4 for t in row.state(node.inputs[0].dtype))


def accumulators(facts: Facts, cores: Iterable[int]) -> int:
    """Registers that running reductions hold, one state each."""
    return sum(state_width(facts, k) for k in cores if isinstance(facts.nodes[k].attrs, ReduceAttrs))


def scratch(facts: Facts, cores: Iterable[int]) -> int:
    """Most registers that one operator needs beyond its operands: operators run one after another."""
    rows = table().known
    found = [0]
    for k in cores:
        node = facts.nodes[k]
        if isinstance(node.attrs, LoopAttrs):
            found.append(sum(width(facts, i.id) for i in node.inputs[: 1 + node.attrs.states]) + LOOP_VALUES)
            continue
        row = rows.get(node.op)
        found.append(row.cost.scratch(node.dtype.bytes) if isinstance(row, (ScalarOp, Reduction)) else 0)
    return max(found)


def of_group(facts: Facts, group: Group, schedule: CudaSchedule | None) -> int:
    """Registers a thread of a group's kernel under a schedule (of the simplest one where none is given); of a batch,
    those of the part that needs most."""
    if group.parts:
        schedules = schedule.parts if schedule is not None else (None,) * len(group.parts)
        return max(of_group(facts, g, s) for g, s in zip(group.parts, schedules, strict=True))
    s = schedule or SIMPLEST
    kind = group.kind if schedule is None else s.kind
    cores = frozenset(group.members) & facts.core_set
    live = peak(facts, cores, group.outputs) + scratch(facts, cores) + EXCHANGE.get(kind, 0)
    states = max((sum(state_width(facts, r.node) for r in stage.reducers) for stage in group.stages[0]), default=0)
    if s.resident and not s.parked and group.space.reduced:  # what waits in shared memory takes no registers
        kept, inputs = _resident(facts, group, s)
        kept += _across(facts, group, s)
        return estimate(facts, live, inputs, kept + states * s.vector, s.vector)
    tiles = _tiles(s) if group.kind in ("rows", "full") else 1
    kept = states * (1 if group.kind == "columns" else s.vector * tiles)
    if kind == "scan":
        kept += SCAN_COPIES * s.vector * s.unroll
    elif s.tile:
        kept += TRANSPOSED
    inputs, uniform = _accesses(facts, group)
    return estimate(facts, live, inputs, kept + uniform, s.vector * s.unroll * tiles)


def _across(facts: Facts, group: Group, schedule: CudaSchedule) -> int:
    """Registers of the states of a thread's columns."""
    length = facts.count(group.space.reduced)
    return length // schedule.threads_per_row * sum(state_width(facts, k) for k in group.across)


def _tiles(schedule: CudaSchedule) -> int:
    """Tiles of a row that a thread holds at once: the lanes of its order beyond those of the team's vectors."""
    share = max(schedule.cluster // schedule.order.segments, 1)
    return max(schedule.order.lanes // (schedule.threads_per_row * schedule.vector * share), 1)


def _resident(facts: Facts, group: Group, schedule: CudaSchedule) -> tuple[int, tuple[int, ...]]:
    """(registers of rows that are kept, inputs that are loaded beside them)."""
    length, whole = facts.count(group.space.reduced), facts.count(group.space.parallel + group.space.reduced)
    sizes = {k: facts.count(facts.nodes[k].shape) for k in group.inputs}
    rows = [k for k in group.inputs if sizes[k] >= whole]
    team = schedule.threads_per_row * schedule.cluster
    kept = int(sum(length / team * facts.nodes[k].storage.bytes for k in rows)) // 4
    return kept, tuple(k for k in group.inputs if sizes[k] == length and k not in rows)


def _accesses(facts: Facts, group: Group) -> tuple[tuple[int, ...], int]:
    """(inputs, once for each place at which views of the group read them; how many are one value for all lanes).

    A stencil reads one input at several places; what is broadcast along the last axis is loaded once for all lanes.
    """
    members = set(group.members)
    varying: dict[int, int] = {}
    uniform: dict[int, int] = {}
    for m in group.members:
        node = facts.nodes[m]
        if isinstance(node.attrs, ViewAttrs) and node.shape and node.inputs[0].id not in members:
            last = f"${len(node.shape) - 1}"
            counts = varying if any(last in e.symbols for e in node.attrs.map.exprs) else uniform
            counts[node.inputs[0].id] = counts.get(node.inputs[0].id, 0) + 1
    loaded = [k for k in group.inputs if k in varying or k not in uniform]
    return tuple(k for k in loaded for _ in range(varying.get(k, 1))), sum(uniform.values())
