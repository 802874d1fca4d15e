"""What one kernel of a plan does, in words: its space, schedule, occupancy, what bounds it, what it is valid for.

In: a plan and one of its kernels. Out: short texts; `text` lays them out and `json` records them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.draw import units
from fuser.hostexpr import HostExpr
from fuser.schedule import CpuSchedule, CudaSchedule
from fuser.settings import settings

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

WORTH_SAYING = 0.05  # a resource used less than this is not mentioned
_RESOURCES = (("memory", "bandwidth"), ("issue", "issue"), ("special", "special functions"))


def space(k: PlannedKernel) -> str:
    """`rows: parallel n, reduce d`."""
    group = k.group
    if group.library is not None:
        flops = k.predicted.get("flops", 0.0)
        return f"library, {units.flops(flops)}" if flops else "library call"
    first = group.spaces[0]
    parallel = ", ".join(map(str, first.parallel)) or "1"
    reduced = ", ".join(map(str, first.reduced))
    return f"{group.kind}: parallel {parallel}" + (f", reduce {reduced}" if reduced else "")


def schedule(plan: Plan, k: PlannedKernel) -> str:
    """`128 threads/row, 8 x f32x4 each, row kept in registers`."""
    s = k.schedule
    if isinstance(s, CpuSchedule):
        return _cpu(s)
    if isinstance(s, CudaSchedule):
        return _cuda(plan, k, s)
    return "library"


def _cpu(s: CpuSchedule) -> str:
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
    vector = f"{_widest(plan, k)}x{s.vector}" if s.vector > 1 else _widest(plan, k)
    if s.kind == "pointwise":
        tile = f", squares of {s.tile} through shared memory" if s.tile else ""
        return f"{s.threads} threads, {s.unroll} x {vector} each{tile}"
    if s.kind == "columns":
        return f"{s.threads} threads, {vector}, {s.threads_per_row} threads/column{_order(s)}"
    if s.kind == "rows" and s.resident:
        steps = max(s.capacity // (s.threads_per_row * s.vector), 1)
        return f"{s.threads_per_row} threads/row, {steps} x {vector} each, row kept in registers"
    return f"{s.threads_per_row} threads/row, {s.unroll} x {vector} each{_order(s)}"


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
    """Bytes that one thread has requested at once: whole vectors of every full-size input."""
    sizes = {i: plan.graph.by_id[i] for i in k.group.inputs}
    full = max((len(n.shape) for n in sizes.values()), default=0)
    elements = s.vector * s.unroll
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
    s, group = k.schedule, k.group
    if s is None:
        return ""
    first = group.spaces[0]
    parts = []
    free = sorted({str(d) for d in first.parallel if isinstance(d, HostExpr)})
    bounded = getattr(s, "capacity", 0)
    if free:
        parts.append(f"any {', '.join(free)}")
    limits = []
    if bounded and first.reduced:
        length = " * ".join(_factor(d) for d in first.reduced)
        low = bounded // 2
        limits.append(f"{low} < {length} <= {bounded}" if low else f"{length} <= {bounded}")
    if isinstance(s, CudaSchedule):
        axes = (*first.parallel, *first.reduced)
        inner = axes[1:] if len(axes) > 1 else axes  # the outermost extent is in no address
        used = {x for d in inner if isinstance(d, HostExpr) for x in d.symbols}
        if s.aligned:
            limits.append("16-byte aligned")
        limits += [f"{m} % 16 == 0" for m in s.multiples if m in used and s.vector > 1]
        if s.index_bits == 32:
            limits.append("32-bit indices")
    strided = [a.name for a, v in zip(plan.graph.arguments, plan.size_class.layouts, strict=False) if v == "s"]
    limits += [f"{name} with any strides" for name in strided]
    return "; ".join([*parts, ", ".join(limits)] if limits else parts) or "any size"


def _factor(d: object) -> str:
    text = str(d)
    return f"({text})" if " " in text else text


def registers(k: PlannedKernel) -> str:
    """`52 predicted, 48 compiled, 0 spilled (limit 255)`; empty where the target reports none."""
    if k.registers < 0:
        missing = bool(k.built) and isinstance(k.schedule, CudaSchedule)
        return f"{k.predicted.get('registers', 0):.0f} predicted; NVRTC is not here to compile" if missing else ""
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
