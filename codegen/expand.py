"""Lowers a kernel to the primitives of its target.

    before:  y = log1p(x)                      after:  t = add(x, 1.0); y = ...      (the row's own arithmetic)
    before:  acc := collective sum(width=32)   after:  shuffles and adds             (`expand_collectives`)
    before:  y = divide(x, d) for many x       after:  products with 1 / d           (`quotients`)
    before:  mulhi(a, b), multiply(a, b)       after:  one product of twice the bits (`products`)

In: a kernel as schedules write it. Out: a kernel whose `Let`s all have a spelling on the target and that has no
Collective left; it means the same, bit for bit up to what a row's `ulp` admits. Recursion is as deep as loops nest
and as rows refer to each other, never as long as a chain of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, cast

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand_collectives import expand_collectives
from fuser.codegen.guards import guard
from fuser.codegen.loops import (
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
)
from fuser.codegen.primitives import spelling
from fuser.codegen.products import join
from fuser.codegen.quotients import share
from fuser.codegen.uses import OPERANDS
from fuser.dtypes import DType
from fuser.errors import InternalError
from fuser.optable import table as default_table
from fuser.optable.base import Table

Access = Load | LoadVec | Store | StoreVec | Send | Ticket | Publish | Await | AsyncCopy | Prefetch
MAX_NESTING = 64  # rows refer to simpler rows; deeper than this is a cycle in the table


def expand(kernel: Kernel, table: Table | None = None) -> Kernel:
    """The kernel in primitives, exact divisions made of shared reciprocals or behind common tests where that pays.
    InternalError names an operator that has neither spelling nor `expand`."""
    rows = table or default_table()
    primitives = _Expander(kernel, rows).run()
    return join(guard(primitives, rows) if kernel.guarded else share(primitives))


class RowEmitter(KernelBuilder):
    """A builder that takes any operator of the table and writes primitives."""

    def __init__(self, kernel: Kernel, table: Table) -> None:
        super().__init__(kernel.name, kernel.target)
        self.table = table
        self.hint = ""  # what expansions call their intermediate values
        self._nesting = 0

    def apply(self, op: str, args: Sequence[Operand], dtype: DType) -> Operand:
        return self.define_any(None, op, args, dtype)

    def rarely(self, condition: Operand, otherwise: Operand, compute: Callable[[], Operand]) -> Operand:
        """`compute()` where `condition` holds, else `otherwise`, behind a branch (`mathlib.parts.Branching`)."""
        chosen = self.mutable(self.hint or "chosen", otherwise)
        with self.branch(condition):
            self.assign(chosen, compute())
        return chosen

    def define_any(self, var: Var | None, op: str, args: Sequence[Operand], dtype: DType) -> Operand:
        """`define` for an operator that need not be primitive; the result's name is then only a hint."""
        row = self.table.scalar(op)
        if spelling(row, self.target, args, dtype) is not None:
            return self.define(var, op, args, dtype, self.hint or op)
        known = self.simplify(op, args, dtype)
        if known is not None:
            return known
        if row.expand is None:
            raise InternalError(f"`{op}` on {args[0].dtype} has no spelling on {self.target}", "no-spelling")
        if self._nesting >= MAX_NESTING:
            raise InternalError(f"the expansion of `{op}` does not end", "expand-cycle")
        block = self._blocks[-1]
        before = len(block.statements), len(block.values)
        self._nesting += 1
        handles = [self.handle(a) for a in args]
        out = row.expand(*handles, dtype) if row.converts else row.expand(*handles)
        self._nesting -= 1
        if out.dtype != dtype:
            raise InternalError(f"the expansion of `{op}` gives {out.dtype}, not {dtype}", "expand-type")
        self.remember(op, args, dtype, out.value)
        if var is None or len(block.statements) == before[0]:
            return cast(Operand, out.value)
        return self._rename_last(var, out.value, before[1])

    def _rename_last(self, var: Var, value: Operand, values_before: int) -> Operand:
        """Lets the last statement, where it is the one that computes `value`, assign `var` itself."""
        block = self._blocks[-1]
        last = block.statements[-1]
        if not isinstance(last, Let) or last.var != value:
            return value
        block.statements[-1] = replace(last, var=var)
        recent = islice(reversed(block.values.items()), len(block.values) - values_before)
        for key in [k for k, v in recent if v == value]:
            block.values[key] = var
        return var


