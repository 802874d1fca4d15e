"""Schedules: how a group becomes kernels of the kernel language, per device.

In: a prepared graph, a group, a size class, a device. Out: `choose` gives a frozen schedule, `lower` the kernels under
it. Both hand over to the target's own module, imported when first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.schedule import CpuSchedule, CudaSchedule

if TYPE_CHECKING:
    from fuser.codegen.loops import Kernel
    from fuser.codegen.schedule.body import Layouts
    from fuser.device import Device
    from fuser.graph import Graph
    from fuser.group import Group
    from fuser.keys import SizeClass
    from fuser.schedule import Schedule


def choose(graph: Graph, group: Group, size_class: SizeClass, device: Device) -> Schedule:
    """The schedule of a group that is not a library call."""
    if group.parts:
        return _choose_batch(graph, group, size_class, device)
    if device.kind == "cpu":
        from fuser.codegen.schedule.cpu import choose_cpu
        from fuser.codegen.schedule.lengths import length_bucket

        length = length_bucket(graph, size_class, group.space.length)
        return choose_cpu(graph, group, size_class.representative, length, size_class.layouts)
    from fuser.codegen.schedule import cuda

    return cuda.choose(graph, group, size_class, device)


def _choose_batch(graph: Graph, group: Group, size_class: SizeClass, device: Device) -> Schedule:
    from fuser.codegen.schedule import batch

    parts = [choose(graph, part, size_class, device) for part in group.parts]
    on_cuda = [s for s in parts if isinstance(s, CudaSchedule)]
    return batch.choose_cuda(on_cuda) if on_cuda else batch.choose_cpu([s for s in parts if isinstance(s, CpuSchedule)])


def lower(graph: Graph, group: Group, schedule: Schedule, device: Device, layouts: Layouts) -> tuple[Kernel, ...]:
    """The kernels of a group, in launch order."""
    if group.parts:
        from fuser.codegen.schedule import batch

        parts: tuple[Schedule, ...] = schedule.parts
        lowered = [lower(graph, g, s, device, layouts) for g, s in zip(group.parts, parts, strict=True)]
        return batch.lower(group.name, lowered)
    if isinstance(schedule, CpuSchedule):
        from fuser.codegen.schedule.lower_cpu import lower_cpu

        return lower_cpu(graph, group, schedule, layouts)
    from fuser.codegen.schedule import cuda

    assert isinstance(schedule, CudaSchedule)
    return cuda.lower(graph, group, schedule, layouts)


def retreat(schedule: Schedule) -> Schedule | None:
    """What to try instead of a schedule whose kernel spills; None when nothing is left. The results keep their bits."""
    if isinstance(schedule, CpuSchedule):
        return None
    from fuser.codegen.schedule import batch, cuda

    if schedule.parts:  # the compiler reports of all parts together, so each takes its next step
        parts = [cuda.retreat(s) for s in schedule.parts]
        return batch.choose_cuda([a or b for a, b in zip(parts, schedule.parts, strict=True)]) if any(parts) else None
    return cuda.retreat(schedule)


def neighbours(schedule: Schedule) -> tuple[Schedule, ...]:
    """Schedules to measure beside one: the same bits, one number changed. Those of a batch's parts stay as they are."""
    if schedule.parts:
        return ()
    from fuser.codegen.schedule import nearby

    return nearby.neighbours(schedule)
