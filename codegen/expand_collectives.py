"""Collectives as shuffles within a warp and shared memory across warps.

In: a `Collective`, the builder to write into. Out: statements after which every member of a team holds the same
bits, combined pairwise from the low bits of the member number up, the lower member always as the first operand;
and the shared arrays they use. Partials of warps are combined one a lane by shuffles, never by a loop in each thread
(that costs a row kernel 10-40%).

A team of consecutive threads up to a warp: xor shuffles. A longer one: a shuffle tree in each warp, one partial a
warp in shared memory, then the same tree over the partials in every warp. Several groups of a team share their
shuffles: in each of the first ones a thread hands half of its groups to its neighbour, until it has one, and the last
tree runs over the partials of all groups. A team with a stride that does not fit a
warp: the state is transposed through shared memory so that teams become consecutive, and the results are read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.codegen.loops import WARP, Alloc, Collective, Operand
from fuser.dtypes import DType
from fuser.optable import table as default_table
from fuser.optable.base import Reduction, S, Table
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.codegen.expand import RowEmitter

State = list[Operand]


def expand_collectives(
    out: RowEmitter, run: Sequence[Collective], table: Table, threads: int, in_loop: bool
) -> list[Alloc]:
    """Writes neighbouring collectives; gives the shared arrays they need. in_loop: they may run again, so scratch is
    reused. Those of one width that cross warps share one barrier."""
    arrays: list[Alloc] = []
    at = 0
    while at < len(run):
        together = [run[at]]
        while at + len(together) < len(run) and _shares_barrier(together, run[at + len(together)]):
            together.append(run[at + len(together)])
        if len(together) > 1:
            arrays += _at_once(out, together, table, threads, in_loop)
        else:
            arrays += _one(out, run[at], table, threads, in_loop)
        at += len(together)
    return arrays


def _shares_barrier(before: Sequence[Collective], s: Collective) -> bool:
    crosses = s.stride == 1 and s.width > WARP and (s.width, s.stride) == (before[0].width, before[0].stride)
    return crosses and {v.name for b in before for v in b.state}.isdisjoint(v.name for v in s.state)


def _at_once(out: RowEmitter, run: Sequence[Collective], table: Table, threads: int, in_loop: bool) -> list[Alloc]:
    """Collectives of one width over disjoint states: every warp's part, one barrier, the parts of all warps."""
    works = [_team(out, s, table, threads) for s in run]
    places = []
    if in_loop:
        out.barrier()
    for work, s in zip(works, run, strict=True):
        out.hint = s.state[0].name
        places.append(work.begin(list(s.state), s.width))
    out.barrier()
    for work, s, scratch in zip(works, run, places, strict=True):
        out.hint = s.state[0].name
        _assign(out, s, work.end(scratch, s.width, work.groups(s.state)))
    return [a for work in works for a in work.arrays]


def _one(out: RowEmitter, s: Collective, table: Table, threads: int, in_loop: bool) -> list[Alloc]:
    out.hint = s.state[0].name
    work = _team(out, s, table, threads)
    state: State = list(s.state)
    shuffles_suffice = s.width * s.stride <= WARP and work.groups(state) == 1 and s.stride & (s.stride - 1) == 0
    if in_loop and not shuffles_suffice:
        out.barrier()  # the readers of the round before are done with the scratch
    if shuffles_suffice:
        done = work.within_warp(state, s.width, s.stride)
    elif s.stride == 1:
        done = work.consecutive(state, s.width, work.groups(state))
    else:
        done = work.transposed(state, s.width, s.stride)
    _assign(out, s, done)
    return work.arrays


def _assign(out: RowEmitter, s: Collective, done: State) -> None:
    """A combiner may hand a component on as it is: those are saved before the assignments change them."""
    saved = [out.mutable(out.hint, v) if v in s.state else v for v in done]
    for var, value in zip(s.state[: len(done)], saved, strict=True):
        out.assign(var, value)


def _team(out: RowEmitter, s: Collective, table: Table, threads: int) -> _Team:
    row = table.reduction(s.reduction)
    return _Team(out, row, threads, len(row.state(s.operand)), [])


