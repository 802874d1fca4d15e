"""A kernel as straight-line blocks of instructions with operands in registers.

In: a kernel. Out: `Code`: blocks in program order, and for every value its width and the last block that needs it.
Values that a loop reads from outside live to the loop's end. A global access is two instructions, its 64-bit address
and the access itself; accesses that differ by a constant share the address. Blocks end at branches, loops, barriers,
and around operators that ptxas calls as functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Literal

from fuser.codegen import loops
from fuser.codegen.loops import Kernel, Let, Lit, Load, LoadVec, Operand, Statement, Store, StoreVec, Var
from fuser.codegen.registers.values import Values, words
from fuser.dtypes import BOOL
from fuser.optable import table
from fuser.record import dataclass

# Latencies in cycles, as a scheduler takes them (arithmetic of 32 and 64 bits, special functions, loads); only their
# proportions matter.
SIMPLE, DOUBLE, SPECIAL, GLOBAL, SHARED, EXCHANGE, ADDRESS = 2, 4, 18, 30, 24, 24, 5
WAITING = 4  # registers of a flag's address and its poll
# Registers of a 64-bit address in a loop: ptxas carries most of them from turn to turn and builds the others anew.
CARRIED = 1.5
RETURN = 2  # registers of the address to return to after a slow path, across which nothing is scheduled

Kind = Literal["plain", "load", "store", "shuffle"]


@dataclass(slots=True)
class Instruction:
    """defs, uses: names of values. scratch: registers that it needs while it runs. slots: issue cycles."""

    defs: list[str]
    uses: list[str]
    latency: float
    slots: float = 1
    scratch: float = 0
    kind: Kind = "plain"
    buffer: str = ""


@dataclass
class Code:
    """words: registers of a value (halves packed in vectors take parts of one). predicates: values in predicate
    registers. last: the last block in which a value is needed. constant: arrays that the kernel only reads; memory:
    all global arrays."""

    constant: frozenset[str]
    memory: frozenset[str]
    blocks: list[list[Instruction]] = field(default_factory=lambda: [[]])
    words: dict[str, float] = field(default_factory=dict)
    predicates: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)


def flatten(kernel: Kernel) -> Code:
    """The kernel's instructions."""
    return _Flattener(kernel).run()


