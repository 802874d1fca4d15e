"""The thread pool: every iteration once, whoever calls, however often, also after a fork."""

import ctypes
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.llvm import jit
from fuser.codegen.loops import Launch
from fuser.dtypes import I64
from fuser.errors import ArgumentError
from fuser.hostexpr import sym
from fuser.runtime import cpu, pool, pool_layout, pool_native
from tests.threads import together


@pytest.fixture(scope="module")
def increment() -> jit.NativeKernel:
    """x[it] += step."""
    b = KernelBuilder("increment", "cpu")
    x = b.buffer("x", I64, "inout", 0, sym("n"))
    zero, one = b.literal(0, I64), b.literal(1, I64)
    with b.loop("it", zero, one, one, "parallel") as it:
        b.store(x, it, b.apply("add", (b.load(x, it), b.scalar(sym("step"), I64)), I64))
    return jit.compile(expand(b.finish(Launch((1, 1), 1))))


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = pool.num_threads()
    pool.set_num_threads(3)
    yield
    pool.set_num_threads(before)


def add(kernel: jit.NativeKernel, x: np.ndarray[Any, Any], step: int, grain: int = 1) -> None:
    cpu.launch(kernel, [x.ctypes.data], [step], len(x), grain)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 11, 12, 13, 1000, 100_003])
def test_every_iteration_runs_once(increment: jit.NativeKernel, n: int) -> None:
    for grain in (1, 7, 5000):
        x = np.zeros(n, np.int64)
        add(increment, x, 5, grain)
        assert (x == 5).all()


def test_many_kernels_in_a_row(increment: jit.NativeKernel) -> None:
    x = np.zeros(64, np.int64)
    for _ in range(2000):
        add(increment, x, 1)
    assert (x == 2000).all()


def test_callers_on_many_threads(increment: jit.NativeKernel) -> None:
    arrays = [np.zeros(5000, np.int64) for _ in range(6)]

    def work(x: np.ndarray[Any, Any]) -> None:
        for _ in range(200):
            add(increment, x, 1)

    together(work, arrays)
    assert all((x == 200).all() for x in arrays)


def test_the_number_of_threads_can_change(increment: jit.NativeKernel) -> None:
    for threads in (1, 4, 2):
        pool.set_num_threads(threads)
        assert pool.num_threads() == threads
        x = np.zeros(1000, np.int64)
        add(increment, x, threads)
        assert (x == threads).all()
    with pytest.raises(ArgumentError, match="at least one thread"):
        pool.set_num_threads(0)


def test_one_thread_and_small_work_need_no_pool(increment: jit.NativeKernel) -> None:
    pool.set_num_threads(1)
    assert pool.current() is None
    pool.set_num_threads(2)
    add(increment, np.zeros(10, np.int64), 1, grain=10)
    assert pool._current.pool is None
    add(increment, np.zeros(11, np.int64), 1, grain=10)
    assert pool._current.pool is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_threads_of_its_own(increment: jit.NativeKernel) -> None:
    add(increment, np.zeros(1000, np.int64), 1)
    child = os.fork()
    if child == 0:
        x = np.zeros(1000, np.int64)
        add(increment, x, 3)
        os._exit(0 if (x == 3).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not place threads")


def _tasks() -> set[int]:
    return {int(t) for t in os.listdir("/proc/self/task")}


@LINUX
def test_workers_are_kept_off_the_processor_of_their_caller(increment: jit.NativeKernel) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    pool.set_num_threads(2)
    before = _tasks()
    add(increment, np.zeros(1000, np.int64), 1)
    (worker,) = _tasks() - before
    try:
        for home in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {home})
            add(increment, np.zeros(1000, np.int64), 1)
            assert os.sched_getaffinity(worker) == allowed - {home}
    finally:
        os.sched_setaffinity(0, allowed)


@LINUX
def test_workers_stay_where_their_process_may_run(increment: jit.NativeKernel) -> None:
    allowed = os.sched_getaffinity(0)
    before = _tasks()
    try:
        os.sched_setaffinity(0, {min(allowed)})
        x = np.zeros(1000, np.int64)
        add(increment, x, 1)
        assert all(os.sched_getaffinity(t) == {min(allowed)} for t in _tasks() - before)
        assert (x == 1).all()
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_system_that_places_no_threads(increment: jit.NativeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_places", lambda: False)
    pool._native.cache_clear()
    try:
        x = np.zeros(1000, np.int64)
        for _ in range(50):
            add(increment, x, 1)
        assert (x == 50).all()
        workers = pool._current.pool
        assert workers is not None
        assert ctypes.c_int64.from_address(workers.state + 8 * pool_layout.WORKERS).value == 0
    finally:
        pool.set_num_threads(1)
        pool._native.cache_clear()


@pytest.mark.parametrize(
    "triple", ["arm64-apple-darwin24.0.0", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"]
)
def test_other_systems_get_what_they_have(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = str(pool_native.module(triple, places="linux" in triple))
    assert ("llvm.aarch64.hint" in text) == (not triple.startswith("riscv"))
    assert ("sched_getcpu" in text) == ("linux" in triple)
    module = llvm.parse_assembly(text)
    module.verify()
    target: Any = llvm.Target.from_triple(triple)
    assert "pthread_mutex_lock" in target.create_target_machine().emit_assembly(module)


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"FUSER_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"FUSER_NUM_THREADS": "2", "OMP_NUM_THREADS": "5"}, 2),
    ],
)
def test_environment_variables(variables: dict[str, str], threads: int) -> None:
    program = "from fuser.runtime import pool; print(pool.num_threads())"
    clean = {k: v for k, v in os.environ.items() if k not in ("FUSER_NUM_THREADS", "OMP_NUM_THREADS")}
    shown = subprocess.run(
        [sys.executable, "-c", program], env={**clean, **variables}, capture_output=True, text=True, check=True
    )
    assert int(shown.stdout) == threads


def test_the_interpreter_ends_while_threads_sleep() -> None:
    program = """
        import numpy, fuser
        from fuser.runtime import pool
        pool.set_num_threads(4)
        f = fuser.compile("lambda x: x + 1")
        f(numpy.zeros((100, 100000), "f4"))
        assert pool._current.pool is not None
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
