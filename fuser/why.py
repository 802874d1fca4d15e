"""`plan.why(a, b)`: the reason behind a pair of values, in words and numbers.

In: a plan and two of its nodes. Out: an `Answer` built from the plan's recorded decisions; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.decision import Decision

if TYPE_CHECKING:
    from fuser.graph import Node
    from fuser.plan import Plan


@dataclass(frozen=True)
class Answer:
    """together: whether one kernel computes both. reason: code of the deciding decision. text: the sentence."""

    together: bool
    reason: str
    text: str
    numbers: Mapping[str, float | int | str]
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        return self.text


def answer(plan: Plan, a: Node, b: Node) -> Answer:
    """Why `a` and `b` are computed together or apart."""
    first, second = (a, b) if a.id <= b.id else (b, a)
    relevant = tuple(d for d in plan.decisions if {d.producer, d.consumer} == {first.id, second.id})
    groups = plan.group_of
    together = groups.get(first.id) is not None and groups.get(first.id) == groups.get(second.id)
    verdict = "fused" if together else "apart"
    if not relevant:
        relevant = _between(plan, first, second, verdict)
    deciding = next((d for d in reversed(relevant) if d.verdict == verdict), None)
    name_a, name_b = plan.names[first.id], plan.names[second.id]
    place = _kernel_names(plan, first, second)
    if deciding is None:
        reason = "view" if together else "unconnected"
        return Answer(together, reason, f"{name_a} -> {name_b}  {verdict} ({place})", {}, relevant)
    numbers = ", ".join(f"{k.replace('_', ' ')} {_number(v)}" for k, v in deciding.numbers.items())
    text = f"{name_a} -> {name_b}  {verdict} ({place}): {deciding.text}" + (f"; {numbers}" if numbers else "")
    return Answer(together, deciding.reason, text, deciding.numbers, relevant)


def _between(plan: Plan, a: Node, b: Node, verdict: str) -> tuple[Decision, ...]:
    """Decisions between the groups of two nodes that were never a candidate pair themselves."""
    ga, gb = plan.group_of.get(a.id), plan.group_of.get(b.id)
    return tuple(
        d
        for d in plan.decisions
        if d.verdict == verdict
        and {plan.group_of.get(d.producer), plan.group_of.get(d.consumer)} == {ga, gb}
        and (ga != gb or a.id in (d.producer, d.consumer) or b.id in (d.producer, d.consumer))
    )


def _kernel_names(plan: Plan, a: Node, b: Node) -> str:
    labels = [k.label for k in plan.outline]
    found = [labels[g] if (g := plan.group_of.get(n.id)) is not None else "memory" for n in (a, b)]
    return found[0] if found[0] == found[1] else " | ".join(found)


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
