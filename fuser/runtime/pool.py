"""The thread pool for CPU kernels: as many native threads as there are cores, asleep when there is nothing to do.

In: kernels with a trip count. Out: their iterations run, spread over the threads and the caller. Why an own pool:
Python threads would wait for the interpreter's lock to wake up (tens of microseconds, a whole small kernel); OpenMP and
TBB are not there on a machine without a compiler. Threads start at the first kernel that is worth them, end with the
interpreter, and are started anew in a forked child. Without POSIX threads (Windows) kernels run on the caller's thread.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from fuser.errors import ArgumentError
from fuser.runtime import pool_layout as layout
from fuser.settings import settings

if TYPE_CHECKING:
    from fuser.runtime.native_code import Linked

STACK_BYTES = 8 << 20  # column kernels keep accumulators on the stack; some systems give a thread 128 KiB


class Pool:
    """`threads` threads including the caller's; its workers run native code only."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._native = _native()
        self._memory = ctypes.create_string_buffer(layout.SIZE + layout.LINE)
        base = ctypes.addressof(self._memory)
        self._state = (base + layout.LINE - 1) // layout.LINE * layout.LINE
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)
        self._dispatch = kind(self.dispatch_address)
        self._libc = ctypes.CDLL(None)
        self._libc.pthread_mutex_init(ctypes.c_void_p(self._state + layout.MUTEX), None)
        for condition in (layout.WORK, layout.DONE):
            self._libc.pthread_cond_init(ctypes.c_void_p(self._state + condition), None)
        started = (self._start() for _ in range(threads - 1))
        self._workers = [w for w in started if w is not None]  # a system at its limit gives fewer: slower, not wrong
        self._set(layout.THREADS, threads)
        self._set(layout.HOME, -1)
        if _places() and len(self._workers) <= layout.PLACED:
            self._let_place()

    def run(self, kernel: int, buffers: Any, scalars: Any, trips: int, grain: int) -> None:
        """Run iterations 0 to `trips`, at least `grain` at a time."""
        self._dispatch(self._state, kernel, buffers, scalars, trips, grain)

    @property
    def state(self) -> int:
        """Address of the state that `dispatch` takes."""
        return self._state

    @property
    def dispatch_address(self) -> int:
        return self._native.addresses["fuser_pool_dispatch"]

    def _set(self, field: int, value: int) -> None:
        ctypes.c_int64.from_address(self._state + 8 * field).value = value

    def _start(self) -> ctypes.c_ulong | None:
        thread = ctypes.c_ulong()
        attributes = ctypes.create_string_buffer(128)
        self._libc.pthread_attr_init(attributes)
        self._libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
        work, state = ctypes.c_void_p(self._native.addresses["fuser_pool_work"]), ctypes.c_void_p(self._state)
        failed = self._libc.pthread_create(ctypes.byref(thread), attributes, work, state)
        return None if failed else thread

    def _let_place(self) -> None:
        """Tell `dispatch` which threads it may place on which processors: those that this thread may use, which the
        workers have inherited. More workers than there is room for are left to the system, which then has so many
        processors to choose from that one late worker does not matter."""
        mask = ctypes.c_void_p(self._state + layout.MASK)
        if self._libc.sched_getaffinity(0, ctypes.c_size_t(layout.LINE), mask) != 0:
            return  # more processors than the mask has bits for
        for k, worker in enumerate(self._workers):
            ctypes.c_uint64.from_address(self._state + layout.HANDLES + 8 * k).value = worker.value
        self._set(layout.WORKERS, len(self._workers))

    def stop(self) -> None:
        """End the workers; waits for kernels that are running."""
        mutex = ctypes.c_void_p(self._state + layout.MUTEX)
        self._libc.pthread_mutex_lock(mutex)
        self._set(layout.STOP, 1)
        self._libc.pthread_cond_broadcast(ctypes.c_void_p(self._state + layout.WORK))
        self._libc.pthread_mutex_unlock(mutex)
        for thread in self._workers:
            self._libc.pthread_join(thread, None)
        self._workers = []


@cache
def _native() -> Linked:
    from fuser.runtime import native_code

    names = ("fuser_pool_work", "fuser_pool_dispatch")
    return native_code.link("placing_pool" if _places() else "pool", names, "pool_*.py", _module)


def _module() -> Any:
    import llvmlite.binding as llvm

    from fuser.runtime import pool_native

    return pool_native.module(llvm.get_process_triple(), _places())


@cache
def _places() -> bool:
    """Whether this system can say where a thread runs and set where it may (Linux)."""
    libc = ctypes.CDLL(None)
    return all(hasattr(libc, f) for f in ("sched_getcpu", "sched_getaffinity", "pthread_setaffinity_np"))


class _Current:
    """The process's pool and the number of threads asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None
        self.threads: int | None = None


_current = _Current()


def num_threads() -> int:
    """Threads that CPU kernels use: `set_num_threads`, else FUSER_NUM_THREADS or OMP_NUM_THREADS, else the cores
    this process may use."""
    if _current.threads is None:
        _current.threads = settings().num_threads or cores()
    return _current.threads


def set_num_threads(threads: int) -> None:
    """Use this many threads from the next kernel on; results do not depend on it. ArgumentError below 1."""
    if threads < 1:
        raise ArgumentError(f"set_num_threads({threads}): at least one thread is needed", "bad-threads")
    with _current.lock:
        old, _current.pool, _current.threads = _current.pool, None, threads
        _publish()
    if old is not None:
        old.stop()


def current() -> Pool | None:
    """The pool, started if need be; None where one thread is all there is."""
    pool = _current.pool
    if pool is None and num_threads() > 1 and os.name == "posix":
        with _current.lock:
            pool = _current.pool
            if pool is None:
                pool = _current.pool = Pool(num_threads())
                _publish()
    elif pool is None:
        _publish()
    return pool


# What native callers look at: mode (0 ask `current`, 1 one thread, 2 the pool), the pool object (to hold a reference
# while in it), its state, `dispatch`. Written and read under the interpreter's lock.
_cell = (ctypes.c_int64 * 4)()


def cell_address() -> int:
    """Where native callers find the pool."""
    return ctypes.addressof(_cell)


def _publish() -> None:
    """Bring the cell up to date."""
    pool = _current.pool
    _cell[0] = 0
    if pool is not None:
        _cell[1:4] = [id(pool), pool.state, pool.dispatch_address]
        _cell[0] = 2
    elif _current.threads == 1 or os.name != "posix":
        _cell[0] = 1


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _forget() -> None:
    """In a forked child the threads are gone, and the lock may be held by one of them."""
    _current.lock = threading.Lock()
    _current.pool = None
    _publish()


def _end() -> None:
    pool, _current.pool, _current.threads = _current.pool, None, 1
    _publish()
    if pool is not None:
        pool.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_end)
