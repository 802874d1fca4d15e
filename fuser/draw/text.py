"""Plans as text, 100 columns, the user's names first (docs/reading-plans.md explains every line).

In: a plan. Out: what `--dump-graph` and `plan.explain()` print. A plan of one kernel shows its operators and that
kernel in full; a plan of several shows each kernel in two lines and where the time goes. `explain` shows everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, TypedDict

from fuser import accounting, loopbody
from fuser.draw import because, facts, kernels, units
from fuser.graph import Node, ScalarAttrs
from fuser.loopbody import LoopAttrs
from fuser.optable import table
from fuser.settings import settings
from fuser.shapes import text_of

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel


class _Indents(TypedDict):
    initial_indent: str
    subsequent_indent: str


WIDTH = 100
MAX_LINES = 12  # pairs listed of each kind
MAX_OPERATORS = 48  # operators listed unless all are asked for
NEGLIGIBLE = 0.005  # of all that is saved: not worth a line


def summary(plan: Plan) -> str:
    """One line: kernels, bytes, predicted time."""
    libraries = sum(g.library is not None for g in plan.groups)
    count = units.count(len(plan.groups), "kernel") + (f" ({libraries} library)" if libraries else "")
    parts = [
        f"{count}, was {plan.kernels_unfused}",
        f"{units.size(plan.bytes_moved)}, was {units.size(plan.bytes_unfused)}, floor {units.size(plan.bytes_floor)}",
    ]
    total = sum(k.predicted.get("us", 0) for k in plan.outline)
    if total and not settings().stable:
        launch, memory = plan.device.launch_us, 1e6 / plan.device.bandwidth
        apart = plan.kernels_unfused * launch + plan.bytes_unfused * memory
        products = [k.predicted for k in plan.outline if k.group.library is not None and "us" in k.predicted]
        apart += sum(p["us"] - launch - p["bytes"] * memory for p in products)
        apart += sum(_loop_us(plan, n) for n in plan.graph.nodes if isinstance(n.attrs, LoopAttrs))
        parts.append(f"~{units.time(total)}, was ~{units.time(apart)}")
    return " | ".join(parts)


def _loop_us(plan: Plan, loop: Node) -> float:
    """Microseconds that a loop takes beyond those of its bytes, in a kernel of its own."""
    issued = loopbody.cost(loop, table().rows).instructions * accounting.elements(loop, plan.sizes)
    moved = sum(size for _, size, _ in accounting.operands(loop, plan.sizes)) + accounting.nbytes(loop, plan.sizes)
    return max(1e6 * (issued / plan.device.issue - moved / plan.device.bandwidth), 0.0)


def render(plan: Plan, full: bool = False) -> str:
    """The plan; `full`: every operator and every kernel in detail, however many there are."""
    lines = [*_title(plan), summary(plan)]
    several = len(plan.groups) > 1
    if several:
        lines += _times(plan)
    lines.append("")
    if full or not several:
        lines += [*_operators(plan, full), ""]
    if full or not several:
        for k in plan.kernels:
            lines += [*_kernel(plan, k), ""]
    else:
        lines += _briefs(plan)
    if not several or full:
        lines += _fused(plan)
    lines += [*_apart(plan), *_recomputed(plan), *_notes(plan), *_closing(plan, several)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


# -- head ------------------------------------------------------------------------------------------
def _title(plan: Plan) -> list[str]:
    g = plan.graph
    arguments = [f"{a.name}: {a.dtype}{text_of(a.shape)}" for a in g.arguments if not a.captured]
    head = f"{g.name}({', '.join([*arguments, *_scalars(plan)])})"
    span = next((s for n in g.nodes for s in g.spans.get(n, ())), None)
    place = f"{span.filename.rpartition('/')[2]}:{span.line}" if span else ""
    device = plan.device.name if settings().stable and plan.device.kind == "cpu" else plan.device.label
    sizes = " ".join(f"{k}={v}" for k, v in facts.dims(plan).items())
    tail = f"{place:<18}  {sizes}, {device}" if sizes else f"{place:<18}  {device}"
    if len(head) + 2 + len(tail) <= WIDTH:
        return [f"{head:<33}  {tail}" if len(head) < 34 and len(tail) <= WIDTH - 35 else f"{head}  {tail}"]
    return [*wrap(head, WIDTH, subsequent_indent="    "), *wrap(" ".join(tail.split()), WIDTH, **_INDENT)]


_INDENT: _Indents = {"initial_indent": "    ", "subsequent_indent": "    "}


def _scalars(plan: Plan) -> list[str]:
    """Run-time scalars of the program, `eps: float`."""
    found: dict[str, str] = {}
    for n in plan.graph.nodes:
        if isinstance(n.attrs, ScalarAttrs):
            for e in n.attrs.expr.walk():
                if e.op == "sym" and str(e.value).startswith("="):
                    found[str(e.value)[1:]] = e.kind
    return [f"{name}: {kind}" for name, kind in sorted(found.items())]


def _times(plan: Plan) -> list[str]:
    """`time  K1 17% | L1 75%`: where the predicted time goes."""
    times = {k.label: k.predicted.get("us", 0.0) for k in plan.outline}
    total = sum(times.values())
    if not total or settings().stable:
        return []
    shares = sorted(times.items(), key=lambda item: -item[1]) if len(times) > 8 else list(times.items())
    text = " | ".join(f"{label} {100 * t / total:.0f}%" for label, t in shares[:8])
    lines = [f"time  {text}" + (" | ..." if len(shares) > 8 else "")]
    bound = [k.label for k in plan.outline if k.group.library is not None and _is_compute_bound(k)]
    if bound:
        rest = 100 * (1 - sum(times[label] for label in bound) / total)
        verb = "is" if len(bound) == 1 else "are"
        lines.append(f"      {', '.join(bound)} {verb} compute-bound: more fusion can touch only {rest:.0f}%")
    return lines


def _is_compute_bound(k: PlannedKernel) -> bool:
    return k.predicted.get("issue", 0.0) > k.predicted.get("memory", 0.0)


def _operators(plan: Plan, full: bool) -> list[str]:
    rows = facts.operators(plan)
    shown = rows if full else rows[:MAX_OPERATORS]
    places = ["+".join(r.kernels) + (f" stage {r.stage}" if r.stage and r.kernels else "") for r in shown]
    names = min(max((len(r.name) for r in shown), default=4), 18)
    types = min(max((len(r.type) for r in shown), default=4), 24)
    where = max((len(p) for p in places), default=0)
    room = WIDTH - names - types - where - 8 - 6
    formulas = min(max((len(r.formula) for r in shown), default=8), room)
    lines = []
    for r, place in zip(shown, places, strict=True):
        text = f"  {r.name:<{names}}  {_cut(r.formula, formulas):<{formulas}}  {r.type:<{types}}  {place:<{where}}"
        lines.append(f"{text}  {r.line or '':>4}")
    if len(rows) > len(shown):
        lines.append(f"  and {len(rows) - len(shown)} more (fuserc explain, or --dump-graph=json, has all)")
    widest = max((len(line) for line in lines), default=20)
    return ["operators".ljust(min(widest, WIDTH) - 4) + "line", *lines]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


# -- kernels ---------------------------------------------------------------------------------------
def _kernel(plan: Plan, k: PlannedKernel) -> list[str]:
    """A kernel in full."""
    lines = [f"{k.label}  {k.group.name:<36} {kernels.space(k)}".rstrip()]
    reads = ", ".join(f"{n} {units.size(b)}" for n, b in k.reads.items()) + (" once" if len(k.reads) == 1 else "")
    writes = ", ".join(f"{n} {units.size(b)}" for n, b in k.writes.items())
    if len(reads) <= 34 and len(reads) + len(writes) <= WIDTH - 30:
        lines.append(f"  {'reads':<10} {reads or 'nothing':<34} writes {writes}")
    else:
        lines += [*_entry("reads", reads or "nothing"), *_entry("writes", writes)]
    for text in kernels.parts(k):
        lines += _entry("part", text)
    for name, text in (
        ("schedule", kernels.schedule(plan, k)), ("registers", kernels.registers(k)),
        ("occupancy", kernels.occupancy(plan, k)), ("bound by", kernels.bound_by(plan, k)),
        ("valid for", kernels.valid_for(plan, k)),
    ):  # fmt: skip
        lines += _entry(name, text) if text else []
    return lines


def _entry(name: str, text: str) -> list[str]:
    """`  name       text`, wrapped under itself."""
    parts = wrap(text, WIDTH - 13) or [""]
    return [f"  {name:<10} {parts[0]}", *(" " * 13 + p for p in parts[1:])]


def _briefs(plan: Plan) -> list[str]:
    """Every kernel in two lines: its figures, and its operators."""
    rows = [
        (k.label, _cut(k.group.name, 30), f"line {_ranges(k.lines)}" if k.lines else "",
         _cut(kernels.space(k).replace(": parallel", ""), 26), units.size(k.bytes_moved))
        for k in plan.kernels
    ]  # fmt: skip
    widths = [max(len(r[c]) for r in rows) for c in range(5)]
    widths[2] = min(widths[2], 14)
    figures = max(len(_resources(plan, k)) for k in plan.kernels)
    widths[1] = max(min(widths[1], WIDTH - 10 - figures - sum(widths) + widths[1]), 12)
    lines = []
    for k, (label, name, place, where, moved) in zip(plan.kernels, rows, strict=True):
        w0, w1, w2, w3, w4 = widths
        head = f"{label:<{w0}}  {_cut(name, w1):<{w1}}  {_cut(place, w2):<{w2}}  {where:<{w3}}  {moved:>{w4}}"
        lines.append(f"{head}  {_resources(plan, k)}".rstrip())
        lines += wrap(f"{' '.join(k.operators)} -> {', '.join(k.writes)}", WIDTH - 6, **_DEEPER)
        if k.spills > 0:
            lines.append(f"      {units.size(k.spills)} spilled")
        lines.append("")
    return lines


def _resources(plan: Plan, k: PlannedKernel) -> str:
    """`regs 44/42  occ 75%`: predicted and compiled registers, occupancy."""
    if k.registers < 0:
        return ""
    guess = f"{k.predicted['registers']:.0f}/" if "registers" in k.predicted else ""
    return f"regs {guess}{k.registers}  occ {kernels.occupancy(plan, k).partition(';')[0]}"


_DEEPER: _Indents = {"initial_indent": "      ", "subsequent_indent": "      "}


def _ranges(numbers: Iterable[int]) -> str:
    """`3-4, 9` from 3, 4, 9."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# -- reasons ---------------------------------------------------------------------------------------
