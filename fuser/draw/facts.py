"""What there is to say about a plan, once, for every form of drawing.

In: a plan. Out: plain records (operators with their place, pairs with their reasons, totals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser import accounting
from fuser.decision import Decision
from fuser.graph import InputAttrs, IotaAttrs, Node, ReduceAttrs, RoundAttrs, ScalarAttrs, ScanAttrs
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
    kernel: str
    stage: int
    line: int


@dataclass(frozen=True)
class Pair:
    """Neighbours that share a kernel or do not. `saves`/`costs` bytes from the decision's numbers."""

    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    kernels: tuple[str, str]
    decision: Decision

    @property
    def bytes(self) -> int:
        return int(self.decision.numbers.get("saves_bytes", 0))


def readable(plan: Plan, node: Node) -> str:
    """A value's name; views, rounds and items show as what they read."""
    return plan.names[_shown(plan, node).id]


def _shown(plan: Plan, node: Node) -> Node:
    while node.op in ("view", "round", "item") and not plan.graph.names.get(node):
        node = node.inputs[0]
    return node


def formula(plan: Plan, node: Node) -> str:
    """`max x, axis=1`: operator, operands by name, attributes."""
    if isinstance(node.attrs, InputAttrs):
        return "input"
    if isinstance(node.attrs, ScalarAttrs):
        return f"scalar {node.attrs.expr}"
    operands = ", ".join(readable(plan, i) for i in node.inputs)
    extra = ""
    if isinstance(node.attrs, ReduceAttrs):
        axes = node.attrs.axes
        extra = f", axis={axes[0] if len(axes) == 1 else axes}"
    elif isinstance(node.attrs, (ScanAttrs, IotaAttrs)):
        extra = f" axis={node.attrs.axis}"
    elif isinstance(node.attrs, RoundAttrs):
        extra = f" to {node.attrs.to}"
    elif node.op == "cast":
        extra = f" to {node.dtype}"
    return f"{node.op} {operands}{extra}".rstrip()


def operators(plan: Plan) -> list[Operator]:
    """Inputs and operators in program order, plumbing (views, literals) left out."""
    labels = [k.label for k in plan.outline]
    stages = _stages(plan)
    out = []
    for n in plan.graph.nodes:
        if not (n.op == "input" or accounting.is_operator(n) or n in plan.graph.results):
            continue
        group = plan.group_of.get(n.id)
        spans = plan.graph.spans.get(n, ())
        kernel = labels[group] if group is not None else ""
        out.append(
            Operator(
                n, plan.names[n.id], formula(plan, n), f"{n.storage}{text_of(n.shape)}", kernel,
                stages.get(n.id, 0), spans[0].line if spans else 0,
            )
        )  # fmt: skip
    return out


def _stages(plan: Plan) -> Mapping[int, int]:
    """1-based stage in which a node is first needed; 0 in groups of one stage."""
    out: dict[int, int] = {}
    for group in plan.groups:
        members = set(group.members)
        for stages in group.stages:
            if len(stages) < 2:
                continue
            for k, stage in enumerate(stages, 1):
                for root in [r.node for r in stage.reducers] + [s.node for s in stage.stores]:
                    _mark(plan, root, members, k, out)
    return out


def _mark(plan: Plan, root: int, members: set[int], stage: int, out: dict[int, int]) -> None:
    stack = [root]
    while stack:
        k = stack.pop()
        if k in out or k not in members:
            continue
        out[k] = stage
        stack.extend(i.id for i in plan.graph.by_id[k].inputs)


def pairs(plan: Plan, verdict: str) -> list[Pair]:
    """The final decision about each neighbouring pair with this verdict, largest bytes first."""
    labels = [k.label for k in plan.outline]
    latest: dict[tuple[int, int], Decision] = {}
    for d in plan.decisions:
        latest[d.producer, d.consumer] = d
    grouped: dict[tuple[str, ...], Pair] = {}
    for (a, b), d in latest.items():
        ga, gb = plan.group_of.get(a), plan.group_of.get(b)
        together = ga is not None and ga == gb
        if d.verdict != verdict or together != (verdict == "fused") or ga is None or gb is None:
            continue
        first, second = readable(plan, plan.graph.by_id[a]), readable(plan, plan.graph.by_id[b])
        if first == second:
            continue
        key = (first, d.reason, labels[ga], labels[gb])
        old = grouped.get(key)
        consumers = (
            (*old.consumers, second) if old and second not in old.consumers else (old.consumers if old else (second,))
        )
        best = old.decision if old and old.bytes >= int(d.numbers.get("saves_bytes", 0)) else d
        grouped[key] = Pair((first,), consumers, (labels[ga], labels[gb]), best)
    return sorted(grouped.values(), key=lambda p: -p.bytes)