class _Expander:
    """Rewrites statements in order. `renamed`: what now stands for a variable of the old kernel."""

    def __init__(self, kernel: Kernel, table: Table) -> None:
        self.kernel, self.table = kernel, table
        self.out = RowEmitter(kernel, table)
        self.renamed: dict[str, Operand] = {}
        self.shared: list[Alloc] = []  # scratch of collectives, declared once at the top
        self.loops = 0
        self.on: dict[type, Callable[[Any], None]] = {
            Let: self.let, Mutable: self.mutable, Assign: self.assign, Load: self.access, LoadVec: self.access,
            Store: self.access, StoreVec: self.access, For: self.loop, If: self.branch, Alloc: self.out.emit,
            Special: self.special, Barrier: self.out.emit, Shuffle: self.shuffle,
            Ticket: self.access, ClusterArrive: self.out.emit, ClusterWait: self.out.emit,
            Send: self.access, Mailbox: self.out.emit, Receive: self.out.emit, Publish: self.access, Await: self.access,
            AsyncCopy: self.access, Prefetch: self.access, AsyncCommit: self.out.emit, AsyncWait: self.out.emit,
        }  # fmt: skip

    def run(self) -> Kernel:
        self.out.adopt(self.kernel)
        self.block(self.kernel.body)
        body = self.out.finish(self.kernel.launch).body
        return replace(self.kernel, body=(*self.shared, *body))

    def block(self, body: Sequence[Statement]) -> None:
        for kind, run in groupby(body, type):
            if kind is Collective:
                self.collectives(cast(list[Collective], list(run)))
                continue
            for s in run:
                self.on[kind](s)

    def new(self, x: Operand) -> Operand:
        return self.renamed.get(x.name, x) if isinstance(x, Var) else x

    # -- statements --------------------------------------------------------------------------------
    def let(self, s: Let) -> None:
        self.out.hint = s.var.name
        value = self.out.define_any(s.var, s.op, [self.new(a) for a in s.args], s.var.dtype)
        if value != s.var:
            self.renamed[s.var.name] = value

    def mutable(self, s: Mutable) -> None:
        self.out.emit(Mutable(s.var, self.new(s.init)))

    def assign(self, s: Assign) -> None:
        self.out.assign(s.var, self.new(s.value))

    def access(self, s: Access) -> None:
        changes: dict[str, Any] = {name: self.new(x) for name in OPERANDS if (x := getattr(s, name, None)) is not None}
        if isinstance(s, StoreVec):
            changes["values"] = tuple(self.new(v) for v in s.values)
        self.out.emit(replace(s, **changes))

    def loop(self, s: For) -> None:
        start, stop, step = (self.new(x) for x in (s.start, s.stop, s.step))
        self.loops += 1
        with self.out.block() as body:
            self.block(s.body)
        self.loops -= 1
        # `going` is mutable: it has no new name
        self.out.emit(replace(s, start=start, stop=stop, step=step, body=tuple(body)))

    def branch(self, s: If) -> None:
        with self.out.block() as then:
            self.block(s.then)
        with self.out.block() as orelse:
            self.block(s.orelse)
        self.out.emit(If(self.new(s.condition), tuple(then), tuple(orelse), s.uniform))

    def special(self, s: Special) -> None:
        self.renamed[s.var.name] = self.out.special(s.name, s.var)

    def shuffle(self, s: Shuffle) -> None:
        self.out.emit(replace(s, value=self.new(s.value)))

    def collectives(self, run: Sequence[Collective]) -> None:
        self.shared += expand_collectives(self.out, run, self.table, self.kernel.launch.block, self.loops > 0)
