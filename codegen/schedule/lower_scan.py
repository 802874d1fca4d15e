"""Scans on CUDA: one thread a row, elements in order.

In: the body of a scan group. Out: one kernel. There is one order, first to last (last to first where the scan is
reversed), the one NumPy adds in.
"""

from __future__ import annotations

from fuser.codegen.evaluate import Lane
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.schedule.accumulate import Accumulator, folds_of, start
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import bind_axes
from fuser.graph import ScanAttrs
from fuser.hostexpr import call
from fuser.schedule import CudaSchedule


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a scan group."""
    b, (stage,) = frame.builder, body.stages
    node = frame.graph.by_id[stage.reduces[0].node]
    assert isinstance(node.attrs, ScanAttrs)
    row = frame.add(frame.mul(frame.block(), schedule.threads), frame.thread())
    with b.branch(frame.less(row, frame.host(body.rows))):
        at = frame.indices(body.ranges, **bind_axes(frame, body.ranges, body.parallel, row, body.rows))
        (fold,) = folds_of(frame.graph, stage.reduces)
        running = start(b, fold, 1, frame.index)
        with b.loop("step", frame.number(0), frame.host(body.length)) as step:
            last = frame.host(body.length - 1)
            position: Operand = b.apply("subtract", (last, step), frame.index) if node.attrs.reverse else step
            _step(frame, body, running, at, position, node.attrs.exclusive)
    grid = call("//", body.rows + (schedule.threads - 1), schedule.threads)
    return b.finish(Launch((grid, 1), schedule.threads, schedule.min_blocks))


def _step(frame: Frame, body: Body, running: Accumulator, at: IndexEmitter, position: Operand, exclusive: bool) -> None:
    """One element: evaluated, joined, and what is stored at its place."""
    b, (stage,) = frame.builder, body.stages
    site, (state,) = stage.reduces[0], running.lanes
    here = at.bound(**bind_axes(frame, body.ranges, body.reduced, position, body.length))
    lane = Lane(stage.loop, b, frame.loader(stage.loop))
    values = lane.run(here, {}, only=stage.loop.needed([site.step]))
    before = {(site.node, 0): state[0]}
    if exclusive:
        _store(frame, body, lane, here, lane.run(here, before, values))
        running.add(b, 0, values[site.step], position)
    else:
        running.add(b, 0, values[site.step], position)
        _store(frame, body, lane, here, lane.run(here, before, values))


def _store(frame: Frame, body: Body, lane: Lane, at: IndexEmitter, values: dict[int, Operand]) -> None:
    (stage,) = body.stages
    for site in stage.stores:
        frame.store(site, at, values[site.step])
