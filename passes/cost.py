"""What a kernel costs on a device: bytes, instructions, special functions, and the time that follows from them.

In: a formed group (or the plain sums of an elementwise cluster), representative sizes, a device. Out: microseconds.
time = launch + max(bytes / attainable bandwidth, instructions / issue rate, special functions / their rate).
Attainable bandwidth falls when too few rows keep the device busy: a row of a multi-stage group is one block's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from fuser import loopbody
from fuser.device import Device
from fuser.dtypes import F64
from fuser.graph import Graph, Node, PieceAttrs
from fuser.group import Group, Stage
from fuser.hostexpr import HostExpr
from fuser.indexmap import Index, linear
from fuser.loopbody import LoopAttrs
from fuser.optable.base import Cost, Reduction, ScalarOp
from fuser.passes import margins, registers
from fuser.passes.facts import Facts, is_reduction
from fuser.passes.legality import Formed, Refusal, examine
from fuser.ranges import Extents, simplify
from fuser.record import dataclass
from fuser.schedule import CudaSchedule, Schedule

# A value that the previous kernels left in the last-level cache costs about 0.4 of a read from memory (L2 of
# H200 against HBM: about 10 against 4.3 TB/s); it stays there while it takes up to 0.4 of that cache (25 MB
# of 60 on H200).
CACHED_SHARE, CACHED_COST = 0.4, 0.4
ACCESS = 2  # issue slots of one load or store with its address
DIVISION = 10  # and of a division left in that address: a multiplication by a reciprocal, a shift, a correction
# An array up to this many elements is one block's work whatever it is shaped like: 64 KiB of f32, a few microseconds.
SMALL_WHOLE = 16384
# One block an SM draws about its SM's share of the bandwidth (one H200: rows want 264 blocks on 132 SMs, two each).
SOLO = 1.0
# Multiply-adds of a library product against one f32 multiply-add a lane and cycle: tensor cores run half types about
# 12 times as fast (H200 data sheet: 989 TFLOP/s dense bf16, 67 f32), and f64 at half the rate of f32.
PRODUCT_RATE = {"f16": 12.0, "bf16": 12.0, "f32": 1.0, "f64": 0.5}
# Columns of a block: a thread's 16 bytes of f32 for each of 8 threads, one 128-byte line.
COLUMNS = 32
# Bytes moved for each byte that is read across its rows: `s = x + y.T; s.sum(axis=1)` on f32[8192, 8192] took 519 us
# on an H200 where its bytes alone would take 193.
CROSSED = 6.0
SECTOR = 32  # bytes that memory gives at least: what lies nearer is not crossed
# Resident threads an SM that fill its issue slots: with 256 (253 registers each) 300 dependent operators took 1.6 times
# what their slots would, in f32 and in f64 (H200).
ISSUE_THREADS = 410
RESIDENT_SM = 64 * 1024  # bytes of a row that a block keeps in registers: 64 a thread, 1024 threads


@cache
def _rows() -> Mapping[str, Any]:
    from fuser.optable import table

    return table().known


def operator_cost(node: Node) -> Cost:
    """Issue slots and special functions of one evaluation of a node."""
    if isinstance(node.attrs, PieceAttrs):
        return Cost(instructions=3 * len(node.inputs))
    if node.op in ("scalar", "item", "view"):
        return Cost(instructions=0)
    if isinstance(node.attrs, LoopAttrs):
        return loopbody.cost(node, _rows())
    row = _rows().get(node.op)
    return row.cost if isinstance(row, (ScalarOp, Reduction)) else Cost()


@dataclass(frozen=True)
class Load:
    """What one kernel does: bytes moved (cached ones weighted), lane instructions, special functions,
    share of the device; drawn: and of the bandwidth that so much of it draws; filled: part of the issue slots that its
    resident threads can fill; launches: of its kernels.
    """

    nbytes: float = 0
    instructions: float = 0
    special: float = 0
    share: float = 1.0
    filled: float = 1.0
    drawn: float = 1.0
    launches: int = 1

    def memory_s(self, device: Device) -> float:
        """Seconds that memory alone would take."""
        return self.nbytes / (device.bandwidth * self.share * self.drawn)

    def time_us(self, device: Device) -> float:
        """Predicted microseconds, launch included."""
        memory = self.memory_s(device)
        issue = self.instructions / (device.issue * self.share * self.filled)
        special = self.special / (device.special * self.share)
        return device.launch_us * self.launches + 1e6 * max(memory, issue, special)


def plain_load(
    facts: Facts, cores: Collection[int], inputs: Mapping[int, int], stored: Iterable[int], device: Device
) -> Load:
    """The load of an elementwise cluster, every core once an element."""
    instructions = special = 0.0
    for k in cores:
        node = facts.nodes[k]
        count, cost = facts.count(node.shape), operator_cost(node)
        instructions += count * slots(node, cost, device)
        special += count * cost.sfu
    written = list(stored)
    points = max((facts.count(facts.nodes[k].shape) for k in cores), default=0)
    instructions += ACCESS * points * (len(inputs) + len(written))
    return Load(_moved(facts, inputs, written, device), instructions, special)


def _moved(facts: Facts, inputs: Mapping[int, int], stored: Iterable[int], device: Device) -> float:
    total = 0.0
    for k, size in inputs.items():
        cached = k in facts.core_set and facts.nbytes(k) <= CACHED_SHARE * device.l2
        total += size * (CACHED_COST if cached else 1.0)
    return total + sum(facts.nbytes(k) for k in stored)


def group_load(facts: Facts, formed: Formed, inputs: Mapping[int, int], stored: Iterable[int], device: Device) -> Load:
    """The load of a formed group, each value as often as the walk found it computed."""
    space = formed.group.space
    rows = facts.count(space.parallel)
    points = rows * facts.count(space.reduced)
    variables = {f"r{k}" for k in range(len(space.reduced))} or None
    instructions = special = 0.0
    columns = margins.per_column(facts, formed.group) if formed.group.across else frozenset()
    for k, indices in formed.walk.inside.items():
        node = facts.nodes[k]
        cost = operator_cost(node)
        for index in indices:
            times = points if _everywhere(index, variables) else rows
            times = times if k not in columns else facts.count(space.reduced)
            times = times if any(e.symbols for e in index) else min(times, facts.count(node.shape))
            instructions += times * slots(node, cost, device)
            special += times * cost.sfu
        if is_reduction(node):
            instructions += points * slots(node, cost, device)
    for k, indices in formed.walk.memory.items():
        for index in indices:
            times = points if _everywhere(index, variables) else rows
            instructions += times * _access(facts, k, index, formed.extents)
    instructions += points * sum(
        _access(facts, s.node, s.index, formed.extents) for s in formed.group.stores if not s.per_row
    )
    moved = _moved(facts, inputs, stored, device) + _read_again(facts, formed.group, inputs, device)
    if device.kind == "cuda":
        moved += _crossed(facts, formed, inputs)
    if formed.group.across:
        moved += (1 + CACHED_COST) * margins.partial_bytes(facts, formed.group)
        part = margins.share(facts, formed.group, _row_bytes(facts, formed.group, inputs), device)
        return Load(moved, instructions, special, part, launches=2)
    drawn = drawn_by_segments(facts, formed.group, device)
    return Load(moved, instructions, special, share(facts, formed.group, device), drawn=drawn)


def _row_bytes(facts: Facts, group: Group, inputs: Mapping[int, int]) -> float:
    """Bytes that are read of one row."""
    rows = max(facts.count(group.space.parallel), 1)
    return sum(size for k, size in inputs.items() if size > rows * facts.nodes[k].storage.bytes) / rows


def slots(node: Node, cost: Cost, device: Device) -> float:
    """Issue slots of one evaluation: f64 arithmetic has fewer units."""
    return cost.instructions / (device.double if node.dtype == F64 and cost.instructions else 1.0)


def _crossed(facts: Facts, formed: Formed, inputs: Mapping[int, int]) -> float:
    """Bytes moved beyond an input's own where neighbouring threads of a reduction read it across its rows.

    A group without reductions turns such inputs in shared memory.
    """
    space = formed.group.space
    if not space.reduced:
        return 0.0
    inner = f"r{len(space.reduced) - 1}" if space.inner else f"p{len(space.parallel) - 1}"
    crossed = {
        k
        for k, indices in formed.walk.memory.items()
        for index in indices
        if _apart(facts, facts.nodes[k], index, inner) >= SECTOR
    }
    return (CROSSED - 1) * sum(inputs.get(k, 0) for k in crossed)


def _apart(facts: Facts, node: Node, index: Index, variable: str) -> int:
    """Bytes between what neighbours along a variable read: 0 for neighbours in memory (channels lie side by side)."""
    last = max((k for k, e in enumerate(index) if variable in e.symbols), default=len(index) - 1)
    return facts.count(node.shape[last + 1 :]) * node.storage.bytes if last < len(index) - 1 else 0


def _everywhere(index: Index, reduced: Set[str] | None) -> bool:
    """Whether a value at this index is wanted at every point, not once a row (`reduced`: variables along a row)."""
    used = {s for e in index for s in e.symbols}
    return reduced is None or not used.isdisjoint(reduced) or any("@" in s for s in used)


def _read_again(facts: Facts, group: Group, inputs: Mapping[int, int], device: Device) -> float:
    """Bytes that later stages read once more because a row is too long to be kept; from the cache while it
    fits there.
    """
    stages = group.stages[0]
    if len(stages) < 2:
        return 0.0
    rows = max(facts.count(group.space.parallel), 1)
    needed = [stage_reads(facts, group, stage) for stage in stages]
    full = [k for k in inputs if inputs[k] > rows * facts.nodes[k].storage.bytes]
    row = _row_bytes(facts, group, inputs)
    keeps = max(RESIDENT_SM, device.shared_block) * device.cluster if device.kind == "cuda" else device.l2 / device.sms
    if not group.space.inner and device.kind == "cuda":
        row, keeps = row * COLUMNS, 0  # a block takes so many columns at once, and keeps none of them
    if row <= keeps:
        return 0.0
    factor = CACHED_COST if row * min(rows, device.sms) <= CACHED_SHARE * device.l2 else 1.0
    return factor * sum(inputs[k] * (sum(k in n for n in needed) - 1) for k in full)


def stage_reads(facts: Facts, group: Group, stage: Stage) -> set[int]:
    """Ids of memory values that one stage's own loop reads."""
    members = set(group.members)
    stack = [facts.nodes[r.node].inputs[0] for r in (*stage.reducers, *stage.across)] + [
        facts.nodes[s.node] for s in stage.stores if not s.per_row
    ]
    seen: set[int] = set()
    found: set[int] = set()
    while stack:
        n = stack.pop()
        if n.id in seen:
            continue
        seen.add(n.id)
        if n.id not in members:
            found.add(n.id)
        elif not is_reduction(n) and n.op != "item":
            stack.extend(n.inputs)
    return found