def _fused(plan: Plan) -> list[str]:
    found = because.flows(plan)
    total = sum(f.saves for f in found)
    worth = [f for f in found if f.launches or f.saves > NEGLIGIBLE * total]
    if not worth:
        return []
    largest = sorted(worth, key=lambda f: -f.saves)[:MAX_LINES]
    lines = ["fused because"]
    for f in (f for f in worth if f in largest):
        launches = f", {units.count(f.launches, 'launch')}" if f.launches else ""
        saved = f"saves {units.size(f.saves)}{launches}" if f.saves else f"saves {launches[2:]}" if launches else ""
        lines.append(f"  {_cut(f.names, 34):<34}  {_cut(f.text, 34):<34}  {saved}")
    if len(worth) > MAX_LINES:
        lines.append(f"  and {len(worth) - MAX_LINES} more (--dump-graph=json has all)")
    return [*lines, ""]


def _apart(plan: Plan) -> list[str]:
    found = facts.apart(plan)
    if not found:
        return ["apart: nothing"]
    lines = ["apart, largest saving first"]
    for a in found[:MAX_LINES]:
        flow = f"{a.producer} -> {', '.join(a.consumers[:3])}"
        if a.siblings:
            flow = f"{a.producer}, {a.consumers[0]}" if a.consumers else f"{a.producer} read by both"
        where = f"{a.kernels[0]} | {a.kernels[1]}"
        cost = units.size(a.bytes) if a.bytes else ""
        lines.append(f"  {where:<8}  {_cut(flow, 27):<27}  {a.decision.reason:<10} {cost:>7}   {_cut(why(a), 38)}")
    if len(found) > MAX_LINES:
        lines.append(f"  and {len(found) - MAX_LINES} more (--dump-graph=json has all)")
    return lines


