"""What one kernel of a plan does, in words: its space, schedule, occupancy, what bounds it, what it is valid for.

In: a plan and one of its kernels. Out: short texts; `text` lays them out and `json` records them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fuser.draw import units
from fuser.group import Group, Space
from fuser.hostexpr import HostExpr
from fuser.keys import length_bucket
from fuser.schedule import CpuSchedule, CudaSchedule, Schedule
from fuser.settings import settings
from fuser.shapes import Shape

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

MAX_PARTS = 6  # spaces of a batch that are listed
WORTH_SAYING = 0.05  # a resource used less than this is not mentioned
_RESOURCES = (("memory", "bandwidth"), ("issue", "issue"), ("special", "special functions"))


def space(k: PlannedKernel) -> str:
    """`rows: parallel n, reduce d`."""
    group = k.group
    if group.library is not None:
        flops = k.predicted.get("flops", 0.0)
        return f"library, {units.flops(flops)}" if flops else "library call"
    if group.parts:
        kinds = list(dict.fromkeys(part.kind for part in group.parts))
        return f"batch of {len(group.parts)}: {', '.join(kinds)}"
    return _space(group)


def _space(group: Group) -> str:
    """`rows: parallel n, reduce d` of a group of one space."""
    parallel = ", ".join(map(str, group.space.parallel)) or "1"
    reduced = ", ".join(map(str, group.space.reduced))
    across = f", and {parallel}" if group.across else ""
    return f"{group.kind}: parallel {parallel}" + (f", reduce {reduced}{across}" if reduced else "")


def parts(k: PlannedKernel) -> list[str]:
    """Of a batch, each part: its space and what it stores; the first `MAX_PARTS`."""
    lines = [_space(part) for part in k.group.parts]
    counted = Counter(lines)
    out = [f"{n} x {text}" if n > 1 else text for text, n in counted.items()]
    return out[:MAX_PARTS] + ([f"and {len(out) - MAX_PARTS} more"] if len(out) > MAX_PARTS else [])


def schedule(plan: Plan, k: PlannedKernel) -> str:
    """`128 threads/row, 8 x f32x4 each, row kept in registers`."""
    s = k.schedule
    if isinstance(s, CpuSchedule):
        return _cpu(s)
    if isinstance(s, CudaSchedule):
        return _cuda(plan, k, s)
    return "library"


def _cpu(s: CpuSchedule) -> str:
    if s.parts:
        return f"{len(s.parts)} parts, one dispatch to the thread pool"
    unit = {"pointwise": "run", "rows": "row", "columns": f"tile of {s.tile} columns", "scan": "row"}
    if s.kind == "split":
        return f"{s.blocks} tasks a row, vectors of {s.vector}{_order(s)}"
    each = unit[s.kind]
    many = f"{s.grain} {each}s" if s.grain > 1 else f"one {each}"
    return f"vectors of {s.vector}, at least {many} a task{_order(s)}"


def _order(s: CpuSchedule | CudaSchedule) -> str:
    if s.kind == "pointwise":
        return ""
    return f", {units.count(s.order.lanes, 'lane')}" + (f" x {s.order.segments} shares" if s.order.segments > 1 else "")


def _cuda(plan: Plan, k: PlannedKernel, s: CudaSchedule) -> str:
    if s.parts:
        return f"{s.threads} threads; blocks of {len(s.parts)} parts in one grid"
    vector = f"{_widest(plan, k)}x{s.vector}" if s.vector > 1 else _widest(plan, k)
    if s.kind == "pointwise":
        tile = f", squares of {s.tile} through shared memory" if s.tile else ""
        tile = f", {s.threads_per_row} threads/row of a tile" if s.threads_per_row > 1 else tile
        each = f"{s.strip} rows x" if s.strip > 1 else f"{s.unroll} x"
        return f"{s.threads} threads, {each} {vector} each{tile}"
    if s.kind == "columns":
        waits = f", columns wait in the shared memory of {units.count(s.cluster, 'block')}" if s.parked else ""
        return f"{s.threads} threads, {vector}, {s.threads_per_row} threads/column{_order(s)}{waits}{_ahead(s)}"
    if s.kind == "mixed":
        return _mixed(s, vector)
    if s.kind == "rows" and s.resident:
        steps = max(s.capacity // (s.threads_per_row * s.cluster * s.vector), 1)
        where = "shared memory" if s.parked else "registers"
        blocks = f" of {units.count(s.cluster, 'block')}" if s.cluster > 1 else ""
        kept = f"row kept in {where}{blocks}{_ahead(s)}"
        return f"{s.threads_per_row * s.cluster} threads/row, {steps} x {vector} each, {kept}{_ragged(plan, k, s)}"
    blocks = f", {s.sharers} blocks a share" if s.sharers > 1 else ""
    return f"{s.threads_per_row} threads/row, {s.unroll} x {vector} each{_order(s)}{blocks}{_ahead(s)}"


def _ahead(s: CudaSchedule) -> str:
    """What blocks ask for before it is its turn."""
    rounds = s.kind == "scan" and s.capacity > s.order.lanes * s.unroll
    unit = "tile" if s.kind == "columns" else "round" if rounds else "row"
    return f", {units.count(s.ahead, unit)} ahead asked for" if s.ahead else ""


def _ragged(plan: Plan, k: PlannedKernel, s: CudaSchedule) -> str:
    """What rows that are no whole vectors take in the same kernel."""
    if s.ragged is None:
        return ""
    each = max(s.capacity // (s.ragged.threads_per_row * s.ragged.vector), 1)
    return f"; ragged rows {s.ragged.threads_per_row} threads, {each} x {_widest(plan, k)} each"


def _mixed(s: CudaSchedule, vector: str) -> str:
    """Of rows that go by while their columns are added up."""
    steps = max(s.capacity // (s.threads_per_row * s.vector), 1)
    strips = f"{s.down.lanes * s.down.segments} strips of rows"
    rows = f", {s.unroll} rows in shared memory" if s.copies else ""
    return f"{s.threads_per_row} threads/row, {steps} x {vector} each; {strips}, columns in registers{rows}"


def _widest(plan: Plan, k: PlannedKernel) -> str:
    """The dtype whose elements the vectors hold: that of the largest array the kernel touches."""
    ids = [*k.group.inputs, *k.group.outputs]
    nodes = [plan.graph.by_id[i] for i in ids if plan.graph.by_id[i].shape] or [plan.graph.by_id[i] for i in ids]
    return str(max(nodes, key=lambda n: (len(n.shape), n.storage.bytes)).storage) if nodes else "f32"


def occupancy(plan: Plan, k: PlannedKernel) -> str:
    """`62%; in flight 160 KiB/SM, needs 48`; empty where neither is known."""
    s, device = k.schedule, plan.device
    if not isinstance(s, CudaSchedule) or device.kind != "cuda":
        return ""
    registers = k.registers if k.registers >= 0 else int(k.predicted.get("registers", 0))
    shared = max((b.resources.shared for b in k.built), default=0)
    resident = device.occupancy(registers, s.threads, max(shared, 0))
    flight = resident * _bytes_in_flight(plan, k, s) / 1024
    return f"{100 * resident / device.threads:.0f}%; in flight {flight:.0f} KiB/SM, needs {device.inflight // 1024}"


def _bytes_in_flight(plan: Plan, k: PlannedKernel, s: CudaSchedule) -> int:
    """Bytes that one thread has requested at once: whole vectors of every full-size input; of a batch, by the part
    that asks for most."""
    if s.parts:
        return max(_in_flight(plan, g, one) for g, one in zip(k.group.parts, s.parts, strict=True))
    return _in_flight(plan, k.group, s)


def _in_flight(plan: Plan, group: Group, s: CudaSchedule) -> int:
    sizes = {i: plan.graph.by_id[i] for i in group.inputs}
    full = max((len(n.shape) for n in sizes.values()), default=0)
    elements = s.vector * s.unroll * s.strip
    if s.resident:
        elements = max(s.capacity // s.threads_per_row, 1)
    return sum(n.storage.bytes for n in sizes.values() if len(n.shape) == full) * elements


def bound_by(plan: Plan, k: PlannedKernel) -> str:
    """`bandwidth (issue 31%, special functions 22%)`: the scarcest resource, and how much of the others it leaves."""
    if settings().stable and plan.device.kind == "cpu":
        return ""  # this machine's cores
    total = k.predicted.get("us", 0.0)
    shares = {label: k.predicted[name] for name, label in _RESOURCES if name in k.predicted}
    if not shares:
        return ""
    first = max(shares, key=lambda label: shares[label])
    rest = [f"{label} {100 * v:.0f}%" for label, v in shares.items() if label != first and v >= WORTH_SAYING]
    if total and plan.device.launch_us > total / 2:
        rest.insert(0, f"then {first}")
        first = "launch"
    return first + (f" ({', '.join(rest)})" if rest else "")


def valid_for(plan: Plan, k: PlannedKernel) -> str:
    """`any n; 2048 < d <= 4096, 16-byte aligned, d % 16 == 0`."""
    s = k.schedule
    if s is None:
        return ""
    free: set[str] = set()
    limits: dict[str, None] = {}
    for group, one in zip(k.group.singles, s.parts or (s,), strict=True):
        known = {d for d, _ in one.bounds} if isinstance(one, CudaSchedule) else set()
        free |= {str(d) for d in group.space.parallel if isinstance(d, HostExpr) and not group.across} - known
        limits |= dict.fromkeys(_limits(group.space, one))
        if group.across:
            limits[_between(group.space.parallel, length_bucket(group.space.rows, plan.sizes))] = None
    if isinstance(s, CudaSchedule):
        limits |= dict.fromkeys(["16-byte aligned"] * s.aligned + ["32-bit indices"] * (s.index_bits == 32))
    strided = [a.name for a, v in zip(plan.graph.arguments, plan.size_class.layouts, strict=False) if v == "s"]
    limits |= {f"{name} with any strides": None for name in strided}
    parts = [f"any {', '.join(sorted(free))}"] if free else []
    return "; ".join([*parts, ", ".join(limits)] if limits else parts) or "any size"


def _limits(space: Space, s: Schedule) -> list[str]:
    """What a space's sizes must be under a schedule."""
    found = []
    bounded = s.capacity
    if bounded and space.reduced:
        found.append(_between(space.reduced, bounded))
    axes = (*space.parallel, *space.reduced)
    if isinstance(s, CudaSchedule) and s.bounds:
        names = {x for d in space.parallel if isinstance(d, HostExpr) for x in d.symbols} - set(map(str, space.reduced))
        found += [f"{d} <= {most}" for d, most in s.bounds if d in names]
    if isinstance(s, CudaSchedule) and s.vector > 1:
        inner = axes[1:] if len(axes) > 1 else axes  # the outermost extent is in no address
        used = {x for d in inner if isinstance(d, HostExpr) for x in d.symbols}
        free = {str(d) for d in space.reduced} if s.ragged is not None else set()
        found += [f"{m} % {factor} == 0" for m, factor in s.factors if m in used and m not in free]
    return found