@dataclass
class _Team:
    out: RowEmitter
    row: Reduction
    threads: int
    size: int  # components of a state
    arrays: list[Alloc]

    def groups(self, state: Sequence[Operand]) -> int:
        """Groups of members that a thread has one of each of."""
        return len(state) // self.size

    def consecutive(self, state: State, width: int, groups: int = 1) -> State:
        """Teams of `width` neighbouring threads, and of so many groups of them."""
        if width <= WARP and groups == 1:
            return self.within_warp(state, width, 1)
        scratch = self.begin(state, width)
        self.out.barrier()
        return self.end(scratch, width, groups)

    def begin(self, state: State, width: int) -> list[str]:
        """Every warp's part (of each group), on its way through shared memory: [team, group, warp of the team]."""
        groups, thread = self.groups(state), self.thread
        lane, warp = thread & (WARP - 1), thread >> _log2(WARP)
        partial = self.shared_out(state) if groups > 1 else self.within_warp(state, WARP, 1)
        scratch = self.scratch(partial, self.threads // WARP * groups)
        if groups > 1:
            warps = width // WARP
            place = (warp >> _log2(warps)) * (groups * warps) + (lane * warps + (warp & (warps - 1)))
            with self.out.branch((lane < groups).value):
                self.put(scratch, place, partial)
            return scratch
        with self.out.branch(lane.eq(0).value):
            self.put(scratch, warp, partial)
        return scratch

    def end(self, scratch: list[str], width: int, groups: int = 1) -> State:
        """The parts of a team's warps combined, behind a barrier."""
        parts, thread = width // WARP * groups, self.thread
        first = (thread >> _log2(width)) * parts
        return self.within_warp(self.get(scratch, first + (thread & (parts - 1))), parts, 1)

    def shared_out(self, state: State) -> State:
        """A warp's fold of each group: that of group g in the lanes whose lowest bits are g."""
        states = [state[k : k + self.size] for k in range(0, len(state), self.size)]
        bit = 1
        while len(states) > 1:
            odd = (self.thread & bit).ne(0)
            pairs = zip(states[::2], states[1::2], strict=True)
            states = [self.half(even, other, bit, odd) for even, other in pairs]
            bit *= 2
        return self.within_warp(states[0], WARP // bit, bit)

    def half(self, even: State, odd: State, lane_bit: int, is_odd: S) -> State:
        """Of two groups, the one that this lane goes on with, and what its neighbour had of that group."""
        handles = [(self.out.handle(a), self.out.handle(b)) for a, b in zip(even, odd, strict=True)]
        mine = [is_odd.where(b, a) for a, b in handles]
        given = [is_odd.where(a, b).value for a, b in handles]
        return self.pairwise([m.value for m in mine], given, lane_bit, is_odd)

    def within_warp(self, state: State, width: int, stride: int) -> State:
        """Members `stride` lanes apart in one warp."""
        for k in range(_log2(width)):
            state = self.pairwise(state, state, stride << k, None)
        return state

    def pairwise(self, state: State, given: State, lane_bit: int, upper_half: S | None) -> State:
        """The state combined with what the other lane of a pair gives: both compute combine(lower, upper)."""
        theirs = [self.out.shuffle(v, lane_bit, f"{self.out.hint}_other") for v in given]
        pairs = [(self.out.handle(a), self.out.handle(b)) for a, b in zip(state, theirs, strict=True)]
        if commutes(self.row, state):
            return [s.value for s in self.row.combine(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))]
        upper_half = (self.thread & lane_bit).ne(0) if upper_half is None else upper_half
        lower = tuple(upper_half.where(b, a) for a, b in pairs)
        upper = tuple(upper_half.where(a, b) for a, b in pairs)
        return [s.value for s in self.row.combine(lower, upper)]

    def transposed(self, state: State, width: int, stride: int) -> State:
        """Thread `member * stride + position` of a group hands its state to thread `position * width + member`."""
        group, rank = self.divide(self.thread, width * stride)
        member, position = self.divide(rank, stride)
        pitch = width + 1  # odd, so that writing along positions meets no bank twice
        scratch = self.scratch(state, self.threads // width * pitch)
        base = group * (stride * pitch)
        self.put(scratch, base + position * pitch + member, state)
        self.out.barrier()
        row, column = self.divide(rank, width)
        total = self.consecutive(self.get(scratch, base + row * pitch + column), width)
        result = self.scratch(total, self.threads // width)
        with self.out.branch(column.eq(0).value):
            self.put(result, group * stride + row, total)
        self.out.barrier()
        return self.get(result, group * stride + position)

    # -- parts -------------------------------------------------------------------------------------
    @property
    def thread(self) -> S:
        return self.out.handle(self.out.special("thread"))

    @staticmethod
    def divide(x: S, by: int) -> tuple[S, S]:
        """(x // by, x % by) of a non-negative x."""
        if by & (by - 1) == 0:
            return x >> _log2(by), x & (by - 1)
        return x.op("trunc_div", by), x.op("trunc_rem", by)

    def scratch(self, like: State, size: int) -> list[str]:
        """A shared array for each component."""
        names = []
        for v in like:
            alloc = Alloc(self.out.fresh(f"{self.out.hint}_shared"), v.dtype, size, "shared")
            self.arrays.append(alloc)
            self.out.declare_array(alloc.name, alloc.dtype)
            names.append(alloc.name)
        return names

    def put(self, arrays: list[str], at: S, state: State) -> None:
        for name, v in zip(arrays, state, strict=True):
            self.out.store(name, at.value, v)

    def get(self, arrays: list[str], at: S) -> State:
        return [self.out.load(name, at.value, name=f"{self.out.hint}_part") for name in arrays]


class _Recorder:
    """An `Emit` that writes down what a combiner does: values are names, results are (operator, operands)."""

    def apply(self, op: str, args: Sequence[Any], dtype: DType) -> Any:
        return (op, *args)

    def literal(self, value: float | int | bool, dtype: DType) -> Any:
        return value


def commutes(row: Reduction, state: State) -> bool:
    """Whether combine(a, b) is combine(b, a), bit for bit: the row says so, or each component is one such operator."""
    if row.symmetric:
        return True
    recorder = _Recorder()
    a, b = (tuple(S(recorder, (side, k), v.dtype) for k, v in enumerate(state)) for side in "ab")
    return all(
        isinstance(s.value, tuple)
        and s.dtype.kind in default_table().scalar(s.value[0]).commutes
        and s.value[1:] == (("a", k), ("b", k))
        for k, s in enumerate(row.combine(a, b))
    )


def _log2(n: int) -> int:
    return n.bit_length() - 1
