"""Where passes, code generators and compilers meet: the toolchain that the core is handed.

In: nothing but the installed packages. Out: `toolchain()`, whose functions plan, lower and build kernels. Everything
heavy (networkx, llvmlite, CuPy) is imported when it is first needed. Its own file because `api` is about users, this
about compilers.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import fuser
from fuser import kernels
from fuser.errors import DeviceError
from fuser.planrecord import Kernel
from fuser.runtime import cache as cache_files
from fuser.runtime import sources
from fuser.runtime.quiet import importing
from fuser.settings import settings
from fuser.toolchain import Built, Resources, Toolchain

if TYPE_CHECKING:
    from fuser.device import Device
    from fuser.graph import Graph


@cache
def load() -> None:
    """Import and set up what a first call needs, so that `fuser.compile` takes that time and not the call. Where the
    disk cache holds something, that is what traces a program: its plan may be there, and then nothing plans or compiles
    it."""
    with importing():
        from fuser.frontend import capture, trace, watch  # noqa: F401
        from fuser.optable import table
        from fuser.passes import pipeline  # noqa: F401

        table()
        on_cuda = "cupy" in sys.modules  # arrays of the CPU may come all the same, and wait for LLVM then
        if not on_cuda:
            from fuser.codegen.llvm import host, link  # noqa: F401

            host.host()
        known = not cache_files.store().is_empty()
        if cache_files.store().folders:  # plans are looked up under it, and kept
            _all_sources()
        if known:
            return
        from fuser import building, progress  # noqa: F401
        from fuser.codegen import expand, verify  # noqa: F401
        from fuser.codegen.schedule import lengths  # noqa: F401
        from fuser.passes import fuse  # noqa: F401

        if on_cuda:
            from fuser.codegen.cuda import nvrtc, printer  # noqa: F401
            from fuser.codegen.schedule import cuda, lower_pointwise, lower_reduce  # noqa: F401
        else:
            from fuser.codegen.llvm import jit  # noqa: F401
            from fuser.codegen.schedule import cpu, lower_cpu  # noqa: F401
        _sources()


@cache
def toolchain() -> Toolchain:
    """The packages behind the core, each imported by the first use of it."""
    return Toolchain(
        prepare=_prepare,
        plan_groups=_plan_groups,
        choose=lambda *known: _schedules().choose(*known),
        lower=lambda *known: _schedules().lower(*known),
        build=_build,
        retreat=lambda schedule: _schedules().retreat(schedule),
        neighbours=lambda schedule: _schedules().neighbours(schedule),
        estimate=_estimate,
        show=_show,
        machine=_machine,
        facts=_facts,
        own=lambda tools: tools is toolchain(),
        take_up=_take_up,
    )


def _prepare(graph: Graph, **options: Any) -> Graph:
    from fuser.passes import pipeline

    return pipeline.prepare(graph, **options)


def _schedules() -> Any:
    from fuser.codegen import schedule

    return schedule


def _estimate(*known: Any) -> Mapping[str, float]:
    from fuser.passes import cost

    return cost.estimate(*known)


def _plan_groups(graph: Graph, sizes: Mapping[str, int], device: Device, **options: Any) -> Any:
    from fuser.passes import fuse

    return fuse.plan_groups(graph, sizes, device, fuse.Options(**options))


def _show(built: Built) -> Mapping[str, str]:
    """A kernel's loops, its source, and what the compiler made of that: assembly, or the registers that it took."""
    from fuser.codegen.text import kernel_text

    kernel: Any = built.kernel
    texts = {"loops.txt": kernel_text(kernel)}
    if kernel.target == "cpu":
        return {**texts, "ll": built.source(), "s": built.binary.assembly}
    numbers = (f"{name} {number}" for name, number in asdict(built.resources).items())
    return {**texts, "cu": built.source(), "resources.txt": "\n".join(numbers)}


def _machine(device: Device) -> str:
    """CPU model and threads, or the card's name."""
    if device.kind == "cpu":
        from fuser.codegen.llvm.host import host
        from fuser.runtime import pool

        return f"{host().cpu} {pool.num_threads()}"
    from fuser.runtime import cuda

    return cuda.card()


def _build(kernel: Any, device: Device) -> Built:
    """A compiled kernel for a device: found by content, or expanded, verified and given to LLVM or NVRTC."""
    if kernel.target == "cpu":
        return kernels.build(kernel, (*_compiler(device), _sources()), _CPU)
    try:
        facts = _compiler(device)
    except DeviceError as missing:
        return _uncompiled(kernel, missing)
    compiler = kernels.Compiler(lambda k: _compile_cuda(k, device), _cuda_parts, _restore_cuda)
    return kernels.build(kernel, (*facts, _sources()), compiler)


