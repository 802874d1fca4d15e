"""What a first call must not do: times are the business of `benchmarks startup`; what makes them is counted here."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fuser
from fuser.runtime.quiet import collection_paused, importing

PROGRAM = """
import sys
import numpy as np
import fuser

def f(x, w, b):
    v = x * w + b
    return 0.5 * v * (1.0 + np.tanh(v))

f = fuser.compile(f)
x = np.ones((4, 4), np.float32)
before = set(sys.modules)
f(x, x, x)
print("first call:", *sorted(m for m in set(sys.modules) - before if m.startswith("fuser")))
before = set(sys.modules)
for _ in range(5):
    f(x, x, x)
print("next calls:", *sorted(set(sys.modules) - before))
for _ in range(20):
    f(x, x, x)
print("loaded:", *sorted(m for m in sys.modules if m.startswith("fuser")))
from fuser.runtime import native_entry
print("native:", native_entry.loaded())
unused = ("numpy.ma", "numpy.random", "importlib.metadata", "lark", "cupy", "fuser.optable.selection",
          "fuser.construct.calculus", "fuser.frontend.torch_calls")
print("never needed:", *(m for m in unused if m in sys.modules))
"""


PLANNERS = ("fuser.passes.fuse", "fuser.passes.cost", "fuser.codegen.schedule", "fuser.codegen.llvm.emit")


def lines_of_a_process(cache: Path) -> list[str]:
    environment = {**os.environ, "FUSER_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, cwd=cache.parent, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_compiler_is_loaded_by_compile_and_not_by_the_first_call(tmp_path: Path) -> None:
    first, following, loaded, native, never = lines_of_a_process(tmp_path / "cache")
    assert first == "first call:"
    assert "native_code" not in following, "the native road waits for more calls"
    assert set(PLANNERS) <= set(loaded.split())
    assert native.split()[-1] in ("True", "False")
    assert never == "never needed:"


def test_a_process_that_finds_its_plan_neither_plans_nor_lowers(tmp_path: Path) -> None:
    lines_of_a_process(tmp_path / "cache")
    first, _, loaded, *_ = lines_of_a_process(tmp_path / "cache")
    assert first == "first call:"
    assert not set(PLANNERS) & set(loaded.split())


def test_collection_is_paused_and_comes_back() -> None:
    assert gc.isenabled()
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_first_call_that_fails_leaves_collection_on() -> None:
    def broken(x: object) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fuser.compile(broken)(np.ones(3))
    assert gc.isenabled()


def test_threads_that_overlap_leave_collection_on() -> None:
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with collection_paused():
            inside.set()
            go.wait(10)

    with collection_paused():
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
    go.set()
    thread.join()
    assert gc.isenabled()


def test_what_imports_made_counts_as_old_and_nothing_else_changes() -> None:
    enabled = gc.isenabled()
    with importing():
        made = [[] for _ in range(2000)]  # type: ignore[var-annotated]
        assert not gc.isenabled()
    assert gc.isenabled() == enabled
    assert gc.get_count()[0] < len(made)
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        apart = gc.get_freeze_count()
        with importing():
            pass
        assert gc.get_freeze_count() == apart, "what the program set apart stays so"
    finally:
        gc.unfreeze()
