"""Native code becomes part of this process.

In: an object file, made just now or taken from the disk cache. Out: `NativeKernel`, with the address of
`void f(void** buffers, int64* scalars, int64 begin, int64 end)`.
Its own file because a kernel that was compiled before needs LLVM's linker and nothing of the emitter.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import field
from functools import cache, cached_property
from typing import Any

import llvmlite.binding as llvm

from fuser.codegen.llvm.host import host, target_machine
from fuser.record import dataclass

lock = threading.Lock()  # one use of LLVM at a time: its global context is shared
_serial = itertools.count()
if hasattr(os, "register_at_fork"):  # no fork in the middle of a compilation: the child could never finish it
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


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
        with lock:
            return str(target_machine(host()).emit_assembly(llvm.parse_assembly(self.ir)))


def load(name: str, ir: str, code: bytes) -> NativeKernel:
    """A kernel compiled earlier on a machine of the same kind."""
    with lock:
        return link(name, ir, code)


def link(name: str, ir: str, code: bytes) -> NativeKernel:
    """The kernel of an object file; the caller holds `lock`."""
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(name)
    tracker = library.link(_jit(), f"{name}.{next(_serial)}")
    return NativeKernel(name, tracker[name], ir, code, tracker)


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(target_machine(host()))