def why(a: facts.Apart) -> str:
    """The reason in words, with the numbers that decided."""
    n = a.decision.numbers
    if a.decision.reason == "registers" and "needs" in n:
        return f"would need {n['needs']} registers, limit {n.get('limit', 255)}"
    if a.decision.reason == "cost" and "us_apart" in n:
        return f"predicted {n['us_together']} us together, {n['us_apart']} apart"
    if a.decision.reason == "strips":
        return f"{n['strips']} strips of rows are too few to fill the device"
    if a.decision.reason == "width":
        return f"sums of its columns would take {n['needs']} registers beside a row, limit {n['limit']}"
    if a.decision.reason == "barrier":
        few = next((f"{n[k]} {k}" for k in ("rows", "columns") if int(n.get(k, 1)) > 1), "")
        if few:
            return f"{few} are too few to fill the device"
        return f"{a.third} is known only after every row" if a.third else a.decision.text
    if a.third:
        return f"{a.third} lies between them"
    return a.decision.text


def _recomputed(plan: Plan) -> list[str]:
    found = list(facts.recomputed(plan))
    lines = [
        f"  {_cut(f'{a.name} (line {a.line}) in ' + ' and '.join(a.kernels), 40):<40} {units.size(a.bytes):>7}   "
        "saved by computing it again"
        for a in found
    ]
    return ["recomputed", *lines] if lines else []


