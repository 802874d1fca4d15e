"""Lanes change threads: a thread's partials that lie far apart become neighbours in one thread.

In: one state a group that a thread of a row team holds (lanes `group * team + member`, counted in tiles). Out: the
state of as many neighbouring tiles, `member * groups + k`, folded. Its own file because rows whose elements cannot be
taken as vectors have many groups a thread: a collective for each would cost as much as the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.codegen.loops import WARP, Operand, Var
from fuser.codegen.schedule.accumulate import Fold
from fuser.codegen.schedule.exchange import bytes_needed
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.scopes import fold_together
from fuser.dtypes import DType

LEAST_GROUPS = 4  # below, shuffles of every group behind one barrier cost less than a second barrier
MOST_BYTES = 32 << 10  # of scratch a block
VECTOR_BYTES = 16


class Regroup:
    """Scratch of [team, group, member] for every state component; it is reused from fold to fold.

    Whoever reads it meets a barrier before it is written again: the collective over the team that follows has one.
    """

    def __init__(
        self, frame: Frame, member: Operand, team: int, groups: int, threads: int, joined: Callable[[Fold], bool]
    ) -> None:
        """joined: whether a thread has one state of a reduction for all its groups, so that none is left to fold."""
        self.frame, self.groups, self.team, self.threads, self.joined = frame, groups, team, threads, joined
        self.base = frame.mul(frame.div(frame.thread(), team), groups * team)
        self.member = member
        self._arrays: dict[DType, list[str]] = {}

    def suits(self, folds: Sequence[Fold]) -> bool:
        """Whether these reductions are folded together this way."""
        if (
            not folds
            or self.groups < LEAST_GROUPS
            or self.team <= WARP
            or any(f.row.uses_index or self.joined(f) for f in folds)
        ):
            return False
        if fold_together(self.groups, self.team):
            return False  # one collective takes all groups
        return bytes_needed([f.dtypes for f in folds], self.threads * self.groups) <= MOST_BYTES

    def split(self, folds: Sequence[Fold]) -> list[list[int]]:
        """Which of a stage's reductions (by number) are folded at once: those that suit where there is room for all of
        them, else one by one; then the others."""
        fit = [k for k, fold in enumerate(folds) if self.suits([fold])]
        parts = [fit] if self.suits([folds[k] for k in fit]) else [[k] for k in fit]
        return [p for p in (*parts, [k for k in range(len(folds)) if k not in fit]) if p]

    def reserve(self, sets: Sequence[Sequence[Fold]]) -> None:
        """Allocates what the largest of these sets of folds needs; called once, before any loop."""
        parts = [[folds[k] for k in some] for folds in sets for some in self.split(folds)]
        for folds in filter(self.suits, parts):
            wanted = [t for fold in folds for t in fold.dtypes]
            for t in dict.fromkeys(wanted):
                arrays = self._arrays.setdefault(t, [])
                while len(arrays) < wanted.count(t):
                    size = self.threads * self.groups
                    arrays.append(self.frame.builder.alloc("partials", t, size, "shared"))

    def neighbours(self, parts: Sequence[tuple[Fold, Sequence[tuple[Var, ...]]]]) -> list[tuple[Var, ...]]:
        """For each reduction the fold of `groups` neighbouring tiles."""
        f, b = self.frame, self.frame.builder
        free = {t: iter(names) for t, names in self._arrays.items()}
        places = [[next(free[t]) for t in fold.dtypes] for fold, _ in parts]
        for (_, states), names in zip(parts, places, strict=True):
            for g, state in enumerate(states):
                at = f.add(f.add(self.base, self.member), g * self.team)
                for name, value in zip(names, state, strict=True):
                    b.store(name, at, value)
        b.barrier()
        first = f.add(self.base, f.mul(self.member, self.groups))
        found = []
        for (fold, _), names in zip(parts, places, strict=True):
            columns = [self._read(name, first, t) for name, t in zip(names, fold.dtypes, strict=True)]
            folded = fold.tree(b, list(zip(*columns, strict=True)))
            found.append(fold.declare(b, fold.row.name, folded))
        return found

    def _read(self, name: str, first: Operand, dtype: DType) -> list[Operand]:
        step, out = min(VECTOR_BYTES // dtype.bytes, self.groups), list[Operand]()
        for k in range(0, self.groups, step):
            out += self.frame.builder.load_vec(name, self.frame.add(first, k), step)
        return out
