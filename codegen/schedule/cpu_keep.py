"""Values of a row that are kept from one stage for a later one, because computing them again costs more.

In: the stage programs of a body. Out: for each stage, which steps to save to and which to load from arrays of the row's
length. A value is kept where a later stage needs the same operators on the same operands at the same element, and they
cost more than a store and a load in L1 or L2 (the exponentials of a softmax, say). The value is the same either
way, so this is a choice of speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from fuser.codegen.program import Apply, Program, Select, Step, instructions, operands
from fuser.codegen.schedule.body import Body
from fuser.record import dataclass

WORTH = 8.0  # instructions a kept value must save
ROOM = 1 << 18  # bytes of kept values a row: they are to stay in L2, and they live on a thread's stack
SPARE = 64  # places beyond the row that a vector of masked lanes may read


@dataclass(frozen=True)
class Keep:
    """saves, loads: step -> number of the row array. needed: steps a stage still has to compute."""

    saves: dict[int, int] = field(default_factory=dict)
    loads: dict[int, int] = field(default_factory=dict)
    needed: tuple[bool, ...] | None = None


def plan_keeps(body: Body, capacity: int) -> tuple[Keep, ...]:
    """What every stage keeps, given the largest row length."""
    programs = [s.loop for s in body.stages]
    if len(programs) < 2 or not capacity:
        return tuple(Keep() for _ in programs)
    return _Planner(programs, frozenset(a.name for a in body.reduced), ROOM // capacity).plan()


class _Planner:
    """Walks stages in order; `made` maps a value to the stage and step that first computes it.

    room: bytes an element that may be kept.
    """

    def __init__(self, programs: Sequence[Program], variables: frozenset[str], room: int) -> None:
        self.programs, self.room = programs, room
        self.varying = [p.dependent(variables) for p in programs]
        self.names = _value_names(programs)
        self.made: dict[int, tuple[int, int]] = {}
        self.arrays: dict[int, int] = {}
        self.keeps = [Keep() for _ in programs]

    def plan(self) -> tuple[Keep, ...]:
        for number, program in enumerate(self.programs):
            loads = {k: self._array(self.names[number][k]) for k in self._repeated(number)}
            needed = _needed(program, frozenset(loads)) if loads else None
            self.keeps[number] = replace(self.keeps[number], loads=loads, needed=needed)
            for k in range(len(program.steps)):
                if needed is None or needed[k]:
                    self.made.setdefault(self.names[number][k], (number, k))
        return tuple(self.keeps)

    def _array(self, name: int) -> int:
        """The row array of a value, saved where it is first computed."""
        if name not in self.arrays:
            self.arrays[name] = len(self.arrays)
            stage, step = self.made[name]
            self.keeps[stage].saves[step] = self.arrays[name]
        return self.arrays[name]

    def _repeated(self, number: int) -> Iterator[int]:
        """The last steps of a stage that an earlier stage has computed, where they are worth keeping."""
        program, names = self.programs[number], self.names[number]
        stack, seen = list(program.roots), set(program.roots)
        while stack:
            k = stack.pop()
            known = self.varying[number][k] and names[k] in self.made and isinstance(program.steps[k], Apply)
            if known and self._cost(number, k) >= WORTH and self._fits(number, k):
                yield k
                continue
            fresh = [a for a in operands(program.steps[k]) if a not in seen]
            seen.update(fresh)
            stack += fresh

    def _fits(self, number: int, step: int) -> bool:
        """Whether there is room for a value; takes it."""
        if self.names[number][step] in self.arrays:
            return True
        size = self.programs[number].steps[step].dtype.bytes
        fits = size <= self.room
        self.room -= size if fits else 0
        return fits

    def _cost(self, number: int, root: int) -> float:
        """Instructions of a value along the row, each step once, up to what counts as worth it."""
        program, total = self.programs[number], 0.0
        stack, seen = [root], {root}
        while stack and total < WORTH:
            step = program.steps[stack.pop()]
            total += instructions(step, plain=True)
            fresh = [a for a in operands(step) if a not in seen and self.varying[number][a]]
            seen.update(fresh)
            stack += fresh
        return total


def _value_names(programs: Sequence[Program]) -> list[list[int]]:
    """A number a step, equal across programs where the value is; gathered indices make a value unique."""
    known: dict[object, int] = {}
    out: list[list[int]] = []
    for p, program in enumerate(programs):
        names: list[int] = []
        for k, step in enumerate(program.steps):
            gathers = any(s.startswith("%") for s in program.symbols(k))
            key: object = (p, k) if gathers else _renamed(step, names)
            names.append(known.setdefault(key, len(known)))
        out.append(names)
    return out


def _renamed(step: Step, names: Sequence[int]) -> Step:
    """The step with its operands named across programs."""
    if isinstance(step, Apply):
        return replace(step, args=tuple(names[a] for a in step.args))
    if isinstance(step, Select):
        return replace(step, yes=names[step.yes], no=names[step.no])
    return step


def _needed(program: Program, kept: frozenset[int]) -> tuple[bool, ...]:
    """Steps that the roots need when the kept ones are loaded (gathers and masks may need any: they stay)."""
    needed = [False] * len(program.steps)
    stack = [*program.roots, *program.gathered]
    while stack:
        k = stack.pop()
        if needed[k] or k in kept:
            continue
        needed[k] = True
        stack += operands(program.steps[k])
    return tuple(needed)
