"""From kernel to native code: emit, optimise, assemble, link into this process.

In: a CPU kernel. Out: `NativeKernel`, with the address of
`void f(void** buffers, int64* scalars, int64 begin, int64 end)`.
The loop and SLP vectorisers stay off (the emitter writes vectors itself), which keeps a compile in the milliseconds and
an element's arithmetic independent of its position.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import field
from functools import cache, cached_property
from typing import Any

import llvmlite.binding as llvm

from fuser.codegen.llvm.emit import emit
from fuser.codegen.llvm.host import Host, host, target_machine
from fuser.codegen.loops import Kernel
from fuser.errors import InternalError
from fuser.record import dataclass

_lock = threading.Lock()  # one compilation at a time: LLVM's global context is shared
_serial = itertools.count()
if hasattr(os, "register_at_fork"):  # no fork in the middle of a compilation: the child could never finish it
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(frozen=True, eq=False)
class NativeKernel:
    """Compiled code, alive as long as this object. ir: optimised LLVM IR. code: the object file, for a disk cache."""

    name: str
    address: int
    ir: str
    code: bytes = field(repr=False)
    _tracker: Any = field(repr=False, default=None)

    @cached_property
    def assembly(self) -> str:
        """The native assembly, made when asked for."""
        with _lock:
            return str(target_machine(host()).emit_assembly(llvm.parse_assembly(self.ir)))


def compile(kernel: Kernel) -> NativeKernel:
    """Native code for a kernel in primitives (after `expand`).

    InternalError carries LLVM's message if the module does not verify: a fault of fuser's.
    """
    text = str(emit(kernel, host()))
    with _lock:
        module = _optimised(text, kernel.name, _machine())
        optimised = str(module)  # before code generation, which rewrites it for the machine
        return _link(kernel.name, optimised, _machine().emit_object(module))


def assembly_for(kernel: Kernel, other: Host) -> str:
    """The assembly of a kernel for another machine; LLVM's targets must be initialised for it."""
    text = str(emit(kernel, other))
    with _lock:
        machine = target_machine(other)
        return str(machine.emit_assembly(_optimised(text, kernel.name, machine)))


def load(name: str, ir: str, code: bytes) -> NativeKernel:
    """A kernel compiled earlier on a machine of the same kind."""
    with _lock:
        return _link(name, ir, code)


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


def _link(name: str, ir: str, code: bytes) -> NativeKernel:
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(name)
    tracker = library.link(_jit(), f"{name}.{next(_serial)}")
    return NativeKernel(name, tracker[name], ir, code, tracker)


@cache
def _machine() -> Any:
    return target_machine(host())


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(target_machine(host()))
