"""How time, memory and launches are measured on a device.

In: callables. Out: seconds, bytes, launches. `Cuda` times with events on the default stream, which PyTorch and CuPy
share; the L2 is flushed before each call, and a wait queued before that hides the host's share. `Host` has the same
face with a wall clock: it lets the whole suite be tried where there is no GPU.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]
FLUSH_BYTES = 256 << 20  # four times the largest L2
WAIT_CYCLES = 3_000_000  # 1.5 ms at 1.98 GHz: longer than any library's host time for a call


@dataclass(frozen=True)
class Activity:
    """What the profiler saw of one call: device operations (kernels, copies, fills), and the time they took."""

    launches: int
    busy: float
    names: tuple[str, ...] = ()


class Host:
    """The CPU behind the same face, for trials of the suite itself."""

    device = "cpu"
    repeats = 3

    def describe(self) -> dict[str, Any]:
        return {"card": platform.processor() or platform.machine(), "driver": "none"}

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def time(self, call: Call, repeats: int | None = None) -> float:
        """Median seconds of a call."""
        samples = []
        for _ in range(repeats or self.repeats):
            start = time.perf_counter()
            _wait(call())
            samples.append(time.perf_counter() - start)
        return statistics.median(samples)

    pipelined = time

    def peak(self, call: Call) -> int:
        """Bytes of device memory that a call takes at most beyond what is in use."""
        call()
        return 0

    def activity(self, calls: Sequence[Call]) -> list[Activity | None]:
        """What each call does on the device."""
        return [None for _ in calls]

    def copy(self, nbytes: int) -> float:
        """Seconds of a copy that reads and writes `nbytes` in all: the better of two pairs of buffers, because where
        memory lies matters by up to 8% (seen on an H200)."""
        import torch

        pairs, best = [], float("inf")
        for _ in range(2):
            a = torch.ones(max(nbytes // 2, 1), dtype=torch.uint8, device=self.device)
            b = torch.empty_like(a)
            pairs.append((a, b))  # kept, so that the second pair lies elsewhere
            best = min(best, self.time(lambda: b.copy_(a)))  # noqa: B023
        return best


class Cuda(Host):
    """The current CUDA device, through PyTorch."""

    device = "cuda"
    repeats = 15

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def describe(self) -> dict[str, Any]:
        properties = self.torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            driver = "unknown"
        return {
            "card": properties.name,
            "driver": driver,
            "cuda": self.torch.version.cuda,
            "multiprocessors": properties.multi_processor_count,
            "memory": properties.total_memory,
        }

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def empty_cache(self) -> None:
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def time(self, call: Call, repeats: int | None = None) -> float:
        events = self.torch.cuda.Event
        call()
        self.synchronize()
        start = time.perf_counter()
        call()
        self.synchronize()
        slow = time.perf_counter() - start
        count = repeats or max(3, min(self.repeats, int(0.5 / slow)))
        pairs = []
        for _ in range(count):
            first, last = events(enable_timing=True), events(enable_timing=True)
            self.torch.cuda._sleep(WAIT_CYCLES)
            self.flush.fill_(1)
            first.record()
            call()
            last.record()
            pairs.append((first, last))
        self.synchronize()
        return float(statistics.median(a.elapsed_time(b) for a, b in pairs)) * 1e-3

    def pipelined(self, call: Call, repeats: int | None = None) -> float:
        """For libraries with streams of their own: many calls in a row by the wall clock, less the constant part."""

        def run(count: int) -> float:
            start = time.perf_counter()
            last = None
            for _ in range(count):
                last = call()
            _wait(last)
            return time.perf_counter() - start

        run(2)
        count = max(2, min(20, int(0.3 / max(run(2) / 2, 1e-5))))
        return statistics.median((run(3 * count) - run(count)) / (2 * count) for _ in range(3))

    def peak(self, call: Call) -> int:
        self.empty_cache()
        before, pool = self.torch.cuda.memory_allocated(), _cupy_bytes(release=True)
        self.torch.cuda.reset_peak_memory_stats()
        call()
        self.synchronize()
        grown = int(self.torch.cuda.max_memory_allocated() - before)
        return grown + _cupy_bytes() - pool

    def activity(self, calls: Sequence[Call]) -> list[Activity | None]:
        """One profiled call each; a spinning kernel marks where the next one starts."""
        from torch.profiler import ProfilerActivity, profile

        for call in calls:
            call()
        self.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as session:
            for call in calls:
                self.torch.cuda._sleep(1000)
                self.synchronize()
                _wait(call())
                self.synchronize()
        seen = [e for e in session.events() if "CUDA" in str(e.device_type)]
        found: list[list[Any]] = []
        for event in sorted(seen, key=lambda e: e.time_range.start):
            if "spin" in event.name:
                found.append([])
            elif found:
                found[-1].append(event)
        return [
            Activity(
                len(part), sum(e.time_range.elapsed_us() for e in part) * 1e-6, tuple(e.name[:80] for e in part[:8])
            )
            for part in found
        ]


def _wait(result: Any) -> None:
    """Until a JAX result is there (others are waited for by the device)."""
    for part in result if isinstance(result, (tuple, list)) else [result]:
        if hasattr(part, "block_until_ready"):
            part.block_until_ready()


def _cupy_bytes(release: bool = False) -> int:
    """Bytes held by CuPy's pool, which only grows while it is not told to release."""
    try:
        import cupy
    except ImportError:
        return 0
    pool = cupy.get_default_memory_pool()
    if release:
        pool.free_all_blocks()
    return int(pool.total_bytes())


def open_machine(device: str) -> Host:
    """`cuda`, or `cpu` for a trial."""
    return Cuda() if device == "cuda" else Host()
