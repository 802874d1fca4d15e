"""The kernel language: what schedules write and printers, emitters and the SIMT interpreter read.

In: `KernelBuilder` calls of schedules. Out: `Kernel`, flat typed statements. Values are scalars: a vector
exists only as the tuple of a LoadVec/StoreVec. A `Let` binds one operator of the table to variables and literals, so
there is no expression nesting and a 5,000-operator chain is 5,000 statements.

Core: Let, Mutable, Assign, Load, Store, LoadVec, StoreVec, For, If, Alloc. SIMT extension (CUDA): the others. CPU
extension: For("parallel") and For("vector"). Meaning is what `codegen/simt.py` does.
Integer division: `trunc_div` and `trunc_rem` on index types are C's, and only ever see non-negative operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fuser.dtypes import DType
from fuser.hostexpr import Dim, HostExpr
from fuser.hostfunctions import literal_text
from fuser.record import dataclass


@dataclass(frozen=True)
class Var:
    """A scalar variable; its name is unique in the kernel."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Lit:
    """A literal of a dtype. Floats may be inf, nan or -0.0; half dtypes have no literals."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lit) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Lit({literal_text(self.value)}, {self.dtype})"


WARP = 32  # neighbouring threads that run together on CUDA
Operand = Var | Lit
LoopKind = Literal["serial", "unroll", "parallel", "vector"]
SpecialName = Literal["thread", "block", "block_y"]  # thread in block (1-D), block in grid x / y


@dataclass(frozen=True)
class Let:
    """`var = op(args)`; `op` is a scalar operator row that is primitive on the kernel's target (after `expand`)."""

    var: Var
    op: str
    args: tuple[Operand, ...]


@dataclass(frozen=True)
class Mutable:
    """Declares a variable that `Assign` may change; visible to the end of the enclosing block."""

    var: Var
    init: Operand


@dataclass(frozen=True)
class Assign:
    """`var = value`, of a variable that a `Mutable` declared."""

    var: Var
    value: Operand


@dataclass(frozen=True)
class Load:
    """`var = buffer[index]`, in elements; where `mask` is false nothing is read and var is 0."""

    var: Var
    buffer: str
    index: Operand
    mask: Operand | None = None


@dataclass(frozen=True)
class Store:
    """`buffer[index] = value` where `mask` holds.

    stream (CPU): whole vectors go past the caches where it holds; nobody reads the buffer before the kernel ends.
    """

    buffer: str
    index: Operand
    value: Operand
    mask: Operand | None = None
    stream: Operand | None = None


@dataclass(frozen=True)
class LoadVec:
    """`vars = buffer[index : index + width]`; the address is a multiple of the whole vector's bytes.

    Where `mask` is false nothing is read and all vars are 0.
    """

    vars: tuple[Var, ...]
    buffer: str
    index: Operand
    mask: Operand | None = None


@dataclass(frozen=True)
class StoreVec:
    """`buffer[index : index + width] = values` where `mask` holds; aligned as for LoadVec."""

    buffer: str
    index: Operand
    values: tuple[Operand, ...]
    mask: Operand | None = None


@dataclass(frozen=True)
class For:
    """`for var in range(start, stop, step)`.

    serial: as written. unroll: bounds are literals, the body is repeated. parallel (CPU): iterations are independent,
    split over threads; outermost only. vector (CPU): iterations are independent but for register arrays indexed by
    `var` itself; an emitter may run several at once. step > 0. going: a mutable bool; a serial loop is left before a
    round in which it is false; in a vector loop where iterations disagree on it, as for `If`. uniform: threads agree.
    """

    var: Var
    start: Operand
    stop: Operand
    step: Operand
    body: tuple[Statement, ...]
    kind: LoopKind = "serial"
    going: Var | None = None
    uniform: bool = False


@dataclass(frozen=True)
class If:
    """Conditional; `uniform` promises that all threads of the block agree (a barrier inside is then legal).

    Where iterations of a vector loop may disagree, an emitter runs several at once only if the body just computes and
    assigns (no `orelse`): it is then run where any of them takes the branch, and assigns in those that do.
    """

    condition: Operand
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    uniform: bool = False


