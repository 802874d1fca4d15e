"""The thread pool's native half: two functions in LLVM IR over POSIX threads.

In: nothing. Out: addresses of `work(state)`, a worker's whole life, and of
`dispatch(state, kernel, buffers, scalars, trips, chunk)`, which shares a kernel's iterations among the caller and the
workers and returns when all are done. Python is in neither, so no worker ever needs the interpreter's lock. The state
is one block of memory, laid out below; all fields but `next` are guarded by its mutex.

A caller that finds the pool busy with another caller's kernel runs its own alone: two callers are two threads already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

LINE = 128  # bytes between parts of the state: more than a cache line, and than any platform's mutex or condition
KERNEL, BUFFERS, SCALARS, TRIPS, CHUNK, GENERATION, ACTIVE, BUSY, STOP = range(9)  # 8-byte fields
MUTEX, WORK, DONE, NEXT, SIZE = (k * LINE for k in range(1, 6))  # byte offsets
SPINS = 2000  # looks at `active` before a finished caller sleeps: a few microseconds

I64, I32, VOID, POINTER = ir.IntType(64), ir.IntType(32), ir.VoidType(), ir.PointerType()
# A pointer that llvmlite lets one call; it prints as any other.
CALLABLE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64]).as_pointer()


@dataclass(frozen=True)
class NativePool:
    """Addresses of the two functions; `keep` holds their code."""

    work: int
    dispatch: int
    keep: object


def build() -> NativePool:
    """Compile and link the pool."""
    module = ir.Module("fuser_pool")
    share = _Function(module, "fuser_pool_share", [POINTER])
    share.write_share()
    _Function(module, "fuser_pool_work", [POINTER]).write_work(share)
    _Function(module, "fuser_pool_dispatch", [POINTER, CALLABLE, POINTER, POINTER, I64, I64]).write_dispatch(share)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="jitdefault", jit=True)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    code = machine.emit_object(parsed)
    jit = llvm.create_lljit_compiler(target.create_target_machine(opt=2, reloc="pic", codemodel="jitdefault", jit=True))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    library = library.export_symbol("fuser_pool_work").export_symbol("fuser_pool_dispatch")
    tracker = library.link(jit, "fuser_pool")
    return NativePool(tracker["fuser_pool_work"], tracker["fuser_pool_dispatch"], (jit, tracker))


class _Function:
    """One function of the pool; its first argument is the state."""

    def __init__(self, module: Any, name: str, arguments: list[Any]) -> None:
        self.module = module
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

    def posix(self, name: str, *parts: int) -> None:
        """A pthread function on parts of the state."""
        known = self.module.globals.get(name)
        function = known or ir.Function(self.module, ir.FunctionType(I32, [POINTER] * len(parts)), name)
        self.b.call(function, [self.part(p) for p in parts])

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

        self.loop_while(lambda: self.is_zero(self.get(STOP)), once)
        self.unlock()
        b.ret_void()

    def write_dispatch(self, share: _Function) -> None:
        """Open a kernel to all threads, take part, wait for those still inside."""
        b = self.b
        _, kernel, buffers, scalars, trips, chunk = self.function.args
        self.lock()
        busy = b.icmp_signed("!=", self.get(BUSY), ir.Constant(I64, 0))
        with b.if_then(busy):
            self.unlock()
            b.call(kernel, [buffers, scalars, ir.Constant(I64, 0), trips])
            b.ret_void()
        for k, value in ((KERNEL, kernel), (BUFFERS, buffers), (SCALARS, scalars), (TRIPS, trips), (CHUNK, chunk)):
            self.put(k, value)
        b.store(ir.Constant(I64, 0), self.part(NEXT))
        self.put(BUSY, 1)
        self.bump(GENERATION, 1)
        self.posix("pthread_cond_broadcast", WORK)
        self.unlock()
        b.call(share.function, [self.state])
        self._spin()
        self.lock()
        self.loop_while(
            lambda: b.not_(self.is_zero(self.get(ACTIVE))), lambda: self.posix("pthread_cond_wait", DONE, MUTEX)
        )
        self.put(BUSY, 0)
        self.unlock()
        b.ret_void()

    def _spin(self) -> None:
        """Look a little while whether the others are done, since sleeping and waking costs more."""
        b = self.b
        count = b.alloca(I64)
        count.type = POINTER
        b.store(ir.Constant(I64, SPINS), count)

        def waiting() -> Any:
            active = b.load_atomic(self.field(ACTIVE), "monotonic", 8, typ=I64)
            more = b.icmp_signed(">", b.load(count, typ=I64), ir.Constant(I64, 0))
            return b.and_(more, b.not_(self.is_zero(active)))

        def once() -> None:
            b.store(b.sub(b.load(count, typ=I64), ir.Constant(I64, 1)), count)

        self.loop_while(waiting, once)
