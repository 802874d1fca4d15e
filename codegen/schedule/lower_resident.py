"""Resident rows on CUDA: a thread keeps its part of a row's raw inputs in registers from stage to stage.

In: a body whose stages read the same elements more than once, a row schedule with a capacity. Out: one kernel that
reads each of those elements once. Its loops are unrolled, because registers have no addresses: a *slot* is one tile of the
row that a thread holds. Raw (packed) elements are kept, not what is computed from them: a bf16 row takes half the registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from fuser.codegen.evaluate import Fetch, Program
from fuser.codegen.indices import GATHERED
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.schedule.accumulate import Fold, start
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_reduce import Pass, Stages, Totals
from fuser.codegen.schedule.tile import Lanes, Tile
from fuser.schedule import CudaSchedule


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of row reductions over resident rows."""
    writer = ResidentStages(frame, body, schedule, RowTeams(frame, body, schedule))
    writer.hold()
    for stage in body.stages:
        writer.stage(stage)
    return frame.builder.finish(Launch((RowTeams.grid(body, schedule), 1), schedule.threads, schedule.min_blocks))


def shared_fetches(body: Body) -> tuple[Fetch, ...]:
    """Loads along the row that more than one stage makes."""
    reduced = frozenset(a.name for a in body.reduced)
    counts: Counter[Fetch] = Counter()
    for stage in body.stages:
        counts.update({stage.loop.fetch(k) for k in _along(stage.loop, reduced)})
    return tuple(f for f, times in counts.items() if times > 1)


def _along(program: Program, reduced: frozenset[str]) -> list[int]:
    """Fetches whose address depends on the row's variables, and on no gathered value."""
    return [
        k
        for k in program.fetches
        if not program.symbols(k).isdisjoint(reduced) and not any(s.startswith(GATHERED) for s in program.symbols(k))
    ]


@dataclass(frozen=True)
class Slot:
    """A tile of the row in one thread. certain: it exists in every row that the kernel is valid for."""

    turn: int
    group: int
    position: Operand
    stop: Operand
    certain: bool


class ResidentStages(Stages):
    """Stages over unrolled slots."""

    def hold(self) -> None:
        """Loads what several stages read, all at once."""
        self.slots = self._slots()
        wanted = shared_fetches(self.body)
        self.held: list[dict[Fetch, tuple[Operand, ...]]] = [{} for _ in self.slots]
        for slot, held in zip(self.slots, self.held, strict=True):
            lanes = self.geometry.lanes(slot.position)
            for stage in self.body.stages:
                tile = self.tile(stage.loop)
                for k in tile.program.fetches:
                    fetch = tile.program.fetch(k)
                    if fetch in wanted and fetch not in held:
                        held[fetch] = self._load(tile, k, slot, lanes)

    def _load(self, tile: Tile, step: int, slot: Slot, lanes: Lanes) -> tuple[Operand, ...]:
        f, valid = self.frame, self.geometry.valid
        if not self.element_guards:
            exists = None if slot.certain else f.less(slot.position, slot.stop)
            return tile.load_step(step, lanes, f.masked(exists, valid))
        single = replace(tile, width=1, along=None)
        out: list[Operand] = []
        for j, at in enumerate(lanes):
            exists = None if slot.certain else f.less(f.add(slot.position, j), slot.stop)
            out += single.load_step(step, [at], f.masked(exists, valid))
        return tuple(out)

    def _slots(self) -> list[Slot]:
        f, s = self.frame, self.schedule
        share, found = s.capacity // self.segments, []
        surely = s.capacity // 2 if self.segments == 1 else 0  # every valid row is longer
        for turn in range(self.segments):
            first, stop = f.number(0), f.host(self.body.length)
            if self.segments > 1:
                first, stop = self.bounds(f.number(turn))
            for base in range(0, max(share, 1), self.lanes):
                for group, position in enumerate(self.geometry.positions(f.add(first, base))):
                    found.append(Slot(turn, group, position, stop, base + self.lanes <= surely))
        return found

    # -- loops -------------------------------------------------------------------------------------
    def totals(self, p: Pass, folds: Sequence[Fold]) -> Totals:
        """All segments, their partials combined pairwise."""
        b, partials = self.frame.builder, []
        for turn in range(self.segments):
            accumulators = tuple(start(b, fold, self.geometry.groups * self.geometry.width) for fold in folds)
            one = replace(p, accumulators=accumulators)
            for slot, held in zip(self.slots, self.held, strict=True):
                if slot.turn == turn:
                    self._slot(one, slot, held)
            partials.append(self.geometry.fold(accumulators))
        return [
            (fold, [fold.tree(b, [turn[k][0] for turn in partials])]) for k, fold in enumerate(folds)
        ]

    def _slot(self, p: Pass, slot: Slot, held: dict[Fetch, tuple[Operand, ...]]) -> None:
        f, g = self.frame, self.geometry
        have = {k: held[x] for k in p.tile.program.fetches if (x := p.tile.program.fetch(k)) in held}
        lanes = g.lanes(slot.position)
        if slot.certain or not self.element_guards:
            exists = None if slot.certain else f.less(slot.position, slot.stop)
            guard = f.masked(exists, g.valid)
            with nullcontext() if guard is None else f.builder.branch(guard):
                self._evaluate(p, slot.group, slot.position, lanes, p.tile.load(lanes, have))
            return
        for j, at in enumerate(lanes):
            position = f.add(slot.position, j)
            guard = f.both(f.less(position, slot.stop), g.valid)
            with f.builder.branch(guard):
                mine = {k: (v[j],) for k, v in have.items()}
                self._element(p, slot.group * g.width + j, position, at, p.single.load([at], mine))
