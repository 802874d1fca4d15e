"""Prints a kernel as CUDA C.

In: a kernel of primitives (after `expand`). Out: a header-free source with one `extern "C"` kernel that NVRTC
compiles. One statement is one line of C and operators are spelled by their rows' `cuda` data; nothing is optimised
here. C's habits are undone so that each line means what the kernel language says: narrow integers are cast back after
promotion, signed arithmetic that may overflow is done unsigned, floats are written exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

from fuser.codegen import loops
from fuser.codegen.cuda.addresses import addresses
from fuser.codegen.cuda.prelude import HELPERS, element, prelude, vector_type, whole
from fuser.codegen.cuda.types import c_type, convert, join, literal, reinterpret, unsigned_type, zero
from fuser.codegen.loops import BufferParam, Kernel, Lit, Operand, Statement, Var
from fuser.codegen.primitives import spelling
from fuser.codegen.storage import dynamic_shared
from fuser.codegen.uses import declared
from fuser.dtypes import DType
from fuser.errors import InternalError
from fuser.optable import table as default_table
from fuser.optable.base import Call, Convert, Infix, Join, Part, Prefix, Table, Ternary

FULL_WARP = "0xffffffffu"
_SPECIAL = {"thread": "threadIdx.x", "block": "blockIdx.x", "block_y": "blockIdx.y"}
_HELPER = re.compile(r"\bfuser_\w+(?=[(<])")

Lines = Mapping[str, tuple[str, int]]  # variable name -> (file, line) of the user's source


def print_kernel(kernel: Kernel, table: Table | None = None, lines: Lines | None = None) -> str:
    """The source. lines: where variables come from, for `#line` directives (profilers then show the user's line)."""
    return _Printer(kernel, table or default_table(), lines or {}).source()


class _Printer:
    def __init__(self, kernel: Kernel, table: Table, lines: Lines) -> None:
        self.kernel, self.table, self.lines = kernel, table, lines
        self.place: tuple[str, int] | None = None
        self.text: list[str] = []
        self.depth = 0
        self.vectors: set[tuple[DType, int]] = set()
        self.arrays: dict[str, DType] = {b.name: b.dtype for b in kernel.buffers}
        self.slots = {b.name for b in kernel.buffers if b.role == "slots"}
        self.plain = addresses(kernel.body)
        self.vectored = _vectored(kernel)
        self.names = _names(kernel, table)
        self.on: dict[type, Callable[[Any], None]] = {
            loops.Let: self.let, loops.Mutable: self.mutable, loops.Assign: self.assign, loops.Load: self.load,
            loops.Store: self.store, loops.LoadVec: self.load_vec, loops.StoreVec: self.store_vec,
            loops.For: self.loop, loops.If: self.branch, loops.Alloc: self.alloc, loops.Special: self.special,
            loops.Barrier: lambda s: self.line("__syncthreads();"),
            loops.Shuffle: self.shuffle, loops.Ticket: self.ticket, loops.Send: self.send,
            loops.Mailbox: self.mailbox,
            loops.Receive: lambda s: self.line(f"fuser_receive(&{s.box});"),
            loops.AsyncCopy: self.copy, loops.Prefetch: self.prefetch,
            loops.AsyncCommit: lambda s: self.line("fuser_commit();"),
            loops.AsyncWait: lambda s: self.line(f"fuser_await_copies<{s.pending}>();"),
            loops.ClusterArrive: lambda s: self.line("fuser_cluster_arrive();"),
            loops.ClusterWait: lambda s: self.line("fuser_cluster_wait();"),
            loops.Publish: self.publish, loops.Await: self.wait_for,
        }  # fmt: skip

    def source(self) -> str:
        self.depth = 1
        self.block(self.kernel.body)
        body = "\n".join(self.text)
        helpers = [h for h in _HELPER.findall(body) if h in HELPERS]
        return "\n".join([*prelude(helpers, self.vectors), *self.signature(), body, "}"]) + "\n"

    def signature(self) -> list[str]:
        k = self.kernel
        parameters = [_buffer(b) for b in k.buffers] + [f"{c_type(p.dtype)} {self.names[p.name]}" for p in k.scalars]
        bounds = f"__launch_bounds__({k.launch.block}, {k.launch.min_blocks})"
        bounds += f" __cluster_dims__({k.launch.cluster}, 1, 1)" if k.launch.cluster > 1 else ""
        return [f'extern "C" __global__ void {bounds} {k.name}(', *_comma_lines(parameters), ") {"]

    # -- text --------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        if self.place is not None:  # before every line, since the compiler counts on from the last directive
            self.text.append(f'#line {self.place[1]} "{_quoted(self.place[0])}"')
        self.text.append("    " * self.depth + text)

    def places(self, body: tuple[Statement, ...]) -> list[tuple[str, int] | None]:
        """The place of each statement: of what leads to a value (addresses, parts of its formula) the value's; None
        where that of the statement before holds on."""
        found: list[tuple[str, int] | None] = []
        following = None
        for s in reversed(body):
            own = next((self.lines[v.name] for v in declared(s) if v.name in self.lines), None)
            following = own or following
            found.append(following if own or isinstance(s, loops.Let | loops.Load | loops.LoadVec) else None)
        return found[::-1]

    def block(self, body: tuple[Statement, ...]) -> None:
        for s, place in zip(body, self.places(body) if self.lines else repeat(None), strict=False):
            self.place = place or self.place
            handler = self.on.get(type(s))
            if handler is None:
                raise InternalError(f"{type(s).__name__} cannot be printed as CUDA C", "not-printable")
            handler(s)

    def value(self, x: Operand) -> str:
        return literal(x) if isinstance(x, Lit) else self.names[x.name]

    def define(self, var: Var, text: str) -> None:
        self.line(f"const {c_type(var.dtype)} {self.names[var.name]} = {text};")

    # -- values ------------------------------------------------------------------------------------
    def let(self, s: loops.Let) -> None:
        self.define(s.var, self.expression(s))

    def expression(self, s: loops.Let) -> str:
        spelled = spelling(self.table.scalar(s.op), "cuda", s.args, s.var.dtype)
        args = [self.value(a) for a in s.args]
        source, target = s.args[0].dtype, s.var.dtype
        if isinstance(spelled, Call):
            return f"{spelled.name}({', '.join(args)})"
        if isinstance(spelled, Ternary):
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if isinstance(spelled, Convert):
            return (reinterpret if spelled.bits else convert)(args[0], source, target)
        if isinstance(spelled, Part):
            return f"{args[0]}.{'xy'[spelled.index]}"
        if isinstance(spelled, Join):
            return join(args[0], args[1], source)
        if isinstance(spelled, (Infix, Prefix)):
            wraps = spelled.wraps and source.is_integer and s.var.name not in self.plain
            return _operator(spelled, args, source, target, wraps)
        raise InternalError(f"`{s.op}` on {source} is not primitive on cuda", "no-spelling")

    def mutable(self, s: loops.Mutable) -> None:
        self.line(f"{c_type(s.var.dtype)} {self.names[s.var.name]} = {self.value(s.init)};")

    def assign(self, s: loops.Assign) -> None:
        self.line(f"{self.names[s.var.name]} = {self.value(s.value)};")

    def special(self, s: loops.Special) -> None:
        self.define(s.var, f"(int){_SPECIAL[s.name]}")

    # -- memory ------------------------------------------------------------------------------------
    def alloc(self, s: loops.Alloc) -> None:
        self.arrays[s.name] = s.dtype
        if s.dynamic:
            if not (offset := dynamic_shared(self.kernel.body)[s.name][0]):
                self.line("extern __shared__ __align__(16) unsigned char fuser_shared[];")
            kind = c_type(s.dtype)
            return self.line(
                f"{kind}* const {self.names[s.name]} = reinterpret_cast<{kind}*>(fuser_shared + {offset});"
            )
        shared = "__shared__ " if s.space == "shared" else ""
        if shared and s.name in self.vectored:  # whole vectors are read from it: bool[n] alone may start anywhere
            shared += "__align__(16) "
        self.line(f"{shared}{c_type(s.dtype)} {self.names[s.name]}[{s.size}];")

    def element(self, buffer: str, index: Operand) -> str:
        return f"{self.names[buffer]}[{self.value(index)}]"

    def load(self, s: loops.Load) -> None:
        read = self.element(s.buffer, s.index)
        self.define(s.var, read if s.mask is None else f"{self.value(s.mask)} ? {read} : {zero(s.var.dtype)}")

    def store(self, s: loops.Store) -> None:
        guard = "" if s.mask is None else f"if ({self.value(s.mask)}) "
        self.line(f"{guard}{self.element(s.buffer, s.index)} = {self.value(s.value)};")

    def vector(self, buffer: str, index: Operand, width: int, const: str) -> str:
        dtype = self.arrays[buffer]
        self.vectors.add((dtype, width))
        place = f"{self.names[buffer]} + {self.value(index)}"
        return f"*reinterpret_cast<{const}{vector_type(dtype, width)}*>({place})"

    def load_vec(self, s: loops.LoadVec) -> None:
        width = len(s.vars)
        dtype = self.arrays[s.buffer]
        read = self.vector(s.buffer, s.index, width, "const ")
        read_as = f"{self.names[s.vars[0].name]}_vec"
        kind = vector_type(dtype, width)
        self.line(f"const {kind} {read_as} = {read};" if s.mask is None else f"{kind} {read_as} = {{}};")
        if s.mask is not None:
            self.line(f"if ({self.value(s.mask)}) {read_as} = {read};")
        for k, v in enumerate(s.vars):
            self.define(v, element(dtype, width, read_as, k))

    def store_vec(self, s: loops.StoreVec) -> None:
        guard = "" if s.mask is None else f"if ({self.value(s.mask)}) "
        place = self.vector(s.buffer, s.index, len(s.values), "")
        self.line(f"{guard}{place} = {whole(self.arrays[s.buffer], [self.value(v) for v in s.values])};")

    # -- control -----------------------------------------------------------------------------------
    def loop(self, s: loops.For) -> None:
        """`#pragma unroll 1` keeps the compiler from unrolling what the schedule did not: registers were counted."""
        name, kind = self.names[s.var.name], c_type(s.var.dtype)
        start, stop, step = (self.value(x) for x in (s.start, s.stop, s.step))
        going = f" && {self.value(s.going)}" if s.going is not None else ""
        self.line("#pragma unroll" if s.kind == "unroll" else "#pragma unroll 1")
        self.nested(f"for ({kind} {name} = {start}; {name} < {stop}{going}; {name} += {step}) {{", s.body)

    def branch(self, s: loops.If) -> None:
        if s.then or not s.orelse:
            self.nested(f"if ({self.value(s.condition)}) {{", s.then)
        else:
            self.nested(f"if (!{self.value(s.condition)}) {{", s.orelse)
        if s.then and s.orelse:
            self.text.pop()
            self.nested("} else {", s.orelse)

    def nested(self, head: str, body: tuple[Statement, ...]) -> None:
        self.line(head)
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    # -- SIMT --------------------------------------------------------------------------------------
    def shuffle(self, s: loops.Shuffle) -> None:
        value, dtype = self.value(s.value), s.var.dtype
        if dtype.bits < 32:
            moved = f"__shfl_xor_sync({FULL_WARP}, (int){value}, {s.xor})"
            return self.define(s.var, f"{moved} != 0" if dtype.kind == "b" else f"({c_type(dtype)}){moved}")
        self.define(s.var, f"__shfl_xor_sync({FULL_WARP}, {value}, {s.xor})")

    def ticket(self, s: loops.Ticket) -> None:
        take = "fuser_ticket" if s.ordered else "fuser_number"
        self.define(s.var, f"{take}({self.names[s.buffer]} + {self.value(s.index)}, {self.value(s.limit)})")

    def mailbox(self, s: loops.Mailbox) -> None:
        self.line(f"__shared__ unsigned long long {s.name};")
        self.line(f"if (threadIdx.x == 0) fuser_open(&{s.name}, {s.size});")

    def send(self, s: loops.Send) -> None:
        guard = "" if s.mask is None else f"if ({self.value(s.mask)}) "
        place = f"{self.names[s.buffer]} + {self.value(s.index)}"
        self.line(f"{guard}fuser_send({place}, &{s.box}, {self.value(s.rank)}, {self.value(s.value)});")

    def copy(self, s: loops.AsyncCopy) -> None:
        mask = None if s.mask is None else self.value(s.mask)
        guard, exists = ("", mask or "true") if s.predicated or mask is None else (f"if ({mask}) ", "true")
        size = s.width * self.arrays[s.buffer].bytes
        to, source = (f"{self.names[a]} + {self.value(k)}" for a, k in ((s.target, s.index), (s.buffer, s.place)))
        self.line(f"{guard}fuser_copy<{size}>({exists}, {to}, {source});")

    def prefetch(self, s: loops.Prefetch) -> None:
        guard = "" if s.mask is None else f"if ({self.value(s.mask)}) "
        self.line(f"{guard}fuser_prefetch({self.names[s.buffer]} + {self.value(s.index)});")

    def publish(self, s: loops.Publish) -> None:
        guard = "" if s.mask is None else f"if ({self.value(s.mask)}) "
        self.line(f"{guard}fuser_publish({self.names[s.buffer]}, {self.value(s.index)}, {self.value(s.value)});")

    def wait_for(self, s: loops.Await) -> None:
        kind = c_type(s.var.dtype)
        wait = "fuser_take" if s.buffer in self.slots else "fuser_await"
        found = f"{wait}<{kind}>({self.names[s.buffer]}, {self.value(s.index)})"
        self.define(s.var, found if s.mask is None else f"{self.value(s.mask)} ? {found} : ({kind})0")


def _operator(spelled: Infix | Prefix, args: list[str], source: DType, target: DType, wraps: bool) -> str:
    """`a OP b` or `OP a`, in the unsigned type where it wraps, cast to the dtype where C has widened it."""
    if wraps and (source.kind == "i" or source.bits < 32):
        args = [f"({unsigned_type(source)}){_operand(a)}" for a in args]
    args = [_operand(a) for a in args]
    text = f"{spelled.symbol}{args[0]}" if isinstance(spelled, Prefix) else f"{args[0]} {spelled.symbol} {args[1]}"
    narrow = target.is_integer and target.bits < 32
    return f"({c_type(target)})({text})" if narrow or (wraps and target.kind == "i") else text


def _operand(text: str) -> str:
    """A negative literal in parentheses, so that `- -1` is no decrement."""
    return f"({text})" if text.startswith("-") else text


def _vectored(kernel: Kernel) -> set[str]:
    """Arrays of which several elements are accessed at once."""
    found: set[str] = set()
    for s in loops.walk(kernel.body):
        if isinstance(s, (loops.LoadVec, loops.StoreVec)):
            found.add(s.buffer)
        elif isinstance(s, loops.AsyncCopy):
            found.add(s.target)
    return found


def _buffer(b: BufferParam) -> str:
    const = "const " if b.role == "in" else ""
    # Other blocks write workspaces and counters while this one runs: nothing may be assumed of them.
    restrict = " __restrict__" if b.role in ("in", "out") else ""
    return f"{const}{c_type(b.dtype)}*{restrict} {b.name}"


def _comma_lines(parameters: list[str]) -> list[str]:
    return [f"    {p}{',' if k + 1 < len(parameters) else ''}" for k, p in enumerate(parameters)]


def _quoted(path: str) -> str:
    return path.replace("\\", "/").replace('"', "'")


def _names(kernel: Kernel, table: Table) -> dict[str, str]:
    """C names of everything in the kernel: their own, but for those that would hide a function it calls."""
    known = [b.name for b in kernel.buffers] + [p.name for p in kernel.scalars]
    called = {"atomicInc", "reinterpret_cast", kernel.name}
    for s in loops.walk(kernel.body):
        if isinstance(s, loops.Let):
            found = spelling(table.scalar(s.op), "cuda", s.args, s.var.dtype)
            called |= {found.name} if isinstance(found, Call) else set()
        known += [v.name for v in declared(s)]
        known += [s.name] if isinstance(s, loops.Alloc) else []
    taken = set(known)
    names = {}
    for name in known:
        spelled = name
        while spelled in called or (spelled != name and spelled in taken):
            spelled += "_"
        names[name] = spelled
        taken.add(spelled)
    return names
