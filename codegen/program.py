"""Programs: what one lane of a kernel computes, as steps in emission order.

In: the tracer (`evaluate.py`) makes them. Out: schedules ask which steps read memory, depend on a loop variable, or
are needed for a value; emission runs them. A step is a load of a group input, an index used as a value, a host scalar,
a finished reduction, or a scalar operator on earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import field, replace
from functools import cached_property

from fuser.codegen.indices import Divides
from fuser.dtypes import DType
from fuser.hostexpr import HostExpr, lit, sym, terms
from fuser.indexmap import Index, coefficient
from fuser.loopbody import EXPECTED_ROUNDS, LoopAttrs, round_cost
from fuser.masks import Condition, Mask
from fuser.optable import table
from fuser.optable.base import ScalarOp
from fuser.proofs import GATHERED
from fuser.record import dataclass

ALIKE = 16  # lanes of a tile, at most: what is the same for all of them


@dataclass(frozen=True)
class Fetch:
    """A group input's element, in its storage dtype; read only where `mask` holds."""

    node: int
    index: Index
    mask: Mask
    dtype: DType


@dataclass(frozen=True)
class Position:
    """An index expression as a value."""

    expr: HostExpr
    dtype: DType


@dataclass(frozen=True)
class Constant:
    """A value of the host's, converted to `dtype` there."""

    expr: HostExpr
    dtype: DType


@dataclass(frozen=True)
class Result:
    """Result `k` of a reduction (or the value of a scan) that an earlier stage or the schedule finished."""

    node: int
    k: int
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """A scalar operator on earlier steps. loop: what a `loop` repeats. place: file and line of the program."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    loop: LoopAttrs | None = None
    place: tuple[str, int] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Select:
    """`yes` where the condition holds, else `no`."""

    condition: Condition
    yes: int
    no: int
    dtype: DType


Step = Fetch | Position | Constant | Result | Apply | Select


@dataclass(frozen=True)
class Program:
    """Steps in emission order and the step of each value asked for."""

    steps: tuple[Step, ...]
    roots: tuple[int, ...]

    @cached_property
    def fetches(self) -> tuple[int, ...]:
        """Steps that read memory, in order."""
        return tuple(k for k, s in enumerate(self.steps) if isinstance(s, Fetch))

    def needed(self, wanted: Sequence[int], known: Container[int] = ()) -> tuple[bool, ...]:
        """For each step, whether one of the wanted steps needs it. known: steps that need nothing any more."""
        out = [False] * len(self.steps)
        stack = list(wanted)
        while stack:
            k = stack.pop()
            if not out[k]:
                out[k] = True
                if k in known:
                    continue
                through = [int(n[1:]) for n in self.symbols(k) if n.startswith(GATHERED)]
                stack += [*operands(self.steps[k]), *through]
        return tuple(out)

    def loaded_early(self, wanted: Sequence[int]) -> tuple[int, ...]:
        """Loads that wait for nothing: neither for a reduction nor for another load that tells where they are."""
        needed = self.needed(wanted)
        gathers = {k for k in self.fetches if any(n.startswith(GATHERED) for n in self.symbols(k))}
        return tuple(k for k in self.fetches if needed[k] and k not in gathers)

    @cached_property
    def has_loop(self) -> bool:
        """Whether a step is a loop: of a cost that no length of the program tells."""
        return any(isinstance(s, Apply) and s.loop is not None for s in self.steps)

    def fetch(self, step: int) -> Fetch:
        """A step that is known to read memory."""
        found = self.steps[step]
        assert isinstance(found, Fetch)
        return found

    @cached_property
    def gathered(self) -> frozenset[int]:
        """Steps whose value some index expression uses."""
        names = (n for k in range(len(self.steps)) for n in self.symbols(k))
        return frozenset(int(n[1:]) for n in names if n.startswith(GATHERED))

    def expressions(self) -> list[HostExpr]:
        """Every index expression but those inside addresses: iota values and mask conditions."""
        found: list[HostExpr] = []
        for s in self.steps:
            if isinstance(s, Position):
                found.append(s.expr)
            elif isinstance(s, Select):
                found.extend(s.condition.domain)
            elif isinstance(s, Fetch):
                found.extend(e for c in s.mask for e in c.domain)
        return found

    def map_indices(self, change: Callable[[HostExpr], HostExpr]) -> Program:
        """The program with every index expression rewritten (renamed loop variables)."""
        return replace(self, steps=tuple(_map_step(s, change) for s in self.steps))

    def symbols(self, step: int) -> frozenset[str]:
        """Loop variables and gathered values that a step's own index expressions mention."""
        return frozenset(name for e in step_expressions(self.steps[step]) for name in e.symbols)

    def dependent(self, variables: frozenset[str], results: bool = False) -> tuple[bool, ...]:
        """For each step, whether its value changes with one of the loop variables (`results`: or a reduction's)."""
        out: list[bool] = []
        for k, s in enumerate(self.steps):
            names = self.symbols(k)
            through = [int(n[1:]) for n in names if n.startswith(GATHERED)]
            own = not names.isdisjoint(variables) or (results and isinstance(s, Result))
            out.append(own or any(out[a] for a in (*operands(s), *through)))
        return tuple(out)


