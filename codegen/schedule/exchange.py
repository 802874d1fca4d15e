"""Column teams fold through shared memory: all lanes of all reductions at once, two barriers.

In: for each reduction, one state a column that a thread holds. Out: the states folded over the row lanes, in every
thread. Its own file because it is the one place where a schedule writes shared memory itself: a `Collective` a column
would cost two barriers and a scratch array each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Protocol

from fuser.codegen.expand_collectives import commutes
from fuser.codegen.loops import WARP, Operand
from fuser.codegen.schedule.accumulate import Fold, State
from fuser.codegen.schedule.frame import Frame
from fuser.dtypes import BOOL, DType

Part = tuple[Fold, list[State]]
FEW_BLOCKS = 8  # that share a tile: the mail of more takes the room of other exchanges
SHARED_LIMIT = 40 << 10  # bytes of scratch a block: static shared memory ends at 48 KiB


def bytes_needed(states: Sequence[Sequence[DType]], points: int) -> int:
    """Scratch of reductions that are folded together. points: columns times row lanes of a block."""
    return sum(t.bytes for state in states for t in state) * points


def near_members(across: int, cluster: int) -> int:
    """Neighbouring members of a team, of one warp with so many threads side by side, that fold by shuffles first: where
    the mail of a large cluster leaves no room for a place each."""
    return max(WARP // across, 1) if cluster > FEW_BLOCKS else 1


class Far(Protocol):
    """Blocks that share a column: each sends what it has folded of a part's lane to all, and folds what came."""

    def send(self, part: int, lane: Operand, total: State) -> None: ...

    def receive(self) -> None: ...

    def folded(self, part: int, lane: Operand) -> State: ...


class Exchange:
    """Scratch of [member, lane, column thread] for every state component; it is reused from fold to fold."""

    def __init__(self, frame: Frame, column: Operand, across: int, team: int, width: int, near: int = 1) -> None:
        """near: neighbouring members, of one warp, whose states meet by shuffles first."""
        self.frame, self.column = frame, column
        self.across, self.team, self.width, self.near = across, team, width, near
        self._arrays: dict[DType, list[str]] = {}

    def reserve(self, groups: Sequence[Sequence[Fold]]) -> None:
        """Allocates what the largest of these sets of folds needs; called once, before any loop."""
        for folds in groups:
            wanted = [t for fold in folds for t in fold.dtypes]
            for t in dict.fromkeys(wanted):
                arrays = self._arrays.setdefault(t, [])
                while len(arrays) < wanted.count(t):
                    size = self.team // self.near * self.width * self.across
                    arrays.append(self.frame.builder.alloc("exchange", t, size, "shared"))

    def fold(self, parts: Sequence[Part], member: Operand, width: int, far: Far | None = None) -> list[list[State]]:
        """The states of members 0 .. width - 1 (a power of two) combined pairwise, for every column; with those of
        other blocks, if `far` brings them."""
        f, b = self.frame, self.frame.builder
        arrays = self._assign(parts)
        place, first = member, None
        if self.near > 1:
            near = min(self.near, width)
            parts = [(fold, [self._shuffled(fold, state, near, member) for state in states]) for fold, states in parts]
            place, width = f.div(member, self.near), width // near
            first = b.apply("equal", (f.rem(member, self.near), f.number(0)), BOOL)
        b.barrier()  # whoever read the scratch before is done
        with nullcontext() if first is None else b.branch(first):
            for (_, states), names in zip(parts, arrays, strict=True):
                for lane, state in enumerate(states):
                    self._put(names, place, lane, state)
        b.barrier()
        folds = [fold for fold, _ in parts]
        if far is None:
            self._each(
                member, len(parts), lambda k, at: self._leave(arrays[k], at, self._tree(folds[k], arrays[k], at, width))
            )
        else:
            self._each(member, len(parts), lambda k, at: far.send(k, at, self._tree(folds[k], arrays[k], at, width)))
            far.receive()
            self._each(member, len(parts), lambda k, at: self._leave(arrays[k], at, far.folded(k, at)))
        b.barrier()
        zero = f.number(0)
        return [[self._get(names, zero, f.number(lane)) for lane in range(self.width)] for names in arrays]

    def _shuffled(self, fold: Fold, state: State, near: int, member: Operand) -> State:
        """The states of `near` neighbouring members folded pairwise, in each of them."""
        f, b, bit = self.frame, self.frame.builder, 1
        while bit < near:
            other: State = tuple(b.shuffle(v, bit * self.across) for v in state)
            both = fold.combine(b, state, other)
            if not commutes(fold.row, list(state)):
                low_bit = b.apply("bitwise_and", (member, f.number(bit)), f.index)
                upper = b.apply("not_equal", (low_bit, f.number(0)), BOOL)
                swapped = fold.combine(b, other, state)
                both = tuple(b.apply("where", (upper, x, y), x.dtype) for x, y in zip(swapped, both, strict=True))
            state, bit = both, bit * 2
        return state

    def _assign(self, parts: Sequence[Part]) -> list[list[str]]:
        """Arrays for each part's components."""
        free = {t: iter(names) for t, names in self._arrays.items()}
        return [[next(free[t]) for t in fold.dtypes] for fold, _ in parts]

    def _each(self, member: Operand, parts: int, work: Callable[[int, Operand], None]) -> None:
        """Some work on every part and lane of a column thread: member m does it for lanes m, m + team, ..."""
        f = self.frame
        for lane in range(0, self.width, self.team):
            mine = f.add(member, lane)
            whole = lane + self.team <= self.width
            with nullcontext() if whole else f.builder.branch(f.less(mine, self.width)):
                for k in range(parts):
                    work(k, mine)

    def _tree(self, fold: Fold, names: Sequence[str], lane: Operand, width: int) -> State:
        """A lane's states of the first members, folded."""
        return fold.tree(self.frame.builder, [self._get(names, self.frame.number(m), lane) for m in range(width)])

    def _leave(self, names: Sequence[str], lane: Operand, total: State) -> None:
        """A result, in member 0's place."""
        for name, value in zip(names, total, strict=True):
            self.frame.builder.store(name, self._at(self.frame.number(0), lane), value)

    def _put(self, names: Sequence[str], member: Operand, lane: int, state: State) -> None:
        for name, value in zip(names, state, strict=True):
            self.frame.builder.store(name, self._at(member, self.frame.number(lane)), value)

    def _get(self, names: Sequence[str], member: Operand, lane: Operand) -> State:
        return tuple(self.frame.builder.load(name, self._at(member, lane)) for name in names)

    def _at(self, member: Operand, lane: Operand) -> Operand:
        """Neighbouring threads use neighbouring words: no bank is met twice."""
        f = self.frame
        return f.add(f.mul(f.add(f.mul(member, self.width), lane), self.across), self.column)
