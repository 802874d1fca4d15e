"""Writes kernels: the only way statements of the kernel language come to be.

In: calls of schedules and of operator rows (`KernelBuilder` is an `optable.base.Emit`). Out: `Kernel`.
Names are made unique and stay readable, integer arithmetic is folded (`folding`), equal values in one
scope are computed once, parameters are registered at first use. Its own file because schedules,
`expand` and tests all write through it, so that well-formed kernels are the easy ones to write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Literal

from fuser.codegen import folding
from fuser.codegen.loops import (
    Alloc,
    Assign,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Await,
    Barrier,
    BufferParam,
    BufferRole,
    Collective,
    For,
    If,
    Kernel,
    Launch,
    Let,
    Lit,
    Load,
    LoadVec,
    LoopKind,
    Mutable,
    Operand,
    Prefetch,
    Publish,
    ScalarParam,
    Send,
    Shuffle,
    Special,
    SpecialName,
    Statement,
    Store,
    StoreVec,
    Ticket,
    Var,
    walk,
)
from fuser.codegen.names import identifier
from fuser.codegen.primitives import Target
from fuser.codegen.uses import declared
from fuser.dtypes import F32, I32, DType
from fuser.errors import InternalError
from fuser.hostexpr import Dim, HostExpr, wrap
from fuser.optable.base import S
from fuser.record import dataclass

Bound = Operand | int
ValueKey = tuple[str, tuple[Operand, ...], DType]


@dataclass
class _Block:
    """A block being written, with the values it has computed (visible to inner blocks)."""

    statements: list[Statement] = field(default_factory=list)
    values: dict[ValueKey, Operand] = field(default_factory=dict)
    notes: dict[Hashable, tuple[Operand, ...]] = field(default_factory=dict)


class KernelBuilder:
    """Builds one kernel, once. Operands are `Var` and `Lit`; index-like arguments also take Python ints. places: the
    file and line of variables that stand for the program's values."""

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target = name, target
        self._blocks = [_Block()]
        self._taken: dict[str, int] = {}
        self._arrays: dict[str, DType] = {}
        self._buffers: list[BufferParam] = []
        self._scalars: dict[tuple[HostExpr, DType], ScalarParam] = {}
        self._mutable: set[str] = set()
        self.places: dict[str, tuple[str, int]] = {}
        self._ended_branch: tuple[list[Statement], Operand, int] | None = None

    # -- names and parameters ----------------------------------------------------------------------
    def fresh(self, hint: str = "t") -> str:
        """A name no variable, array or parameter of this kernel has: `hint`, then `hint_1`, `hint_2`, ..."""
        base = identifier(hint)
        if base not in self._taken:
            self._taken[base] = 0
            return base
        while True:
            self._taken[base] += 1
            name = f"{base}_{self._taken[base]}"
            if name not in self._taken:
                self._taken[name] = 0
                return name

    def buffer(self, name: str, dtype: DType, role: BufferRole, node: int | None = None, size: Dim = 0) -> str:
        """Registers a global array and gives the name that loads and stores use."""
        fresh = self.fresh(name)
        self._buffers.append(BufferParam(fresh, dtype, role, node, size))
        self._arrays[fresh] = dtype
        return fresh

    def scalar(self, expr: HostExpr | int | float | bool, dtype: DType, name: str = "") -> Operand:
        """A host value: a literal, or the one parameter for this expression and dtype."""
        expr = wrap(expr)
        if expr.is_literal:
            return self.literal(expr.value, dtype)
        found = self._scalars.get((expr, dtype))
        if found is None:
            hint = name or (str(expr) if len(str(expr)) <= 24 else "p")
            found = self._scalars[expr, dtype] = ScalarParam(self.fresh(hint), dtype, expr)
        return found.var

    def alloc(
        self, name: str, dtype: DType, size: int, space: Literal["register", "shared"], dynamic: bool = False
    ) -> str:
        """Declares a register or shared array in the current block; gives its name."""
        fresh = self.fresh(name)
        self._arrays[fresh] = dtype
        self.emit(Alloc(fresh, dtype, size, space, dynamic))
        return fresh

    def declare_array(self, name: str, dtype: DType) -> None:
        """Makes an array known that is declared elsewhere (rewriting a kernel)."""
        self._arrays[name] = dtype

    def adopt(self, kernel: Kernel) -> None:
        """Reserves the names of a kernel that is being rewritten, and learns its arrays and mutable variables."""
        for b in kernel.buffers:
            self.declare_array(self.fresh(b.name), b.dtype)
        for p in kernel.scalars:
            self.fresh(p.name)
        for s in walk(kernel.body):
            if isinstance(s, Alloc):
                self.declare_array(self.fresh(s.name), s.dtype)
            for v in declared(s):
                self.fresh(v.name)
            self._mutable |= {s.var.name} if isinstance(s, Mutable) else set()

    def array_dtype(self, name: str) -> DType:
        """The element type of a registered buffer or array."""
        return self._arrays[name]

    # -- values (optable.base.Emit) ----------------------------------------------------------------
    def literal(self, value: float | int | bool, dtype: DType) -> Lit:
        return folding.literal(value, dtype)

    def apply(self, op: str, args: Sequence[Operand], dtype: DType) -> Operand:
        return self.let(op, args, dtype)

    def handle(self, value: Operand) -> S:
        """The value as an `S`, for arithmetic with Python operators: `b.handle(i) * 4 + j`."""
        return S(self, value, value.dtype)

    def known(self, value: Operand) -> float | int | bool | None:
        """What a literal is; None for a variable (`optable.base.Knowing`)."""
        return value.value if isinstance(value, Lit) else None

    def let(self, op: str, args: Sequence[Operand], dtype: DType, name: str = "") -> Operand:
        """`op(args)`: a folded operand, the variable that already holds it in scope, or a new `Let`.

        name: what the variable is called (a user's name); the default is the operator's.
        """
        return self.define(None, op, args, dtype, name or op)

    def define(self, var: Var | None, op: str, args: Sequence[Operand], dtype: DType, name: str = "") -> Operand:
        """`let` into a variable whose name is already settled (None: a fresh one)."""
        operands = tuple(args)
        known = self.simplify(op, operands, dtype)
        if known is not None:
            return known
        made = var or Var(self.fresh(name), dtype)
        self.emit(Let(made, op, operands))
        self.remember(op, operands, dtype, made)
        return made

    def simplify(self, op: str, args: Sequence[Operand], dtype: DType) -> Operand | None:
        """The operand that `op(args)` is without a statement: folded, or known in this scope."""
        folded = folding.fold(op, args, dtype)
        return folded if folded is not None else self._find((op, tuple(args), dtype))

    def remember(self, op: str, args: Sequence[Operand], dtype: DType, value: Operand) -> None:
        """Notes that `value` holds `op(args)` to the end of this block; what can change is not noted."""
        if not any(isinstance(a, Var) and a.name in self._mutable for a in (*args, value)):
            self._blocks[-1].values[op, tuple(args), dtype] = value

    def _find(self, key: ValueKey) -> Operand | None:
        for block in reversed(self._blocks):
            if key in block.values:
                return block.values[key]
        return None

    def mutable(self, name: str, init: Operand) -> Var:
        """A variable of `init`'s dtype that `assign` may change."""
        var = Var(self.fresh(name), init.dtype)
        self._mutable.add(var.name)
        self.emit(Mutable(var, init))
        return var

    def settle(self, variables: Sequence[Var]) -> None:
        """Mutable variables get no further value: they are values like any other from here on."""
        self._mutable.difference_update(v.name for v in variables)

    def is_mutable(self, value: Operand) -> bool:
        """Whether a later `assign` may change what the operand holds."""
        return isinstance(value, Var) and value.name in self._mutable

    @property
    def scopes(self) -> list[dict[Hashable, tuple[Operand, ...]]]:
        """What callers note for each open block, the innermost last; it ends with the block (`loopwriter`)."""
        return [block.notes for block in self._blocks]

    def assign(self, var: Var, value: Operand) -> None:
        if value != var:
            self.emit(Assign(var, value))

    # -- memory ------------------------------------------------------------------------------------
    def load(self, buffer: str, index: Bound, mask: Operand | None = None, name: str = "") -> Operand:
        """`buffer[index]`, 0 where `mask` is false."""
        mask, never = folding.known_mask(mask)
        if never:
            return self._zero(self._arrays[buffer], name or buffer)
        var = Var(self.fresh(name or buffer), self._arrays[buffer])
        self.emit(Load(var, buffer, self._index(index), mask))
        return var

    def load_vec(
        self, buffer: str, index: Bound, width: int, mask: Operand | None = None, name: str = ""
    ) -> tuple[Operand, ...]:
        """`buffer[index : index + width]` as one access; a single load for width 1."""
        if width == 1:
            return (self.load(buffer, index, mask, name),)
        mask, never = folding.known_mask(mask)
        if never:
            return (self._zero(self._arrays[buffer], name or buffer),) * width
        loaded = tuple(Var(self.fresh(name or buffer), self._arrays[buffer]) for _ in range(width))
        self.emit(LoadVec(loaded, buffer, self._index(index), mask))
        return loaded

    def store(
        self, buffer: str, index: Bound, value: Operand, mask: Operand | None = None, stream: Operand | None = None
    ) -> None:
        """`buffer[index] = value` where `mask` holds. stream: as `loops.Store` has it."""
        mask, never = folding.known_mask(mask)
        if not never:
            self._check_stored(buffer, (value,))
            self.emit(Store(buffer, self._index(index), value, mask, stream))

    def store_vec(self, buffer: str, index: Bound, values: Sequence[Operand], mask: Operand | None = None) -> None:
        if len(values) == 1:
            return self.store(buffer, index, values[0], mask)
        mask, never = folding.known_mask(mask)
        if not never:
            self._check_stored(buffer, values)
            self.emit(StoreVec(buffer, self._index(index), tuple(values), mask))

    def _check_stored(self, buffer: str, values: Sequence[Operand]) -> None:
        wrong = [v for v in values if v.dtype != self._arrays[buffer]]
        if wrong:
            raise InternalError(f"`{buffer}` is not {wrong[0].dtype}", "kernel-type")

    def _zero(self, dtype: DType, name: str) -> Operand:
        """Zero of any dtype; half and complex dtypes have no literals, so theirs is made."""
        if dtype.is_complex:
            part = self.literal(0.0, dtype.component)
            return self.let("complex", (part, part), dtype, name)
        if not dtype.is_half:
            return self.literal(0, dtype)
        return self.let("cast", (self.literal(0.0, F32),), dtype, name)

    def _index(self, index: Bound) -> Operand:
        return self.literal(index, I32) if isinstance(index, int) else index

    # -- control -----------------------------------------------------------------------------------
    def emit(self, statement: Statement) -> None:
        """Appends a statement as it is."""
        self._blocks[-1].statements.append(statement)

    @contextmanager
    def loop(
        self,
        name: str,
        start: Bound,
        stop: Bound,
        step: Bound = 1,
        kind: LoopKind = "serial",
        going: Var | None = None,
        uniform: bool = False,
    ) -> Iterator[Var]:
        """`for var in range(start, stop, step)`; ints take the dtype of the operands beside them, else i32."""
        dtype = next((x.dtype for x in (start, stop, step) if not isinstance(x, int)), I32)
        bounds = [self.literal(x, dtype) if isinstance(x, int) else x for x in (start, stop, step)]
        var = Var(self.fresh(name), dtype)
        with self.block() as body:
            yield var
        self.emit(For(var, bounds[0], bounds[1], bounds[2], tuple(body), kind, going, uniform))

    @contextmanager
    def branch(self, condition: Operand, uniform: bool = False) -> Iterator[None]:
        """`if condition:`; a literal condition keeps or drops the body without a branch."""
        outer = self._blocks[-1].statements
        if isinstance(condition, Lit) and condition.value:
            yield
        else:
            with self.block() as body:
                yield
            if not isinstance(condition, Lit):
                self.emit(If(condition, tuple(body), (), uniform))
        self._ended_branch = (outer, condition, len(outer))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """`else:` of the `branch` that ended just before."""
        outer, condition, end = self._ended_branch or ([], None, 0)
        if condition is None or outer is not self._blocks[-1].statements or len(outer) != end:
            raise InternalError("`otherwise` has no branch just before it", "kernel-scope")
        self._ended_branch = None
        if isinstance(condition, Lit) and not condition.value:
            yield
            return
        with self.block() as body:
            yield
        opened = outer[-1] if outer else None
        if isinstance(opened, If) and not isinstance(condition, Lit):
            outer[-1] = replace(opened, orelse=tuple(body))

    @contextmanager
    def block(self) -> Iterator[list[Statement]]:
        """A nested scope whose statements the caller places; values computed inside end with it."""
        self._blocks.append(_Block())
        try:
            yield self._blocks[-1].statements
        finally:
            self._blocks.pop()

    # -- SIMT --------------------------------------------------------------------------------------
    def special(self, name: SpecialName, var: Var | None = None) -> Var:
        """The thread or block index (i32); `var`: the variable to hold it, where its name is settled."""
        key: ValueKey = (f"special {name}", (), I32)
        known = self._find(key)
        if isinstance(known, Var):
            return known
        made = var or Var(self.fresh(name), I32)
        self._blocks[-1].values[key] = made
        self.emit(Special(made, name))
        return made

    def barrier(self) -> None:
        self.emit(Barrier())

    def shuffle(self, value: Operand, xor: int, name: str = "") -> Var:
        """`value` of lane `lane ^ xor`."""
        var = Var(self.fresh(name or "other"), value.dtype)
        self.emit(Shuffle(var, value, xor))
        return var

    def collective(self, reduction: str, operand: DType, state: Sequence[Var], width: int, stride: int = 1) -> None:
        """Combines mutable `state` over teams of `width` threads, `stride` apart; nothing for width 1."""
        if width > 1:
            self.emit(Collective(reduction, operand, tuple(state), width, stride))

    def ticket(self, buffer: str, index: Bound, limit: Bound, name: str = "ticket", ordered: bool = True) -> Var:
        """Takes the next number from an atomic counter that wraps to 0 after `limit`."""
        var = Var(self.fresh(name), I32)
        self.emit(Ticket(var, buffer, self._index(index), self._index(limit), ordered))
        return var

    def send(
        self, buffer: str, index: Bound, value: Operand, rank: Operand, box: str, mask: Operand | None = None
    ) -> None:
        """A store into the shared memory of the cluster's block `rank`, through its mailbox."""
        self._check_stored(buffer, (value,))
        self.emit(Send(buffer, self._index(index), value, rank, box, mask))

    def copy(
        self, target: str, index: Bound, buffer: str, place: Bound, width: int, mask: Operand | None = None, **how: bool
    ) -> None:
        """Starts `target[index : +width] = buffer[place : +width]` from global to shared memory. how: see AsyncCopy."""
        mask, never = folding.known_mask(mask)
        if not never:
            self.emit(AsyncCopy(target, self._index(index), buffer, self._index(place), width, mask, **how))

    def prefetch(self, buffer: str, index: Bound, mask: Operand | None = None) -> None:
        """Asks for the line of an element to come into the L2."""
        mask, never = folding.known_mask(mask)
        if not never:
            self.emit(Prefetch(buffer, self._index(index), mask))

    def commit(self) -> None:
        self.emit(AsyncCommit())

    def await_copies(self, pending: int) -> None:
        """Waits for all groups of copies but the last `pending`."""
        self.emit(AsyncWait(pending))

    def publish(self, flags: str, index: Operand, value: Operand, mask: Operand | None = None) -> None:
        self.emit(Publish(flags, index, value, mask))

    def wait_for(self, flags: str, index: Operand, dtype: DType, mask: Operand | None = None) -> Var:
        """The value that another block publishes."""
        var = Var(self.fresh(flags), dtype)
        self.emit(Await(var, flags, index, mask))
        return var

    # -- end ---------------------------------------------------------------------------------------
    def finish(self, launch: Launch) -> Kernel:
        """The kernel; every block must be closed."""
        if len(self._blocks) != 1:
            raise InternalError("a block of the kernel is still open", "kernel-scope")
        body, places = tuple(self._blocks[0].statements), tuple((name, *at) for name, at in self.places.items())
        return Kernel(self.name, self.target, tuple(self._buffers), tuple(self._scalars.values()), body, launch, places)
