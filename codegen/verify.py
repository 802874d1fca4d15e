"""What makes a kernel well-formed: every rule of the kernel language that can be read off its text.

In: a kernel, before or after `expand`. Out: a list of findings, empty when it is sound; all of them, so
that one run shows everything. What depends on values (bounds, races) is the SIMT interpreter's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuser.codegen.loops import (
    SIMT_ONLY,
    WARP,
    Alloc,
    Assign,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Await,
    Barrier,
    ClusterArrive,
    ClusterWait,
    Collective,
    For,
    If,
    Kernel,
    Let,
    Lit,
    Load,
    LoadVec,
    Mailbox,
    Mutable,
    Operand,
    Prefetch,
    Publish,
    Receive,
    Send,
    Shuffle,
    Special,
    Statement,
    Store,
    StoreVec,
    Ticket,
    Var,
    walk,
)
from fuser.codegen.primitives import spelling
from fuser.codegen.scopes import Scope, fold_together, holds
from fuser.codegen.text import operand, statement_text
from fuser.dtypes import BOOL, I32, DType
from fuser.errors import InternalError
from fuser.optable import table as default_table
from fuser.optable.base import Reduction, ScalarOp, Table

MAX_BLOCK = 1024
MAX_VECTOR_BYTES = 16
MAX_SHARED_BYTES = 48 << 10  # what a block may declare statically
MAX_DYNAMIC_BYTES = 227 << 10  # and what a launch may give it on the largest device (sm_90)
COLLECTIVE_STATEMENTS = (
    Barrier, Collective, Shuffle, ClusterArrive, ClusterWait, Mailbox, Receive, AsyncCommit, AsyncWait,
)  # fmt: skip
COPY_BYTES = (4, 8, 16)
MAIL_BYTES = (4, 8)
MAX_CLUSTER = 16


def verify(kernel: Kernel, table: Table | None = None, expanded: bool = False) -> list[str]:
    """All findings. expanded: the kernel must also be made of the target's primitives alone."""
    checker = _Checker(kernel, table or default_table(), expanded)
    checker.run()
    return checker.findings


def check(kernel: Kernel, table: Table | None = None, expanded: bool = True) -> None:
    """Raises InternalError with every finding of a kernel that is not well-formed."""
    findings = verify(kernel, table, expanded)
    if findings:
        raise InternalError(f"kernel `{kernel.name}` is malformed", "kernel-verify", notes=findings)


