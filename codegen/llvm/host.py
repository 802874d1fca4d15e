"""The machine that kernels are compiled for: this one.

In: what LLVM says about the host. Out: `Host` (triple, vector bytes, features) and target machines. Its own file
because the emitter needs a few facts and nothing of LLVM's binding.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from fuser.record import dataclass
from fuser.runtime.pool import cores

# 512-bit registers exist here, but using them lowers the clock; LLVM's own tuning prefers 256 bits as well.
_NARROW_AVX512 = frozenset(
    {"skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client", "icelake-server"}
)
_CACHES = "/sys/devices/system/cpu/cpu0/cache"


@dataclass(frozen=True)
class Host:
    """vector_bytes: a vector register. native_half: conversions between f16 and f32 are instructions."""

    triple: str
    data_layout: str
    cpu: str
    features: str
    vector_bytes: int
    native_half: bool


@cache
def host() -> Host:
    """The machine this process runs on."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    features = _features()
    x86 = triple.startswith(("x86_64", "i686", "amd64"))
    native_half = bool(features.get("f16c")) if x86 else triple.startswith(("aarch64", "arm64"))
    vector = _x86_bytes(cpu, features) if x86 else 16
    flat = features.flatten()
    machine = _target_machine(triple, cpu, flat)
    return Host(triple, str(machine.target_data), cpu, flat, vector, native_half)


def _features() -> Any:
    """The processor's features; none where LLVM cannot tell (what the triple implies is used then)."""
    import llvmlite.binding as llvm

    try:
        return llvm.get_host_cpu_features()
    except RuntimeError:
        return llvm.FeatureMap()


def _x86_bytes(cpu: str, features: Any) -> int:
    if features.get("avx512vl") and features.get("avx512bw") and features.get("avx512dq"):
        return 32 if cpu in _NARROW_AVX512 else 64
    return 32 if features.get("avx2") else 16


def compiler_version() -> str:
    """llvmlite's (asking the installed package's metadata takes 10 ms more)."""
    import llvmlite

    return str(llvmlite.__version__)


@cache
def cache_bytes() -> int:
    """This process's share of the last-level cache, as its cores are of those that share it; 32 MiB where the system
    does not say (Windows)."""
    return max(_linux_cache(), _darwin_cache()) or 32 << 20


def _linux_cache() -> int:
    sizes = [0]
    for level in range(5):
        with suppress(OSError, ValueError):
            text = _read(f"{_CACHES}/index{level}/size")
            size = int(text.removesuffix("K")) << 10 if text.endswith("K") else int(text)
            sharing = _count(_read(f"{_CACHES}/index{level}/shared_cpu_list"))
            sizes.append(size * min(cores(), sharing) // sharing)
    return max(sizes)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def _count(cpus: str) -> int:
    """How many numbers a list like `0-3,8` has."""
    ends = [[int(x) for x in part.split("-")] for part in cpus.split(",")]
    return sum(e[-1] - e[0] + 1 for e in ends)


def _darwin_cache() -> int:
    """Of the first of the kernel's names that exists (the shared L2 of a cluster of cores on Apple silicon)."""
    if sys.platform != "darwin":
        return 0
    libc, value = ctypes.CDLL(None), ctypes.c_int64()
    for name in (b"hw.l3cachesize", b"hw.perflevel0.l2cachesize", b"hw.l2cachesize"):
        size, none = ctypes.c_size_t(ctypes.sizeof(value)), ctypes.c_size_t(0)
        if libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, none) == 0 and value.value > 0:
            return value.value
    return 0


def target_machine(host: Host) -> Any:
    """A fresh LLVM target machine (a JIT takes ownership of the one it is given)."""
    return _target_machine(host.triple, host.cpu, host.features)


def _target_machine(triple: str, cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="jitdefault", jit=True
    )
