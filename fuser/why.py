"""`plan.why(a, b)`: the reason behind a pair of values, in words and numbers.

In: a plan and two of its nodes. Out: an `Answer` built from the plan's recorded decisions; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fuser.decision import REASONS, Decision
from fuser.draw import because, facts, text, units
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.graph import Node
    from fuser.plan import Plan


NODES = ("between", "awaits")  # numbers of decisions that are ids of nodes


@dataclass(frozen=True)
class Answer:
    """An answer of `plan.why`; `str()` is the sentence.

    together: whether one kernel computes both. reason: code of the deciding decision. text: the sentence."""

    together: bool
    reason: str
    text: str
    numbers: Mapping[str, float | int | str]
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        return self.text


def answer(plan: Plan, a: Node, b: Node) -> Answer:
    """Why `a` and `b` are computed together or apart."""
    a, b = plan.names.shown[a], plan.names.shown[b]
    first, second = (a, b) if a.id <= b.id else (b, a)
    exact = tuple(d for d in plan.decisions if _ends(plan, d) == {first, second})
    inside = _inside(plan)
    shared = [e for e in inside if {e.source, e.reader} == {first, second}]
    together = bool(_homes(plan, first) & _homes(plan, second) or shared)
    verdict = "fused" if together else "apart"
    relevant = exact if exact or together else _between(plan, first, second)
    step = None if relevant or together else _crossing(plan, first, second)
    if step and set(step) != {first, second}:
        return _on_the_way(plan, first, second, step)
    deciding = next((d for d in reversed(relevant) if d.verdict == verdict), None)
    if together and deciding is None and not shared:
        deciding = _batched(plan, first, second)
    labels = _kernel_names(plan, first, second, together)
    head = f"{plan.names[first.id]} -> {plan.names[second.id]}  {verdict} ({labels})"
    code = deciding.reason if deciding else "view" if shared else "unconnected"
    numbers = dict(deciding.numbers) if deciding else {}
    if shared:
        numbers["saves_bytes"] = sum(e.saves for e in inside if e in shared or _reads_with(e, shared[0]))
        return Answer(together, code, _sentence(head, because.reason(plan, shared[0]), numbers), numbers, relevant)
    if deciding is None:
        if first.op == "input" and any(first.id in plan.groups[k].inputs for k in _homes(plan, second)):
            code = "argument"
        words = "one kernel computes both; nothing flows from one straight to the other"
        return Answer(together, code, f"{head}: {words if together else REASONS[code]}", {}, relevant)
    boundary = next((x for x in facts.apart(plan) if x.decision in relevant), None)
    if boundary is not None:
        numbers["saves_bytes"] = boundary.bytes
    words = text.why(boundary) if boundary is not None else deciding.text
    return Answer(
        together, code, _sentence(head, words, numbers, "" if exact else "between the two kernels: "), numbers, relevant
    )


def _inside(plan: Plan) -> list[because.Edge]:
    """What flows inside kernels, and the reads of arguments that serve several operators."""
    found = list(because.edges(plan))
    several = {(e.source, e.group) for e in found if e.kind == "input" and e.saves}
    return [e for e in found if e.kind != "input" or (e.source.op == "input" and (e.source, e.group) in several)]


def _crossing(plan: Plan, first: Node, second: Node) -> tuple[Node, Node] | None:
    """On the way from one value to another that is computed from it, the first step that leaves the former's kernel;
    None where there is no way."""
    toward: dict[Node, Node] = {}  # a value on a way -> the next one on it
    pending = [second]
    while pending:
        node = pending.pop()
        for source in node.inputs:
            if source.id >= first.id and source not in toward:
                toward[source] = node
                pending.append(source)
    node = first if _homes(plan, first) else toward.get(first, second)  # an argument counts where it is read
    home = _homes(plan, node)
    while node in toward:
        reader = toward[node]
        if not _homes(plan, reader) & home:
            return plan.names.shown[node], plan.names.shown[reader]
        node = reader
    return None


def _on_the_way(plan: Plan, first: Node, second: Node, step: tuple[Node, Node]) -> Answer:
    """The answer for values between which others are computed elsewhere: what ends the first one's kernel."""
    names = plan.names
    head = f"{names[first.id]} -> {names[second.id]}  apart ({_kernel_names(plan, first, second)})"
    found = answer(plan, *step)
    return Answer(False, found.reason, f"{head}: on the way, {found.text}", found.numbers, found.decisions)


def _reads_with(edge: because.Edge, one: because.Edge) -> bool:
    """Whether two edges share one read of memory."""
    return one.kind == edge.kind == "input" and (edge.source, edge.group) == (one.source, one.group)


def _sentence(head: str, words: str, numbers: Mapping[str, float | int | str], before: str = "") -> str:
    """The verdict, the reason, and the numbers it rested on."""
    verb = "saves" if "  fused (" in head else "costs"
    shown = [_phrase(k, v) for k, v in numbers.items() if not k.startswith("saves") and k not in NODES]
    if numbers.get("saves_bytes"):
        shown.insert(0, f"{verb} {units.size(float(numbers['saves_bytes']))}")
    return f"{head}: {before}{words}" + (f"; {', '.join(shown)}" if shown else "")


def _phrase(key: str, value: float | int | str) -> str:
    """`us_apart: 135` as `135 us apart`, others as `registers 48`."""
    if key.startswith("us_"):
        return f"{units.time(float(value))} {key[3:]}"
    return f"{key.replace('_', ' ')} {_number(value)}"


def _ends(plan: Plan, d: Decision) -> set[Node]:
    by_id = plan.graph.by_id
    return {plan.names.shown[by_id[k]] for k in (d.producer, d.consumer) if k in by_id}


def _homes(plan: Plan, node: Node) -> set[int]:
    """Positions of the kernels that compute a value."""
    return {k for k, g in enumerate(plan.groups) if node.id in g.members}


def _between(plan: Plan, a: Node, b: Node) -> tuple[Decision, ...]:
    """Decisions between the kernels of two nodes that were never a candidate pair themselves."""
    ga, gb = plan.group_of.get(a.id), plan.group_of.get(b.id)
    return tuple(
        d
        for d in plan.decisions
        if d.verdict == "apart" and {plan.group_of.get(d.producer), plan.group_of.get(d.consumer)} == {ga, gb}
    )


def _batched(plan: Plan, a: Node, b: Node) -> Decision | None:
    """The decision that put the parts of two values into one launch, if they are in different parts of one."""
    for group in (plan.groups[k] for k in _homes(plan, a) & _homes(plan, b)):
        apart = not any(a.id in part.members and b.id in part.members for part in group.parts)
        if group.parts and apart:
            return next(d for d in plan.decisions if d.reason == "batched" and d.producer in group.outputs)
    return None


def _kernel_names(plan: Plan, a: Node, b: Node, together: bool = False) -> str:
    labels = [k.label for k in plan.outline]
    one, other = _homes(plan, a), _homes(plan, b)
    if one & other or (together and one | other):
        return labels[min(one & other or one | other)]
    return " | ".join(labels[min(home)] if home else "memory" for home in (one, other))


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