@dataclass(frozen=True)
class Alloc:
    """An array of `size` elements: `register` (private to a thread; indices must be literals after unrolling on CUDA),
    or `shared` (one a block). Contents are undefined until written. Named like a buffer in Load and Store.

    dynamic: its shared memory is sized at launch, which may be more than the 48 KiB that all static arrays share.
    """

    name: str
    dtype: DType
    size: int
    space: Literal["register", "shared"]
    dynamic: bool = False


@dataclass(frozen=True)
class Special:
    """`var = thread index / block index` (i32)."""

    var: Var
    name: SpecialName


@dataclass(frozen=True)
class Barrier:
    """All threads of the block meet; earlier shared and global writes become visible within the block."""


@dataclass(frozen=True)
class Shuffle:
    """`var = value` of lane `lane ^ xor` within the warp; all 32 lanes of a warp take part."""

    var: Var
    value: Operand
    xor: int


@dataclass(frozen=True)
class Collective:
    """Combine `state` (mutable variables, one tuple a thread) over a team of threads; every thread gets the result.

    Teams are `width` consecutive threads (a power of two; the block size is a multiple). `reduction` names the
    row whose `combine` is used; `operand` is the dtype of its elements. Order: pairwise from the low bits of the thread
    number up, exactly as `fuser.order` fixes it (lane l takes lane l+1, then l+2, ...). All threads of the block take
    part, and meet as at a barrier where a team is more than a warp. With `stride` s, team members are s threads apart
    (thread = member * s + position): column reductions. Several tuples are of as many groups of members (a power of
    two; stride 1), `group * width + thread` the number of each: the first tuple is given the result.
    """

    reduction: str
    operand: DType
    state: tuple[Var, ...]
    width: int
    stride: int = 1


@dataclass(frozen=True)
class Ticket:
    """`var = old value` of an atomic counter that wraps to 0 after `limit` (i32): counter[index] = old == limit ? 0 :
    old + 1.

    Taken by every thread that executes it; schedules guard it to one thread. What that thread did before, and what its
    block did before its last barrier, is handed on to whoever takes a later ticket of that counter, and to that one's
    block behind a barrier. Not so where `ordered` is false: such tickets only number blocks.
    """

    var: Var
    buffer: str
    index: Operand
    limit: Operand
    ordered: bool = True


@dataclass(frozen=True)
class AsyncCopy:
    """`target[index : +width] = buffer[place : +width]` from global to shared memory, under way from here on.

    4, 8 or 16 bytes, both places multiples of them; none where `mask` is false. Until an AsyncWait names its group,
    nobody reads or writes the target; then the thread that copied sees it, others behind a barrier.
    """

    target: str
    index: Operand
    buffer: str
    place: Operand
    width: int
    mask: Operand | None = None
    predicated: bool = False  # no branch around it: many copies then share steps of their addresses


@dataclass(frozen=True)
class Prefetch:
    """The 128-byte line of `buffer[index]` is asked to come into the L2. No memory changes, and nobody waits."""

    buffer: str
    index: Operand
    mask: Operand | None = None


@dataclass(frozen=True)
class AsyncCommit:
    """This thread's copies since its last commit become a group (which may be empty)."""


@dataclass(frozen=True)
class AsyncWait:
    """This thread waits for all of its groups but the last `pending`."""

    pending: int


@dataclass(frozen=True)
class ClusterArrive:
    """All threads of the block say that it runs and that its mailboxes are open; nothing else is ordered by it."""


@dataclass(frozen=True)
class ClusterWait:
    """All threads of the block wait until every block of the cluster has arrived."""


@dataclass(frozen=True)
class Mailbox:
    """The block opens a mailbox for one delivery of `size` bytes, before it arrives at its cluster."""

    name: str
    size: int


