"""The schedules one step away from a schedule: what a measured search may try.

In: a schedule. Out: others that differ in one number and keep the reduction order, so that every one of them gives the
same bits. Which ones those are differs by kind: the elements a thread folds are part of the order of a scan, and in a
row kept in shared memory the block is the row's team. Its own file because the formulas choose and this only varies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.codegen.schedule import either
from fuser.schedule import CpuSchedule, CudaSchedule, Schedule

THREADS = (64, 1024)  # smallest and largest block tried
MOST_UNROLL = 8
MOST_BLOCKS = 8  # blocks an SM promised to the compiler


def neighbours(schedule: Schedule) -> tuple[Schedule, ...]:
    """Schedules to measure beside this one, without repeats; the schedule itself is not among them."""
    if schedule.kind == "batch":
        return ()  # its parts have schedules of their own, and only those are lowered
    if isinstance(schedule, CudaSchedule) and schedule.ragged is not None:  # what is tuned is tuned for its own rows
        schedule = either.own(schedule)
    found = _cpu(schedule) if isinstance(schedule, CpuSchedule) else _cuda(schedule)
    return tuple(dict.fromkeys(s for s in found if s != schedule))


def _halves_and_doubles(number: int, least: int, most: int) -> Iterator[int]:
    if number // 2 >= least:
        yield number // 2
    if number * 2 <= most:
        yield number * 2


def _cpu(schedule: CpuSchedule) -> Iterator[Schedule]:
    """Work a task, and the columns of a tile. A split reduction's parts are its shares, so they stay."""
    for grain in _halves_and_doubles(schedule.grain, 1, 1 << 20):
        yield replace(schedule, grain=grain)
    if schedule.kind in ("columns", "pointwise"):
        for tile in _halves_and_doubles(schedule.tile, 16, 1 << 14):
            yield replace(schedule, tile=tile)


def _in_flight(schedule: CudaSchedule) -> Iterator[Schedule]:
    """More or fewer rows or vectors a thread; those of a scan are part of its order."""
    if schedule.strip > 1:
        for strip in _halves_and_doubles(schedule.strip, 1, MOST_UNROLL):
            yield replace(schedule, strip=strip)
    elif schedule.kind != "scan" and not (schedule.kind == "mixed" and schedule.copies):  # a ring fills shared memory
        for unroll in _halves_and_doubles(schedule.unroll, 1, MOST_UNROLL):
            yield replace(schedule, unroll=unroll)


def _cuda(schedule: CudaSchedule) -> Iterator[Schedule]:
    yield from _in_flight(schedule)
    if schedule.kind == "pointwise" and not schedule.tile:
        for threads in _halves_and_doubles(schedule.threads, *THREADS):
            yield replace(schedule, threads=threads)
    if schedule.kind == "rows" and not schedule.parked and schedule.cluster == 1:  # a cluster has one row
        for threads in _halves_and_doubles(schedule.threads, max(schedule.threads_per_row, THREADS[0]), THREADS[1]):
            yield replace(schedule, threads=threads)
    if schedule.kind in ("pointwise", "rows") and schedule.vector > 1 and not (schedule.parked or schedule.tile):
        yield replace(schedule, vector=schedule.vector // 2)
    if schedule.turns > 1:
        yield replace(schedule, turns=schedule.turns // 2)
    for blocks in {schedule.min_blocks - 1, schedule.min_blocks + 1, schedule.min_blocks * 2}:
        if 1 <= blocks <= min(MOST_BLOCKS, 2048 // schedule.threads):
            yield replace(schedule, min_blocks=blocks)
