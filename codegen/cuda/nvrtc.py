"""Compiles CUDA C by NVRTC, called directly through CuPy's binding.

In: a header-free source, the kernel's name, an architecture such as "sm_90". Out: a cubin with what ptxas
reports of it. No GPU is needed. CuPy's own helpers are not used: they append `-ftz=true` and contract by default, and a
program's bits must not depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from fuser.errors import DeviceError, InternalError
from fuser.record import dataclass

INSTALL = "pip install 'fuser-compiler[cuda13]'   (without a GPU: cupy-cuda13x and nvidia-cuda-nvrtc suffice)"
INVALID_OPTION = 5  # NVRTC_ERROR_INVALID_OPTION
# Options that change no code, and which older NVRTCs lack. minimal: declarations of textures and of the device runtime,
# which no kernel of fuser's uses, are left out (a seventh of a small kernel's compilation). no-cache: past the cache
# that newer NVRTCs keep, since what comes out of that has no report of its resources.
EXTRAS = (("--minimal", "--no-cache"), ("--no-cache",), ())
QUOTED_LINES = 12  # of the compiler's log, and of source around its first complaint

_REGISTERS = r"Used (\d+) registers"
_SHARED = r"(\d+)(?:\+\d+)? bytes smem"
_STACK = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
_PLACE = r"\((\d+)\): (?:catastrophic )?error"


@dataclass(frozen=True)
class Binary:
    """A compiled kernel and its resources a thread (registers, spilled and stack bytes) and a block (shared bytes)."""

    cubin: bytes
    registers: int
    spills: int
    stack: int
    shared: int
    log: str


def compile(source: str, name: str, arch: str, fast_math: bool = False, line_info: bool = False) -> Binary:
    """Compiles one kernel.

    fast_math: allow contraction and approximate division and square root. line_info: keep source lines for
    profilers. DeviceError: no NVRTC here, or it does not know `arch`. InternalError: the source does not compile.
    """
    nvrtc = _binding()
    _check_arch(nvrtc, arch)
    program = nvrtc.createProgram(source, f"{name}.cu", (), ())
    try:
        try:
            _run(nvrtc, program, options(arch, fast_math, line_info))
        except nvrtc.NVRTCError as error:
            raise _refused(name, source, str(nvrtc.getProgramLog(program)) or str(error)) from None
        log = str(nvrtc.getProgramLog(program))
        return _report(bytes(nvrtc.getCUBIN(program)), log)
    finally:
        nvrtc.destroyProgram(program)


def options(arch: str, fast_math: bool = False, line_info: bool = False) -> tuple[str, ...]:
    """NVRTC's options; part of a kernel's cache key. IEEE arithmetic unless `fast_math`."""
    exact = "false" if fast_math else "true"
    chosen = (
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--ptxas-options=-v",
        f"--fmad={'true' if fast_math else 'false'}",
        "--ftz=false",
        f"--prec-div={exact}",
        f"--prec-sqrt={exact}",
    )
    return (*chosen, "--generate-line-info") if line_info else chosen


def _run(nvrtc: Any, program: Any, chosen: tuple[str, ...]) -> None:
    """Compile with what this NVRTC knows of `EXTRAS`."""
    for extra in EXTRAS:
        try:
            nvrtc.compileProgram(program, (*chosen, *extra))
        except nvrtc.NVRTCError as error:
            if error.status != INVALID_OPTION or not extra:
                raise
        else:
            return


def is_loaded() -> bool:
    """Whether this process has asked the library for something."""
    return _binding.cache_info().currsize > 0


def version() -> tuple[int, int]:
    """NVRTC's version; part of a kernel's cache key."""
    major, minor = _binding().getVersion()
    return int(major), int(minor)


@cache
def _binding() -> Any:
    """CuPy's `nvrtc` module, once its library answers."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            "compiling for CUDA needs CuPy and NVRTC", "no-nvrtc", notes=[INSTALL, f"tried: {error}".splitlines()[0]]
        ) from None
    return nvrtc


def _check_arch(nvrtc: Any, arch: str) -> None:
    known = [f"sm_{n}" for n in nvrtc.getSupportedArchs()]
    if arch.rstrip("af") not in known:
        raise DeviceError(f"NVRTC does not know `{arch}`", "unknown-arch", notes=[f"it knows {', '.join(known)}"])


def _refused(name: str, source: str, log: str) -> InternalError:
    """The compiler's complaint with the source around its first place."""
    notes = log.splitlines()[:QUOTED_LINES]
    if place := re.search(_PLACE, log):
        notes += _around(source.splitlines(), int(place.group(1)))
    return InternalError(f"NVRTC refuses the source of `{name}`", "nvrtc-refused", notes=notes)


def _around(lines: Sequence[str], number: int) -> list[str]:
    first = max(number - QUOTED_LINES // 2, 1)
    shown = lines[first - 1 : first - 1 + QUOTED_LINES]
    return [f"{'>' if n == number else ' '}{n:5} {text}" for n, text in enumerate(shown, first)]


def _report(cubin: bytes, log: str) -> Binary:
    registers, stack, shared = (re.search(p, log) for p in (_REGISTERS, _STACK, _SHARED))
    if registers is None:
        raise InternalError("ptxas did not report registers", "nvrtc-log", notes=log.splitlines()[:QUOTED_LINES])
    return Binary(
        cubin=cubin,
        registers=int(registers.group(1)),
        spills=max(int(stack.group(2)), int(stack.group(3))) if stack else 0,
        stack=int(stack.group(1)) if stack else 0,
        shared=int(shared.group(1)) if shared else 0,
        log=log,
    )
