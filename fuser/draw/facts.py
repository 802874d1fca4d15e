"""What there is to say about a plan, once, for every form of drawing.

In: a plan. Out: plain records (operators with their place, pairs that stayed apart with their reasons, values computed
twice, temporaries). What fusing saved is in `because`, what one kernel does in `kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fuser import accounting
from fuser.decision import Decision
from fuser.draw.because import stages_of
from fuser.dtypes import F64
from fuser.graph import InputAttrs, IotaAttrs, ItemAttrs, Node, ReduceAttrs, RoundAttrs, ScalarAttrs, ScanAttrs
from fuser.loopbody import LoopAttrs
from fuser.record import dataclass
from fuser.shapes import text_of

if TYPE_CHECKING:
    from fuser.plan import Plan


@dataclass(frozen=True)
class Operator:
    """One line of the operator table: where a value is computed and from what."""

    node: Node
    name: str
    formula: str
    type: str
    kernels: tuple[str, ...]
    stage: int
    line: int


@dataclass(frozen=True)
class Apart:
    """Neighbours in two kernels. bytes: what the boundary costs; siblings: both read the producer, nothing flows;
    with a consumer: nothing is read by both either.
    third: what lies between the two kernels, or what the consumer would wait for, where that is the reason."""

    kernels: tuple[str, str]
    producer: str
    consumers: tuple[str, ...]
    siblings: bool
    bytes: int
    decision: Decision
    third: str = ""


@dataclass(frozen=True)
class Again:
    """A value computed in several kernels rather than stored."""

    name: str
    line: int
    kernels: tuple[str, ...]
    bytes: int


def dims(plan: Plan) -> dict[str, int]:
    """The sizes of the program's dims, by name, in the order of the arguments."""
    used: dict[str, None] = {}
    for a in plan.graph.arguments:
        used.update((s, None) for d in a.shape if not isinstance(d, int) for s in sorted(d.symbols))
    used.update((s, None) for s in sorted(plan.graph.symbols))
    return {k: plan.sizes[k] for k in used if k in plan.sizes and not k.startswith(("=", "#"))}


def formula(plan: Plan, node: Node) -> str:
    """`max x, axis=1`: operator, operands by name, attributes."""
    if isinstance(node.attrs, InputAttrs):
        return "input"
    if isinstance(node.attrs, ScalarAttrs):
        return f"scalar {node.attrs.expr}"
    operands = ", ".join(plan.names[i.id] for i in node.inputs)
    extra = ""
    if isinstance(node.attrs, ReduceAttrs):
        axes = node.attrs.axes
        extra = f", axis={axes[0] if len(axes) == 1 else axes}"
    elif isinstance(node.attrs, (ScanAttrs, IotaAttrs)):
        extra = f" axis={node.attrs.axis}"
    elif isinstance(node.attrs, RoundAttrs):
        extra = f" to {node.attrs.to}"
    elif isinstance(node.attrs, LoopAttrs):
        return _loop_formula(plan, node, node.attrs)
    elif node.op == "cast":
        extra = f" to {node.dtype}"
    elif node.op == "view":
        operands = plan.names[node.inputs[0].id]
    return f"{node.op} {operands}{extra}".rstrip()


def _loop_formula(plan: Plan, node: Node, attrs: LoopAttrs) -> str:
    """`loop n times until stopped: 0.0, 0.0, 0 by 9 operators of cr, ci`: count, first states, what a round takes."""
    count, *others = (plan.names[i.id] for i in node.inputs)
    states, captured = ", ".join(others[: attrs.states]), ", ".join(dict.fromkeys(others[attrs.states :]))
    operators = sum(s.op != "scalar" for s in attrs.steps)
    until = " until stopped" if attrs.stop is not None else ""
    of = f" of {captured}" if captured else ""
    return f"loop {count} times{until}: {states} by {operators} operators{of}"


def operators(plan: Plan) -> list[Operator]:
    """Inputs, operators and the views that the user named, in program order; literals and plumbing left out."""
    labels = [k.label for k in plan.outline]
    stages: dict[int, int] = {}
    for g in plan.groups:
        if any(len(stages) > 1 for stages in g.stages):
            stages = {**stages_of(plan, g), **stages}
    homes: dict[int, list[str]] = {}
    for g, label in zip(plan.groups, labels, strict=True):
        for m in g.members:
            homes.setdefault(m, []).append(label)
    out = []
    for n in plan.graph.nodes:
        if not _is_shown(plan, n):
            continue
        spans = plan.graph.spans.get(n, ())
        place = tuple(homes.get(n.id, ())) if n.op != "view" else ()
        out.append(
            Operator(
                n, plan.names[n.id], formula(plan, n), f"{n.storage}{text_of(n.shape)}", place,
                stages.get(n.id, 0), spans[0].line if spans else 0,
            )
        )  # fmt: skip
    return out


def _is_shown(plan: Plan, node: Node) -> bool:
    if isinstance(node.attrs, ScalarAttrs) or plan.names.shown[node] is not node:
        return False
    named_view = node.op == "view" and bool(plan.graph.names.get(node))
    return node.op == "input" or accounting.is_operator(node) or named_view or node in plan.graph.results


