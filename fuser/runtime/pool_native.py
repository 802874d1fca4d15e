"""The thread pool's native half: two functions in LLVM IR over POSIX threads.

In: what this system offers. Out: a module with `fuser_pool_work(state)`, a worker's whole life, and
`fuser_pool_dispatch(state, kernel, buffers, scalars, trips, grain)`, which shares a kernel's iterations among the
caller and the workers and returns when all are done. Python is in neither, so no worker ever needs the interpreter's
lock. `pool_layout` says what the state is. Loaded only where the object code is not cached.

A caller that finds the pool busy with another caller's kernel runs its own alone: two callers are two threads already.

Waiting. Waking a thread takes 25 us and more, so a thread that waits looks for a while before it sleeps: workers for
the next kernel, a caller for the last worker.

Placing. Linux may wake a worker on the very processor that its caller keeps busy, and leave it there for milliseconds:
always so in a virtual machine whose other processors have gone to sleep (they count as taken). On two such processors a
kernel of 0.7 ms then took 1.3 ms, as long as alone. So workers are kept off the caller's processor, whenever that has
changed since the last kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fuser.runtime.pool_layout import (
    ACTIVE,
    BUFFERS,
    BUSY,
    CHUNK,
    CPUS,
    DONE,
    GENERATION,
    HANDLES,
    HOME,
    KERNEL,
    LINE,
    MASK,
    MUTEX,
    NEXT,
    SCALARS,
    STOP,
    THREADS,
    TRIPS,
    WORK,
    WORKERS,
)

LOOKS = 1000  # of a thread that waits before it sleeps: 20 to 50 us
CHUNKS = 16  # a thread, so that a slow thread does not hold up the others for long

I64, I32, VOID, POINTER = ir.IntType(64), ir.IntType(32), ir.VoidType(), ir.PointerType()
# A pointer that llvmlite lets one call; it prints as any other.
CALLABLE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64]).as_pointer()
_YIELD = ("llvm.aarch64.hint", (1,))
PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": _YIELD, "arm64": _YIELD}


def module(triple: str, places: bool) -> Any:
    """The pool's functions. places: this system can say and set where threads run."""
    m = ir.Module("fuser_pool")
    pause = PAUSES.get(triple.split("-")[0])
    share = _Function(m, "fuser_pool_share", [POINTER], pause)
    share.write_share()
    _Function(m, "fuser_pool_work", [POINTER], pause).write_work(share)
    dispatch = _Function(m, "fuser_pool_dispatch", [POINTER, CALLABLE, POINTER, POINTER, I64, I64], pause)
    dispatch.write_dispatch(share, places)
    return m