def shared_lanes(program: Program, variable: str, divides: Divides) -> tuple[int, ...]:
    """For each step, how many neighbouring lanes of a tile along `variable` have one value of it: what a division of
    the lane's position leaves alike (`x // q`), and all that follows from that alone."""
    out: list[int] = []
    for s in program.steps:
        own = [_alike(e, variable, divides) for e in step_expressions(s) if variable in e.symbols]
        before = [out[a] for a in operands(s)]
        out.append(min(own + before, default=ALIKE))
    return tuple(out)


def _alike(e: HostExpr, variable: str, divides: Divides) -> int:
    """Values of the variable, from a multiple on, for which the expression is the same; 1 where that is not proved."""
    found = ALIKE
    for atom in (a for monomial in terms(e) for a in monomial if variable in a.symbols):
        if atom.op != "//" or not atom.args[1].is_literal or coefficient(atom.args[0], variable) != lit(1):
            return 1
        run = min(atom.args[1].value & -atom.args[1].value, ALIKE)
        if not divides(run, atom.args[0] - sym(variable)):
            return 1
        found = min(found, run)
    return found


def operands(step: Step) -> tuple[int, ...]:
    """The steps whose values a step takes (gathered indices apart)."""
    if isinstance(step, Apply):
        return step.args
    return (step.yes, step.no) if isinstance(step, Select) else ()


def instructions(step: Step, plain: bool = False) -> float:
    """What one operator costs, by the table; 0 for steps that are none. plain: variants as the rows they are of."""
    if not isinstance(step, Apply):
        return 0.0
    if step.loop is not None:
        return round_cost(step.loop, table().known).instructions * EXPECTED_ROUNDS
    row = table().plain(step.op) if plain else table().known[step.op]
    return row.cost.instructions if isinstance(row, ScalarOp) else 1.0


def step_expressions(s: Step) -> tuple[HostExpr, ...]:
    """The index expressions of a step."""
    if isinstance(s, Fetch):
        return (*s.index, *(e for c in s.mask for e in c.domain))
    if isinstance(s, Position):
        return (s.expr,)
    return s.condition.domain if isinstance(s, Select) else ()


def _map_step(s: Step, change: Callable[[HostExpr], HostExpr]) -> Step:
    if isinstance(s, Fetch):
        return replace(s, index=tuple(map(change, s.index)), mask=tuple(_map_condition(c, change) for c in s.mask))
    if isinstance(s, Position):
        return replace(s, expr=change(s.expr))
    if isinstance(s, Select):
        return replace(s, condition=_map_condition(s.condition, change))
    return s


def _map_condition(c: Condition, change: Callable[[HostExpr], HostExpr]) -> Condition:
    return replace(c, domain=tuple(map(change, c.domain)))