class _Flattener:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.values = kernel, Values(kernel)
        self.code = Code(
            frozenset(b.name for b in kernel.buffers if b.role == "in"), frozenset(b.name for b in kernel.buffers)
        )
        self.table = table()
        self.loops: tuple[int, ...] = ()
        self.serial: list[int] = []  # of them, those that stay loops
        self.depth: dict[str, tuple[int, ...]] = {}  # loops around a value's first appearance
        self.crossing: list[tuple[str, int]] = []  # values used inside a loop that they come from outside of
        self.ends: dict[int, int] = {}
        self.arrays: dict[str, loops.Alloc] = {}
        self.addresses: dict[tuple[object, ...], str] = {}
        self.on: dict[type, Callable[[Any], None]] = {
            Let: self.let, loops.Mutable: self.mutable, loops.Assign: self.assign, Load: self.load, LoadVec: self.load,
            Store: self.store, StoreVec: self.store, loops.For: self.loop, loops.If: self.branch,
            loops.Alloc: self.alloc, loops.Special: self.special, loops.Shuffle: self.shuffle,
            loops.Ticket: self.ticket, loops.Send: self.remote, loops.Publish: self.publish,
            loops.Await: self.wait, loops.AsyncCopy: self.copy, loops.Prefetch: self.prefetch,
        }  # fmt: skip

    def run(self) -> Code:
        self.block(self.kernel.body)
        last = self.code.last
        for name, loop in self.crossing:
            last[name] = max(last[name], self.ends[loop])
        return self.code

    # -- values ------------------------------------------------------------------------------------
    def see(self, name: str) -> str:
        """Notes that a value is needed here."""
        code, here = self.code, len(self.code.blocks) - 1
        depth = self.depth.setdefault(name, self.loops)
        code.last[name] = max(code.last.get(name, here), here)
        if len(self.loops) > len(depth):
            self.crossing.append((name, self.loops[len(depth)]))
        return name

    def declare(self, var: Var, width: float | None = None, predicate: bool = True) -> str:
        name, dtype = var.name, var.dtype
        if predicate and dtype == BOOL:
            self.code.predicates.add(name)
        if width is None:
            packed = name in self.values.packed and dtype.bytes < 4
            width = dtype.bytes / 4 if packed else words(dtype)
        self.code.words[name] = width
        return self.see(name)

    def read(self, *wanted: Operand | None) -> list[str]:
        """The values that operands are in."""
        found = [self.values.root(x) for x in wanted if x is not None]
        return [self.see(n) for n in found if n is not None and n in self.code.words]

    def emit(self, *parts: Any, **options: Any) -> None:
        self.code.blocks[-1].append(Instruction(*parts, **options))

    def cut(self) -> None:
        self.code.blocks.append([])

    def block(self, body: Iterable[Statement]) -> None:
        for s in body:
            if id(s) not in self.values.dead:
                self.on.get(type(s), lambda _: self.cut())(s)

    # -- arithmetic --------------------------------------------------------------------------------
    def let(self, s: Let) -> None:
        held = self.values.coalesced.get(s.var.name)
        if held is not None and (name := self.values.root(held)) is not None:
            uses = self.read(*s.args)
            self.values.alias[s.var.name] = name
            self.operator(s, [self.see(name)], uses)
        elif not self.values.absorb(s, self.loops):
            uses = self.read(*s.args)
            self.operator(s, [self.declare(s.var)], uses)

    def operator(self, s: Let, defs: list[str], uses: list[str]) -> None:
        operand = s.args[0].dtype
        row = self.table.scalar(s.op)
        cost = row.cost
        wide = words(operand) == 2 or words(s.var.dtype) == 2
        if s.op in ("trunc_div", "trunc_rem") and isinstance(s.args[1], Lit):
            return self.emit(defs, uses, SIMPLE, 2)
        latency = (DOUBLE if wide and operand.is_float else SIMPLE) * max(cost.instructions / 2, 1)
        latency += SPECIAL if cost.sfu else 0
        called = row.called if operand.is_float else wide and s.op in ("trunc_div", "trunc_rem")
        if called:
            self.cut()
        self.emit(defs, uses, latency, cost.instructions, cost.scratch(operand.bytes) + RETURN * called)
        if called:
            self.cut()

    def mutable(self, s: loops.Mutable) -> None:
        uses = self.read(s.init)
        self.emit([self.declare(s.var, predicate=False)], uses, 1)

    def assign(self, s: loops.Assign) -> None:
        target = self.values.root(s.var)
        if target is not None and self.values.root(s.value) != target:
            self.emit([self.see(target)], self.read(s.value), 1)

    # -- memory ------------------------------------------------------------------------------------
    def alloc(self, s: loops.Alloc) -> None:
        self.arrays[s.name] = s

    def place(self, buffer: str, index: Operand) -> list[str]:
        """The values that say where an access goes."""
        if buffer not in self.code.memory:
            found = self.read(index)
            if self.arrays[buffer].space == "register":
                found.append(self._array(buffer))
            return found
        form = self.values.form(index) if self.values.root(index) is not None else {}
        key = (buffer, len(self.code.blocks), frozenset((k, c) for k, c in form.items() if k))
        if not form:
            return []
        if key not in self.addresses:
            name = self.addresses[key] = f"&{len(self.addresses)}"
            self.code.words[name] = CARRIED if self.serial else 2.0
            uses = self.read(index)
            self.emit([self.see(name)], uses, ADDRESS)
            if self.serial:
                self.crossing.append((name, self.serial[-1]))
        return [self.see(self.addresses[key])]

    def _array(self, buffer: str) -> str:
        array, name = self.arrays[buffer], f"@{buffer}"
        self.code.words[name] = max(array.size * array.dtype.bytes / 4, 1)
        return self.see(name)

    def load(self, s: Load | LoadVec) -> None:
        uses = self.read(s.mask) + self.place(s.buffer, s.index)
        wanted = [v for v in (s.vars if isinstance(s, LoadVec) else [s.var]) if v.name in self.values.uses]
        whole = isinstance(s, LoadVec)
        defs = [self.declare(v, v.dtype.bytes / 4 if whole else None, predicate=False) for v in wanted]
        array = self.arrays.get(s.buffer)
        latency = GLOBAL if array is None else SHARED if array.space == "shared" else 1
        self.emit(defs, uses, latency, kind="load", buffer=s.buffer)

    def store(self, s: Store | StoreVec) -> None:
        uses = self.read(s.mask, *(s.values if isinstance(s, StoreVec) else [s.value]))
        self.emit([], uses + self.place(s.buffer, s.index), 1, kind="store", buffer=s.buffer)

    def copy(self, s: loops.AsyncCopy) -> None:
        """From global to shared memory past the registers, but for its addresses."""
        uses = self.read(s.mask, s.index) + self.place(s.buffer, s.place)
        self.emit([], uses, 1, kind="store", buffer=s.target)

    def prefetch(self, s: loops.Prefetch) -> None:
        self.emit([], self.read(s.mask) + self.place(s.buffer, s.index), 1)

    def remote(self, s: loops.Send) -> None:
        self.emit([], self.read(s.index, s.value, s.rank, s.mask), 1, 1, 2, "store", s.buffer)

    # -- control -----------------------------------------------------------------------------------
    def loop(self, s: loops.For) -> None:
        self.emit([], self.read(s.start, s.stop, s.step), 1)
        self.cut()
        outer, self.loops = self.loops, (*self.loops, id(s))
        if s.kind == "unroll":
            self.values.alias[s.var.name] = None
            self.block(s.body)
            self.cut()
        else:
            self.serial.append(id(s))
            self.emit([self.declare(s.var)], [], 1)
            self.block(s.body)
            self.cut()
            self.emit([], [*self.read(s.stop, s.going), self.see(s.var.name)], 1)
            self.serial.pop()
        self.ends[id(s)] = len(self.code.blocks) - 1
        self.loops = outer
        self.cut()

    def branch(self, s: loops.If) -> None:
        self.emit([], self.read(s.condition), 1)
        for body in ((), s.then, s.orelse):
            self.block(body)
            self.cut()

    # -- threads -----------------------------------------------------------------------------------
    def special(self, s: loops.Special) -> None:
        """A block's number is in a uniform register."""
        self.emit([self.declare(s.var, None if s.name == "thread" else 0.0)], [], SIMPLE)

    def shuffle(self, s: loops.Shuffle) -> None:
        uses = self.read(s.value)
        self.emit([self.declare(s.var)], uses, EXCHANGE, kind="shuffle")

    def ticket(self, s: loops.Ticket) -> None:
        uses = self.read(s.index)
        self.emit([self.declare(s.var)], uses, GLOBAL)
        self.cut()

    def publish(self, s: loops.Publish) -> None:
        self.emit([], self.read(s.index, s.value, s.mask), 1, 1, WAITING)
        self.cut()

    def wait(self, s: loops.Await) -> None:
        uses = self.read(s.index, s.mask)
        self.emit([self.declare(s.var)], uses, GLOBAL, 1, WAITING)
        self.cut()