def _access(facts: Facts, node_id: int, index: Index, extents: Extents) -> float:
    """Issue slots of one load or store; what is left of divisions once the address is one sum counts."""
    if not any(_divides(x, extents) for e in index for x in e.walk()):
        return ACCESS
    address = simplify(linear(index, facts.nodes[node_id].shape), extents)
    return ACCESS + DIVISION * sum(_divides(x, extents) for x in address.walk())


def _divides(e: HostExpr, extents: Extents) -> bool:
    """Whether an expression is a division that a thread does; those of dims alone are the host's."""
    return e.op in ("//", "%") and not extents.keys().isdisjoint(e.symbols)


def share(facts: Facts, group: Group, device: Device) -> float:
    """The part of the device's bandwidth that a group can draw: rows of several stages are one block's
    (thread's) each.
    """
    if group.library is not None or len(group.stages[0]) < 2:
        return 1.0
    space = group.space
    rows, length = facts.count(space.parallel), facts.count(space.reduced)
    if not space.inner:
        rows = max(rows // COLUMNS, 1)  # a block takes a tile of columns
    if rows * length <= SMALL_WHOLE:
        return 1.0
    return min(1.0, SOLO * rows / device.sms) if device.kind == "cuda" else min(1.0, rows / device.sms)


def drawn_by_segments(facts: Facts, group: Group, device: Device) -> float:
    """The part of the bandwidth that a group of one stage on CUDA draws: its rows' segments are a block's each."""
    space = group.space
    rows, length = facts.count(space.parallel), facts.count(space.reduced)
    plain = len(group.stages[0]) > 1 or not space.reduced or not space.inner
    if device.kind != "cuda" or plain or rows * length <= SMALL_WHOLE:
        return 1.0
    return min(1.0, SOLO * rows * max(length // SMALL_WHOLE, 1) / device.sms)


def estimate(
    graph: Graph, group: Group, schedule: Schedule | None, sizes: Mapping[str, int], device: Device, needs: int = 0
) -> dict[str, float]:
    """Predicted numbers of a planned kernel, for plans and reports: bytes, microseconds, shares; on CUDA registers and
    occupancy.

    memory/issue/special are shares of the predicted time (launch apart) that each resource alone would take. needs:
    registers a thread, where a compiler has said; else they are guessed.
    """
    facts = _facts(graph, tuple(sorted(sizes.items())), margins.capacity(device))
    if group.library is not None:
        return _library(facts, group, device)
    seen: set[int] = set()
    cuda = schedule if isinstance(schedule, CudaSchedule) else None
    registered = {"registers": registers.of_group(facts, group, cuda)} if device.kind == "cuda" else {}
    resident = device.occupancy(needs or registered["registers"], cuda.threads) if cuda is not None else 0
    filled = min(resident / ISSUE_THREADS, 1.0) if resident else 1.0
    loads = [replace(_load_of(facts, part, device, seen), filled=filled) for part in group.singles]
    launches = device.launch_us * max(load.launches for load in loads)
    total = sum(load.time_us(device) - device.launch_us * load.launches for load in loads)
    busy = max(total, 1e-9)
    out = {
        **registered, "bytes": sum(load.nbytes for load in loads), "us": launches + total,
        "memory": sum(1e6 * load.memory_s(device) for load in loads) / busy,
        "issue": sum(1e6 * load.instructions / device.issue / load.share / filled for load in loads) / busy,
        "special": sum(1e6 * load.special / device.special / load.share for load in loads) / busy,
    }  # fmt: skip
    if resident:
        out["occupancy"] = resident / device.threads
    return out


def _load_of(facts: Facts, group: Group, device: Device, seen: set[int]) -> Load:
    """The load of a planned group of one space. seen: what earlier parts of its launch read, which the cache holds."""
    cores = frozenset(group.members) & facts.core_set
    formed = examine(facts, cores, frozenset(group.outputs))
    assert not isinstance(formed, Refusal), group.name
    sizes = {k: _read_bytes(facts, cores, k) for k in group.inputs}
    inputs = {k: int(size * CACHED_COST) if k in seen else size for k, size in sizes.items()}
    seen.update(inputs)
    return group_load(facts, formed, inputs, group.outputs, device)


def _library(facts: Facts, group: Group, device: Device) -> dict[str, float]:
    """A matrix product in the vendor's library: memory and multiply-adds, whichever takes longer."""
    assert group.library is not None
    product = facts.nodes[group.library]
    moved = sum(r.nbytes for r in facts.reads[group.library]) + facts.nbytes(group.library)
    folds = (
        facts.count(product.shape) * facts.dim(product.inputs[0].shape[-1]) / PRODUCT_RATE.get(product.dtype.name, 1)
    )
    load = Load(moved, folds)
    busy = max(load.time_us(device) - device.launch_us, 1e-9)
    memory, issue = 1e6 * moved / device.bandwidth / busy, 1e6 * folds / device.issue / busy
    return {"bytes": moved, "flops": 2 * facts.count(product.shape) * facts.dim(product.inputs[0].shape[-1]),
            "us": load.time_us(device), "memory": memory, "issue": issue}  # fmt: skip


@lru_cache(maxsize=4)
def _facts(graph: Graph, sizes: tuple[tuple[str, int], ...], across: int | None) -> Facts:
    """Facts shared by the estimates of all kernels of a plan."""
    return Facts(graph, dict(sizes), across)


def _read_bytes(facts: Facts, cores: Iterable[int], source: int) -> int:
    return max((r.nbytes for k in cores for r in facts.reads[k] if r.source == source), default=facts.nbytes(source))
