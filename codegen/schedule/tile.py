"""A tile: neighbouring lanes of one program along a loop variable, loads first, then one lane after another.

In: a stage's program, the variable and width, which loads are whole vectors. Out: the operands of every
step in every lane. It realises the emission order contract of DESIGN section 6 (loads hoisted, lanes depth-first)
for every CUDA schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from fuser.codegen.evaluate import Lane, Results, mask_operand
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Operand
from fuser.codegen.program import Fetch, Program
from fuser.codegen.schedule.body import StoreSite
from fuser.codegen.schedule.frame import Frame
from fuser.hostexpr import HostExpr
from fuser.proofs import GATHERED
from fuser.record import dataclass

Loads = Mapping[int, Sequence[Operand]]  # hoisted loads: step -> one operand a lane
Lanes = Sequence[IndexEmitter]  # loop variables of every lane
Values = Mapping[int, Operand]  # step -> operand


@dataclass(frozen=True)
class Tile:
    """Lanes of one program that differ in the `varying` loop variables.

    Where lane 0 is at a multiple of the width of `along` and the others follow it, `along` names that variable,
    and accesses proven aligned are whole vectors. results_vary: finished reductions differ from lane to lane (columns).
    outside: steps that were computed outside the loop. only: steps to emit (None: all). valid: where loads may happen.
    """

    frame: Frame
    program: Program
    variables: frozenset[str]
    along: str | None
    width: int
    results_vary: bool = False
    outside: Sequence[bool] = ()
    only: Sequence[bool] | None = None
    valid: Operand | None = None

    @cached_property
    def varying(self) -> tuple[bool, ...]:
        """For each step, whether it differs from lane to lane."""
        return self.program.dependent(self.variables, self.results_vary)

    @cached_property
    def whole(self) -> frozenset[int]:
        """Fetch steps that are one vector load."""
        return frozenset(k for k in self.program.fetches if self._is_whole(self.program.fetch(k)))

    def _is_whole(self, fetch: Fetch) -> bool:
        return self._aligned(fetch.index[0]) and all(self._uniform(e) for c in fetch.mask for e in c.domain)

    def _uniform(self, e: HostExpr) -> bool:
        """Whether a condition of a mask holds for all lanes or for none."""
        assert self.along is not None
        others = self.variables - {self.along}
        return others.isdisjoint(e.symbols) and self.frame.alignment.uniform(self.width, e, self.along)

    def _aligned(self, offset: HostExpr) -> bool:
        return self.along is not None and self.frame.alignment.whole(self.width, offset, self.along)

    # -- loads -------------------------------------------------------------------------------------
    @cached_property
    def loadable(self) -> tuple[int, ...]:
        """Fetch steps that a tile loads first: their addresses depend on loop variables alone."""
        return tuple(
            k
            for k in self.program.fetches
            if not (self.outside and self.outside[k])
            and (self.only is None or self.only[k])
            and not any(name.startswith(GATHERED) for name in self.program.symbols(k))
        )

    def load(self, lanes: Lanes, held: Loads | None = None) -> dict[int, Sequence[Operand]]:
        """Loads everything loadable that is not `held` already, one operand a lane."""
        return {k: held[k] if held and k in held else self.load_step(k, lanes) for k in self.loadable}

    def load_step(self, k: int, lanes: Lanes, valid: Operand | None = None) -> tuple[Operand, ...]:
        fetch, b = self.program.fetch(k), self.frame.builder
        buffer, offset = self.frame.buffer_of(fetch), fetch.index[0]
        if k in self.whole:
            return self.frame.load_whole(fetch, lanes[0], self.width, valid)
        out = [
            b.load(buffer, at.value(offset), self.frame.masked(mask_operand(b, at, fetch.mask), valid))
            for at in (lanes if self.varying[k] else lanes[:1])
        ]
        return tuple(out) if self.varying[k] else tuple(out) * len(lanes)

    # -- lanes -------------------------------------------------------------------------------------
    def evaluate(
        self, j: int, at: IndexEmitter, loads: Loads, results: Results, known: Values, first: Values | None = None
    ) -> dict[int, Operand]:
        """The operands of lane `j`. known: values from outside the loop; first: lane 0's (uniform steps are reused)."""
        have = {**known, **{k: lanes[j] for k, lanes in loads.items()}}
        if first is not None:
            have.update((k, v) for k, v in first.items() if not self.varying[k])
        lane = Lane(self.program, self.frame.builder, self.frame.loader(self.program, self.valid))
        return lane.run(at.bound(), results, have, self.only)

    def store(
        self, sites: Sequence[StoreSite], lanes: Lanes, values: Sequence[Values], mask: Operand | None = None
    ) -> None:
        """Stores every site's value for all lanes, as vectors where the addresses allow."""
        for site in sites:
            operands = [v[site.step] for v in values]
            if self._aligned(site.offset):
                self.frame.store_whole(site, lanes[0], operands, mask)
                continue
            for at, value in zip(lanes, operands, strict=True):
                self.frame.store(site, at, value, mask)
