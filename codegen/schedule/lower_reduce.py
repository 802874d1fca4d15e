"""Reductions on CUDA: stages over rows or columns, every one in the fixed order.

In: a body with reduced axes, a schedule, a geometry (which thread holds what). Out: one kernel. A stage is a loop of
full rounds without predicates (`unroll` in flight), a loop of guarded rounds, folds over lanes, team and segments, and
what is stored once a parallel point. A stage re-reads the rows unless the schedule says `resident`: then raw inputs
that several stages read stay in registers, and the loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from fuser.codegen.evaluate import Lane
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.program import Fetch, Program
from fuser.codegen.schedule.accumulate import Accumulator, Carry, Fold, Halves, State, folds_of, start
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import ColumnTeams, Geometry, RowTeams
from fuser.codegen.schedule.tile import Loads, Tile, Values
from fuser.dtypes import I64
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

REST_STEPS = 1024  # steps times lanes up to which the last rounds of a share are written out
Totals = list[tuple[Fold, list[State]]]  # each fold's state a result lane


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of row or column reductions whose blocks hold whole rows or columns."""
    kind: type[RowTeams] | type[ColumnTeams] = RowTeams if schedule.kind == "rows" else ColumnTeams
    writer = Stages(frame, body, schedule, kind(frame, body, schedule))
    for stage in body.stages:
        writer.stage(stage)
    grid = kind.grid(body, schedule)
    return frame.builder.finish(Launch((grid, 1), schedule.threads, schedule.min_blocks))


@dataclass(frozen=True)
class Pass:
    """What the rounds of a stage need: its tile, single-lane tile, values from outside the loop, accumulators."""

    stage: StageBody
    tile: Tile
    single: Tile
    known: Sequence[Values]
    accumulators: tuple[Accumulator, ...] = ()
    halves: tuple[tuple[Halves, Fetch], ...] = ()  # of the loads that they take elements of


