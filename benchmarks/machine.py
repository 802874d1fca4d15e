"""How time, memory and launches are measured on a device.

In: callables. Out: seconds, bytes, launches. `Cuda.spans` is the suite's clock (`benchmarks.timeline`); `Cuda.time` is
for fuser against fuser, by events on the default stream, after the same flush. `Host` has the same face with a wall
clock: it lets the whole suite be tried where there is no GPU.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from benchmarks.timeline import WAIT_CYCLES, Contender, Span, Timeline, wait

Call = Callable[[], Any]


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
            wait(call())
            samples.append(time.perf_counter() - start)
        return statistics.median(samples)

    def spans(self, contenders: Sequence[Contender]) -> list[Span | None]:
        """Of each, in turns."""
        found = [self.time(c.call, min(c.rounds, self.repeats)) for c in contenders]
        return [Span(seconds, seconds, ()) for seconds in found]

    def peak(self, call: Call) -> int:
        """Bytes of device memory that a call takes at most beyond what is in use."""
        call()
        return 0

    def copies(self, nbytes: int) -> list[Call]:
        """Copies that read and write `nbytes` in all, between two pairs of buffers: where memory lies matters by up to
        8% (seen on an H200), so the better one counts."""
        import torch

        made: list[Call] = []
        for _ in range(2):
            a = torch.ones(max(nbytes // 2, 1), dtype=torch.uint8, device=self.device)
            b = torch.empty_like(a)
            made.append(lambda a=a, b=b: b.copy_(a))  # type: ignore[misc]
        return made


class Cuda(Host):
    """The current CUDA device, through PyTorch."""

    device = "cuda"
    repeats = 15

    def __init__(self) -> None:
        import torch

        self.torch = torch

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline()

    def spans(self, contenders: Sequence[Contender]) -> list[Span | None]:
        return self.timeline.spans(contenders)

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
            self.timeline.flush()
            first.record()
            call()
            last.record()
            pairs.append((first, last))
        self.synchronize()
        return float(statistics.median(a.elapsed_time(b) for a, b in pairs)) * 1e-3

    def peak(self, call: Call) -> int:
        self.empty_cache()
        before, pool = self.torch.cuda.memory_allocated(), _cupy_bytes(release=True)
        self.torch.cuda.reset_peak_memory_stats()
        call()
        self.synchronize()
        grown = int(self.torch.cuda.max_memory_allocated() - before)
        return grown + _cupy_bytes() - pool


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