@dataclass(frozen=True)
class Send:
    """`buffer[index] = value` in the shared memory of the cluster's block number `rank` (i32), through its mailbox
    `box`, where `mask` holds. Values have 4 or 8 bytes.

    Only behind a ClusterWait: until then the other block may not have started.
    """

    buffer: str
    index: Operand
    value: Operand
    rank: Operand
    box: str
    mask: Operand | None = None


@dataclass(frozen=True)
class Receive:
    """All threads of the block wait until everything that its mailbox `box` expects is there, and see it."""

    box: str


@dataclass(frozen=True)
class Publish:
    """Hands `value` to whoever awaits `buffer[index]`; once for each index. `buffer` has role "flags" or "slots": each
    index takes `flag_words(dtype)` of its words, and value and flag are in one word, so neither is ever seen without
    the other."""

    buffer: str
    index: Operand
    value: Operand
    mask: Operand | None = None


@dataclass(frozen=True)
class Await:
    """`var` is the value published at `buffer[index]`, waited for where `mask` holds; elsewhere it is 0. Of slots each
    is awaited once in a launch, by one thread, which leaves it as it was before.

    Only from blocks that drew an earlier number from a ticket, and which they publish before they wait for this
    block: the interpreter runs blocks in that order, in lock step, and takes a value not yet there for a deadlock.
    """

    var: Var
    buffer: str
    index: Operand
    mask: Operand | None = None


Statement = (
    Let | Mutable | Assign | Load | Store | LoadVec | StoreVec | For | If | Alloc
    | Special | Barrier | Shuffle | Collective | Ticket
    | AsyncCopy | AsyncCommit | AsyncWait | Prefetch
    | ClusterArrive | ClusterWait | Mailbox | Send | Receive | Publish | Await
)  # fmt: skip
SIMT_ONLY = (
    Special, Barrier, Shuffle, Collective, Ticket, AsyncCopy, AsyncCommit, AsyncWait, ClusterArrive, ClusterWait,
    Mailbox, Send, Receive, Publish, Await, Prefetch,
)  # fmt: skip

BufferRole = Literal["in", "out", "inout", "workspace", "counter", "flags", "slots"]


@dataclass(frozen=True)
class BufferParam:
    """A global array. node: the graph node it holds (None for workspace). size: elements the kernel may touch.

    A `counter` buffer is i32 zeros at every launch and left zero. `flags` are i64 zeros at every launch, left as they
    may be. A `workspace` is uninitialised.
    """

    name: str
    dtype: DType
    role: BufferRole
    node: int | None
    size: Dim


@dataclass(frozen=True)
class ScalarParam:
    """A scalar argument: the host evaluates `expr` and converts it to `dtype`."""

    name: str
    dtype: DType
    expr: HostExpr

    @property
    def var(self) -> Var:
        return Var(self.name, self.dtype)


@dataclass(frozen=True)
class Launch:
    """Grid (host expressions) and block; `min_blocks` is the occupancy that `__launch_bounds__` promises. CPU kernels
    use `grid[0]` as the trip count of their parallel loop and `grain` as the least number of iterations a task.
    cluster: neighbouring blocks in x that run together and reach each other's shared memory; divides `grid[0]`."""

    grid: tuple[Dim, Dim]
    block: int
    min_blocks: int = 1
    grain: int = 1
    cluster: int = 1


@dataclass(frozen=True)
class Kernel:
    """One kernel: parameters in ABI order (buffers, then scalars), body, launch formula."""

    name: str
    target: Literal["cuda", "cpu"]
    buffers: tuple[BufferParam, ...]
    scalars: tuple[ScalarParam, ...]
    body: tuple[Statement, ...]
    launch: Launch
    places: tuple[tuple[str, str, int], ...] = ()  # (variable, file, line): where the program computes it, if asked for
    guarded: bool = False  # bound by arithmetic: its exact divisions share tests (`guards`)


def children(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks inside a statement."""
    return (s.body,) if isinstance(s, For) else (s.then, s.orelse) if isinstance(s, If) else ()


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, outer before inner, in program order; iterative."""
    stack = list(reversed(body))
    while stack:
        s = stack.pop()
        yield s
        for block in reversed(children(s)):
            stack.extend(reversed(block))
