"""What the stages of a resident row share: raw loads to keep, and computed values worth keeping.

In: the stages' programs. Out: a `Reuse`: for each stage the steps that it takes from an earlier stage, the steps that
it must emit itself, and the steps that it keeps for later ones. Its own file because it is a question about
programs alone: no thread and no register is named here.

A value is kept where it is no wider than the raw elements it is made of, or where computing it again costs more than
a register is worth (an exact exponential). Otherwise the raw element is: bf16 rows take half the registers of f32
values (measured: softmax of 16384 bf16 runs at 97% of copy with `exp.fast` computed twice, 92% with its results kept).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.codegen.program import Apply, Fetch, Program, Result, Select, Step, instructions, operands
from fuser.proofs import GATHERED
from fuser.record import dataclass

KEEP_COST = 10  # instructions from which a value is kept although its raw elements are narrower


@dataclass(frozen=True)
class StageReuse:
    """One stage. taken: step -> value that an earlier stage kept. kept: step -> value for later stages. needed: steps
    that the stage emits or loads. raw: its loads along the row."""

    taken: dict[int, int]
    kept: dict[int, int]
    needed: tuple[bool, ...]
    raw: dict[int, Fetch]


@dataclass(frozen=True)
class Reuse:
    """All stages. `bytes_kept`: bytes an element that a thread holds from one stage to the next, at most."""

    stages: tuple[StageReuse, ...]
    bytes_kept: int


def plan(programs: Sequence[Program], reduced: frozenset[str]) -> Reuse:
    """The reuse between stages whose loops run over the same variables."""
    numbers = _value_numbers(programs)
    facts = [_Facts(p, reduced) for p in programs]
    taken: list[dict[int, int]] = []
    for k, fact in enumerate(facts):
        before = {n for earlier in numbers[:k] for n in earlier}
        taken.append(fact.take({s: n for s, n in enumerate(numbers[k]) if n in before}))
    stages = []
    for k, fact in enumerate(facts):
        later = {n for t in taken[k + 1 :] for n in t.values()}
        needed = fact.needed(taken[k])
        own = {s: n for s, n in enumerate(numbers[k]) if n in later and needed[s] and fact.varies[s]}
        raw = {s: f for s in fact.program.fetches if needed[s] and (f := fact.along(s)) is not None}
        stages.append(StageReuse(taken[k], own, needed, raw))
    return Reuse(tuple(stages), _bytes_kept(stages, programs))


def _value_numbers(programs: Sequence[Program]) -> list[list[int]]:
    """A number for each step: equal steps of different programs have equal numbers."""
    known: dict[Step, int] = {}
    out = []
    for p in programs:
        numbers: list[int] = []
        for k, s in enumerate(p.steps):
            key: Step = s
            if isinstance(s, Apply):
                key = replace(s, args=tuple(numbers[a] for a in s.args))
            elif isinstance(s, Select):
                key = replace(s, yes=numbers[s.yes], no=numbers[s.no])
            if any(name.startswith(GATHERED) for name in p.symbols(k)):  # names a step of its own program
                numbers.append(-1 - len(known))
                known[Result(-len(known), 0, s.dtype)] = len(known)
                continue
            numbers.append(known.setdefault(key, len(known)))
        out.append(numbers)
    return out


class _Facts:
    """One program: which steps change along the row, and what they cost."""

    def __init__(self, program: Program, reduced: frozenset[str]) -> None:
        self.program, self.reduced = program, reduced
        self.varies = program.dependent(reduced)

    def along(self, step: int) -> Fetch | None:
        """The load, if it walks along the row at an address that loop variables give."""
        names = self.program.symbols(step)
        if names.isdisjoint(self.reduced) or any(n.startswith(GATHERED) for n in names):
            return None
        return self.program.fetch(step)

    def take(self, shared: dict[int, int]) -> dict[int, int]:
        """The steps to take from earlier stages, looking from the results down."""
        out: dict[int, int] = {}
        stack, seen = list(self.program.roots), set[int]()
        while stack:
            k = stack.pop()
            if k in seen or not self.varies[k]:
                continue
            seen.add(k)
            if k in shared and self._worth(k):
                out[k] = shared[k]
            else:
                stack += operands(self.program.steps[k])
        return out

    def _worth(self, step: int) -> bool:
        s = self.program.steps[step]
        if isinstance(s, Fetch) or s.dtype.is_half:
            return False  # raw loads are shared by address, and halves have a cheap way back to their source
        closure = [k for k, needed in enumerate(self.program.needed([step])) if needed and self.varies[k]]
        raw = sum(f.dtype.bytes for k in closure if isinstance(f := self.program.steps[k], Fetch))
        cost = sum(_instructions(self.program.steps[k]) for k in closure)
        return cost > 0 and (0 < s.dtype.bytes <= raw or cost >= KEEP_COST)

    def needed(self, taken: dict[int, int]) -> tuple[bool, ...]:
        """Steps to emit when some are taken; values that do not vary are always emitted (outside the loop)."""
        out = [False] * len(self.program.steps)
        stack = list(self.program.roots)
        while stack:
            k = stack.pop()
            if out[k] or k in taken:
                continue
            out[k] = True
            through = [int(n[1:]) for n in self.program.symbols(k) if n.startswith(GATHERED)]
            stack += [*operands(self.program.steps[k]), *through]
        return tuple(out)


def _instructions(s: Step) -> float:
    return 1.0 if isinstance(s, Select) else instructions(s)


def _bytes_kept(stages: Sequence[StageReuse], programs: Sequence[Program]) -> int:
    """Bytes an element alive at the widest boundary between stages; the first stage's loads count as one."""
    widest = sum(f.dtype.bytes for f in set(stages[0].raw.values())) if stages else 0
    for k in range(1, len(stages)):
        values: dict[int, int] = {}
        loads: set[Fetch] = set()
        earlier = {f for s in stages[:k] for f in s.raw.values()}
        for later, p in zip(stages[k:], programs[k:], strict=True):
            values.update((n, p.steps[s].dtype.bytes) for s, n in later.taken.items())
            loads |= {f for f in later.raw.values() if f in earlier}
        made = {n for s in stages[:k] for n in s.kept.values()}
        alive = sum(b for n, b in values.items() if n in made) + sum(f.dtype.bytes for f in loads)
        widest = max(widest, alive)
    return widest
