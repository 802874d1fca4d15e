"""Native functions that fuser itself needs (the thread pool, the short road): object code to addresses.

In: the names of functions, what writes them as LLVM IR, and the source files that this depends on. Out: `Linked`.
Object code comes from the disk cache where it is; it uses nothing of the processor but its basic instructions, so the
sources and the kind of machine are all that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from fuser.record import dataclass
from fuser.runtime import cache


@dataclass(frozen=True)
class Linked:
    """Addresses of functions by name; `keep` holds their code."""

    addresses: dict[str, int]
    keep: Any


def link(label: str, names: Sequence[str], sources: str, write: Callable[[], Any]) -> Linked:
    """The functions `names` of the module that `write` makes. sources: a pattern of files beside this one."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    code = _stored(label, sources, target, write)
    jit = llvm.create_lljit_compiler(_machine(target))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in names:
        library = library.export_symbol(name)
    tracker = library.link(jit, f"fuser_{label}")
    return Linked({name: int(tracker[name]) for name in names}, (jit, tracker))


def _stored(label: str, sources: str, target: Any, write: Callable[[], Any]) -> bytes:
    files = [Path(__file__), *sorted(Path(__file__).parent.glob(sources))]
    texts = [part for f in files for part in (f.name, f.read_bytes())]
    key = cache.key_of(label, llvm.get_process_triple(), llvmlite.__version__, *texts)
    entry = cache.store().load(key)
    if entry is not None:
        return entry.parts["code"]
    code = _assemble(target, write())
    cache.store().save(key, {"code": code}, {})
    return code


def _machine(target: Any) -> Any:
    return target.create_target_machine(opt=1, reloc="pic", codemodel="jitdefault", jit=True)


def _assemble(target: Any, module: Any) -> bytes:
    """Object code with variables in registers and no more: full optimisation takes three times as long, for nothing
    that a call would show."""
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    machine = _machine(target)
    passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    return bytes(machine.emit_object(parsed))
