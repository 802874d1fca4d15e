"""Where passes, code generators and compilers meet: the toolchain that the core is handed.

In: nothing but the installed packages. Out: `toolchain()`, whose functions plan, lower and build kernels. Everything
heavy (networkx, llvmlite, CuPy) is imported when it is first needed. Its own file because `api` is about users, this
about compilers.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from fuser import kernels
from fuser.errors import DeviceError
from fuser.runtime import cache as cache_files
from fuser.runtime.quiet import collection_paused
from fuser.toolchain import Built, Resources, Toolchain

if TYPE_CHECKING:
    from fuser.device import Device
    from fuser.graph import Graph


@cache
def load() -> None:
    """Import what a first call needs, so that `fuser.compile` takes that time and not the call."""
    with collection_paused():
        toolchain()
        from fuser.codegen import expand, verify  # noqa: F401
        from fuser.codegen.schedule import lengths  # noqa: F401
        from fuser.frontend import capture, trace, watch  # noqa: F401
        from fuser.optable import table
        from fuser.passes import fuse  # noqa: F401

        table()
        if "cupy" in sys.modules:  # arrays of the CPU may come all the same, and wait for LLVM then
            from fuser.codegen.cuda import nvrtc, printer  # noqa: F401
            from fuser.codegen.schedule import cuda, lower_pointwise, lower_reduce  # noqa: F401
        else:
            from fuser.codegen.llvm import jit  # noqa: F401
            from fuser.codegen.schedule import cpu, lower_cpu  # noqa: F401


@cache
def toolchain() -> Toolchain:
    """The packages behind the core, imported now."""
    from fuser.codegen import schedule
    from fuser.passes import cost, pipeline

    return Toolchain(
        prepare=pipeline.prepare,
        plan_groups=_plan_groups,
        choose=schedule.choose,
        lower=schedule.lower,
        build=_build,
        retreat=schedule.retreat,
        neighbours=schedule.neighbours,
        estimate=cost.estimate,
        show=_show,
        machine=_machine,
    )


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
        from fuser.codegen.llvm.host import compiler_version, host

        machine = host()
        facts: tuple[object, ...] = ("cpu", machine.triple, machine.cpu, machine.features, compiler_version())
        return kernels.build(kernel, (*facts, _sources()), _CPU)
    from fuser.codegen.cuda import nvrtc

    try:
        version = nvrtc.version()
    except DeviceError as missing:
        return _uncompiled(kernel, missing)
    facts = ("cuda", device.name, version, nvrtc.options(device.name), _sources())
    compiler = kernels.Compiler(lambda k: _compile_cuda(k, device), _cuda_parts, _restore_cuda)
    return kernels.build(kernel, facts, compiler)


@cache
def _sources() -> str:
    """The version of the code that makes kernels."""
    from fuser import codegen, optable

    return cache_files.code_fingerprint(*codegen.__path__, *optable.__path__)


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
    from fuser.codegen.llvm import jit

    native = jit.load(kernel.name, zlib.decompress(entry.parts["ir"]).decode(), entry.parts["code"])
    return Built(kernel, native, Resources(), lambda: str(native.ir))


_CPU = kernels.Compiler(_compile_cpu, _cpu_parts, _restore_cpu)


def _printed(kernel: Any) -> tuple[str, int]:
    """CUDA C of a kernel, and the registers that it is expected to take."""
    from fuser.codegen import registers
    from fuser.codegen.cuda import printer

    ready = _expanded(kernel)
    return printer.print_kernel(ready), registers.estimate(ready)


def _compile_cuda(kernel: Any, device: Device) -> Built:
    from fuser.codegen.cuda import nvrtc
    from fuser.runtime.cuda import LazyKernel

    source, expected = _printed(kernel)
    binary = nvrtc.compile(source, kernel.name, device.name)
    resources = Resources(binary.registers, binary.spills, binary.stack, binary.shared, expected)
    return Built(kernel, LazyKernel(binary.cubin, kernel.name, *_launch_extras(kernel)), resources, lambda: source)


def _launch_extras(kernel: Any) -> tuple[int, int]:
    """Bytes of dynamic shared memory, blocks a cluster."""
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
