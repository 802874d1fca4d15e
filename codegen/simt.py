"""The SIMT interpreter: what a kernel means, executed in NumPy for all threads of all blocks in lock step.

In: a kernel (before or after `expand`), its buffers, the values of its host expressions. Out: the buffers
changed in place, or `SimtError`: out of bounds, reads of memory that nothing wrote, races on shared and global memory,
divergent barriers, misaligned vectors. So every CUDA kernel runs in tests with no GPU, under checks no GPU has.

Values are arrays that broadcast to [blocks, threads]; a mask says which threads take part (None: all). A CPU
kernel's parallel loop is run the same way, one "block" an iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.codegen import loops
from fuser.codegen.loops import Kernel, Lit, Operand, Statement, Var
from fuser.codegen.simt_copies import Copies, Copy, Mail
from fuser.codegen.simt_memory import Bools, Ints, Lanes, Memory, SimtError
from fuser.codegen.simt_sync import Sync, collective, shuffle
from fuser.codegen.storage import flag_words
from fuser.codegen.text import statement_text
from fuser.codegen.verify import check
from fuser.dtypes import I32
from fuser.errors import InternalError
from fuser.hostexpr import Dim, wrap
from fuser.optable import table as default_table
from fuser.optable.base import Table
from fuser.optable.evaluate import NumPyEmit, evaluate_scalar
from fuser.toolchain import RESTORED, ZEROED

__all__ = ["SimtError", "run"]

READS = (loops.Load, loops.LoadVec, loops.AsyncCopy)
BATCH = 1 << 16  # threads run together: enough to amortise NumPy's calls, and arrays still fit the cache
MAX_GRID_X, MAX_GRID_Y = 2**31 - 1, 65535  # what CUDA launches
Values = npt.NDArray[Any]
Mask = Bools | None


def run(
    kernel: Kernel,
    buffers: Mapping[str, Values],
    env: Mapping[str, Any],
    seed: int = 0,
    table: Table | None = None,
) -> None:
    """Executes a kernel, changing its out, inout, workspace and counter buffers in place.

    buffers: one 1-D array of the element dtype for each buffer parameter. env: values of the host
    expressions' symbols. seed: order of blocks and tickets in kernels that have tickets. Out and workspace buffers
    that the kernel stores to are filled with poison first. Raises SimtError, and InternalError for a malformed kernel.
    """
    rows = table or default_table()
    check(kernel, rows, expanded=False)
    _Launch(kernel, buffers, env, seed, rows).run()


def _evaluate(dim: Dim, env: Mapping[str, Any]) -> int:
    return int(wrap(dim).evaluate(env))


class _Launch:
    """One launch: the grid, global memory, and what outlives a batch of blocks."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Values], env: Mapping[str, Any], seed: int, table: Table
    ) -> None:
        self.kernel, self.env, self.table = kernel, env, table
        self.random = np.random.default_rng(seed)
        kinds = {type(s) for s in loops.walk(kernel.body)}
        self.has_tickets = loops.Ticket in kinds
        cuda = kernel.target == "cuda"
        self.grid = tuple(_evaluate(d, env) for d in kernel.launch.grid) if cuda else (1, 1)
        self.threads = kernel.launch.block if cuda else 1
        if self.grid[1] > MAX_GRID_Y or self.grid[0] > MAX_GRID_X:
            raise SimtError(f"a grid of {self.grid} cannot be launched", "simt-grid")
        self.cluster = kernel.launch.cluster
        if self.grid[0] % self.cluster:
            raise SimtError(f"a grid of {self.grid[0]} is no multiple of its clusters of {self.cluster}", "simt-grid")
        self.sync = Sync(self.grid[0] * self.grid[1], self.threads, self.cluster)
        self.clock, self.slots = 0, {b.name for b in kernel.buffers if b.role == "slots"}
        self.published: dict[tuple[str, int], Any] = {}  # values behind flags
        self.scalars = {p.name: np.full((1, 1), p.expr.evaluate(env), p.dtype.numpy) for p in kernel.scalars}
        self.memory = {b.name: self.bind(b, buffers[b.name]) for b in kernel.buffers}

    def bind(self, b: loops.BufferParam, array: Values) -> Memory:
        if array.ndim != 1 or array.dtype != b.dtype.numpy:
            raise InternalError(f"buffer `{b.name}` takes a 1-D array of {b.dtype}", "simt-buffer")
        size = _evaluate(b.size, self.env)
        if size > array.size:
            raise InternalError(f"buffer `{b.name}` has {array.size} elements, not {size}", "simt-buffer")
        memory = Memory(b.name, array, size, "global")
        statements = list(loops.walk(self.kernel.body))
        stores = any(isinstance(s, (loops.Store, loops.StoreVec)) and s.buffer == b.name for s in statements)
        if b.role in ("out", "workspace") and stores:  # else it holds what an earlier kernel of the group left
            memory.forget()
        loads = any(isinstance(s, READS) and s.buffer == b.name for s in statements)
        if stores:
            memory.track(reads=loads)
        if b.role in ZEROED and array[:size].any():
            raise SimtError(f"{b.role} `{b.name}` does not start at zero", "simt-counter")
        return memory

    def run(self) -> None:
        blocks = self.grid[0] * self.grid[1]
        order = self.random.permutation(blocks) if self.has_tickets else np.arange(blocks)
        step = -(-max(BATCH // self.threads, 1) // self.cluster) * self.cluster
        with np.errstate(all="ignore"):
            for first in range(0, blocks, step):
                batch = order[first : first + step].astype(np.int64)
                machine = _Machine(self, batch)
                machine.execute(self.kernel.body, None)
                machine.copies.left()
                self.sync.left(batch)
        for b in self.kernel.buffers:
            if b.role in RESTORED and self.memory[b.name].data.any():
                raise SimtError(f"{b.role} `{b.name}` is not left at zero", "simt-counter")


class _Machine:
    """A batch of blocks in lock step."""

    def __init__(self, launch: _Launch, blocks: Ints) -> None:
        self.launch, self.blocks = launch, blocks
        self.threads, self.sync, self.table = launch.threads, launch.sync, launch.table
        self.emit = NumPyEmit(launch.table)
        self.values: dict[str, Values] = dict(launch.scalars)
        self.memory: dict[str, Memory] = dict(launch.memory)
        self.literals: dict[Lit, Values] = {}
        self.copies, self.mail = Copies(launch.sync), Mail(launch.sync)
        self.shape(blocks.size)
        self.on: dict[type, Callable[[Any, Mask], None]] = {
            loops.Let: self.let, loops.Mutable: self.mutable, loops.Assign: self.assign,
            loops.Load: self.load, loops.Store: self.store, loops.LoadVec: self.load, loops.StoreVec: self.store,
            loops.For: self.loop, loops.If: self.branch, loops.Alloc: self.alloc, loops.Special: self.special,
            loops.Barrier: self.barrier, loops.Shuffle: self.shuffle,
            loops.Collective: self.collective, loops.Ticket: self.ticket,
            loops.ClusterArrive: lambda s, mask: self.sync.cluster_arrive(self.blocks, self.full(mask), self.tick()),
            loops.ClusterWait: lambda s, mask: self.sync.cluster_wait(self.blocks, self.full(mask)),
            loops.Send: self.send, loops.Publish: self.publish, loops.Await: self.wait_for,
            loops.Mailbox: lambda s, mask: self.mail.open(s.name, s.size, self.lanes[0]),
            loops.Receive: lambda s, mask: self.mail.receive(s.box, self.blocks, self.full(mask), self.tick()),
            loops.Prefetch: self.prefetch,
            loops.AsyncCopy: self.copy, loops.AsyncCommit: lambda s, mask: self.copies.commit(),
            loops.AsyncWait: lambda s, mask: self.copies.wait(s.pending, self.tick()),
        }  # fmt: skip

    def shape(self, blocks: int) -> None:
        """Sets how many blocks run, and numbers their threads."""
        self.lanes = (blocks, self.threads)
        self.block_number = np.broadcast_to(self.blocks[:, None], self.lanes)
        self.thread_number = self.block_number * self.threads + np.arange(self.threads)

    def execute(self, body: tuple[Statement, ...], mask: Mask) -> None:
        for s in body:
            try:
                self.on[type(s)](s, mask)
            except SimtError as error:
                error.with_context(notes=[f"at {statement_text(s)}"])
                raise

    # -- values ------------------------------------------------------------------------------------
    def value(self, x: Operand) -> Values:
        if isinstance(x, Var):
            return self.values[x.name]
        if x not in self.literals:
            self.literals[x] = np.full((1, 1), x.value, x.dtype.numpy)
        return self.literals[x]

    def let(self, s: loops.Let, mask: Mask) -> None:
        row = self.table.scalar(s.op)
        self.values[s.var.name] = evaluate_scalar(row, *map(self.value, s.args), dtype=s.var.dtype)

    def mutable(self, s: loops.Mutable, mask: Mask) -> None:
        self.values[s.var.name] = self.value(s.init)

    def assign(self, s: loops.Assign, mask: Mask) -> None:
        self.set(s.var, self.value(s.value), mask)

    def set(self, var: Var, new: Values, mask: Mask) -> None:
        self.values[var.name] = new if mask is None else np.where(mask, new, self.values[var.name])

    def special(self, s: loops.Special, mask: Mask) -> None:
        across = self.launch.grid[0]
        found = {
            "thread": np.arange(self.threads)[None, :],
            "block": (self.blocks % across)[:, None],
            "block_y": (self.blocks // across)[:, None],
        }[s.name]
        self.values[s.var.name] = found.astype(I32.numpy)

    # -- control -----------------------------------------------------------------------------------
    def branch(self, s: loops.If, mask: Mask) -> None:
        condition = self.value(s.condition)
        if s.uniform:
            self.check_uniform(condition, mask)
        for taken, body in ((condition, s.then), (~condition, s.orelse)):
            if body:
                inner = self.narrow(mask, taken)
                if inner is None or inner.any():
                    self.execute(body, inner)

    def check_uniform(self, condition: Bools, mask: Mask) -> None:
        if condition.shape[1] == 1:
            return
        yes, no = (self.full(self.narrow(mask, c)) for c in (condition, ~condition))
        if (yes.any(axis=1) & no.any(axis=1)).any():
            raise SimtError("a branch that promises to be uniform is not", "simt-divergent")

    @staticmethod
    def narrow(mask: Mask, condition: Bools | None) -> Mask:
        """Threads of `mask` where `condition` holds; None when that is all of them."""
        if condition is None or condition.all():
            return mask
        return condition if mask is None else mask & condition

    def full(self, mask: Mask) -> Bools:
        """A mask as [blocks, threads]."""
        return np.broadcast_to(np.True_ if mask is None else mask, self.lanes)

    def loop(self, s: loops.For, mask: Mask) -> None:
        if s.kind == "parallel":
            return self.parallel(s)
        i, stop, step = self.value(s.start), self.value(s.stop), self.value(s.step)
        if not (step > 0).all():
            raise SimtError("a loop's step is not positive", "simt-step")
        while True:
            inner = self.narrow(mask, i < stop if s.going is None else (i < stop) & self.value(s.going))
            if inner is not None and not inner.any():
                return
            self.values[s.var.name] = i
            self.execute(s.body, inner)
            i = i + step

    def parallel(self, s: loops.For) -> None:
        """A CPU kernel's parallel loop: its iterations are the blocks."""
        bounds = (int(self.value(x)[0, 0]) for x in (s.start, s.stop, s.step))
        iterations = np.arange(*bounds)
        self.launch.sync = Sync(iterations.size, 1)
        for first in range(0, iterations.size, BATCH):
            numbers = np.arange(first, min(first + BATCH, iterations.size))
            machine = _Machine(self.launch, numbers)
            machine.values.update(self.values)
            machine.values[s.var.name] = iterations[numbers].astype(s.var.dtype.numpy)[:, None]
            machine.execute(s.body, None)

    # -- memory ------------------------------------------------------------------------------------
    def alloc(self, s: loops.Alloc, mask: Mask) -> None:
        """A fresh array for each block or thread. Executed again, a shared array keeps its stamps."""
        copies = self.lanes[0] if s.space == "shared" else self.lanes[0] * self.lanes[1]
        if s.name in self.memory and s.space == "shared":
            return
        memory = Memory(s.name, np.empty(copies * s.size, s.dtype.numpy), s.size, s.space)
        memory.forget()
        if s.space == "shared":
            memory.track(reads=True)
        self.memory[s.name] = memory

    def base(self, memory: Memory) -> Ints | None:
        """Where the copy of each block or thread starts; None for global arrays."""
        if memory.space == "global":
            return None
        rows = np.arange(self.lanes[0], dtype=np.int64)[:, None]
        if memory.space == "shared":
            return rows * memory.size
        return (rows * self.lanes[1] + np.arange(self.lanes[1])) * memory.size

    def access(self, s: Any, mask: Mask, width: int) -> tuple[Memory, Mask, Values]:
        """The array, the mask and the first elements (0 where masked off) of a load or store, bounds checked."""
        memory = self.memory[s.buffer]
        index = self.value(s.index).astype(np.int64)
        inner = self.narrow(mask, None if s.mask is None else self.value(s.mask))
        if inner is None:
            memory.check_bounds(index, width)
            return memory, None, index
        inner, index = np.broadcast_arrays(inner, index)
        memory.check_bounds(index[inner], width)
        return memory, inner, np.where(inner, index, 0)

    def load(self, s: loops.Load | loops.LoadVec, mask: Mask) -> None:
        out = (s.var,) if isinstance(s, loops.Load) else s.vars
        memory, inner, index = self.access(s, mask, len(out))
        if inner is not None and not inner.any():
            for v in out:
                self.values[v.name] = np.zeros((1, 1), v.dtype.numpy)
            return
        start = index if (base := self.base(memory)) is None else index + base
        if memory.written is not None or memory.writes is not None:
            elements, lanes = self.touched(start, inner, len(out))
            memory.load(elements, lanes, self.tick(), self.sync.ordered)
        for k, v in enumerate(out):
            got = memory.data[start + k]
            self.values[v.name] = got if inner is None else np.where(inner, got, np.zeros((), got.dtype))

    def store(self, s: loops.Store | loops.StoreVec, mask: Mask) -> None:
        values = (s.value,) if isinstance(s, loops.Store) else s.values
        memory, inner, index = self.access(s, mask, len(values))
        if inner is not None and not inner.any():
            return
        start = index if (base := self.base(memory)) is None else index + base
        elements, lanes = self.touched(start, inner, len(values))
        memory.store(elements, lanes, self.tick(), self.sync.ordered)
        active = self.full(inner)
        columns = [np.broadcast_to(self.value(v), self.lanes)[active] for v in values]
        memory.data[elements] = np.stack(columns, axis=1).ravel()

    def touched(self, start: Values, mask: Mask, width: int) -> tuple[Ints, Lanes]:
        """Elements and threads of an access, one entry an element."""
        active = self.full(mask)
        first = np.broadcast_to(start, self.lanes)[active]
        block = self.block_number[active]
        lanes = Lanes(self.thread_number[active], block, self.sync.epoch[block])
        if width == 1:
            return first, lanes
        return (first[:, None] + np.arange(width)).ravel(), lanes.repeat(width)

    def tick(self) -> int:
        self.launch.clock += 1
        return self.launch.clock

    # -- synchronisation ---------------------------------------------------------------------------
    def barrier(self, s: loops.Barrier, mask: Mask) -> None:
        self.sync.barrier(self.blocks, self.full(mask), self.tick())

    def shuffle(self, s: loops.Shuffle, mask: Mask) -> None:
        self.sync.arrived(self.full(mask), "shuffle", loops.WARP)
        self.values[s.var.name] = shuffle(np.broadcast_to(self.value(s.value), self.lanes), s.xor)

    def collective(self, s: loops.Collective, mask: Mask) -> None:
        self.sync.arrived(self.full(mask), "collective", self.threads)
        row = self.table.reduction(s.reduction)
        first = s.state[: len(row.state(s.operand))]
        state = [np.broadcast_to(self.value(v), self.lanes) for v in s.state]
        if s.width * s.stride > loops.WARP:
            self.sync.barrier(self.blocks, self.full(mask), self.tick())
        combined = collective(row, self.emit, [v.dtype for v in first], state, s.width, s.stride)
        for var, new in zip(first, combined, strict=True):
            self.set(var, new, mask)

    def ticket(self, s: loops.Ticket, mask: Mask) -> None:
        memory, inner, index = self.access(loops.Load(s.var, s.buffer, s.index), mask, 1)
        rows, columns = np.nonzero(self.full(inner))
        where = np.broadcast_to(index, self.lanes)
        limit = np.broadcast_to(self.value(s.limit), self.lanes)
        old = np.zeros(self.lanes, I32.numpy)
        for k in self.launch.random.permutation(rows.size).tolist():
            r, c = int(rows[k]), int(columns[k])
            counter, top = int(where[r, c]), int(limit[r, c])
            old[r, c] = memory.data[counter]
            last = bool(old[r, c] >= top)
            memory.data[counter] = 0 if last else old[r, c] + 1
            if s.ordered:
                self.sync.ticket((s.buffer, counter), int(self.blocks[r]), c, last, self.tick())
        self.values[s.var.name] = old

    def copy(self, s: loops.AsyncCopy, mask: Mask) -> None:
        source, inner, place = self.access(loops.Load(Var("", I32), s.buffer, s.place, s.mask), mask, s.width)
        target, _, index = self.access(loops.Load(Var("", I32), s.target, s.index, s.mask), mask, s.width)
        if inner is not None and not inner.any():
            return
        read, lanes = self.touched(np.broadcast_to(place, self.lanes), inner, s.width)
        if source.writes is not None:
            source.load(read, lanes, self.tick(), self.sync.ordered)
        elements, _ = self.touched(index + self.base(target), inner, s.width)
        self.copies.start(Copy(target, elements, source.data[read], lanes), self.tick())

    def prefetch(self, s: loops.Prefetch, mask: Mask) -> None:
        self.access(loops.Load(Var("", I32), s.buffer, s.index, s.mask), mask, 1)

    # -- clusters and flags ------------------------------------------------------------------------
    def send(self, s: loops.Send, mask: Mask) -> None:
        """A store into another row of the shared array: blocks of a cluster are neighbours in a batch."""
        memory, inner, index = self.access(s, mask, 1)
        active = self.full(inner)
        rank = np.broadcast_to(self.value(s.rank), self.lanes)[active].astype(np.int64)
        size = self.launch.cluster
        if ((rank < 0) | (rank >= size)).any():
            raise SimtError(f"a cluster of {size} has no such block", "simt-cluster")
        row = np.nonzero(active)[0] // size * size + rank
        clock = self.tick()
        self.sync.reach(self.blocks[row], clock)
        elements = row * memory.size + np.broadcast_to(index, self.lanes)[active]
        _, lanes = self.touched(index, inner, 1)
        memory.store(elements, lanes, clock, self.sync.ordered)
        memory.data[elements] = np.broadcast_to(self.value(s.value), self.lanes)[active]
        self.mail.send(s.box, memory, elements, row)

    def flags(self, s: loops.Publish | loops.Await, mask: Mask, words: int) -> tuple[Memory, Bools, Ints]:
        """The array, the lanes that take part, and the first word of each lane's flag (0 for the others)."""
        memory = self.memory[s.buffer]
        index = np.broadcast_to(self.value(s.index), self.lanes).astype(np.int64) * words
        active = self.full(self.narrow(mask, None if s.mask is None else self.value(s.mask)))
        memory.check_bounds(np.append(index[active], index[active] + words - 1), 1)
        return memory, active, np.where(active, index, 0)

    def publish(self, s: loops.Publish, mask: Mask) -> None:
        memory, active, first = self.flags(s, mask, flag_words(s.value.dtype))
        values = np.broadcast_to(self.value(s.value), self.lanes)[active]
        for place, value in zip(first[active].tolist(), values, strict=True):
            if memory.data[place]:
                raise SimtError(f"`{s.buffer}`[{place}] is published twice", "simt-flag")
            memory.data[place] = 1
            self.launch.published[s.buffer, place] = value

    def wait_for(self, s: loops.Await, mask: Mask) -> None:
        memory, active, first = self.flags(s, mask, flag_words(s.var.dtype))
        found = np.zeros(self.lanes, s.var.dtype.numpy)
        if active.any() and not memory.data[first[active]].all():
            place = int(first[active][memory.data[first[active]] == 0][0])
            raise SimtError(f"`{s.buffer}`[{place}] is waited for and nobody publishes it", "simt-flag")
        places = first[active].tolist()
        if (once := s.buffer in self.launch.slots) and len(set(places)) < len(places):
            raise SimtError(f"a slot of `{s.buffer}` is awaited twice", "simt-flag")
        found[active] = [self.launch.published[s.buffer, place] for place in places]
        memory.data[first[active]] = not once
        self.values[s.var.name] = found
