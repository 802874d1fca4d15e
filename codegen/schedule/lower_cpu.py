"""Lowering of groups for CPUs: one kernel, or a short sequence of kernels, a group.

In: a group, its `CpuSchedule`, the layouts of the arguments. Out: kernels in launch order. Workspaces of one name
in several kernels of a group are one piece of memory. A kernel's parallel loop has independent iterations, so the
number of threads never matters.

    pointwise   iterations are (row, chunk of the contiguous axis)
    rows        an iteration is a row, or a band of rows: all stages one after another while they are in cache
    columns     an iteration is a tile of columns: all stages
    split       kernels a stage: few rows (or tiles), so the shares of each are spread over iterations
    scan        an iteration is a row (or a tile of columns), folded in order
"""

from __future__ import annotations

from fuser.codegen.loops import Kernel
from fuser.codegen.schedule import lower_cpu_fused, lower_cpu_pointwise, lower_cpu_scan, lower_cpu_split
from fuser.codegen.schedule.body import Layouts, analyse
from fuser.codegen.schedule.cpu import lanes_key
from fuser.codegen.schedule.cpu_parts import CpuParts
from fuser.codegen.schedule.pieces import cut_body
from fuser.graph import Graph
from fuser.group import Group
from fuser.schedule import CpuSchedule


def lower_cpu(graph: Graph, group: Group, schedule: CpuSchedule, layouts: Layouts) -> tuple[Kernel, ...]:
    """The kernels of a group of one space."""
    if schedule.kind == "scan":
        return (lower_cpu_scan.lower(graph, group, schedule, layouts),)
    body = analyse(graph, group, layouts, lanes_key if group.space.inner else None)
    if schedule.kind == "pointwise":
        return (lower_cpu_pointwise.lower(CpuParts(graph, group, schedule, layouts, cut_body(body))),)
    parts = CpuParts(graph, group, schedule, layouts, body)
    if schedule.kind == "rows":
        banded = schedule.block_rows > 1
        return (lower_cpu_fused.lower_bands(parts) if banded else lower_cpu_fused.lower_rows(parts),)
    if schedule.kind == "columns":
        return (lower_cpu_fused.lower_columns(parts),)
    return lower_cpu_split.lower(parts)
