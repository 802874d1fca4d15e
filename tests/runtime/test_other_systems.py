"""Systems other than this one: what they lack is taken away here, and programs run all the same."""

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import fuser
from fuser.codegen.llvm import host as machine
from fuser.device import driver_library
from fuser.runtime import memory, pool

WITHOUT = """
    import mmap, os, sys
    for name in ("sched_getaffinity", "sched_setaffinity", "register_at_fork", "fork", "sysconf", "getloadavg"):
        if hasattr(os, name):
            delattr(os, name)
    for name in ("MADV_HUGEPAGE", "MAP_POPULATE", "MAP_NORESERVE"):
        if hasattr(mmap, name):
            delattr(mmap, name)
    import numpy as np
    import fuser
    from fuser.runtime import pool
    pool._places = lambda: False
    f = fuser.compile(lambda x: (np.sqrt(np.abs(x)), x.sum()))
    for n in (3, 5_000_000):
        root, total = f(np.full(n, 4.0))
        assert (root == 2.0).all() and total == 4.0 * n
"""


def test_a_system_without_what_only_linux_has() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


class Windows:
    """`os` as a module finds it there."""

    name = "nt"

    def __getattr__(self, name: str) -> Any:
        if name in ("sched_getaffinity", "geteuid", "register_at_fork"):
            raise AttributeError(name)
        return getattr(os, name)


def test_kernels_run_on_their_caller_where_there_are_no_posix_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pool.num_threads()
    pool.set_num_threads(1)
    monkeypatch.setattr(pool, "os", Windows())
    try:
        pool.set_num_threads(4)
        x = np.arange(3_000_000.0)
        compiled = fuser.compile(lambda x: x * 2 + 1)
        for _ in range(20):  # both roads
            assert (compiled(x) == x * 2 + 1).all()
        assert pool.current() is None
        assert pool.cores() == os.cpu_count()
    finally:
        monkeypatch.undo()
        pool.set_num_threads(before)


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_large_results_without_posix_and_with_larger_pages(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "os", Windows())
    monkeypatch.setattr(memory, "PAGE", page)
    memory.release()
    for nbytes in (memory.SMALL, 10 * memory.SMALL + 1, memory.HUGE_FROM + 1):
        a = memory.empty((nbytes,), np.dtype(np.uint8))
        a[:] = 7
        assert a.ctypes.data % 64 == 0
        assert memory._class_of(nbytes) % page == 0
        assert memory._class_of(nbytes) >= nbytes
    del a
    memory.release()


def test_huge_pages_are_advice_that_a_system_may_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert len(memory._fresh(memory.HUGE_FROM)) == memory.HUGE_FROM


@pytest.mark.parametrize(("known", "wanted"), [(b"hw.l3cachesize", 7 << 20), (b"hw.l2cachesize", 7 << 20), (b"", 0)])
def test_caches_of_a_mac(known: bytes, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def sysctlbyname(self, name: bytes, value: Any, *_: Any) -> int:
            if name != known:
                return -1
            ctypes.cast(value, ctypes.POINTER(ctypes.c_int64))[0] = wanted
            return 0

    monkeypatch.setattr(machine.sys, "platform", "darwin")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: Library())
    assert machine._darwin_cache() == wanted


def test_a_processor_whose_features_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Any:
        raise RuntimeError("failed to detect host cpu features")

    monkeypatch.setattr(llvm, "get_host_cpu_features", unknown)
    plain = machine.host.__wrapped__()
    assert plain.features == ""
    assert plain.vector_bytes == 16


def test_the_driver_has_another_name_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver_library() == "libcuda.so.1"
    monkeypatch.setattr(sys, "platform", "win32")
    assert driver_library() == "nvcuda.dll"
