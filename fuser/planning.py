"""From a trace and a size class to a plan: taken from the disk cache where it has one, else made.

In: a traced program, the size class of a call, a device. Out: a `Plan` that keeps what the program demands of it
(`must_fuse`, `expect_kernels`). Its own file because `compiled` is about calls: which plan one runs under is decided
there, where the plan comes from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fuser import marks, planrecord
from fuser.errors import DeviceError, FusionLost
from fuser.plan import Plan
from fuser.runtime import cache
from fuser.settings import settings

if TYPE_CHECKING:
    from fuser.device import Device
    from fuser.keys import SizeClass
    from fuser.source import Options
    from fuser.toolchain import Built, Toolchain
    from fuser.traces import Traced


def make(
    traced: Traced, size_class: SizeClass, device: Device, env: Mapping[str, Any], options: Options, header: str,
    tools: Toolchain, to_run: bool,
) -> Plan:  # fmt: skip
    """The plan of a size class; FusionLost where it fuses less than the program demands.

    to_run: its kernels will be launched, so that a record of them is worth a look, and is left if there is none.
    """
    graph, sizes = traced.graph, {**env, **size_class.representative}
    key = partial(_record_key, traced, size_class, device, tools) if to_run and _recordable() else None
    found = planrecord.load(known) if key is not None and not cache.store().is_empty() and (known := key()) else None
    built = _taken_up(found, tools) if found is not None else None
    if found is not None and built is not None:
        groups, decisions = found.groups, found.decisions
    else:
        contiguous = [k for k, layout in enumerate(size_class.layouts) if layout == "c"]
        groups, decisions = tools.plan_groups(
            graph, size_class.representative, device, contiguous=contiguous, in_place=not size_class.overlap
        )
    plan = Plan(
        graph, groups, decisions, size_class, sizes, device, tools, header,
        cuda_graph=options.cuda_graph, record=key, recorded=built,
    )  # fmt: skip
    marks.check(plan)
    if (limit := options.expect_kernels) is not None and len(groups) > limit:
        raise _fusion_lost(plan, limit)
    return plan


def _recordable() -> bool:
    """Whether plans are kept: there is a cache, and nobody asked to see every stage."""
    return bool(cache.store().folders) and not settings().debug and not settings().line_info


def _record_key(traced: Traced, size_class: SizeClass, device: Device, tools: Toolchain) -> str:
    """The key of a plan's record; empty where there is none, and for tools that plan in their own way: their plans are
    nobody else's."""
    if not tools.own(tools):
        return ""
    try:
        facts = tools.facts(device)
    except DeviceError:  # nothing compiles for this device here
        return ""
    return planrecord.key_of(traced.graph, size_class, device, facts)


def _taken_up(record: planrecord.Record, tools: Toolchain) -> tuple[tuple[Built, ...], ...] | None:
    """The kernels of a record; None where one of them is gone."""
    found = []
    for kernels in record.kernels:
        built = tuple(b for k in kernels if (b := tools.take_up(k)) is not None)
        if len(built) < len(kernels):
            return None
        found.append(built)
    return tuple(found)


def _fusion_lost(plan: Plan, limit: int) -> FusionLost:
    apart = [d for d in plan.decisions if d.verdict == "apart"]
    notes = [f"{plan.names[d.producer]} -> {plan.names[d.consumer]}: {d.text}" for d in apart[:4]]
    message = f"`{plan.graph.name}` plans {len(plan.groups)} kernels, expect_kernels={limit}"
    return FusionLost(message, "fusion-lost", notes=notes)