def _notes(plan: Plan) -> list[str]:
    lines = [f"  {line}" for line in facts.made_f64(plan)]
    peak, each = facts.temporaries(plan)
    if peak:
        largest = sorted(each.items(), key=lambda item: -item[1])[:4]
        listed = ", ".join(f"{name} {units.size(size)}" for name, size in largest) + (", ..." if len(each) > 4 else "")
        lines.append(f"  memory    temporaries peak {units.size(peak)} ({listed})")
    if plan.cuda_graph:
        lines.append(f"  launches  {graph_line(plan)}")
    return ["notes", *lines] if lines else []


def graph_line(plan: Plan) -> str:
    """Whether the launches are replayed as a CUDA graph, where that was asked for."""
    refusal = plan.graph_refusal
    if refusal:
        return f"one by one, not as a CUDA graph: {refusal}"
    when = "for arrays that matrix products saw before" if plan.has_products else "from the second call on"
    return f"as one CUDA graph, {when}"


def _closing(plan: Plan, several: bool) -> list[str]:
    replans = plan.replans
    error = kernels.register_error(plan.kernels)
    lines = []
    if replans or (several and error):
        what = f"{units.count(len(replans), 'kernel')}: {replans[0].text}" if replans else "none"
        lines.append(f"replans     {what}" + (f"; register error of this plan: {error}" if error else ""))
    pair = next((a for a in facts.apart(plan) if not a.siblings), None)
    if several and pair is not None:
        span = next((s for n in plan.graph.nodes for s in plan.graph.spans.get(n, ())), None)
        file = span.filename.rpartition("/")[2] if span else ""
        ask = f"fuserc why {file}" if file.endswith((".fuse", ".py")) else "plan.why"
        names = f"{pair.producer} {pair.consumers[0]}"
        lines.append(
            f"ask more    {ask} {names}" if ask != "plan.why" else f"ask more    plan.why{tuple(names.split())}"
        )
    return lines
