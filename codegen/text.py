"""The kernel language as text: what dumps, findings of the verifier and the SIMT interpreter's errors quote.

In: a kernel or one statement. Out: lines that read like Python, `x = op(a, b)`, one statement a line. For
people only; nothing parses it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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
)
from fuser.hostfunctions import literal_text


def operand(x: Operand) -> str:
    """A variable's name, or a literal's Python value."""
    return literal_text(x.value) if isinstance(x, Lit) else x.name


def _many(xs: tuple[Operand, ...]) -> str:
    return ", ".join(operand(x) for x in xs)


def _if(mask: Operand | None) -> str:
    return "" if mask is None else f" if {operand(mask)}"


def _streamed(s: Store) -> str:
    return "" if s.stream is None else f"  # past the caches if {operand(s.stream)}"


def _slice(buffer: str, index: Operand, width: int) -> str:
    return f"{buffer}[{operand(index)} : +{width}]"


def _for(s: For) -> str:
    bounds = f"{operand(s.start)}, {operand(s.stop)}, {operand(s.step)}"
    going = f" while {s.going.name}" if s.going is not None else ""
    return f"for {s.var.name} in {s.kind}({bounds}){going}:"


def _if_head(s: If) -> str:
    return f"if {operand(s.condition)}:{'  # uniform' if s.uniform else ''}"


def _collective(s: Collective) -> str:
    state = ", ".join(v.name for v in s.state)
    stride = f", stride={s.stride}" if s.stride != 1 else ""
    return f"{state} := collective {s.reduction}({s.operand}, width={s.width}{stride})"


_LINES: dict[type, Callable[[Any], str]] = {
    Let: lambda s: f"{s.var.name}: {s.var.dtype} = {s.op}({_many(s.args)})",
    Mutable: lambda s: f"mutable {s.var.name}: {s.var.dtype} = {operand(s.init)}",
    Assign: lambda s: f"{s.var.name} := {operand(s.value)}",
    Load: lambda s: f"{s.var.name}: {s.var.dtype} = {s.buffer}[{operand(s.index)}]{_if(s.mask)}",
    Store: lambda s: f"{s.buffer}[{operand(s.index)}] = {operand(s.value)}{_if(s.mask)}{_streamed(s)}",
    LoadVec: lambda s: f"{_many(s.vars)} = {_slice(s.buffer, s.index, len(s.vars))}{_if(s.mask)}",
    StoreVec: lambda s: f"{_slice(s.buffer, s.index, len(s.values))} = {_many(s.values)}{_if(s.mask)}",
    For: _for,
    If: _if_head,
    Alloc: lambda s: f"{s.space} {s.name}: {s.dtype}[{s.size}]",
    Special: lambda s: f"{s.var.name} = {s.name} index",
    Barrier: lambda s: "barrier",
    Shuffle: lambda s: f"{s.var.name} = {operand(s.value)} of lane ^ {s.xor}",
    Collective: _collective,
    Ticket: lambda s: (
        f"{s.var.name} = {'' if s.ordered else 'unordered '}ticket {s.buffer}[{operand(s.index)}]"
        f" up to {operand(s.limit)}"
    ),
    AsyncCopy: lambda s: (
        f"copy {_slice(s.target, s.index, s.width)} = {_slice(s.buffer, s.place, s.width)}{_if(s.mask)}"
    ),
    Prefetch: lambda s: f"prefetch {s.buffer}[{operand(s.index)}]{_if(s.mask)}",
    AsyncCommit: lambda s: "commit copies",
    AsyncWait: lambda s: f"await copies but the last {s.pending}",
    ClusterArrive: lambda s: "cluster arrive",
    ClusterWait: lambda s: "cluster wait",
    Mailbox: lambda s: f"mailbox {s.name} of {s.size} bytes",
    Send: lambda s: (
        f"send {s.buffer}[{operand(s.index)}] of block {operand(s.rank)} = {operand(s.value)}, box {s.box}{_if(s.mask)}"
    ),
    Receive: lambda s: f"receive {s.box}",
    Publish: lambda s: f"publish {s.buffer}[{operand(s.index)}] = {operand(s.value)}{_if(s.mask)}",
    Await: lambda s: f"{s.var.name}: {s.var.dtype} = await {s.buffer}[{operand(s.index)}]{_if(s.mask)}",
}


def statement_text(s: Statement) -> str:
    """One line for a statement; loops and branches give their head."""
    return _LINES[type(s)](s)


def _body_lines(body: tuple[Statement, ...]) -> Iterator[str]:
    stack: list[tuple[int, Statement | str]] = [(1, s) for s in reversed(body)]
    while stack:
        depth, s = stack.pop()
        if isinstance(s, str):
            yield "    " * depth + s
            continue
        yield "    " * depth + statement_text(s)
        if isinstance(s, If) and s.orelse:
            stack.extend((depth + 1, inner) for inner in reversed(s.orelse))
            stack.append((depth, "else:"))
        inner_body = s.body if isinstance(s, For) else s.then if isinstance(s, If) else ()
        stack.extend((depth + 1, inner) for inner in reversed(inner_body))


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel; deterministic, without addresses or times."""
    buffers = [f"{b.role} {b.name}: {b.dtype}[{b.size}]" for b in kernel.buffers]
    scalars = [f"{p.name}: {p.dtype} = {p.expr}" for p in kernel.scalars]
    launch = kernel.launch
    head = f"kernel {kernel.name}({', '.join(buffers + scalars)})"
    where = f"  # {kernel.target}, grid ({launch.grid[0]}, {launch.grid[1]}), block {launch.block}"
    where += f", cluster {launch.cluster}" if launch.cluster > 1 else ""
    return "\n".join([head + ":" + where, *_body_lines(kernel.body)]) + "\n"
