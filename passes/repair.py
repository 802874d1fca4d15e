"""After the search: values that are cheaper to compute again than to store and read back.

In: the merged partition. Out: `Unit`s, one a kernel, whose cores may overlap: a stored value all of whose
readers take a copy of the few operators behind it is stored no longer. Fusion alone cannot do this, because a
core has one home. Typical: exp(x) divided by its own full sum: two kernels that both read x move 3 arrays,
one that stores exp(x) and one that reads it 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from fuser.decision import Decision
from fuser.device import Device
from fuser.passes import cost
from fuser.passes.clusters import Partition
from fuser.passes.facts import Facts, base_of, is_reduction
from fuser.passes.legality import Formed, Refusal, examine
from fuser.passes.limits import Limits
from fuser.passes.search import Search
from fuser.record import dataclass

CONE_LIMIT = 24  # operators that are copied at most
READERS_LIMIT = 8  # kernels that a value is copied into at most
EXAMINED = 4096  # cores looked at in all, so that this stays a small part of planning


@dataclass
class Unit:
    """One kernel: its cores (copies included), what it stores, what it reads, its form and predicted time.

    parts: of a batch, the units that share its launch (`passes.batch`); the walk of `form` is then the first part's.
    """

    id: int
    kind: str
    cores: set[int]
    stored: set[int]
    inputs: dict[int, int]
    formed: Formed
    time: float = field(default=0.0)
    parts: tuple[Unit, ...] = ()


def units(partition: Partition, search: Search, device: Device) -> dict[int, Unit]:
    """The clusters as units, formed and timed."""
    out = {}
    for c in partition:
        stored = partition.stored(c.cores)
        formed = search.formed(c)
        one = Unit(c.id, c.kind, set(c.cores), stored, dict(c.inputs), formed)
        one.time = _time(partition.facts, formed, one.inputs, stored, device)
        out[c.id] = one
    return out


def _time(facts: Facts, formed: Formed, inputs: Mapping[int, int], stored: Iterable[int], device: Device) -> float:
    if formed.group.library is not None:
        return 0.0
    return cost.group_load(facts, formed, inputs, stored, device).time_us(device)


class Recompute:
    """Tries every temporary once, the largest first; `decisions` says what was done."""

    def __init__(self, facts: Facts, all_units: dict[int, Unit], limits: Limits) -> None:
        self.facts, self.units, self.device, self.limits = facts, all_units, limits.device, limits
        self.decisions: list[Decision] = []
        self.left = EXAMINED

    def run(self) -> None:
        homes = {v: u for u in self.units.values() for v in u.stored}
        temporaries = [
            v for v in homes if v not in self.facts.anchored and not is_reduction(base_of(self.facts.nodes[v]))
        ]
        for v in sorted(temporaries, key=lambda k: (-self.facts.nbytes(k), self.facts.digests[k])):
            home = homes[v]
            if home.id in self.units and home.kind == "fused" and self.left > 0:
                self._try(v, self.units[home.id])
        if self.decisions:
            self._drop_unread()

    def _drop_unread(self) -> None:
        """Store nothing that the copies made needless; a kernel that stores nothing goes."""
        kept: set[int] = set()  # units whose placement hangs on a value that nobody reads any more
        while True:
            read = {k for u in self.units.values() for k in u.inputs} | self.facts.anchored
            idle = [u for u in self.units.values() if u.kind == "fused" and not u.stored <= read and u.id not in kept]
            if not idle:
                return
            for u in idle:
                smaller = self._storing(u, u.stored & read)
                if smaller is None:
                    kept.add(u.id)
                else:
                    self._put(smaller)

    def _put(self, u: Unit) -> None:
        if u.stored:
            self.units[u.id] = u
        else:
            del self.units[u.id]

    def _try(self, value: int, home: Unit) -> None:
        readers = [u for u in self.units.values() if value in u.inputs]
        cone, leaves = self._cone(value, home)
        if not readers or len(readers) > READERS_LIMIT or len(cone) > CONE_LIMIT:
            return
        if any(u.kind != "fused" for u in readers) or not self._fewer_bytes(value, readers, leaves):
            return
        lighter = self._without(home, value, leaves)
        copies = [self._unit(u, u.cores | cone, u.stored) for u in readers]
        if lighter is None or any(c is None for c in copies):
            return
        before = home.time + sum(u.time for u in readers)
        after = lighter.time + sum(c.time for c in copies if c)
        if after >= before:
            return
        self._accept(
            value, lighter, [c for c in copies if c], {"us_stored": round(before, 2), "us_again": round(after, 2)}
        )

    def _accept(self, value: int, lighter: Unit, copies: list[Unit], numbers: dict[str, float | int | str]) -> None:
        self._put(lighter)
        for c in copies:
            self.units[c.id] = c
            reader = min(k for k in self.facts.readers[value] if k in c.cores)
            saved = {"saves_bytes": self.facts.nbytes(value), **numbers}
            self.decisions.append(Decision("recompute", value, reader, "fused", "recompute", saved))

    def _cone(self, value: int, home: Unit) -> tuple[set[int], dict[int, int]]:
        """The operators behind a value, back to memory or to a finished reduction, and the bytes read of each leaf."""
        cone: set[int] = set()
        leaves: dict[int, int] = {}
        stack = [value]
        while stack and len(cone) <= CONE_LIMIT:
            k = stack.pop()
            if k in cone:
                continue
            cone.add(k)
            for r in self.facts.reads[k]:
                inner = r.source in home.cores and not is_reduction(base_of(self.facts.nodes[r.source]))
                if inner:
                    stack.append(r.source)
                else:
                    leaves[r.source] = max(leaves.get(r.source, 0), r.nbytes)
        return cone, leaves

    def _fewer_bytes(self, value: int, readers: list[Unit], leaves: Mapping[int, int]) -> bool:
        saved = self.facts.nbytes(value) + sum(u.inputs[value] for u in readers)
        spent = sum(size for u in readers for k, size in leaves.items() if k not in u.inputs)
        return spent < saved

    def _without(self, home: Unit, value: int, leaves: Mapping[int, int]) -> Unit | None:
        """The home without the value, storing the reductions that the copies need."""
        return self._storing(home, (home.stored - {value}) | {k for k in leaves if k in home.cores})

    def _storing(self, home: Unit, stored: set[int]) -> Unit | None:
        """A unit that stores just these values, without what is then idle."""
        needed: set[int] = set()
        stack = list(stored)
        while stack:
            k = stack.pop()
            if k not in needed:
                needed.add(k)
                stack.extend(r.source for r in self.facts.reads[k] if r.source in home.cores)
        if not stored:
            return Unit(home.id, home.kind, set(), set(), {}, home.formed)
        return self._unit(home, needed, stored)

    def _unit(self, like: Unit, cores: set[int], stored: set[int]) -> Unit | None:
        self.left -= len(cores)
        formed = examine(self.facts, cores, stored)
        if isinstance(formed, Refusal):
            return None
        inputs: dict[int, int] = {}
        for k in cores:
            for r in self.facts.reads[k]:
                if r.source not in cores:
                    inputs[r.source] = max(inputs.get(r.source, 0), r.nbytes)
        if self.limits.kernel(cores, inputs, stored) is not None:
            return None
        time = _time(self.facts, formed, inputs, stored, self.device)
        return Unit(like.id, like.kind, cores, stored, inputs, formed, time)
