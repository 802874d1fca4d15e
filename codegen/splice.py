"""One kernel's statements inside another kernel, under names that are new there.

In: a `KernelBuilder` and a finished kernel. Out: a `Piece` whose parameters are the builder's, and which writes its
statements where the caller is. Its own file because a kernel of several parts is made of finished kernels: no schedule
knows whether its kernel has the grid to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Alloc, BufferParam, Kernel, Lit, Operand, Special, Statement, Var
from fuser.errors import InternalError


class Buffers:
    """The arrays of all pieces of one kernel: pieces that read the same node share its parameter.

    exclusive: only one of the pieces runs in a launch, so that they share what they write too.
    """

    def __init__(self, builder: KernelBuilder, exclusive: bool = False) -> None:
        self.builder, self.exclusive = builder, exclusive
        self.known: dict[int, tuple[BufferParam, str]] = {}

    def name(self, b: BufferParam) -> str:
        """The builder's name for a piece's array."""
        found = self.known.get(b.node) if b.node is not None else None
        if found is None:
            name = self.builder.buffer(b.name, b.dtype, b.role, b.node, b.size)
            if b.node is not None:
                self.known[b.node] = b, name
            return name
        if not self.exclusive and (found[0].role != "in" or b.role != "in"):
            raise InternalError(f"parts of `{self.builder.name}` share `{b.name}`, which one writes", "batch-effects")
        return found[1]


class Piece:
    """A kernel on its way into another one."""

    def __init__(self, builder: KernelBuilder, kernel: Kernel, buffers: Buffers) -> None:
        self.builder, self.kernel = builder, kernel
        self.arrays = {b.name: buffers.name(b) for b in kernel.buffers}
        self.operands: dict[str, Operand] = {p.name: builder.scalar(p.expr, p.dtype, p.name) for p in kernel.scalars}
        self.specials: dict[str, Operand] = {}
        self.places = {name: (file, line) for name, file, line in kernel.places}

    def bind(self, var: Var, value: Operand) -> None:
        """Let a variable of the piece be an operand of the builder's kernel."""
        self.operands[var.name] = value

    def write(self, body: Sequence[Statement]) -> None:
        """The statements, here."""
        for s in self._block(body):
            self.builder.emit(s)

    def _block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        out: list[Statement] = []
        for s in body:
            if isinstance(s, Special) and s.name in self.specials:
                self.bind(s.var, self.specials[s.name])
            else:
                out.append(self._moved(s))
        return tuple(out)

    def _moved(self, s: Any) -> Statement:
        changed = {f.name: self._value(f.name, getattr(s, f.name)) for f in fields(s)}
        if isinstance(s, Alloc):
            changed["name"] = self._array(s)
        moved: Statement = replace(s, **changed)
        return moved

    def _array(self, s: Alloc) -> str:
        name = self.arrays[s.name] = self.builder.fresh(s.name)
        self.builder.declare_array(name, s.dtype)
        return name

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, Var):
            return self._operand(value)
        if isinstance(value, str) and field == "buffer":
            return self.arrays[value]
        if isinstance(value, tuple) and value:
            if isinstance(value[0], (Var, Lit)):
                return tuple(self._operand(x) if isinstance(x, Var) else x for x in value)
            return self._block(value)
        return value

    def _operand(self, var: Var) -> Operand:
        """What a variable is here; one seen first is being declared."""
        found = self.operands.get(var.name)
        if found is None:
            found = self.operands[var.name] = Var(self.builder.fresh(var.name), var.dtype)
            if var.name in self.places:
                self.builder.places[found.name] = self.places[var.name]
        return found
