"""What a statement of a kernel reads and declares.

In: a statement. Out: its own operands, and the variables it brings into being; not those of statements inside it. Its
own file because the printer, register counts and rewrites of kernels all ask.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.codegen.loops import (
    Await,
    For,
    Let,
    Load,
    LoadVec,
    Mutable,
    Operand,
    Shuffle,
    Special,
    Statement,
    StoreVec,
    Ticket,
    Var,
)

# Fields of statements that hold an operand.
OPERANDS = (
    "init", "value", "index", "place", "mask", "stream", "start", "stop", "step", "going", "condition", "rank", "limit",
)  # fmt: skip


def operands(s: Statement) -> Iterator[Operand]:
    """What a statement itself reads (not the statements inside it)."""
    if isinstance(s, Let):
        yield from s.args
        return
    yield from (x for name in OPERANDS if (x := getattr(s, name, None)) is not None)
    if isinstance(s, StoreVec):
        yield from s.values


def declared(s: Statement) -> tuple[Var, ...]:
    """The variables that a statement declares; a loop's own is one."""
    if isinstance(s, LoadVec):
        return s.vars
    return (s.var,) if isinstance(s, (Let, Mutable, Load, For, Special, Shuffle, Ticket, Await)) else ()
