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
    if device.kind == "cpu":
        from fuser.codegen.schedule.cpu import choose_cpu
        from fuser.codegen.schedule.lengths import length_bucket

        length = length_bucket(graph, size_class, group.space.length)
        return choose_cpu(graph, group, size_class.representative, length, size_class.layouts)
    from fuser.codegen.schedule import cuda

    return cuda.choose(graph, group, size_class, device)


def lower(graph: Graph, group: Group, schedule: Schedule, device: Device, layouts: Layouts) -> tuple[Kernel, ...]:
    """The kernels of a group, in launch order."""
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
    from fuser.codegen.schedule import cuda

    return cuda.retreat(schedule)


def neighbours(schedule: Schedule) -> tuple[Schedule, ...]:
    """Schedules to measure beside one: the same bits, one number changed."""
    from fuser.codegen.schedule import nearby

    return nearby.neighbours(schedule)
