"""What a program's marks ask of its plan, and whether the plan keeps to it.

In: a plan whose graph has marks (`must_fuse`, `no_fuse`). Out: FusionLost with the reason where a marked pair lies in
two kernels although it must share one, or shares one although it must not. The search already heeds marks; this says so
where it could not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.accounting import materialised
from fuser.errors import FusionLost
from fuser.graph import Mark, Node

if TYPE_CHECKING:
    from fuser.plan import Plan


def check(plan: Plan) -> None:
    """Raise FusionLost for the first mark that the plan does not keep."""
    for mark in plan.graph.marks:
        together = bool(_homes(plan, mark.a) & _homes(plan, mark.b))
        if together != mark.together:
            raise _lost(plan, mark)


def _homes(plan: Plan, node: Node) -> set[int]:
    """Positions of the groups that compute a value."""
    core = materialised(node)
    return {k for k, g in enumerate(plan.groups) if core.id in g.members}


def _lost(plan: Plan, mark: Mark) -> FusionLost:
    from fuser.why import answer

    a, b = materialised(mark.a), materialised(mark.b)
    names = f"`{plan.names[mark.a.id]}` and `{plan.names[mark.b.id]}`"
    if a is b:
        why = "they are one value"
    else:
        why = answer(plan, a, b).text
    asked = "must_fuse asks for one kernel" if mark.together else "no_fuse asks for two kernels"
    places = () if mark.span is None else (mark.span,)
    return FusionLost(f"{asked} for {names}", "fusion-lost", places, [why])
