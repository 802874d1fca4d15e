"""Compiling the native short road: LLVM IR to an address in this process.

In: nothing. Out: `Built`. Its own file because it is loaded only where the object code is not cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

NAME = "fuser_road"


@dataclass(frozen=True)
class Built:
    """The function's address; `keep` holds its code."""

    address: int
    keep: Any


def build() -> Built:
    """Compile (or take from the disk cache) and link the function."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    code = _assemble(target)
    jit = llvm.create_lljit_compiler(_machine(target))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(NAME)
    tracker = library.link(jit, NAME)
    return Built(tracker[NAME], (jit, tracker))


def _machine(target: Any) -> Any:
    return target.create_target_machine(opt=2, reloc="pic", codemodel="jitdefault", jit=True)


def _assemble(target: Any) -> bytes:
    from fuser.runtime import native_call

    parsed = llvm.parse_assembly(str(native_call.module()))
    parsed.verify()
    machine = _machine(target)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))