class _Checker:
    def __init__(self, kernel: Kernel, table: Table, expanded: bool) -> None:
        self.kernel, self.table, self.expanded = kernel, table, expanded
        self.findings: list[str] = []
        self.scopes: list[Scope] = [Scope()]
        self.declared: set[str] = set()
        self.mutable: set[str] = set()
        self.boxes: set[str] = set()
        self.buffers = {b.name: b for b in kernel.buffers}
        self.divergent = 0  # enclosing branches and loops whose threads may disagree
        self.here = ""
        self.check: dict[type, Callable[[Any], None]] = {
            Let: self.let, Mutable: self.declare_mutable, Assign: self.assign, Load: self.load, Store: self.store,
            LoadVec: self.load_vec, StoreVec: self.store_vec, Alloc: self.alloc, Special: self.special,
            Shuffle: self.shuffle, Collective: self.collective, Ticket: self.ticket, Send: self.send,
            Publish: self.publish, Await: self.wait_for, AsyncCopy: self.copy, AsyncWait: self.await_copies,
            Mailbox: self.mailbox, Receive: self.receive, Prefetch: self.prefetch,
        }  # fmt: skip

    # -- walk --------------------------------------------------------------------------------------
    def run(self) -> None:
        self.head()
        work: list[Statement | Callable[[], None]] = list(reversed(self.kernel.body))
        while work:
            item = work.pop()
            if isinstance(item, (For, If)):
                self.here = statement_text(item)
                work.extend(reversed(list(self.enter(item))))
            elif callable(item):
                item()
            else:
                self.statement(item)

    def enter(self, s: For | If) -> Iterator[Statement | Callable[[], None]]:
        """What replaces a nested statement: its blocks between scope changes."""
        if isinstance(s, For):
            self.loop_head(s)
            uneven = (s.going is not None and not s.uniform) or not all(
                self.is_uniform(x) for x in (s.start, s.stop, s.step)
            )
            yield lambda: self.open(uneven, s)
            yield from s.body
            yield lambda: self.close(uneven)
            return
        self.operand(s.condition, BOOL)
        uneven = not s.uniform and not self.is_uniform(s.condition)
        for block in (s.then, s.orelse):
            yield lambda: self.open(uneven)
            yield from block
            yield lambda: self.close(uneven)

    def open(self, divergent: bool, loop: For | None = None) -> None:
        self.scopes.append(Scope())
        self.divergent += divergent
        if loop is not None:
            self.declare(loop.var, constant=loop.kind == "unroll", uniform=not divergent)

    def close(self, divergent: bool) -> None:
        self.scopes.pop()
        self.divergent -= divergent

    def statement(self, s: Statement) -> None:
        self.here = statement_text(s)
        if isinstance(s, SIMT_ONLY) and self.kernel.target != "cuda":
            self.say(f"a {type(s).__name__} exists only on cuda")
        if isinstance(s, COLLECTIVE_STATEMENTS) and self.divergent:
            self.say("threads may have diverged here, so not all of them arrive")
        check = self.check.get(type(s))
        if check is not None:
            check(s)

    def say(self, text: str) -> None:
        self.findings.append(f"{self.here}: {text}")

    # -- names -------------------------------------------------------------------------------------
    def declare(self, var: Var, constant: bool = False, uniform: bool = False) -> None:
        if var.name in self.declared:
            self.say(f"`{var.name}` is assigned twice")
        self.declared.add(var.name)
        self.scopes[-1].names[var.name] = var.dtype
        if constant:
            self.scopes[-1].constant.add(var.name)
        if uniform:
            self.scopes[-1].uniform.add(var.name)

    def operand(self, x: Operand, dtype: DType | None = None) -> None:
        if isinstance(x, Lit):
            if x.dtype.is_half:
                self.say("half dtypes have no literals")
        else:
            declared = next((s.names[x.name] for s in reversed(self.scopes) if x.name in s.names), None)
            if declared is None:
                self.say(f"`{x.name}` is not in scope")
            elif declared != x.dtype:
                self.say(f"`{x.name}` is {declared}, used as {x.dtype}")
        if dtype is not None and x.dtype != dtype:
            self.say(f"{dtype} expected, `{operand(x)}` is {x.dtype}")

    def is_constant(self, x: Operand) -> bool:
        return isinstance(x, Lit) or any(x.name in s.constant for s in self.scopes)

    def is_uniform(self, x: Operand) -> bool:
        """Whether all threads of a block surely agree; mutable variables are never taken to."""
        return self.is_constant(x) or any(x.name in s.uniform for s in self.scopes if isinstance(x, Var))

    def is_private(self, array: str) -> bool:
        """Whether an array lives in registers, so that each thread has its own."""
        return any(s.arrays[array].space == "register" for s in self.scopes if array in s.arrays)

    # -- statements --------------------------------------------------------------------------------
    def head(self) -> None:
        k = self.kernel
        self.here = f"kernel {k.name}"
        for b in k.buffers:
            if b.name in self.declared:
                self.say(f"`{b.name}` is declared twice")
            self.declared.add(b.name)
        for p in k.scalars:
            self.declare(p.var, uniform=True)
        arrays = [s for s in walk(k.body) if isinstance(s, Alloc) and s.space == "shared"]
        fixed = sum(s.size * s.dtype.bytes for s in arrays if not s.dynamic)
        if fixed > MAX_SHARED_BYTES:
            self.say(f"{fixed} bytes of shared memory are more than {MAX_SHARED_BYTES}")
        if (every := sum(s.size * s.dtype.bytes for s in arrays)) > MAX_DYNAMIC_BYTES:
            self.say(f"{every} bytes of shared memory are more than a block of any device has")
        self.clusters()
        if k.target == "cuda" and not 1 <= k.launch.block <= MAX_BLOCK:
            self.say(f"a block has 1 to {MAX_BLOCK} threads, not {k.launch.block}")

    def clusters(self) -> None:
        size = self.kernel.launch.cluster
        kinds = {type(s) for s in walk(self.kernel.body)}
        if not 1 <= size <= MAX_CLUSTER or size & (size - 1):
            self.say(f"a cluster is a power of two up to {MAX_CLUSTER}, not {size}")
        if size == 1 and not kinds.isdisjoint({ClusterArrive, ClusterWait, Mailbox, Send, Receive}):
            self.say("a kernel without clusters uses them")
        if size > 1 and Ticket in kinds:
            self.say("blocks of a cluster take no tickets: they could be numbered apart")

    def let(self, s: Let) -> None:
        for a in s.args:
            self.operand(a)
        row = self.table.known.get(s.op)
        if not isinstance(row, ScalarOp):
            self.say(f"`{s.op}` is no scalar operator")
        elif row.arity != len(s.args):
            self.say(f"`{s.op}` takes {row.arity} operands")
        elif self.expanded and spelling(row, self.kernel.target, s.args, s.var.dtype) is None:
            self.say(f"`{s.op}` is not primitive on {self.kernel.target} for {s.args[0].dtype}")
        constant = all(self.is_constant(a) for a in s.args)
        self.declare(s.var, constant, uniform=all(self.is_uniform(a) for a in s.args))

    def declare_mutable(self, s: Mutable) -> None:
        self.operand(s.init, s.var.dtype)
        self.declare(s.var)
        self.mutable.add(s.var.name)

    def assign(self, s: Assign) -> None:
        self.operand(s.value, s.var.dtype)
        self.assignable(s.var)

    def assignable(self, var: Var) -> None:
        self.operand(var)
        if var.name not in self.mutable:
            self.say(f"`{var.name}` is not mutable")

    def loop_head(self, s: For) -> None:
        for x in (s.start, s.stop, s.step):
            self.operand(x, s.var.dtype)
        if s.going is not None:
            self.operand(s.going, BOOL)
            if s.kind != "serial":
                self.say(f"a {s.kind} loop cannot be left early")
        if isinstance(s.step, Lit) and s.step.value <= 0:
            self.say("the step must be positive")
        if s.kind == "unroll" and not all(self.is_constant(x) for x in (s.start, s.stop, s.step)):
            self.say("an unrolled loop has literal bounds")
        if s.kind in ("parallel", "vector") and self.kernel.target != "cpu":
            self.say(f"a {s.kind} loop exists only on cpu")
        if s.kind == "parallel" and len(self.scopes) > 1:
            self.say("a parallel loop is outermost")

    # -- memory ------------------------------------------------------------------------------------
    def array(self, name: str, index: Operand, mask: Operand | None, written: bool) -> DType | None:
        self.operand(index)
        if not index.dtype.is_integer or index.dtype.bits < 32:
            self.say(f"an index is i32 or i64, not {index.dtype}")
        if mask is not None:
            self.operand(mask, BOOL)
        if name in self.buffers:
            if written and self.buffers[name].role == "in":
                self.say(f"`{name}` is an input and is written")
            return self.buffers[name].dtype
        alloc = next((s.arrays[name] for s in reversed(self.scopes) if name in s.arrays), None)
        if alloc is None:
            self.say(f"no array `{name}` is in scope")
            return None
        if alloc.space == "register" and self.kernel.target == "cuda" and not self.is_constant(index):
            self.say(f"`{name}` lives in registers: its index must be a literal after unrolling")
        return alloc.dtype

    def load(self, s: Load) -> None:
        dtype = self.array(s.buffer, s.index, s.mask, written=False)
        if dtype is not None and dtype != s.var.dtype:
            self.say(f"`{s.buffer}` holds {dtype}, loaded as {s.var.dtype}")
        even = self.is_uniform(s.index) and (s.mask is None or self.is_uniform(s.mask))
        self.declare(s.var, uniform=even and not self.is_private(s.buffer))

    def store(self, s: Store) -> None:
        self.operand(s.value, self.array(s.buffer, s.index, s.mask, written=True))
        if s.stream is not None:
            self.operand(s.stream, BOOL)
            if self.kernel.target == "cuda":
                self.say("only CPU kernels store past the caches")

    def load_vec(self, s: LoadVec) -> None:
        dtype = self.array(s.buffer, s.index, s.mask, written=False)
        self.vector(len(s.vars), dtype)
        for v in s.vars:
            if dtype is not None and dtype != v.dtype:
                self.say(f"`{s.buffer}` holds {dtype}, loaded as {v.dtype}")
            self.declare(v)

    def store_vec(self, s: StoreVec) -> None:
        dtype = self.array(s.buffer, s.index, s.mask, written=True)
        self.vector(len(s.values), dtype)
        for v in s.values:
            self.operand(v, dtype)

    def vector(self, width: int, dtype: DType | None) -> None:
        if width < 2 or width & (width - 1):
            self.say(f"a vector has 2, 4, 8, ... elements, not {width}")
        elif self.kernel.target == "cuda" and dtype is not None and width * dtype.bytes > MAX_VECTOR_BYTES:
            self.say(f"{width} x {dtype} is more than {MAX_VECTOR_BYTES} bytes")

    def alloc(self, s: Alloc) -> None:
        if s.name in self.declared:
            self.say(f"`{s.name}` is declared twice")
        if s.size < 1:
            self.say("an array has at least one element")
        if s.space == "shared" and self.kernel.target != "cuda":
            self.say("shared memory exists only on cuda")
        self.declared.add(s.name)
        self.scopes[-1].arrays[s.name] = s

    # -- SIMT --------------------------------------------------------------------------------------
    def special(self, s: Special) -> None:
        if s.var.dtype != I32:
            self.say("a thread or block index is i32")
        self.declare(s.var, uniform=s.name != "thread")

    def whole_warps(self) -> None:
        if self.kernel.launch.block % WARP:
            self.say(f"the block ({self.kernel.launch.block} threads) is not a multiple of {WARP}")

    def shuffle(self, s: Shuffle) -> None:
        self.operand(s.value, s.var.dtype)
        self.whole_warps()
        if not 1 <= s.xor < WARP:
            self.say(f"a warp has {WARP} lanes")
        self.declare(s.var)

    def collective(self, s: Collective) -> None:
        self.whole_warps()
        if s.width < 2 or s.width & (s.width - 1):
            self.say("a team is a power of two, and more than one thread")
        if s.stride < 1 or self.kernel.launch.block % (s.width * s.stride):
            self.say(f"the block ({self.kernel.launch.block} threads) is not a multiple of the team")
        if self.expanded:
            self.say("collectives are gone after `expand`")
        row = self.table.known.get(s.reduction)
        if not isinstance(row, Reduction):
            self.say(f"`{s.reduction}` is no reduction")
        elif not holds([v.dtype for v in s.state], row, s.operand):
            self.say(f"the state of `{s.reduction}` over {s.operand} is {row.state(s.operand)}")
        elif (groups := len(s.state) // len(row.state(s.operand))) > 1 and not fold_together(groups, s.width, s.stride):
            self.say(f"{groups} groups of {s.width} threads, {s.stride} apart, are not folded together")
        for v in s.state:
            self.assignable(v)

    def ticket(self, s: Ticket) -> None:
        for x in (s.index, s.limit):
            self.operand(x)
        if s.buffer not in self.buffers or self.buffers[s.buffer].role != "counter":
            self.say(f"`{s.buffer}` is no counter")
        self.declare(s.var)

    def mailbox(self, s: Mailbox) -> None:
        if s.name in self.declared:
            self.say(f"`{s.name}` is declared twice")
        self.declared.add(s.name)
        self.boxes.add(s.name)

    def receive(self, s: Receive) -> None:
        if s.box not in self.boxes:
            self.say(f"no mailbox `{s.box}` is open")

    def send(self, s: Send) -> None:
        self.operand(s.rank, I32)
        self.receive(Receive(s.box))
        if s.value.dtype.bytes not in MAIL_BYTES:
            self.say(f"mail has 4 or 8 bytes, not {s.value.dtype.bytes}")
        dtype = self.array(s.buffer, s.index, s.mask, written=True)
        self.operand(s.value, dtype)
        if s.buffer in self.buffers or self.is_private(s.buffer):
            self.say(f"`{s.buffer}` is no shared array")

    def copy(self, s: AsyncCopy) -> None:
        target = self.array(s.target, s.index, s.mask, written=True)
        source = self.array(s.buffer, s.place, s.mask, written=False)
        if s.target in self.buffers or self.is_private(s.target) or s.buffer not in self.buffers:
            self.say("a copy goes from global to shared memory")
        if target != source:
            self.say(f"`{s.target}` holds {target}, `{s.buffer}` {source}")
        if source is not None and s.width * source.bytes not in COPY_BYTES:
            self.say(f"a copy has 4, 8 or 16 bytes, not {s.width * source.bytes}")

    def prefetch(self, s: Prefetch) -> None:
        if self.array(s.buffer, s.index, s.mask, written=False) is not None and s.buffer not in self.buffers:
            self.say("only global memory is prefetched")

    def await_copies(self, s: AsyncWait) -> None:
        if s.pending < 0:
            self.say("a number of groups is not negative")

    def flag(self, s: Publish | Await) -> None:
        self.operand(s.index)
        if s.mask is not None:
            self.operand(s.mask, BOOL)
        if s.buffer not in self.buffers or self.buffers[s.buffer].role not in ("flags", "slots"):
            self.say(f"`{s.buffer}` holds no flags")

    def publish(self, s: Publish) -> None:
        self.operand(s.value)
        self.flag(s)

    def wait_for(self, s: Await) -> None:
        self.flag(s)
        self.declare(s.var)