def _compiler(device: Device, loaded: bool = True) -> tuple[object, ...]:
    """What makes binaries for a device: the machine or architecture, the compiler's version, its options. DeviceError
    where there is no NVRTC. loaded: ask the compiler itself, not what an earlier process noted of it."""
    if device.kind == "cpu":
        from fuser.codegen.llvm.host import compiler_version, host

        machine = host()
        return "cpu", machine.triple, machine.cpu, machine.features, compiler_version()
    from fuser.codegen.cuda import nvrtc, toolkit

    version = nvrtc.version() if loaded else toolkit.version()
    return "cuda", device.name, version, nvrtc.options(device.name, line_info=settings().line_info)


def _all_sources() -> str:
    """The version of all of fuser's code."""
    from fuser import codegen, frontend, passes

    return sources.fingerprint(fuser.__path__[0], *codegen.__path__, *frontend.__path__, *passes.__path__)


def _facts(device: Device) -> tuple[object, ...]:
    """What plans and their kernels depend on beside the program and the device's numbers."""
    facts = (*_compiler(device, loaded=False), _all_sources(), _own_rows(), np.__version__, sys.version_info[:2])
    if device.kind == "cpu":
        from fuser.codegen.llvm.host import cache_bytes

        return *facts, cache_bytes()
    return facts


@cache
def _sources() -> str:
    """The version of the code that makes kernels."""
    from fuser import codegen, optable

    return cache_files.code_fingerprint(*codegen.__path__, *optable.__path__) + _own_rows()


def _own_rows() -> str:
    """Empty, unless someone added rows to the operator table: no file of fuser's says what those mean, so that what is
    made with them is found by this process only."""
    from fuser.optable import table

    return _this_process() if table().extended else ""


@cache
def _this_process() -> str:
    return os.urandom(16).hex()


def _take_up(kernel: Any) -> Built | None:
    """The binary of a plan record's kernel, if it is still there."""
    return kernels.recall(kernel.key, kernel, _restore_cpu if kernel.target == "cpu" else _restore_cuda)


def _expanded(kernel: Any) -> Any:
    from fuser.codegen.expand import expand
    from fuser.codegen.verify import check

    ready = expand(kernel)
    check(ready)
    return ready


def _compile_cpu(kernel: Any) -> Built:
    from fuser.codegen.llvm import jit

    native = jit.compile(_expanded(kernel))
    return Built(kernel, native, Resources(), lambda: str(native.ir))


def _cpu_parts(built: Built) -> tuple[Mapping[str, bytes], Mapping[str, Any]]:
    return {"code": built.binary.code, "ir": zlib.compress(built.binary.ir.encode(), 1)}, {}


def _restore_cpu(kernel: Any, entry: cache_files.Entry) -> Built:
    from fuser.codegen.llvm import link

    native = link.load(kernel.name, zlib.decompress(entry.parts["ir"]).decode(), entry.parts["code"])
    return Built(kernel, native, Resources(), lambda: str(native.ir))


_CPU = kernels.Compiler(_compile_cpu, _cpu_parts, _restore_cpu)


def _printed(kernel: Any) -> tuple[str, int]:
    """CUDA C of a kernel, and the registers that it is expected to take."""
    from fuser.codegen import registers
    from fuser.codegen.cuda import printer

    ready = _expanded(kernel)
    lines = {name: (file, line) for name, file, line in ready.places}
    return printer.print_kernel(ready, lines=lines), registers.estimate(ready)


def _compile_cuda(kernel: Any, device: Device) -> Built:
    from fuser.codegen.cuda import nvrtc
    from fuser.runtime.cuda import LazyKernel

    source, expected = _printed(kernel)
    binary = nvrtc.compile(source, kernel.name, device.name, line_info=settings().line_info)
    resources = Resources(binary.registers, binary.spills, binary.stack, binary.shared, expected)
    return Built(kernel, LazyKernel(binary.cubin, kernel.name, *_launch_extras(kernel)), resources, lambda: source)


def _launch_extras(kernel: Any) -> tuple[int, int]:
    """Bytes of dynamic shared memory, blocks a cluster."""
    if isinstance(kernel, Kernel):
        return kernel.shared, kernel.launch.cluster
    from fuser.codegen.storage import dynamic_shared

    return sum(size for _, size in dynamic_shared(kernel.body).values()), kernel.launch.cluster


def _uncompiled(kernel: Any, missing: DeviceError) -> Built:
    """A kernel of which only the source can be had: to be planned and read, not run."""
    from fuser.runtime.cuda import Uncompiled

    source, expected = _printed(kernel)
    return Built(kernel, Uncompiled(missing), Resources(expected=expected), lambda: source)


def _cuda_parts(built: Built) -> tuple[Mapping[str, bytes], Mapping[str, Any]]:
    return {"code": built.binary.cubin, "source": zlib.compress(built.source().encode(), 1)}, asdict(built.resources)


def _restore_cuda(kernel: Any, entry: cache_files.Entry) -> Built:
    from fuser.runtime.cuda import LazyKernel

    source = zlib.decompress(entry.parts["source"]).decode()
    binary = LazyKernel(entry.parts["code"], kernel.name, *_launch_extras(kernel))
    return Built(kernel, binary, Resources(**entry.record), lambda: source)
