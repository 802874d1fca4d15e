"""The LLVM emitter: a CPU kernel of the kernel language as an IR module.

In: a kernel whose operators are primitive for the `llvm` spellings (after `expand`). Out: a module with a function
that runs a share of the kernel's parallel loop (`entry` says how it is called).

No fast-math flag is ever set and nothing here reorders arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import entry, spell
from fuser.codegen.llvm import irtypes as types
from fuser.codegen.llvm.access import Access, Array
from fuser.codegen.llvm.convert import Converter
from fuser.codegen.llvm.host import Host
from fuser.codegen.llvm.lanewidth import lane_width, literal_trip, skippable
from fuser.codegen.llvm.vector import Lanes, Linear, Uniform, Value, Varying
from fuser.codegen.loops import (
    SIMT_ONLY,
    Alloc,
    Assign,
    For,
    If,
    Kernel,
    Let,
    Lit,
    Load,
    LoadVec,
    Mutable,
    Operand,
    Statement,
    Store,
    StoreVec,
    Var,
    walk,
)
from fuser.codegen.primitives import spelling
from fuser.dtypes import BOOL, I32, I64, U32, U64
from fuser.errors import InternalError
from fuser.optable import table
from fuser.optable.base import Convert, Join, Part
from fuser.record import dataclass

UNROLLED = 8  # vector rounds of a loop with a known trip count that are written out


@dataclass(frozen=True)
class Slot:
    """Where a mutable variable lives; LLVM promotes it to a register."""

    pointer: Any
    kind: Any


def emit(kernel: Kernel, host: Host) -> Any:
    """The kernel as an llvmlite module. InternalError for SIMT statements and operators without a spelling."""
    if kernel.target != "cpu":
        raise InternalError(f"`{kernel.name}` is a kernel for {kernel.target}", "kernel-target")
    module = ir.Module(name=kernel.name)
    module.triple, module.data_layout = host.triple, host.data_layout
    work = entry.declare_work(module, kernel)
    entry.write(module, kernel, work)
    _Emitter(work, kernel, host).run()
    return module


class _Emitter:
    """Writes one work function; `lanes.width` says whether a vector loop's body is being written."""

    def __init__(self, work: Any, kernel: Kernel, host: Host) -> None:
        self.kernel, self.host = kernel, host
        self.entry = work.append_basic_block("entry")
        self.b = ir.IRBuilder(work.append_basic_block("body"))
        self.lanes = Lanes(self.b)
        self.access = Access(self.b, self.lanes, self.entry)
        self.converter = Converter(self.b, host.native_half)
        count = len(kernel.buffers)
        self.arrays = {p.name: Array(a, p.dtype) for p, a in zip(kernel.buffers, work.args[:count], strict=True)}
        self.values: dict[str, Value | Slot] = {}
        self.on: dict[type, Callable[[Any], None]] = {
            Let: self._let, Mutable: self._mutable, Assign: self._assign, Alloc: self._alloc, Load: self._load,
            Store: self._store, LoadVec: self._load_vec, StoreVec: self._store_vec, If: self._if, For: self._for,
        }  # fmt: skip
        self.chosen: Any = None  # in a branch that only some lanes take: which
        self.begin, self.end = work.args[-2:]
        for p, argument in zip(kernel.scalars, work.args[count:-2], strict=True):
            bit = self.b.icmp_unsigned("!=", argument, types.like(argument, 0)) if p.dtype == BOOL else argument
            self.values[p.name] = Uniform(bit)

    def run(self) -> None:
        first = self.b.block
        if sum(isinstance(s, For) and s.kind == "parallel" for s in self.kernel.body) > 1:
            raise InternalError(f"`{self.kernel.name}` has several parallel loops", "kernel-parallel")
        self.block(self.kernel.body)
        if any(isinstance(s, Store) and s.stream is not None for s in walk(self.kernel.body)):
            self.b.fence("seq_cst")  # streamed stores are not ordered with those that say the work is done
        self.b.ret_void()
        ir.IRBuilder(self.entry).branch(first)

    def block(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, SIMT_ONLY):
                raise InternalError(f"{type(s).__name__} is not for CPUs", "kernel-target")
            self.on[type(s)](s)

    # -- values ------------------------------------------------------------------------------------
    def value(self, x: Operand) -> Value:
        if isinstance(x, Lit):
            return Uniform(types.literal(x))
        held = self.values[x.name]
        return self.lanes.wrap(self.b.load(held.pointer, typ=held.kind)) if isinstance(held, Slot) else held

    def optional(self, x: Operand | None) -> Value | None:
        return None if x is None else self.value(x)

    def _let(self, s: Let) -> None:
        args = [self.value(a) for a in s.args]
        if s.var.dtype in (I64, U64) and (index := self.lanes.linear(s.op, args)) is not None:
            self.values[s.var.name] = index
            return
        if (narrow := self._narrowed(s, args)) is not None:
            self.values[s.var.name] = narrow
            return
        scalar = all(isinstance(a, Uniform) for a in args)
        raw = [a.ir if scalar and isinstance(a, Uniform) else self.lanes.vector(a) for a in args]
        self.values[s.var.name] = self.lanes.wrap(self._operator(s, raw))

    def _narrowed(self, s: Let, args: Sequence[Value]) -> Value | None:
        """A linear index as a narrower integer: a sequence of that width, not a wide one cut down."""
        index = args[0]
        if s.op != "convert" or s.var.dtype not in (I32, U32) or not isinstance(index, Linear):
            return None
        if not isinstance(index.step, int):
            return None
        base = self.b.trunc(index.base, types.I32)
        steps = types.index_vector([k * index.step for k in range(self.lanes.width)], types.I32)
        return Varying(self.b.add(self.lanes.splat(base), steps))

    def _operator(self, s: Let, raw: list[Any]) -> Any:
        source = s.args[0].dtype
        spelled = spelling(table().scalar(s.op), "cpu", s.args, s.var.dtype)
        if spelled is None:
            raise InternalError(f"`{s.op}` of {source} has no LLVM spelling", "kernel-operator")
        if isinstance(spelled, Convert):
            change = self.converter.bitcast if spelled.bits else self.converter.convert
            return change(raw[0], source, s.var.dtype)
        if isinstance(spelled, Part):
            return self.converter.part(raw[0], spelled.index, s.var.dtype)
        if isinstance(spelled, Join):
            return self.converter.join(raw[0], raw[1], s.var.dtype)
        return spell.apply(self.b, spelled, raw, types.with_element(raw[0], types.scalar(s.var.dtype)))

    def _mutable(self, s: Mutable) -> None:
        kind = types.lanes(types.scalar(s.var.dtype), self.lanes.width)
        slot = Slot(self._reserve(kind), kind)
        self.b.store(self.lanes.vector(self.value(s.init)), slot.pointer)
        self.values[s.var.name] = slot

    def _assign(self, s: Assign) -> None:
        slot = self.values[s.var.name]
        if not isinstance(slot, Slot) or types.type_width(slot.kind) != self.lanes.width:
            raise InternalError(f"`{s.var.name}` is assigned where it may not change", "kernel-race")
        value = self.lanes.vector(self.value(s.value))
        if self.chosen is not None:
            value = self.b.select(self.chosen, value, self.b.load(slot.pointer, typ=slot.kind))
        self.b.store(value, slot.pointer)

    def _reserve(self, kind: Any, align: int | None = None) -> Any:
        with self.b.goto_block(self.entry):
            pointer = self.b.alloca(kind)
            pointer.align, pointer.type = align, types.POINTER  # llvmlite types it; LLVM no longer does
        return pointer

    # -- memory ------------------------------------------------------------------------------------
    def _alloc(self, s: Alloc) -> None:
        if s.space != "register":
            raise InternalError("CPU kernels have no shared memory", "kernel-target")
        pointer = self._reserve(ir.ArrayType(types.memory(s.dtype), s.size), align=64)
        self.arrays[s.name] = Array(pointer, s.dtype, s.size)

    def _load(self, s: Load) -> None:
        array = self.arrays[s.buffer]
        self.values[s.var.name] = self.access.load(array, self.value(s.index), self.optional(s.mask))

    def _store(self, s: Store) -> None:
        array, stream = self.arrays[s.buffer], self.value(s.stream) if s.stream is not None else None
        wanted = stream.ir if isinstance(stream, Uniform) else None
        self.access.store(array, self.value(s.index), self.value(s.value), self.optional(s.mask), wanted)

    def _load_vec(self, s: LoadVec) -> None:
        index = self.value(s.index)
        for k, var in enumerate(s.vars):
            self.values[var.name] = self.access.load(self.arrays[s.buffer], self._plus(index, k), self.optional(s.mask))

    def _store_vec(self, s: StoreVec) -> None:
        index = self.value(s.index)
        for k, x in enumerate(s.values):
            self.access.store(self.arrays[s.buffer], self._plus(index, k), self.value(x), self.optional(s.mask))

    def _plus(self, index: Value, k: int) -> Value:
        if not isinstance(index, Uniform):
            raise InternalError("LoadVec and StoreVec do not occur in vector loops", "kernel-vector")
        return Uniform(self.b.add(index.ir, types.like(index.ir, k)))

    # -- control -----------------------------------------------------------------------------------
    def _if(self, s: If) -> None:
        condition = self.value(s.condition)
        if not isinstance(condition, Uniform):
            return self._if_any(s, condition)
        if not s.orelse:
            with self.b.if_then(condition.ir):
                self.block(s.then)
            return
        with self.b.if_else(condition.ir) as (then, otherwise):
            with then:
                self.block(s.then)
            with otherwise:
                self.block(s.orelse)

    def _if_any(self, s: If, condition: Value) -> None:
        """A branch that differs between lanes: taken where any lane takes it, its assignments kept to those lanes."""
        if not skippable(s):
            raise InternalError("a branch with side effects differs between lanes", "kernel-vector")
        outer, lanes = self.chosen, self.lanes.vector(condition)
        self.chosen = lanes if outer is None else self.b.and_(outer, lanes)
        taken = spell.intrinsic(self.b, "vector.reduce.or", types.I1, [self.chosen], suffixes=[lanes.type])
        with self.b.if_then(taken, likely=False):
            self.block(s.then)
        self.chosen = outer

    def _for(self, s: For) -> None:
        if s.kind == "parallel":
            self._parallel(s)
        elif s.kind == "unroll":
            self._unroll(s)
        elif s.kind == "vector" and self.lanes.width == 1:
            self._vector(s)
        else:
            start, stop, step = (self._bound(x) for x in (s.start, s.stop, s.step))
            outer = self.chosen
            with self._loop(s.var, start, stop, step, s.going) as i:
                self.values[s.var.name] = Uniform(i)
                self.block(s.body)
            self.chosen = outer

    def _bound(self, x: Operand) -> Any:
        bound = self.value(x)
        if not isinstance(bound, Uniform):
            raise InternalError("a loop bound differs between the lanes of a vector loop", "kernel-vector")
        return bound.ir

    def _parallel(self, s: For) -> None:
        if not (isinstance(s.start, Lit) and s.start.value == 0 and isinstance(s.step, Lit) and s.step.value == 1):
            raise InternalError("a parallel loop counts from 0 by 1", "kernel-parallel")
        with self._loop(s.var, self.begin, self.end, ir.Constant(types.I64, 1)) as i:
            narrow = types.scalar(s.var.dtype)
            self.values[s.var.name] = Uniform(i if narrow == types.I64 else self.b.trunc(i, narrow))
            self.block(s.body if literal_trip(s) != 0 else ())

    def _unroll(self, s: For) -> None:
        if literal_trip(s) is None:
            raise InternalError("an unrolled loop needs literal bounds", "kernel-unroll")
        for k in range(*(int(x.value) for x in (s.start, s.stop, s.step) if isinstance(x, Lit))):
            self.values[s.var.name] = Uniform(ir.Constant(types.scalar(s.var.dtype), k))
            self.block(s.body)

    @contextmanager
    def _loop(self, var: Var, start: Any, stop: Any, step: Any, going: Var | None = None) -> Iterator[Any]:
        """A counting loop around what the caller writes; gives the counter, which stays readable after it."""
        before = self.b.block
        head, body, after = (self.b.append_basic_block(f"{var.name}.{part}") for part in ("head", "body", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.phi(start.type, var.name)
        more = self.b.icmp_signed("<", i, stop)
        self.b.cbranch(more if going is None else self.b.and_(more, self._anybody(going)), body, after)
        self.b.position_at_end(body)
        yield i
        next_ = self.b.add(i, step, flags=("nsw",))
        i.add_incoming(start, before)
        i.add_incoming(next_, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(after)

    def _anybody(self, going: Var) -> Any:
        """Whether a loop goes on: for any lane, and then its assignments are kept to the lanes that do."""
        held = self.value(going)
        if self.lanes.width == 1:
            return self.lanes.vector(held)
        lanes = self.lanes.vector(held)
        self.chosen = lanes if self.chosen is None else self.b.and_(self.chosen, lanes)
        return spell.intrinsic(self.b, "vector.reduce.or", types.I1, [self.chosen], suffixes=[lanes.type])

    # -- vector loops ------------------------------------------------------------------------------
    def _vector(self, s: For) -> None:
        """Whole vectors first, then what is left one by one: the same body, written at two widths."""
        width = lane_width(s, self.host.vector_bytes)
        trip = literal_trip(s)
        if trip is not None and trip <= UNROLLED * width:
            return self._vector_unrolled(s, width)
        start, stop = self._bound(s.start), self._bound(s.stop)
        step = int(s.step.value) if isinstance(s.step, Lit) else None
        lead = self._lead(s, width, start) if width > 1 and step == 1 else None
        if lead is not None:
            return self._vector_led(s, width, (start, self.b.add(start, lead), stop))
        if width > 1 and step is not None:
            last = self.b.sub(stop, types.like(stop, (width - 1) * step))
            with self._loop(s.var, start, last, types.like(stop, width * step)) as i:
                self._in_lanes(s, width, i, step)
            start = i
            if trip is not None and trip % width == 0:
                return
        with self._loop(s.var, start, stop, self._bound(s.step)) as i:
            self.values[s.var.name] = Uniform(i)
            self.block(s.body)

    def _vector_led(self, s: For, width: int, bounds: tuple[Any, Any, Any]) -> None:
        """One by one up to the middle one of `bounds`, then vectors, then one by one again what is left."""
        b, (start, first, stop) = self.b, bounds
        first = b.select(b.icmp_signed("<", first, stop), first, stop)
        whole = b.and_(b.sub(stop, first), types.like(stop, -width))
        end = b.add(first, whole)
        with self._loop(
            Var("part", I64), ir.Constant(types.I64, 0), ir.Constant(types.I64, 2), ir.Constant(types.I64, 1)
        ) as k:
            after = b.icmp_signed("==", k, types.like(k, 1))
            with b.if_then(after), self._loop(s.var, first, end, types.like(stop, width)) as i:
                self._in_lanes(s, width, i, 1)
            with self._loop(s.var, b.select(after, end, start), b.select(after, stop, first), types.like(stop, 1)) as i:
                self.values[s.var.name] = Uniform(i)
                self.block(s.body)

    def _lead(self, s: For, width: int, start: Any) -> Any:
        """Iterations until the first streamed store of a loop meets a vector's boundary; None if it has none."""
        store = next((t for t in s.body if isinstance(t, Store) and t.stream is not None), None)
        if store is None or store.stream is None:
            return None
        leading = _leading(s.body, store.index, store.stream)
        if leading is None:
            return None
        self.values[s.var.name] = Uniform(start)
        for t in leading:
            self._let(t)
        stream, index = self.value(store.stream), self.value(store.index)
        if not isinstance(stream, Uniform) or not isinstance(index, Uniform):
            return None
        array = self.arrays[store.buffer]
        lead = self.access.until_aligned(array, index, width)
        lead = lead if start.type == types.I64 else self.b.trunc(lead, start.type)
        return self.b.select(stream.ir, lead, types.like(lead, 0))

    def _vector_unrolled(self, s: For, width: int) -> None:
        start, stop, step = (int(x.value) for x in (s.start, s.stop, s.step) if isinstance(x, Lit))
        element = types.scalar(s.var.dtype)
        while start < stop:
            while start + (width - 1) * step >= stop:
                width //= 2
            self._in_lanes(s, width, ir.Constant(element, start), step)
            start += width * step

    def _in_lanes(self, s: For, width: int, base: Any, step: int) -> None:
        """The body for `width` iterations from `base` on."""
        self.lanes.width = width
        if width == 1:
            self.values[s.var.name] = Uniform(base)
        elif s.var.dtype in (I64, U64):
            self.values[s.var.name] = Linear(base, step)
        else:
            offsets = types.index_vector([k * step for k in range(width)], base.type)
            self.values[s.var.name] = Varying(self.b.add(self.lanes.splat(base), offsets))
        self.block(s.body)
        self.lanes.width = 1


def _leading(body: Sequence[Statement], *operands: Operand) -> list[Let] | None:
    """The operators of a loop body that some operands are made of, in order; None if they are made of loads too."""
    wanted = {x.name for x in operands if isinstance(x, Var)}
    found: list[Let] = []
    for s in reversed(body):
        if isinstance(s, Let) and s.var.name in wanted:
            found.append(s)
            wanted |= {a.name for a in s.args if isinstance(a, Var)}
    other = {s.var.name for s in body if isinstance(s, (Load, Mutable, For))}
    return None if wanted & other else found[::-1]
