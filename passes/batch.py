"""Independent kernels in one launch: what is left apart after merging, but waits for nothing of the other.

In: the units of a plan. Out: the same units, some of them batches of others (one space a part), and a decision for
every pair of neighbours that was looked at. Only units at the same depth of the plan (the longest way from the
arguments, old readers of updated arguments included) are put together: no way can lead between two of them, and none of
the kernels so made can wait for another in a ring, however many are made. So no question about paths is asked, and the
work is that of sorting. A batch saves launches; it must not cost more elsewhere: parameters fit, a large part keeps its
occupancy beside the part that needs most registers, and values that the cache would have held are paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import pairwise

from fuser.decision import Decision, Verdict
from fuser.group import Group, batch
from fuser.passes import effects, registers
from fuser.passes.cost import CACHED_COST, CACHED_SHARE
from fuser.passes.facts import Facts
from fuser.passes.legality import Refusal
from fuser.passes.limits import PARAMETER, Limits
from fuser.passes.place import full_shape
from fuser.passes.repair import Unit
from fuser.passes.search import Wishes
from fuser.record import dataclass
from fuser.schedule import CudaSchedule

PARTS_LIMIT = 64  # parts of one kernel: each is code of its own
BLOCK_LOCAL = 4096  # reduced elements up to which a row is one block's (one task's) whatever else the schedule decides
THREADS = 256  # of a block, and 16 bytes a load: what occupancy is judged at before there is a schedule
LOAD_BYTES = 16
# Parameters of a part beside its arrays and scalars: its extent, full blocks and start; extent and divisor of an axis.
PART_PARAMETERS, AXIS_PARAMETERS = 4, 3

Numbers = dict[str, "float | int | str"]


@dataclass
class _Bin:
    """Parts gathered so far."""

    parts: list[Unit] = field(default_factory=list)
    operators: int = 0
    pointers: set[int] = field(default_factory=set)
    scalars: set[int] = field(default_factory=set)
    parameters: int = 0  # besides those
    registers: int = 0
    moved: int = 0  # bytes
    evicted: float = 0.0  # microseconds lost by later kernels if all that moves through the cache
    occupancy: int = 0  # least resident threads that a large part must keep


class Batching:
    """One run over all units; `decisions` says what was put together."""

    def __init__(self, facts: Facts, limits: Limits, wishes: Wishes) -> None:
        self.facts, self.limits, self.device, self.wishes = facts, limits, limits.device, wishes
        self.needs: dict[int, int] = {}  # registers of each unit
        self.decisions: list[Decision] = []

    def run(self, units: Mapping[int, Unit]) -> dict[int, Unit]:
        """Units by id; a batch has the id of its first part."""
        out = dict(units)
        for line in self._lines(units):
            for found in self._fill(line):
                if len(found.parts) > 1:
                    one = self._join(found)
                    for u in found.parts:
                        del out[u.id]
                    out[one.id] = one
        return out

    def _lines(self, units: Mapping[int, Unit]) -> Iterator[list[Unit]]:
        """Units that may go together: of one depth and kind, like register needs side by side."""
        depth = effects.depths(effects.constraints(self.facts, units))
        lines: dict[tuple[int, str], list[Unit]] = {}
        for u in units.values():
            kind = _kind(self.facts, u)
            if kind:
                self.needs[u.id] = self._registers(u)
                lines.setdefault((depth[u.id], kind), []).append(u)
        for key in sorted(lines):
            if len(lines[key]) > 1:
                yield sorted(lines[key], key=lambda u: (-self._resident(self.needs[u.id]), self._rank(u)))

    def _rank(self, u: Unit) -> int:
        return min(self.facts.rank[k] for k in u.stored)

    def _fill(self, line: list[Unit]) -> Iterator[_Bin]:
        """Parts in order, a new kernel where one is full."""
        current = _Bin()
        for u in line:
            refusal = self._add(current, u)
            if refusal is None:
                continue
            self._decide(current.parts[-1], u, "apart", refusal.reason, dict(refusal.numbers))
            yield current
            current = _Bin()
            self._add(current, u)
        yield current

    def _add(self, to: _Bin, u: Unit) -> Refusal | None:
        """Put a unit into a kernel, or say why it cannot join those in it."""
        needs = self.needs[u.id]
        least = max(to.occupancy, self._resident(needs) if self._busy(u) > self.device.launch_us else 0)
        most, operators = max(to.registers, needs), to.operators + len(u.cores)
        if to.parts:
            refusal = self._refusal(to, u, operators, most, least)
            if refusal is not None:
                return refusal
        to.parts.append(u)
        to.pointers |= u.inputs.keys() | u.stored
        to.scalars |= self._scalars(u)
        to.parameters += self._parameters(u)
        to.moved += self._moved(u)
        to.evicted += self._evicted(u)
        to.operators, to.registers, to.occupancy = operators, most, least
        return None

    def _refusal(self, to: _Bin, u: Unit, operators: int, most: int, least: int) -> Refusal | None:
        if self.wishes.keep_apart({k for p in to.parts for k in p.cores}, u.cores):
            return Refusal("marked")
        words = len(to.pointers | u.inputs.keys() | u.stored) + len(to.scalars | self._scalars(u))
        size, limit = (words + to.parameters + self._parameters(u)) * PARAMETER, self.device.argument_bytes
        if size > limit:
            return Refusal("arguments", numbers={"argument_bytes": size, "limit": limit})
        if len(to.parts) == PARTS_LIMIT:
            return Refusal("length", numbers={"parts": PARTS_LIMIT + 1, "limit": PARTS_LIMIT})
        long = self.limits.members(operators)
        if long is not None:
            return long
        if self._resident(most) < least:
            return Refusal(
                "registers", numbers={"registers": most, "threads": self._resident(most), "threads_needed": least}
            )
        lost = to.evicted + self._evicted(u)
        if to.moved + self._moved(u) > CACHED_SHARE * self.device.l2 and lost > self.device.launch_us * len(to.parts):
            return Refusal("cost", numbers={"us_evicted": round(lost, 2)})
        return None

    # -- what a part takes -------------------------------------------------------------------------
    def _registers(self, u: Unit) -> int:
        if self.device.kind == "cpu":
            return 0
        widest = max((self.facts.nodes[k].storage.bytes for k in (*u.inputs, *u.stored)), default=4)
        likely = CudaSchedule("pointwise", THREADS, max(LOAD_BYTES // widest, 1))
        return registers.of_group(self.facts, u.formed.group, likely)

    def _resident(self, needs: int) -> int:
        return self.device.occupancy(needs, THREADS) if self.device.kind == "cuda" else 0

    def _busy(self, u: Unit) -> float:
        """Predicted microseconds beside the launch."""
        return u.time - self.device.launch_us

    def _scalars(self, u: Unit) -> set[int]:
        return {s for k in u.cores for s in self.facts.scalars[k]}

    def _parameters(self, u: Unit) -> int:
        """Extents, divisors and strides of a part. Axes that all its arrays have in common become one."""
        strides = sum(self.facts.nodes[k].rank for k in u.inputs if k in self.limits.strided)
        reads = [r for k in u.cores for r in self.facts.reads[k]]
        space = u.formed.group.space
        axes = len(full_shape((*space.parallel, *space.reduced)))
        if not strides and not space.reduced and all(r.direct for r in reads):
            axes = 1
        return PART_PARAMETERS + AXIS_PARAMETERS * axes + strides

    def _moved(self, u: Unit) -> int:
        return sum(u.inputs.values()) + sum(map(self.facts.nbytes, u.stored))

    def _evicted(self, u: Unit) -> float:
        """Microseconds that later kernels lose when what a part leaves in the cache is swept out by the other parts."""
        kept = CACHED_SHARE * self.device.l2
        sizes = [self.facts.nbytes(k) for k in u.stored if k not in self.facts.anchored]
        swept = sum(size for size in sizes if size <= kept)
        return 1e6 * (1 - CACHED_COST) * swept / self.device.bandwidth

    # -- results -----------------------------------------------------------------------------------
    def _join(self, found: _Bin) -> Unit:
        parts = sorted(found.parts, key=lambda u: (-u.time, self._rank(u)))  # the longest starts first
        together = self.device.launch_us + sum(map(self._busy, parts))
        numbers: Numbers = {
            "us_apart": round(sum(u.time for u in parts), 2), "us_together": round(together, 2),
            "registers": found.registers, "saves_launches": 1,
        }  # fmt: skip
        for a, b in pairwise(parts):
            self._decide(a, b, "fused", "batched", numbers)
        return merged(parts, together)

    def _decide(self, a: Unit, b: Unit, verdict: Verdict, reason: str, numbers: Numbers) -> None:
        first, second = (max(u.stored, key=self.facts.rank.__getitem__) for u in (a, b))
        self.decisions.append(Decision("batch", first, second, verdict, reason, numbers))


def merged(parts: list[Unit], time: float) -> Unit:
    """One unit of several."""
    inputs: dict[int, int] = {}
    for u in parts:
        for k, size in u.inputs.items():
            inputs[k] = max(size, inputs.get(k, 0))
    first = parts[0]
    group = batch("", [u.formed.group for u in parts])
    cores, stored = set().union(*(u.cores for u in parts)), set().union(*(u.stored for u in parts))
    return Unit(first.id, "batch", cores, stored, inputs, replace(first.formed, group=group), time, tuple(parts))


def _kind(facts: Facts, u: Unit) -> str:
    """`pointwise`, or `rows` where each row is surely one block's; nothing for what cannot be a part."""
    group: Group = u.formed.group
    if u.kind != "fused" or not facts.count(group.space.parallel):
        return ""  # a library call, a scan; or nothing is launched for it
    if group.kind == "pointwise":
        return group.kind
    if group.kind in ("rows", "full") and group.space.inner and facts.count(group.space.reduced) <= BLOCK_LOCAL:
        return "rows"
    return ""
