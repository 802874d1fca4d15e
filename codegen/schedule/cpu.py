"""Schedules for CPUs, by formula from sizes; nothing here can change a result, only how fast it comes.

In: a group and the bucket sizes of its dims. Out: `CpuSchedule`. The reduction order is fixed by `fuser.order`.

Constants: a task should be worth about 16,384 simple elements (5-10 us), several times what waking a thread costs. A
tile of columns holds its accumulators in L1 (2048 f32 are 8 KiB of 32), and the partials of its shares, which are on a
thread's stack, in 128 KiB. A tile of 16 rows copies whole cache lines of 16 f32 of an operand that is read across
rows. 64 tasks keep any common number of cores evenly busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuser.codegen.program import Fetch
from fuser.codegen.schedule.body import Body, Layouts, analyse
from fuser.codegen.schedule.lower_cpu_pointwise import crosses
from fuser.graph import Graph
from fuser.group import Group
from fuser.hostexpr import HostExpr, lit
from fuser.optable import table
from fuser.order import AxisKind, bucket, order
from fuser.schedule import CpuSchedule

GRAIN = 16384  # elements a task
TASKS = 64  # iterations wanted of a kernel that is worth splitting
SPLIT_FROM = 1 << 18  # elements from which shares of one reduction go to several threads
COLUMN_TILE = 2048
STACK_BYTES = 1 << 17
CACHE_BYTES = 1 << 20  # L2 of a core
BLOCK_ROWS, BLOCK_COLUMNS = 16, 64


def choose_cpu(
    graph: Graph, group: Group, sizes: Mapping[str, Any], length_bucket: int, layouts: Layouts
) -> CpuSchedule:
    """The schedule of a group. sizes: bucket sizes of the dims. length_bucket: that of the reduced length itself."""
    space = group.space
    if group.scan is not None:
        return CpuSchedule("scan", grain=1, tile=COLUMN_TILE, order=order(1, 4, "outer", "cpu"))
    if not space.reduced:
        return _pointwise(graph, group, sizes, layouts)
    rows = _number(space.rows, sizes)
    kind: AxisKind = "inner" if space.inner else "outer"
    fixed = order(length_bucket, 4, kind, "cpu")
    if not space.inner and space.parallel and rows > 1:
        return _columns(graph, group, sizes, length_bucket)
    if rows < TASKS // 4 and rows * length_bucket >= SPLIT_FROM and fixed.segments > 1:
        blocks = min(fixed.segments, bucket(-(-TASKS // rows)))
        return CpuSchedule("split", grain=1, blocks=blocks, order=fixed, capacity=length_bucket)
    grain = max(GRAIN // max(length_bucket, 1), 1)
    return CpuSchedule("rows", grain=grain, order=fixed, capacity=length_bucket)


def _columns(graph: Graph, group: Group, sizes: Mapping[str, Any], length: int) -> CpuSchedule:
    space = group.space
    fixed = order(length, 4, "outer", "cpu")
    width = _number(lit(1) * space.parallel[-1], sizes)
    outer = max(_number(space.rows, sizes) // max(width, 1), 1)
    levels = max(fixed.segments.bit_length() - 1, 1)
    deepest = STACK_BYTES // (levels * state_bytes(graph, group))
    tile = min(max(bucket(width), 16), COLUMN_TILE, max(1 << (deepest.bit_length() - 1), 16))
    if len(group.stages[0]) > 1:
        narrow = min(max(CACHE_BYTES // (4 * max(length, 1)), 64), 512)
        if outer * -(-width // narrow) >= TASKS // 4:  # all stages of a tile together, from cache where it fits
            return CpuSchedule("columns", grain=1, tile=min(narrow, tile), order=fixed, capacity=length)
    iterations = outer * -(-width // tile)
    if iterations < TASKS // 4 and width * outer * length >= SPLIT_FROM and fixed.segments > 1:
        blocks = min(fixed.segments, bucket(-(-TASKS // iterations)))
        return CpuSchedule("split", grain=1, tile=tile, blocks=blocks, order=fixed, capacity=length)
    grain = max(GRAIN // max(tile * length, 1), 1)
    return CpuSchedule("columns", grain=grain, tile=tile, order=fixed, capacity=length)


def state_bytes(graph: Graph, group: Group) -> int:
    """Bytes of the accumulators of the stage that has the most, a column."""
    sums = [0]
    for stages in group.stages:
        for stage in stages:
            nodes = [graph.by_id[r.node] for r in stage.reducers]
            states = (table().reduction(n.op).state(n.inputs[0].dtype) for n in nodes)
            sums.append(sum(t.bytes for state in states for t in state))
    return max(*sums, 1)


def _pointwise(graph: Graph, group: Group, sizes: Mapping[str, Any], layouts: Layouts) -> CpuSchedule:
    body = analyse(graph, group, layouts)
    inner = _number(body.parallel[-1].extent, sizes) if body.parallel else 1
    if reads_across(body):
        grain = max(GRAIN // (BLOCK_ROWS * min(inner, BLOCK_COLUMNS)), 1)
        return CpuSchedule("pointwise", grain=grain, tile=BLOCK_COLUMNS, block_rows=BLOCK_ROWS)
    return CpuSchedule("pointwise", grain=max(GRAIN // max(min(inner, GRAIN), 1), 1), tile=GRAIN)


def reads_across(body: Body) -> bool:
    """Whether some load is contiguous along the second innermost axis, not along the innermost one."""
    if len(body.parallel) < 2:
        return False
    fetches = (p.steps[k] for p in body.programs for k in p.fetches)
    return any(isinstance(f, Fetch) and crosses(f.index[0], body.parallel[-2], body.parallel[-1]) for f in fetches)


def _number(e: HostExpr, sizes: Mapping[str, Any]) -> int:
    return int(e.evaluate(sizes))
