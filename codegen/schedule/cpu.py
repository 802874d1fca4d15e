"""Schedules for CPUs, by formula from sizes; nothing here can change a result, only how fast it comes.

In: a group and the bucket sizes of its dims. Out: `CpuSchedule`. The reduction order is fixed by `fuser.order`.

Constants: a task should be worth about 16,384 simple elements (5-10 us), several times what waking a thread costs. A
tile of columns holds its accumulators in L1 (2048 f32 are 8 KiB of 32), and the partials of its shares, which are on a
thread's stack, in 128 KiB. A tile of 16 rows copies whole cache lines of 16 f32 of an operand that is read across
rows. 64 tasks keep any common number of cores evenly busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from fuser.codegen.llvm.host import cache_bytes
from fuser.codegen.program import Fetch, instructions
from fuser.codegen.schedule.body import Body, Layouts, analyse
from fuser.codegen.schedule.cpu_ahead import rows_ahead
from fuser.codegen.schedule.cpu_columns import COLUMN_LINE
from fuser.codegen.schedule.cpu_keep import plan_keeps
from fuser.codegen.schedule.cpu_sweep import crosses, crossing
from fuser.codegen.schedule.pieces import cut_body
from fuser.graph import Graph, Node
from fuser.group import Group
from fuser.hostexpr import HostExpr, lit
from fuser.optable import table
from fuser.order import AxisKind, bucket, order
from fuser.schedule import CpuSchedule

GRAIN = 16384  # elements a task
TASKS = 64  # iterations wanted of a kernel that is worth splitting
SPLIT_FROM = 1 << 18  # elements from which shares of one reduction go to several threads
LOOPED = 256  # elements that a task has at least, whatever an element costs: whole vectors, and a line to itself
COLUMN_TILE = 2048
STACK_BYTES = 1 << 17
LEAST_ROOM = 64  # elements a kept row has room for at least, so that one kernel serves all shorter ones
CACHE_BYTES = 1 << 20  # L2 of a core
BLOCK_ROWS, BLOCK_COLUMNS = 16, 64
STREAM_RUN = 1024  # bytes of neighbouring elements: shorter runs begin and end in lines that are stored in part
BAND_BYTES, BAND_ROWS = 1 << 19, 16  # wanted of the runs of a band; rows of it for several stages


def choose_cpu(
    graph: Graph, group: Group, sizes: Mapping[str, Any], length_bucket: int, layouts: Layouts
) -> CpuSchedule:
    """The schedule of a group. sizes: bucket sizes of the dims. length_bucket: that of the reduced length itself."""
    chosen = _choose(graph, group, sizes, length_bucket, layouts)
    return replace(chosen, stream=cache_bytes()) if _streams(graph, group, sizes, chosen.kind) else chosen


def _streams(graph: Graph, group: Group, sizes: Mapping[str, Any], kind: str) -> bool:
    """Whether some result may be too large for the caches to hold until it is read, in long enough runs.

    Storing past the caches saves reading the lines that are to be overwritten. Exact sizes decide in the kernel; a
    kernel that stores whole rows can do both, so that one serves any number of rows.
    """
    rows = _number(group.space.rows, sizes)
    for node in (graph.by_id[k] for k in group.outputs):
        shape = [_number(lit(1) * d, sizes) for d in node.shape]
        run = shape[-1] * node.storage.bytes if shape else 0
        large = prod(shape) * node.storage.bytes >= cache_bytes()
        if run >= STREAM_RUN and (large or (kind == "rows" and prod(shape) > rows)):
            return True
    return False


def _choose(graph: Graph, group: Group, sizes: Mapping[str, Any], length_bucket: int, layouts: Layouts) -> CpuSchedule:
    """`choose_cpu` but for how results are stored."""
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
        split = CpuSchedule("split", grain=1, blocks=blocks, order=fixed, capacity=length_bucket)
        return _ahead(graph, group, sizes, layouts, split)
    height, spread = _band(graph, group, sizes, length_bucket, layouts)
    if spread:
        blocks = fixed.segments
        return CpuSchedule("split", grain=1, blocks=blocks, order=fixed, capacity=length_bucket, block_rows=height)
    grain = max(GRAIN // max(length_bucket * height, 1), 1)
    room = max(length_bucket, LEAST_ROOM)
    rows_ = CpuSchedule("rows", grain=grain, order=fixed, capacity=room, block_rows=height)
    return rows_ if height > 1 else _ahead(graph, group, sizes, layouts, rows_)


def _ahead(
    graph: Graph, group: Group, sizes: Mapping[str, Any], layouts: Layouts, schedule: CpuSchedule
) -> CpuSchedule:
    """The schedule with copies of operands that are read across reduced axes, where there are any."""
    body = analyse(graph, group, layouts, lanes_key)
    if len(body.reduced) < 2 or not _grows(body.reduced[-1].extent):
        return schedule
    width = bucket(_number(body.reduced[-1].extent, sizes))
    height = rows_ahead(body, width)
    return replace(schedule, ahead=height, tile=width) if height else schedule


def _grows(extent: HostExpr) -> bool:
    """Whether an extent is largest where all dims are, as they are in `sizes`."""
    if extent.op == "*":
        return all(a.value >= 0 if a.op == "lit" else _grows(a) for a in extent.args)
    return extent.op in ("lit", "sym") or (extent.op == "+" and all(map(_grows, extent.args)))


def lanes_key(reduction: Node) -> int:
    """Reductions along rows share a loop where their operands have the same width, so the same lanes."""
    return max(reduction.inputs[0].dtype.bytes, 4)


def _band(graph: Graph, group: Group, sizes: Mapping[str, Any], length: int, layouts: Layouts) -> tuple[int, bool]:
    """Rows to take together run by run, a power of two, and whether to spread their shares over iterations.

    Where a row is many short runs, as many rows as make a long one, where that leaves tasks enough; where an operand is
    read across rows, as many as fill its cache lines.
    """
    if not group.space.parallel:
        return 1, False
    body = analyse(graph, group, layouts)
    once = sum(s.has_loop for s in body.stages) < 2
    if len(body.reduced) == 1 and body.parallel and once:
        across = any(crossing(s.loop, body.parallel[-1], body.reduced[0]) for s in body.stages)
        return (BLOCK_ROWS if across else 1), False
    if len(body.reduced) < 2 or not body.parallel:
        return 1, False
    fixed, rows = order(length, 4, "inner", "cpu"), _number(body.rows, sizes)
    itemsize = max((p.fetch(k).dtype.bytes for p in body.programs for k in p.fetches), default=4)
    run = max(_number(body.reduced[-1].extent, sizes) * itemsize, 1)
    spread = once and fixed.segments > 1 and rows * length >= SPLIT_FROM
    most = min(CACHE_BYTES // (length * itemsize), BAND_ROWS)  # of rows that later stages are to find in cache
    most = STACK_BYTES // (fixed.lanes * state_bytes(graph, group)) if once else most
    tasks = rows * (fixed.segments if spread else 1)
    height = min(bucket(_number(body.parallel[-1].extent, sizes)), tasks // (TASKS // 4), -(-BAND_BYTES // run), most)
    if height < 2 or (not once and any(k.saves for k in plan_keeps(body, length))):
        return 1, False
    return 1 << (height.bit_length() - 1), spread


def _columns(graph: Graph, group: Group, sizes: Mapping[str, Any], length: int) -> CpuSchedule:
    """Tiles and blocks depend on the reduced length alone, so that one kernel serves any number of columns."""
    space = group.space
    fixed = order(length, 4, "outer", "cpu")
    width = _number(lit(1) * space.parallel[-1], sizes)
    outer = max(_number(space.rows, sizes) // max(width, 1), 1)
    levels = max(fixed.segments.bit_length() - 1, 1)
    deepest = STACK_BYTES // (levels * state_bytes(graph, group))
    tile = min(COLUMN_TILE, max(1 << (deepest.bit_length() - 1), COLUMN_LINE))
    if len(group.stages[0]) > 1:
        narrow = min(max(CACHE_BYTES // (4 * max(length, 1)), 64), 512)
        if outer * -(-width // narrow) >= TASKS // 4:  # all stages of a tile together, from cache where it fits
            return CpuSchedule("columns", grain=1, tile=min(narrow, tile), order=fixed, capacity=length)
    iterations = outer * -(-width // tile)
    if iterations < TASKS // 4 and width * outer * length >= SPLIT_FROM and fixed.segments > 1:
        blocks = min(fixed.segments, TASKS)
        return CpuSchedule("split", grain=1, tile=tile, blocks=blocks, order=fixed, capacity=length)
    grain = max(GRAIN // max(min(bucket(width), tile) * length, 1), 1)
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
    body = cut_body(analyse(graph, group, layouts))
    inner = _number(body.parallel[-1].extent, sizes) if body.parallel else 1
    if reads_across(body):
        grain = max(GRAIN // (BLOCK_ROWS * max(min(inner, BLOCK_COLUMNS), 1)), 1)
        return CpuSchedule("pointwise", grain=grain, tile=BLOCK_COLUMNS, block_rows=BLOCK_ROWS)
    size = max(GRAIN // _weight(body), LOOPED)
    return CpuSchedule("pointwise", grain=max(size // max(min(inner, size), 1), 1), tile=size)


def _weight(body: Body) -> int:
    """How many simple elements an element with a loop is worth, about 16 operators being one; 1 without loops."""
    costs = [sum(instructions(s, plain=True) for s in p.steps) for p in body.programs if p.has_loop]
    return max(int(max(costs, default=0)) // 16, 1)


def reads_across(body: Body) -> bool:
    """Whether some load is contiguous along the second innermost axis, not along the innermost one."""
    if len(body.parallel) < 2:
        return False
    fetches = (p.steps[k] for p in body.programs for k in p.fetches)
    return any(isinstance(f, Fetch) and crosses(f.index[0], body.parallel[-2], body.parallel[-1]) for f in fetches)


def _number(e: HostExpr, sizes: Mapping[str, Any]) -> int:
    return int(e.evaluate(sizes))