def apart(plan: Plan) -> list[Apart]:
    """The boundaries between kernels, the costliest first."""
    found: dict[tuple[int, int, str, int], list[Decision]] = {}
    for d in plan.decisions:
        ga, gb = plan.group_of.get(d.producer), plan.group_of.get(d.consumer)
        if d.verdict != "apart" or ga is None or gb is None or ga == gb:
            continue
        if d.consumer in plan.groups[ga].members or d.producer in plan.groups[gb].members:
            continue  # computed again there
        if d.kind in ("sibling", "batch"):
            ga, gb = sorted((ga, gb))
            found.setdefault((ga, gb, d.reason, -1), []).append(d)
        else:
            source = plan.names.shown[plan.graph.by_id[d.producer]].id
            found.setdefault((ga, gb, d.reason, source), []).append(d)
    lines = [_apart(plan, ga, gb, producer, ds) for (ga, gb, _, producer), ds in found.items()]
    flowing = {frozenset(a.kernels) for a in lines if not a.siblings}
    kept = [a for a in lines if not a.siblings or frozenset(a.kernels) not in flowing]
    return sorted(kept, key=lambda a: -a.bytes)


def _apart(plan: Plan, ga: int, gb: int, producer: int, decided: list[Decision]) -> Apart:
    labels = [k.label for k in plan.outline]
    where = (labels[ga], labels[gb])
    numbers = decided[-1].numbers
    other = numbers.get("between", numbers.get("awaits"))
    if "awaits" in numbers and producer >= 0 and isinstance(plan.graph.by_id[producer].attrs, (ReduceAttrs, ItemAttrs)):
        other = producer  # of several that are waited for, the one that flows here
    third = plan.names[int(other)] if other is not None else ""
    if producer < 0:
        first = decided[0]
        if first.kind == "batch":
            return Apart(where, plan.names[first.producer], (plan.names[first.consumer],), True, 0, first)
        shared = sorted(set(plan.groups[ga].inputs) & set(plan.groups[gb].inputs))
        size = sum(accounting.nbytes(plan.graph.by_id[k], plan.sizes) for k in shared)
        names = ", ".join(dict.fromkeys(plan.names[k] for k in shared)) or plan.names[first.producer]
        return Apart(where, names, (), True, size, first, third)
    consumers = tuple(dict.fromkeys(plan.names[d.consumer] for d in decided))
    return Apart(where, plan.names[producer], consumers, False, _boundary(plan, producer, gb), decided[-1], third)


def _boundary(plan: Plan, producer: int, gb: int) -> int:
    """Bytes through memory for a value: the read, and the write where no other kernel or caller needs it."""
    stored = {k for g in plan.groups for k in g.outputs}
    node = plan.graph.by_id[producer]
    held = [k for k in stored if plan.names.shown[plan.graph.by_id[k]] is node] or [producer]
    size = accounting.nbytes(plan.graph.by_id[held[0]], plan.sizes)
    readers = [k for k, g in enumerate(plan.groups) if not set(held).isdisjoint(g.inputs)]
    results = {n.id for n in plan.graph.results}
    return size if len(readers) > 1 or not results.isdisjoint(held) else 2 * size


def recomputed(plan: Plan) -> Iterator[Again]:
    """Values that a repair computes again in each kernel that needs them."""
    labels = [k.label for k in plan.outline]
    for producer in dict.fromkeys(d.producer for d in plan.decisions if d.kind == "recompute"):
        node = plan.graph.by_id[producer]
        homes = tuple(label for g, label in zip(plan.groups, labels, strict=True) if producer in g.members)
        if len(homes) > 1:
            span = next(iter(plan.graph.spans.get(node, ())), None)
            size = accounting.nbytes(node, plan.sizes)
            yield Again(plan.names[producer], span.line if span else 0, homes, len(homes) * size)


def temporaries(plan: Plan) -> tuple[int, Mapping[str, int]]:
    """(most bytes alive at once, bytes of each by name) of values kept between kernels and returned to nobody."""
    results = {n.id for n in plan.graph.results}
    last: dict[int, int] = {}
    for position, g in enumerate(plan.groups):
        last.update(dict.fromkeys(g.inputs, position))
    sizes = {
        k: accounting.nbytes(plan.graph.by_id[k], plan.sizes)
        for g in plan.groups
        for k in g.outputs
        if k not in results
    }
    alive: set[int] = set()
    peak = 0
    for position, g in enumerate(plan.groups):
        alive |= {k for k in g.outputs if k in sizes}
        peak = max(peak, sum(sizes[k] for k in alive))
        alive = {k for k in alive if last.get(k, -1) > position}
    return peak, {plan.names[k]: v for k, v in sizes.items()}


def made_f64(plan: Plan) -> list[str]:
    """Where one float64 number makes f64 of narrower floats, with NumPy's rule and the way out; a line each.

    A cast that the program wrote has columns of its own; where those are not known (Python 3.10), nothing is said.
    """
    found: dict[str, None] = {}
    for n in plan.graph.nodes:
        if n.dtype != F64 or not n.rank or len(n.inputs) != 2:
            continue
        operands = [_seen(i) for i in n.inputs]
        numbers = [i for i in operands if i.op in ("scalar", "input") and not i.rank]
        spans = plan.graph.spans.get(n, ())[:1]
        for i in operands:
            narrow = i.inputs[0].storage if i.op == "cast" else n.dtype
            if (
                numbers
                and spans
                and spans[0].column
                and narrow.is_float
                and narrow != F64
                and plan.graph.spans.get(i, ())[:1] == spans
            ):
                name, times = plan.names[i.inputs[0].id], 8 // narrow.bytes
                rule = f"{name} is {narrow}, and a float64 number makes it f64 (NumPy's rule), {times}x bytes"
                found[f"line {spans[0].line:<4} {rule}; write float(...)"] = None
    return list(found)


def _seen(node: Node) -> Node:
    """What a view looks at."""
    while node.op == "view":
        node = node.inputs[0]
    return node
