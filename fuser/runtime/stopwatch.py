"""Measuring: calls, single kernels, and what this machine can do at best.

In: functions to time, a place. Out: seconds. CPU times are wall time; CUDA times are between events on the current
stream. Medians of repeated runs. Its own file because reports, tuning and benchmarks measure alike.
"""

from __future__ import annotations

import mmap
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from fuser import progress
from fuser.runtime import pool
from fuser.runtime.arrays import CPU, Place

COPY_BYTES_CPU, COPY_BYTES_CUDA = 1 << 26, 1 << 29  # far beyond any cache
SAMPLE_SECONDS = 1e-3  # a sample of short calls repeats them for about this long


def median(samples: Sequence[float]) -> float:
    """The median of samples."""
    return float(statistics.median(samples))


def per_call(function: Callable[[], Any], place: Place, samples: int) -> float:
    """Median seconds of a call; short calls are repeated within a sample."""
    once = _sample(function, place, 1)
    repeat = max(1, min(100, int(SAMPLE_SECONDS / max(once, 1e-7))))  # no more: a full launch queue is not a call
    return median([_sample(function, place, repeat) for _ in progress.track(range(samples), "time calls")])


def host_per_call(function: Callable[[], Any], place: Place, samples: int) -> float:
    """Median seconds that a call keeps the host busy; on the CPU the same as `per_call`."""
    if place == CPU:
        return per_call(function, place, samples)
    found = []
    for _ in progress.track(range(samples), "time the host"):
        synchronize(place)
        start = time.perf_counter()
        for _ in range(20):
            function()
        found.append((time.perf_counter() - start) / 20)
    synchronize(place)
    return median(found)


def _sample(function: Callable[[], Any], place: Place, repeat: int) -> float:
    synchronize(place)
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    synchronize(place)
    return (time.perf_counter() - start) / repeat


def synchronize(place: Place) -> None:
    """Wait for all work of a device."""
    if place != CPU:
        import cupy

        with cupy.cuda.Device(place.ordinal):
            cupy.cuda.runtime.deviceSynchronize()


class StepTimes:
    """Collects the time of every step of a program over several runs: an observer for `call.run`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._events: list[tuple[int, Any, Any]] = []
        self._seconds: dict[int, list[float]] = {}

    def __call__(self, step: int, work: Callable[[], None]) -> None:
        if self._place == CPU:
            start = time.perf_counter()
            work()
            self._seconds.setdefault(step, []).append(time.perf_counter() - start)
            return
        import cupy

        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        work()
        after.record()
        self._events.append((step, before, after))

    def medians(self) -> dict[int, float]:
        """Seconds by step number."""
        synchronize(self._place)
        for step, before, after in self._events:
            import cupy

            self._seconds.setdefault(step, []).append(cupy.cuda.get_elapsed_time(before, after) / 1e3)
        self._events = []
        return {step: median(found) for step, found in self._seconds.items()}


@cache
def copy_rate(place: Place) -> float:
    """Bytes a second of a plain large copy, read plus written: the ceiling that reports compare with."""
    if place == CPU:
        return max(_host_copy(1), _host_copy(pool.num_threads()))
    import cupy

    with cupy.cuda.Device(place.ordinal):
        free = int(cupy.cuda.runtime.memGetInfo()[0])
        count = min(COPY_BYTES_CUDA, free // 4)
        source, target = cupy.zeros(count, np.uint8), cupy.empty(count, np.uint8)
        times = StepTimes(place)
        for _ in range(8):
            times(0, lambda: target.data.copy_from_device_async(source.data, count, cupy.cuda.get_current_stream()))
        return 2 * count / times.medians()[0]


def _host_copy(threads: int) -> float:
    source, target = np.ones(COPY_BYTES_CPU // 8), np.zeros(COPY_BYTES_CPU // 8)
    edges = np.linspace(0, len(source), threads + 1).astype(int)

    def share(k: int) -> None:
        np.copyto(target[edges[k] : edges[k + 1]], source[edges[k] : edges[k + 1]])

    def copy() -> None:
        others = [threading.Thread(target=share, args=(k,)) for k in range(1, threads)]
        for t in others:
            t.start()
        share(0)
        for t in others:
            t.join()

    return 2 * COPY_BYTES_CPU / min(_sample(copy, CPU, 1) for _ in range(5))


@cache
def fault_seconds() -> float:
    """What the first touch of a page costs, in seconds."""
    count = 2048
    with mmap.mmap(-1, count * mmap.PAGESIZE) as block:
        start = time.perf_counter()
        for k in range(0, count * mmap.PAGESIZE, mmap.PAGESIZE):
            block[k] = 1
        touched = time.perf_counter() - start
        start = time.perf_counter()
        for k in range(0, count * mmap.PAGESIZE, mmap.PAGESIZE):
            block[k] = 2
        return max(touched - (time.perf_counter() - start), 0.0) / count


def faults() -> int:
    """Pages touched for the first time by this process so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
