"""Plans as text, 100 columns, the user's names first (shape and order as in docs/reading-plans.md).

In: a plan. Out: what `--dump-graph` and `plan.explain()` print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.draw import facts, units
from fuser.schedule import CpuSchedule, CudaSchedule
from fuser.settings import settings
from fuser.shapes import text_of

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

WIDTH = 100
MAX_PAIRS = 12


def summary(plan: Plan) -> str:
    """One line: kernels, bytes, predicted time."""
    libraries = sum(g.library is not None for g in plan.groups)
    kernels = units.count(len(plan.groups), "kernel") + (f" ({libraries} library)" if libraries else "")
    parts = [
        f"{kernels}, was {plan.kernels_unfused}",
        f"{units.size(plan.bytes_moved)}, was {units.size(plan.bytes_unfused)}, floor {units.size(plan.bytes_floor)}",
    ]
    total = sum(k.predicted.get("microseconds", 0) for k in plan.outline)
    if total and not settings().stable:
        parts.append(f"~{units.time(total)}")
    return " | ".join(parts)


def render(plan: Plan) -> str:
    """The whole plan."""
    lines = [_title(plan), summary(plan), "", *_operators(plan), ""]
    for kernel in plan.kernels:
        lines += [*_kernel(plan, kernel), ""]
    lines += _fused(plan)
    lines += _apart(plan)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _title(plan: Plan) -> str:
    g = plan.graph
    arguments = ", ".join(f"{a.name}: {a.dtype}{text_of(a.shape)}" for a in g.arguments if not a.captured)
    span = next((s for n in g.nodes for s in g.spans.get(n, ())), None)
    place = f"{span.filename.rpartition('/')[2]}:{span.line}" if span else ""
    dims = " ".join(f"{k}={v}" for k, v in plan.sizes.items() if k in g.symbols and not k.startswith(("=", "#")))
    return (
        f"{g.name}({arguments})".ljust(46) + f" {place}".ljust(20) + f" {dims}, {plan.device.label}".replace(" ,", "")
    )


def _operators(plan: Plan) -> list[str]:
    rows = facts.operators(plan)
    name_width = min(max((len(r.name) for r in rows), default=4), 16)
    formula_width = min(max((len(r.formula) for r in rows), default=8), 44)
    lines = ["operators".ljust(WIDTH - 8) + "line"]
    for r in rows:
        where = r.kernel + (f" stage {r.stage}" if r.stage else "")
        text = f"  {r.name:<{name_width}}  {_cut(r.formula, formula_width):<{formula_width}}  {r.type:<18}  {where}"
        lines.append(f"{text:<{WIDTH - 7}} {r.line or ''}")
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _kernel(plan: Plan, k: PlannedKernel) -> list[str]:
    space = _space(plan, k)
    lines = [f"{k.label}  {k.name:<36} {space}".rstrip()]
    reads = ", ".join(f"{n} {units.size(b)}" for n, b in k.reads.items())
    writes = ", ".join(f"{n} {units.size(b)}" for n, b in k.writes.items())
    lines.append(f"  {'reads':<10} {reads or 'nothing':<36} writes {writes}")
    if k.schedule is not None:
        lines.append(f"  {'schedule':<10} {_schedule(k.schedule)}")
    if k.registers >= 0:
        guess = f"{k.predicted['registers']:.0f} predicted, " if "registers" in k.predicted else ""
        lines.append(f"  {'registers':<10} {guess}{k.registers} compiled, {max(k.spills, 0)} B spilled (limit 255)")
    if "microseconds" in k.predicted and not settings().stable:
        bound = "bandwidth" if k.predicted.get("bandwidth_share", 1) >= 0.5 else "launch or issue"
        lines.append(f"  {'time':<10} ~{units.time(k.predicted['microseconds'])}, bound by {bound}")
    return lines


def _space(plan: Plan, k: PlannedKernel) -> str:
    group = k.group
    if group.library is not None:
        return "library call"
    space = group.spaces[0]
    parallel = ", ".join(map(str, space.parallel)) or "1"
    reduced = ", ".join(map(str, space.reduced))
    return f"{group.kind}: parallel {parallel}" + (f", reduce {reduced}" if reduced else "")


def _schedule(s: CudaSchedule | CpuSchedule) -> str:
    order = f", {s.order.lanes} lanes" + (f" x {s.order.segments} shares" if s.order.segments > 1 else "")
    if isinstance(s, CpuSchedule):
        return f"vectors of {s.vector}, at least {s.grain} elements a task" + (order if s.kind != "pointwise" else "")
    text = f"{s.threads} threads, vectors of {s.vector}, unroll {s.unroll}"
    if s.kind in ("rows", "columns", "split"):
        text += f", {s.threads_per_row} threads a row{order}"
    if s.resident:
        text += ", row kept in registers"
    return text + (f", valid for lengths up to {s.capacity}" if s.capacity else "")


def _fused(plan: Plan) -> list[str]:
    pairs = facts.pairs(plan, "fused")
    if not pairs:
        return []
    lines = ["fused because"]
    for p in pairs[:MAX_PAIRS]:
        flow = f"{', '.join(p.producers)} -> {', '.join(p.consumers[:4])}"
        saved = f"saves {units.size(p.bytes)}" if p.bytes else ""
        lines.append(f"  {_cut(flow, 34):<34}  {p.decision.text:<46} {saved}")
    if len(pairs) > MAX_PAIRS:
        lines.append(f"  and {len(pairs) - MAX_PAIRS} more (--dump-graph=json has all)")
    return [*lines, ""]


def _apart(plan: Plan) -> list[str]:
    pairs = facts.pairs(plan, "apart")
    if not pairs:
        return ["apart: nothing"]
    lines = ["apart, largest saving first"]
    for p in pairs[:MAX_PAIRS]:
        flow = f"{p.kernels[0]} | {p.kernels[1]}   {', '.join(p.producers)} -> {', '.join(p.consumers[:3])}"
        lost = units.size(p.bytes) if p.bytes else ""
        lines.append(f"  {_cut(flow, 34):<34}  {p.decision.reason:<10} {lost:>8}   {p.decision.text}")
    if len(pairs) > MAX_PAIRS:
        lines.append(f"  and {len(pairs) - MAX_PAIRS} more (--dump-graph=json has all)")
    return lines
