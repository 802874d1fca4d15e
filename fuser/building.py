"""From a group to compiled kernels, with the compiler's own report fed back.

In: a group and its first schedule. Out: the schedule that was kept, its kernels, and a `replan` decision for every
schedule given up. A kernel that spills is lowered again under a weaker schedule (less unrolled, not resident, fewer
blocks promised) until it does not, or nothing weaker is left. Only schedules that keep the reduction order are tried,
so results never depend on this loop. (A stack frame alone is no spill: f64 `sin` has 40 bytes of its own.)
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.decision import Decision
from fuser.device import Device
from fuser.graph import Graph
from fuser.group import Group
from fuser.keys import SizeClass
from fuser.record import dataclass
from fuser.schedule import Schedule
from fuser.toolchain import Built, Toolchain

MAX_REPLANS = 8


@dataclass(frozen=True)
class Compiled:
    """A group as it will run."""

    schedule: Schedule
    built: tuple[Built, ...]
    replans: tuple[Decision, ...] = ()


def build(
    tools: Toolchain, graph: Graph, group: Group, schedule: Schedule, device: Device, size_class: SizeClass
) -> Compiled:
    """Compile a group; of all schedules tried, the first without spills, else the one that spills least."""
    replans: list[Decision] = []
    tried: list[Compiled] = []
    while True:
        kernels = tools.lower(graph, group, schedule, device, size_class.layouts)
        built = tuple(tools.build(k, device) for k in kernels)
        tried.append(Compiled(schedule, built))
        weaker = tools.retreat(schedule) if _spilled(built) else None
        if weaker is None or len(replans) == MAX_REPLANS:
            break
        replans.append(_decision(group, built))
        schedule = weaker
    best = min(tried, key=lambda c: _spilled(c.built))  # the first of equals
    return Compiled(best.schedule, best.built, tuple(replans))


def _spilled(built: Sequence[Built]) -> int:
    """Bytes a thread spills."""
    return max((max(b.resources.spills, 0) for b in built), default=0)


def _decision(group: Group, built: Sequence[Built]) -> Decision:
    worst = max(built, key=lambda b: b.resources.spills)
    numbers = {"registers": worst.resources.registers, "spilled_bytes": worst.resources.spills}
    first, last = group.members[0], group.members[-1]
    return Decision("replan", first, last, "fused", "registers", numbers)