def _between(shape: Shape, most: int) -> str:
    """`2048 < d <= 4096`."""
    length, low = " * ".join(_factor(d) for d in shape), most // 2
    return f"{low} < {length} <= {most}" if low else f"{length} <= {most}"


def _factor(d: object) -> str:
    text = str(d)
    return f"({text})" if " " in text else text


def registers(k: PlannedKernel) -> str:
    """`52 predicted, 48 compiled, 0 spilled (limit 255)`; empty where the target reports none."""
    if k.registers < 0:
        missing = bool(k.built) and isinstance(k.schedule, CudaSchedule)
        return (
            f"{k.predicted.get('registers', 0):.0f} predicted; not compiled: install the extra `nvrtc`"
            if missing
            else ""
        )
    guess = f"{k.predicted['registers']:.0f} predicted, " if "registers" in k.predicted else ""
    spilled = "0 spilled" if k.spills <= 0 else f"{units.size(k.spills)} spilled"
    return f"{guess}{k.registers} compiled, {spilled} (limit 255)"


def register_error(kernels: tuple[PlannedKernel, ...]) -> str:
    """`median 2%`: how far predicted registers are from compiled ones; empty where there are none."""
    errors = sorted(
        abs(k.predicted["registers"] - k.registers) / k.registers
        for k in kernels
        if k.registers > 0 and "registers" in k.predicted
    )
    return f"median {100 * errors[len(errors) // 2]:.0f}%" if errors else ""