class _Function:
    """One function of the pool; its first argument is the state."""

    def __init__(self, module: Any, name: str, arguments: list[Any], pause: tuple[str, tuple[int, ...]] | None) -> None:
        self.module, self.pause = module, pause
        self.function = ir.Function(module, ir.FunctionType(VOID, arguments), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.state = self.function.args[0]

    # -- pieces ------------------------------------------------------------------------------------
    def field(self, k: int) -> Any:
        return self.b.gep(self.state, [ir.Constant(I64, k)], source_etype=I64)

    def part(self, offset: int) -> Any:
        return self.b.gep(self.state, [ir.Constant(I64, offset)], source_etype=ir.IntType(8))

    def get(self, k: int, kind: Any = I64) -> Any:
        return self.b.load(self.field(k), typ=kind)

    def put(self, k: int, value: Any) -> None:
        self.b.store(ir.Constant(I64, value) if isinstance(value, int) else value, self.field(k))

    def bump(self, k: int, by: int) -> Any:
        value = self.b.add(self.get(k), ir.Constant(I64, by))
        self.put(k, value)
        return value

    def outside(self, name: str, result: Any, *arguments: Any) -> Any:
        """A call of a function of the system's or LLVM's."""
        known = self.module.globals.get(name)
        function = known or ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def posix(self, name: str, *parts: int) -> None:
        """A pthread function on parts of the state."""
        self.outside(name, I32, *[self.part(p) for p in parts])

    def lock(self) -> None:
        self.posix("pthread_mutex_lock", MUTEX)

    def unlock(self) -> None:
        self.posix("pthread_mutex_unlock", MUTEX)

    def is_zero(self, value: Any) -> Any:
        return self.b.icmp_signed("==", value, ir.Constant(I64, 0))

    def loop_while(self, condition: Callable[[], Any], body: Callable[[], None]) -> None:
        head, inside, after = (self.function.append_basic_block(n) for n in ("head", "inside", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), inside, after)
        self.b.position_at_end(inside)
        body()
        self.b.branch(head)
        self.b.position_at_end(after)

    # -- functions ---------------------------------------------------------------------------------
    def write_share(self) -> None:
        """Take chunks of iterations until none is left."""
        b = self.b
        kernel, buffers, scalars = self.get(KERNEL, CALLABLE), self.get(BUFFERS, POINTER), self.get(SCALARS, POINTER)
        trips, chunk = self.get(TRIPS), self.get(CHUNK)
        head, inside, after = (self.function.append_basic_block(n) for n in ("head", "inside", "after"))
        b.branch(head)
        b.position_at_end(head)
        begin = b.atomic_rmw("add", self.part(NEXT), chunk, "monotonic")
        b.cbranch(b.icmp_signed("<", begin, trips), inside, after)
        b.position_at_end(inside)
        end = b.add(begin, chunk)
        end = b.select(b.icmp_signed("<", end, trips), end, trips)
        b.call(kernel, [buffers, scalars, begin, end])
        b.branch(head)
        b.position_at_end(after)
        b.ret_void()

    def write_work(self, share: _Function) -> None:
        """Sleep until there is a new kernel, take part in it if it is still open, until told to stop."""
        b = self.b
        seen = b.alloca(I64)
        seen.type = POINTER
        self.lock()
        b.store(self.get(GENERATION), seen)

        def idle() -> Any:
            return b.and_(
                b.icmp_signed("==", self.get(GENERATION), b.load(seen, typ=I64)), self.is_zero(self.get(STOP))
            )

        def once() -> None:
            self.loop_while(idle, lambda: self.posix("pthread_cond_wait", WORK, MUTEX))
            b.store(self.get(GENERATION), seen)
            open_ = b.and_(b.icmp_signed("!=", self.get(BUSY), ir.Constant(I64, 0)), self.is_zero(self.get(STOP)))
            with b.if_then(open_):
                self.bump(ACTIVE, 1)
                self.unlock()
                b.call(share.function, [self.state])
                self.lock()
                left = self.bump(ACTIVE, -1)
                with b.if_then(self.is_zero(left)):
                    self.posix("pthread_cond_signal", DONE)
                self.unlock()
                self.look_while(lambda: b.icmp_signed("==", self.glance(GENERATION), b.load(seen, typ=I64)))
                self.lock()

        self.loop_while(lambda: self.is_zero(self.get(STOP)), once)
        self.unlock()
        b.ret_void()

    def write_dispatch(self, share: _Function, places: bool) -> None:
        """Open a kernel to all threads, take part, wait for those still inside."""
        b = self.b
        _, kernel, buffers, scalars, trips, grain = self.function.args
        self.lock()
        busy = b.icmp_signed("!=", self.get(BUSY), ir.Constant(I64, 0))
        with b.if_then(busy):
            self.unlock()
            b.call(kernel, [buffers, scalars, ir.Constant(I64, 0), trips])
            b.ret_void()
        chunk = self._chunk(trips, grain)
        for k, value in ((KERNEL, kernel), (BUFFERS, buffers), (SCALARS, scalars), (TRIPS, trips), (CHUNK, chunk)):
            self.put(k, value)
        b.store(ir.Constant(I64, 0), self.part(NEXT))
        self.put(BUSY, 1)
        self.bump(GENERATION, 1)
        if places:
            self._place()
        self.posix("pthread_cond_broadcast", WORK)
        self.unlock()
        b.call(share.function, [self.state])
        self.look_while(lambda: b.not_(self.is_zero(self.glance(ACTIVE))))
        self.lock()
        self.loop_while(
            lambda: b.not_(self.is_zero(self.get(ACTIVE))), lambda: self.posix("pthread_cond_wait", DONE, MUTEX)
        )
        self.put(BUSY, 0)
        self.unlock()
        b.ret_void()

    def _chunk(self, trips: Any, grain: Any) -> Any:
        """Iterations that a thread takes at a time."""
        b = self.b
        chunks = b.mul(self.get(THREADS), ir.Constant(I64, CHUNKS))
        even = b.udiv(b.sub(b.add(trips, chunks), ir.Constant(I64, 1)), chunks)
        return b.select(b.icmp_signed(">", even, grain), even, grain)

    def _place(self) -> None:
        """Keep the workers off the processor that the caller is on; where that leaves none, the system refuses."""
        b = self.b
        here = b.sext(self.outside("sched_getcpu", I32), I64)
        known = b.icmp_unsigned("<", here, ir.Constant(I64, CPUS))
        with b.if_then(b.and_(known, b.icmp_signed("!=", here, self.get(HOME))), likely=False):
            self.put(HOME, here)
            word = b.gep(self.part(MASK), [b.lshr(here, ir.Constant(I64, 6))], source_etype=I64)
            bit = b.shl(ir.Constant(I64, 1), b.and_(here, ir.Constant(I64, 63)))
            all_ = b.load(word, typ=I64)
            b.store(b.and_(all_, b.not_(bit)), word)
            count = self.variable(0)

            def one() -> None:
                k = b.load(count, typ=I64)
                b.store(b.add(k, ir.Constant(I64, 1)), count)
                thread = b.load(b.gep(self.part(HANDLES), [k], source_etype=I64), typ=I64)
                self.outside("pthread_setaffinity_np", I32, thread, ir.Constant(I64, LINE), self.part(MASK))

            self.loop_while(lambda: b.icmp_signed("<", b.load(count, typ=I64), self.get(WORKERS)), one)
            b.store(all_, word)

    # -- waiting -----------------------------------------------------------------------------------
    def variable(self, value: int) -> Any:
        slot = self.b.alloca(I64)
        slot.type = POINTER
        self.b.store(ir.Constant(I64, value), slot)
        return slot

    def glance(self, k: int) -> Any:
        """A field that may change meanwhile, read without the mutex."""
        return self.b.load_atomic(self.field(k), "monotonic", 8, typ=I64)

    def look_while(self, waits: Callable[[], Any]) -> None:
        """Look a little while whether there is something to do, since sleeping and waking costs more."""
        b = self.b
        count = self.variable(LOOKS)

        def once() -> None:
            b.store(b.sub(b.load(count, typ=I64), ir.Constant(I64, 1)), count)
            if self.pause is not None:
                name, arguments = self.pause
                self.outside(name, VOID, *[ir.Constant(I32, a) for a in arguments])

        more = ir.Constant(I64, 0)
        self.loop_while(lambda: b.and_(b.icmp_signed(">", b.load(count, typ=I64), more), waits()), once)
