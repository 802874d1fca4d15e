"""Long rows in shared memory: what stages share of a row waits there, each thread's elements in places of its own.

In: a body of several stages over long rows, a row schedule that says `parked`. Out: one kernel that reads the row
once, for a block alone or for a cluster of them. Registers hold only what a few slots need at a time, so more blocks
fit an SM than with rows in registers, and one loads while another waits. No thread reads another's place, so no
barrier is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from fuser.codegen.loops import Kernel, Operand
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_cluster import ClusterStages, lower_by
from fuser.codegen.schedule.lower_reduce import Pass
from fuser.codegen.schedule.lower_resident import Slot
from fuser.codegen.schedule.parking import Key, copied, parking
from fuser.record import dataclass
from fuser.schedule import CudaSchedule


def lower(frame: Frame, body: Body, schedule: CudaSchedule) -> Kernel:
    """The kernel of a group of row reductions whose rows wait in shared memory."""
    return lower_by(ParkedStages, frame, body, schedule)


@dataclass(frozen=True)
class Place:
    """An array of [slot, piece, thread, element]: pieces are at most 16 bytes, so neighbours never share a bank."""

    name: str
    piece: int


class ParkedStages(ClusterStages):
    """Stages whose slots hold nothing between stages."""

    def __init__(
        self, frame: Frame, body: Body, schedule: CudaSchedule, geometry: RowTeams, whole: bool = False
    ) -> None:
        b, places = frame.builder, dict[Key, Place]()
        elements = geometry.groups * geometry.width * max(schedule.capacity // schedule.order.segments, 1)
        elements = elements // schedule.order.lanes * max(schedule.order.segments // schedule.cluster, 1)
        self.copied = copied(body, frame.alignment, geometry.width) if schedule.copies else frozenset()
        parked = parking(body, self.copied)
        names = [b.alloc("row", t, elements * schedule.threads, "shared", dynamic=True) for t in parked.arrays]
        for key, home in parked.homes.items():
            places[key] = Place(names[home], min(16 // parked.arrays[home].bytes, geometry.width))
        self.places = places
        super().__init__(frame, body, schedule, geometry, whole)
        self.filled: set[Key] = set(self.copied)
        self.together = min(schedule.unroll, len(self.slots) // self.turns)
        self._start_copies()

    def _start_copies(self) -> None:
        """Every copy of the block's part of the row, in groups of the slots that are computed together."""
        b, buffer_of = self.frame.builder, self.frame.buffer_of
        if not self.copied:
            return
        for k, slot in enumerate(self.slots):
            guard = slot.exists[0] if slot.exists else None
            for fetch in (f for f in self.reuse[0].raw.values() if f in self.copied):
                place, source = self.places[fetch], slot.lanes[0].value(fetch.index[0])
                for j in range(0, self.geometry.width, place.piece):
                    at, target = self.frame.add(source, j), self._at(place, slot, j)
                    b.copy(place.name, target, buffer_of(fetch), at, place.piece, guard, predicated=True)
            if (k + 1) % self.together == 0:
                b.commit()

    def _load(self, stage: int) -> None:
        """Loads are made a few slots at a time, when they are needed."""

    def _turn(self, p: Pass, turn: int) -> None:
        """`unroll` slots at a time: their loads first, or the copies of them awaited."""
        slots = [s for s in self.slots if s.turn == turn]
        raw, tile = self.reuse[self.current].raw, self.tile(p.stage.loop)
        fresh = {step: fetch for step, fetch in raw.items() if fetch not in self.filled}
        for k in range(0, len(slots), self.together):
            some = slots[k : k + self.together]
            if self.copied and self.current == 0:
                later = len(self.slots) - self.slots.index(some[-1]) - 1
                self.frame.builder.await_copies(later // self.together)
            for slot in some:
                slot.raw.update((fetch, self._load_slot(tile, step, slot)) for step, fetch in fresh.items())
            for slot in some:
                self._slot(p, slot)
                slot.raw.clear()
                slot.values.clear()

    def stage(self, stage: StageBody) -> None:
        super().stage(stage)
        self.filled |= {f for f in self.reuse[self.current].raw.values() if f in self.places}

    def _slot(self, p: Pass, slot: Slot) -> None:
        reuse = self.reuse[self.current]
        for lanes, guard in slot.guards():
            with nullcontext() if guard is None else self.frame.builder.branch(guard):
                for fetch in reuse.raw.values():
                    if fetch in self.filled:
                        slot.raw[fetch] = self._take(fetch, slot, lanes)
                for number in reuse.taken.values():
                    slot.values[number] = list(self._take(number, slot, lanes))
                computed = self._lanes(p, slot, lanes)
                for fetch in reuse.raw.values():
                    if fetch in self.places and fetch not in self.filled:
                        self._put(fetch, slot, lanes, [slot.raw[fetch][j] for j in lanes])
                for step, number in reuse.kept.items():
                    self._put(number, slot, lanes, [v[step] for v in computed])

    # -- places ------------------------------------------------------------------------------------
    def _at(self, place: Place, slot: Slot, j: int) -> Operand:
        """Where lane `j` of a slot lies."""
        f, pieces = self.frame, self.geometry.width // place.piece
        row = (self.slots.index(slot) * pieces + j // place.piece) * self.schedule.threads
        return f.add(f.mul(f.add(f.thread(), row), place.piece), j % place.piece)

    def _put(self, key: Key, slot: Slot, lanes: range, values: Sequence[Operand]) -> None:
        place, b = self.places[key], self.frame.builder
        step = place.piece if len(lanes) == self.geometry.width else 1
        for k in range(0, len(lanes), step):
            b.store_vec(place.name, self._at(place, slot, lanes[k]), values[k : k + step])

    def _take(self, key: Key, slot: Slot, lanes: range) -> tuple[Operand, ...]:
        """The operands of all lanes of a slot; those outside `lanes` are not used."""
        place, b = self.places[key], self.frame.builder
        step, found = place.piece if len(lanes) == self.geometry.width else 1, list[Operand]()
        for k in range(0, len(lanes), step):
            found += b.load_vec(place.name, self._at(place, slot, lanes[k]), step)
        return (*found,) if len(lanes) == self.geometry.width else (*found,) * self.geometry.width