def segments_at_once(schedule: CudaSchedule) -> int:
    """Segments that a team folds together: columns have threads for several."""
    return max(schedule.threads_per_row // schedule.order.lanes, 1)


class Stages:
    """Writes stages one after another; `results` holds what earlier stages finished, one mapping a result lane."""

    def __init__(self, frame: Frame, body: Body, schedule: CudaSchedule, geometry: Geometry) -> None:
        self.frame, self.body, self.schedule, self.geometry = frame, body, schedule, geometry
        self.lanes, self.segments = schedule.order.lanes, schedule.order.segments
        self.at_once = segments_at_once(schedule)
        self.results: list[dict[tuple[int, int], Operand]] = [{} for _ in geometry.lane_rows()]
        self.early: dict[StageBody, Values] = {}  # of a stage's row program: what was loaded before all stages
        self.reduced = frozenset(a.name for a in body.reduced)
        geometry.reserve([folds_of(frame.graph, stage.reduces) for stage in body.stages])

    # -- stages ------------------------------------------------------------------------------------
    def stage(self, stage: StageBody) -> None:
        """One pass over the reduced axes, then its per-row stores."""
        if stage.has_loop:
            p = self.prepare(stage)
            folds = folds_of(self.frame.graph, stage.reduces)
            self.finish(self.totals(p, folds))
        self.row_stores(stage)

    def prepare(self, stage: StageBody) -> Pass:
        """Values that do not change over the loop, computed before it."""
        tile = self.tile(stage.loop)
        single = tile if tile.width == 1 else replace(tile, along=None, width=1)
        return Pass(stage, tile, single, self._outside(stage.loop, tile.outside))

    def tile(self, program: Program) -> Tile:
        """A tile of a stage's program as the geometry lays it out."""
        g = self.geometry
        outside = [not d for d in program.dependent(self.reduced)]
        names = self.reduced if g.folds_tile and not g.neighbours else frozenset({g.variable})
        along = g.variable if g.neighbours else None
        return Tile(self.frame, program, names, along, g.width, not g.folds_tile, outside)

    def _outside(self, program: Program, outside: Sequence[bool]) -> list[Values]:
        lane = Lane(program, self.frame.builder, self.frame.loader(program, self.geometry.valid))
        return [
            lane.run(at.bound(), results, only=outside)
            for at, results in zip(self.geometry.lane_rows(), self.results, strict=True)
        ]

    def finish(self, totals: Totals) -> None:
        """Results of the stage's reductions become readable."""
        b = self.frame.builder
        for fold, states in totals:
            for results, state in zip(self.results, states, strict=True):
                values = fold.finish(b, state, b.scalar(self.body.length, I64))
                results.update(((fold.site.node, k), v) for k, v in enumerate(values))

    def row_stores(self, stage: StageBody) -> None:
        """What is stored once a parallel point, by the team's leader."""
        if not stage.row_stores:
            return
        g, known = self.geometry, self.early.get(stage, {})
        rows, tile = g.lane_rows(), self.row_tile(stage)
        if known:
            needed = stage.row.needed([s.step for s in stage.row_stores], known)
            tile = replace(tile, only=[n and k not in known for k, n in enumerate(needed)])
        with self.frame.builder.branch(g.leader):
            loads = tile.load(rows)
            values: list[Values] = []
            for j, (at, results) in enumerate(zip(rows, self.results, strict=True)):
                values.append(tile.evaluate(j, at, loads, results, known, values[0] if values else None))
            tile.store(stage.row_stores, rows, values)

    def row_tile(self, stage: StageBody) -> Tile:
        """What is evaluated once a parallel point."""
        g = self.geometry
        return Tile(self.frame, stage.row, frozenset({g.variable}), g.variable, len(self.results), not g.folds_tile)

    # -- loops -------------------------------------------------------------------------------------
    def totals(self, p: Pass, folds: Sequence[Fold]) -> Totals:
        """The whole reduced range: segments in turn, their partials combined pairwise."""
        n = self.frame.host(self.body.length)
        if self.segments == 1 or (not folds and self.at_once == 1):
            return self.share(p, folds, self.frame.number(0), n)
        turns = self.segments // self.at_once
        return self.turns_in_order(p, folds, self.frame.number(0), turns)

    def turns_in_order(self, p: Pass, folds: Sequence[Fold], first: Operand, turns: int) -> Totals:
        """`turns` (a power of two) turns from `first` (a multiple of it) on, one after another."""
        f, b, lanes = self.frame, self.frame.builder, len(self.results)
        if turns == 1:
            return self.share(p, folds, *self.bounds(first))
        carries = [[Carry(b, fold, turns) for _ in range(lanes)] for fold in folds]
        with b.loop("turn", f.number(0), turns) as turn:
            for (_, states), carry in zip(self.share(p, folds, *self.bounds(f.add(first, turn))), carries, strict=True):
                for one, state in zip(carry, states, strict=True):
                    one.push(turn, state)
        return [(fold, [one.total for one in carry]) for fold, carry in zip(folds, carries, strict=True)]

    def bounds(self, turn: Operand) -> tuple[Operand, Operand]:
        """[start, stop) of this thread's segment in a turn over all segments; empty past the end."""
        f, share = self.frame, self.schedule.order.share(self.body.length)
        segment = f.mul(turn, self.at_once)
        if self.geometry.segment is not None:
            segment = f.add(segment, self.geometry.segment)
        n = f.host(self.body.length)
        first = f.least(f.mul(segment, f.host(share)), n)
        return first, f.least(f.add(first, f.host(share)), n)

    def share(self, p: Pass, folds: Sequence[Fold], first: Operand, stop: Operand) -> Totals:
        """One share of the reduced range, folded over the team."""
        accumulators = self.accumulated(p, folds, first, stop)
        return [(a.fold, states) for a, states in zip(accumulators, self.geometry.fold(accumulators), strict=True)]

    def accumulated(self, p: Pass, folds: Sequence[Fold], first: Operand, stop: Operand) -> tuple[Accumulator, ...]:
        """The lanes that this thread has of one share."""
        b, g = self.frame.builder, self.geometry
        starts = self.lane_starts(first)
        accumulators = tuple(start(b, fold, starts[: g.lanes_of(fold)]) for fold in folds)
        p = replace(p, accumulators=accumulators)
        with b.branch(g.valid) if g.valid is not None else nullcontext():
            self._rounds(p, first, stop)
        return accumulators

    def lane_starts(self, first: Operand) -> list[Operand]:
        """Reduced position of the first element of each lane that a thread holds, in a share from `first` on."""
        g = self.geometry
        steps = [j if g.folds_tile else 0 for j in range(g.width)]
        return [self.frame.add(position, j) for position in g.positions(first) for j in steps]

    def _rounds(self, p: Pass, first: Operand, stop: Operand) -> None:
        f, unroll = self.frame, self.schedule.unroll
        span = self.lanes * unroll
        full = first
        if span <= self.longest:
            length = f.builder.apply("subtract", (stop, first), f.index)
            full = f.add(first, f.mul(f.div(length, span), span))
            with f.builder.loop("base", first, full, span) as base:
                self._full(p, [f.add(base, u * self.lanes) for u in range(unroll)])
        if self._rest_at_once(p):
            with f.builder.branch(f.less(full, stop)):
                self._rest(p, [f.add(full, u * self.lanes) for u in range(unroll)], stop)
            return
        with f.builder.loop("base", full, stop, self.lanes) as base:
            for group, position in enumerate(self.geometry.positions(base)):
                self._guarded(p, group, position, stop)

    @property
    def longest(self) -> int:
        """Elements a share can have at most."""
        return max(self.schedule.capacity // self.segments, self.lanes) if self.schedule.capacity else 1 << 62

    def _full(self, p: Pass, bases: Sequence[Operand]) -> None:
        """Rounds that are known to be whole: all loads first."""
        tiles = [(k, at) for base in bases for k, at in enumerate(self.geometry.positions(base))]
        lanes = [self.geometry.lanes(at) for _, at in tiles]
        loads = [self.load(p.tile, position, at) for (_, position), at in zip(tiles, lanes, strict=True)]
        for (group, position), at, loaded in zip(tiles, lanes, loads, strict=True):
            self._evaluate(p, group, position, at, loaded)

    def _rest_at_once(self, p: Pass) -> bool:
        """Whether the rounds that are left, fewer than are on the way together elsewhere, are loaded together too."""
        lanes = self.schedule.unroll * self.geometry.groups * self.geometry.width
        few = lanes * len(p.tile.program.steps) <= REST_STEPS
        return self.schedule.unroll > 1 and few and not self.element_guards and not self.schedule.parked

    def _rest(self, p: Pass, bases: Sequence[Operand], stop: Operand) -> None:
        """The rounds from `bases` on, of which those at or beyond `stop` do not exist: all loads first."""
        f, g = self.frame, self.geometry
        tiles = [(k, at) for base in bases for k, at in enumerate(g.positions(base))]
        lanes, exists = [g.lanes(at) for _, at in tiles], [f.less(at, stop) for _, at in tiles]
        loads = [
            {k: p.tile.load_step(k, at, here) for k in p.tile.loadable} for at, here in zip(lanes, exists, strict=True)
        ]
        for (group, position), at, here, loaded in zip(tiles, lanes, exists, loads, strict=True):
            with f.builder.branch(here):
                self._evaluate(p, group, position, at, loaded)

    def load(self, tile: Tile, position: Operand, lanes: Sequence[IndexEmitter]) -> Loads:
        """All loads of the tile at a reduced position."""
        return tile.load(lanes)

    def _guarded(self, p: Pass, group: int, position: Operand, stop: Operand) -> None:
        """A tile of which elements at or beyond `stop` do not exist."""
        f, g = self.frame, self.geometry
        if not self.element_guards:
            with f.builder.branch(f.less(position, stop)):
                lanes = g.lanes(position)
                self._evaluate(p, group, position, lanes, self.load(p.tile, position, lanes))
            return
        for j in range(g.width):
            with f.builder.branch(f.less(f.add(position, j), stop)):
                at = g.lanes(position)[j]
                self._element(p, group * g.width + j, f.add(position, j), at, p.single.load([at]))

    @property
    def element_guards(self) -> bool:
        """Whether a share may end inside a tile."""
        g = self.geometry
        return g.folds_tile and not self.frame.alignment.divides(g.width, self.body.length)

    def _evaluate(self, p: Pass, group: int, position: Operand, lanes: Sequence[IndexEmitter], loads: Loads) -> None:
        """All lanes of a tile, one after another."""
        f, g = self.frame, self.geometry
        values: list[Values] = []
        for j, at in enumerate(lanes):
            k = 0 if g.folds_tile else j  # whose results and outside values the lane sees
            values.append(p.tile.evaluate(j, at, loads, self.results[k], p.known[k], values[0] if values else None))
            element = f.add(position, j) if g.folds_tile else position
            for a in p.accumulators:
                a.add(f.builder, group * g.width + j, values[j][a.fold.site.step], element)
        p.tile.store(p.stage.stores, lanes, values)

    def _element(self, p: Pass, lane: int, position: Operand, at: IndexEmitter, loads: Loads) -> None:
        values = p.single.evaluate(0, at, loads, self.results[0], p.known[0])
        for a in p.accumulators:
            a.add(self.frame.builder, lane, values[a.fold.site.step], position)
        p.single.store(p.stage.stores, [at], [values])
