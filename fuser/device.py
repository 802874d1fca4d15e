"""Devices as the planner sees them: what one can hold, how fast it moves bytes, what a launch costs.

In: a name ("cpu", "cuda", "sm_70" ... "sm_120"). Out: a frozen `Device`. No GPU is needed for a named architecture;
"cuda" without one plans for `DEFAULT_CUDA`. Schedules, cost model and register estimate read these numbers
and no others.

Sources of the numbers. sm_90: measured on one H200 (copy 4.27 TB/s, launch 4-5 us by a plain driver call).
Bytes in flight an SM: CUB's tuning tables give 12 KiB (V100), 16 (A100), 32 (H100), 48 (H200), 64 (B200).
Other bandwidths: 0.9 of the vendor's figure for the card named. Registers, threads and shared memory: the
CUDA C++ Programming Guide's table of compute capabilities. `issue` is SMs x 128 lanes x clock, `special` SMs
x 16 x clock (H200: 1.98 GHz).
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from typing import Literal

from fuser.errors import DeviceError
from fuser.record import dataclass

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Device:
    """One device model.

    sms: multiprocessors (CPU: cores). registers/threads: an SM's 32-bit registers and resident threads.
    thread_registers: most registers a thread may use. shared_block: bytes of shared memory a block may have.
    l2: bytes of last-level cache. bandwidth: attainable copy, bytes/s. launch_us: host cost of a kernel.
    inflight: bytes an SM must have on the way to reach `bandwidth`. issue: lane instructions/s. special:
    special-function results/s. argument_bytes: kernel parameter space. vector_bytes: widest load (CPU: a
    vector register). cluster: most blocks that can share a row. copies: whether global memory is copied into
    shared memory asynchronously. double: results/s of f64 arithmetic for each of f32.
    """

    name: str
    kind: Literal["cuda", "cpu"]
    model: str
    sms: int
    registers: int
    threads: int
    shared_block: int
    l2: int
    bandwidth: float
    launch_us: float
    inflight: int
    issue: float
    special: float
    thread_registers: int = 255
    argument_bytes: int = 4096
    vector_bytes: int = 16
    warp: int = 32
    cluster: int = 1
    copies: bool = False
    double: float = 0.5

    def __str__(self) -> str:
        return f"{self.name} ({self.model})"

    @property
    def label(self) -> str:
        """As plans print it: `sm_90 (H200)`; `cpu, 2 cores`."""
        return f"{self.name}, {self.model}" if self.kind == "cpu" else str(self)

    def occupancy(self, registers: int, block: int, shared: int = 0) -> int:
        """Resident threads an SM for a kernel with these resources (registers granted in granules of 8)."""
        granted = max((registers + 7) // 8 * 8, 16)
        blocks = min(self.registers // (granted * block), self.threads // block)
        if shared:
            blocks = min(blocks, (self.shared_block + KB) // (shared + KB))  # 1 KB a block is the system's
        return max(blocks, 0) * block


def _cuda(name: str, model: str, sms: int, threads: int, shared_kb: int, l2_mb: float, tbs: float, inflight_kb: int,
          ghz: float, lanes: int = 128, cluster: int = 1) -> Device:  # fmt: skip
    return Device(
        name, "cuda", model, sms, 65536, threads, shared_kb * KB, int(l2_mb * MB), tbs * 1e12, 4.5, inflight_kb * KB,
        sms * lanes * ghz * 1e9, sms * 16 * ghz * 1e9, cluster=cluster,
        copies=int(name[3:]) >= 80, double=0.5 if name in _DOUBLE else 1 / 64,
    )  # fmt: skip


# Compute capabilities with 32 or 64 f64 lanes an SM (CUDA C++ Programming Guide, arithmetic throughput); others have 2.
_DOUBLE = frozenset({"sm_70", "sm_80", "sm_90", "sm_100"})

_MODELS = {
    d.name: d
    for d in (
        _cuda("sm_70", "V100", 80, 2048, 96, 6, 0.81, 12, 1.53, 64),
        _cuda("sm_75", "T4", 40, 1024, 64, 4, 0.27, 12, 1.59, 64),
        _cuda("sm_80", "A100", 108, 2048, 163, 40, 1.75, 16, 1.41, 64),
        _cuda("sm_86", "RTX 3090", 82, 1536, 99, 6, 0.84, 16, 1.70),
        _cuda("sm_87", "Orin", 16, 1536, 163, 4, 0.18, 16, 1.30),
        _cuda("sm_89", "RTX 4090", 128, 1536, 99, 72, 0.92, 24, 2.52),
        _cuda("sm_90", "H200", 132, 2048, 227, 60, 4.27, 48, 1.98, cluster=16),
        _cuda("sm_100", "B200", 148, 2048, 227, 126, 7.0, 64, 1.85, cluster=16),
        _cuda("sm_103", "B300", 148, 2048, 227, 126, 7.0, 64, 1.85, cluster=16),
        _cuda("sm_120", "RTX 5090", 170, 1536, 99, 96, 1.6, 32, 2.41, cluster=8),
    )
}
DEFAULT_CUDA = "sm_90"


@cache
def cpu() -> Device:
    """This machine's CPU: its cores; 11.5 GB/s of copy for two cores was measured on the reference machine.

    A chunk handed to the thread pool costs about 5 us. issue: two 8-lane operations a cycle at 3 GHz.
    """
    cores = os.cpu_count() or 1
    return Device(
        "cpu", "cpu", f"{cores} cores", cores, 0, 1, 0, 2 * MB * cores, min(cores, 8) * 5.75e9, 5.0, 4 * KB,
        cores * 16 * 3e9, cores * 2 * 3e9, thread_registers=1 << 16, argument_bytes=32 * KB, vector_bytes=32, warp=1,
    )  # fmt: skip


def names() -> list[str]:
    """Every name `find` knows."""
    return ["cpu", "cuda", *_MODELS]


def find(name: str) -> Device:
    """The device of a name; an architecture between two known ones takes the older one's numbers.
    DeviceError if unknown.
    """
    spelled = name.lower().replace("compute_", "sm_")
    if spelled.startswith("sm_"):
        spelled = spelled.removesuffix("a")  # sm_90a: the same chip with its own instructions
    if spelled == "cpu":
        return cpu()
    if spelled in ("cuda", "gpu"):
        return _MODELS[DEFAULT_CUDA]
    if spelled in _MODELS:
        return _MODELS[spelled]
    if spelled.startswith("sm_") and spelled[3:].isdigit():
        older = [d for d in _MODELS.values() if int(d.name[3:]) <= int(spelled[3:])]
        if older and int(spelled[3:]) < 130:
            return replace(older[-1], name=spelled)
    from difflib import get_close_matches

    near = get_close_matches(spelled, names(), 1)
    hint = [f"did you mean {near[0]}?"] if near else [f"known: {', '.join(names())}"]
    raise DeviceError(f'device "{name}" is not known', "unknown-device", notes=hint)


def driver_library() -> str:
    """The file of the CUDA driver's library on this system."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
