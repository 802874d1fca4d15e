"""Compiled kernels by content: made once a process, kept on disk for the next.

In: a kernel, the facts its binary depends on, how to compile it and how to take it up again. Out: `Built`. Its own file
because it joins three sides: `wiring` knows the compilers, `runtime.cache` the disk, `settings` what is allowed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from fuser.errors import CompileForbidden
from fuser.record import dataclass
from fuser.runtime import cache as disk
from fuser.settings import settings
from fuser.toolchain import Built, KernelLike

MEMORY = 1024  # kernels remembered by content; plans keep their own alive


@dataclass(frozen=True)
class Compiler:
    """One target's compiler. compile: a kernel from nothing. parts: what to store of it. restore: a kernel from that;
    None where it cannot be taken up (the entry is then replaced)."""

    compile: Callable[[KernelLike], Built]
    parts: Callable[[Built], tuple[Mapping[str, bytes], Mapping[str, Any]]]
    restore: Callable[[Any, disk.Entry], Built | None]


class _Memory:
    """Kernels of this process by key; counts what was compiled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: OrderedDict[str, Built] = OrderedDict()
        self.compiled = 0
        self.seconds = 0.0

    def get(self, key: str) -> Built | None:
        with self.lock:
            found = self.known.get(key)
            if found is not None:
                self.known.move_to_end(key)
            return found

    def put(self, key: str, built: Built) -> None:
        with self.lock:
            self.known[key] = built
            while len(self.known) > MEMORY:
                self.known.popitem(last=False)


@cache
def memory() -> _Memory:
    """The process's kernels."""
    return _Memory()


def compiled_count() -> int:
    """How many kernels this process has compiled (rather than found)."""
    return memory().compiled


def compile_seconds() -> float:
    """How long this process has spent compiling kernels."""
    return memory().seconds


def content(kernel: Any) -> str:
    """What a binary is made of. How many blocks or tasks a kernel is launched as is not part of its code, so that
    kernels that differ in nothing else are one."""
    return repr(replace(kernel, launch=replace(kernel.launch, grid=(), grain=0)))


def build(kernel: Any, facts: tuple[object, ...], compiler: Compiler) -> Built:
    """The compiled kernel: remembered, else from disk, else compiled and stored.

    CompileForbidden where it would have to be compiled and FUSER_COMPILE=never.
    """
    key = disk.key_of(*facts, content(kernel))
    built = recall(key, kernel, compiler.restore)
    if built is None:
        if settings().compile.lower() == "never":
            raise CompileForbidden(
                f"`{kernel.name}` is not in the cache, and FUSER_COMPILE=never",
                "compile-never",
                notes=["compile it where that is allowed; the cache is filled by what follows"],
            )
        start = time.perf_counter()
        built = compiler.compile(kernel)
        memory().seconds += time.perf_counter() - start
        memory().compiled += 1
        disk.store().save(key, *compiler.parts(built))
        built = replace(built, key=key)
        memory().put(key, built)
    return built


def recall(key: str, kernel: Any, restore: Callable[[Any, disk.Entry], Built | None]) -> Built | None:
    """The kernel that was compiled under a key, here or by another process."""
    built = memory().get(key)
    if built is None:
        entry = disk.store().load(key)
        built = restore(kernel, entry) if entry is not None else None
        if built is None:
            return None
        built = replace(built, key=key)
        memory().put(key, built)
    return replace(built, kernel=kernel)


def forget() -> None:
    """Forget this process's kernels (tests)."""
    memory.cache_clear()
