"""From kernel to native code: emit, optimise, assemble; `link` makes it part of this process.

In: a CPU kernel. Out: `NativeKernel`, with the address of
`void f(void** buffers, int64* scalars, int64 begin, int64 end)`.
The loop and SLP vectorisers stay off (the emitter writes vectors itself), which keeps a compile in the milliseconds and
an element's arithmetic independent of its position.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from fuser.codegen.llvm.emit import emit
from fuser.codegen.llvm.host import Host, host, target_machine
from fuser.codegen.llvm.link import NativeKernel, link, load, lock
from fuser.codegen.loops import Kernel
from fuser.errors import InternalError

__all__ = ["NativeKernel", "assembly_for", "compile", "load"]


def compile(kernel: Kernel) -> NativeKernel:
    """Native code for a kernel in primitives (after `expand`).

    InternalError carries LLVM's message if the module does not verify: a fault of fuser's.
    """
    text = str(emit(kernel, host()))
    with lock:
        module = _optimised(text, kernel.name, _machine())
        optimised = str(module)  # before code generation, which rewrites it for the machine
        return link(kernel.name, optimised, _machine().emit_object(module))


def assembly_for(kernel: Kernel, other: Host) -> str:
    """The assembly of a kernel for another machine; LLVM's targets must be initialised for it."""
    text = str(emit(kernel, other))
    with lock:
        machine = target_machine(other)
        return str(machine.emit_assembly(_optimised(text, kernel.name, machine)))


def _optimised(text: str, name: str, machine: Any) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the code of `{name}`", "llvm-verify", notes=[str(error)]) from error
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module


@cache
def _machine() -> Any:
    return target_machine(host())
