"""Compiling the native short road and launcher: LLVM IR to an address in this process.

In: nothing. Out: `Built`. Its own file because it is loaded only where the object code is not cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

NAMES = ("fuser_road", "fuser_launch", "fuser_device_road")


@dataclass(frozen=True)
class Built:
    """Addresses of the functions; `keep` holds their code."""

    road: int
    launch: int
    device_road: int
    keep: Any


def build() -> Built:
    """Compile and link the functions."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    code = _stored(target)
    jit = llvm.create_lljit_compiler(_machine(target))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in NAMES:
        library = library.export_symbol(name)
    tracker = library.link(jit, "fuser_native")
    road, launch, device_road = (int(tracker[name]) for name in NAMES)
    return Built(road, launch, device_road, (jit, tracker))


def _stored(target: Any) -> bytes:
    """Object code from the disk cache, where it is; the functions use nothing of the machine but its basic
    instructions."""
    from fuser.runtime import cache

    sources = cache.code_fingerprint(str(Path(__file__).parent))
    key = cache.key_of("native", llvm.get_process_triple(), llvmlite.__version__, sources)
    entry = cache.store().load(key)
    if entry is not None:
        return entry.parts["code"]
    code = _assemble(target)
    cache.store().save(key, {"code": code}, {})
    return code


def _machine(target: Any) -> Any:
    return target.create_target_machine(opt=1, reloc="pic", codemodel="jitdefault", jit=True)


def _assemble(target: Any) -> bytes:
    """Object code with variables in registers and no more: full optimisation takes three times as long, for nothing
    that a call would show."""
    from fuser.runtime import native_call

    parsed = llvm.parse_assembly(str(native_call.module()))
    parsed.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    machine = _machine(target)
    passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    return bytes(machine.emit_object(parsed))
