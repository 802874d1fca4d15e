"""Asynchronous copies and mail in the SIMT interpreter: what is under way is in no memory yet.

In: elements that threads copy or send, commits, waits. Out: such elements count as unwritten from their start until a
wait names them, so whoever reads too early is found. Its own file because only these outlive the statement that
starts them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.codegen.simt_memory import NOBODY, Bools, Ints, Lanes, Memory, SimtError
from fuser.codegen.simt_sync import Sync
from fuser.record import dataclass


@dataclass(frozen=True)
class Copy:
    """Values on their way to elements of a shared array; one lane an element."""

    memory: Memory
    elements: Ints
    values: npt.NDArray[Any]
    lanes: Lanes


@dataclass
class Copies:
    """The copies of a batch of blocks, which commit and wait together. groups: oldest first."""

    sync: Sync
    open: list[Copy] = field(default_factory=list)
    groups: list[list[Copy]] = field(default_factory=list)

    def start(self, copy: Copy, clock: int) -> None:
        copy.memory.store(copy.elements, copy.lanes, clock, self.sync.ordered)
        assert copy.memory.written is not None
        copy.memory.written[copy.elements] = False
        self.open.append(copy)

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int, clock: int) -> None:
        """All groups but the last `pending` arrive."""
        count = max(len(self.groups) - pending, 0)
        for copy in (c for group in self.groups[:count] for c in group):
            self._arrive(copy, clock)
        del self.groups[:count]

    def _arrive(self, copy: Copy, clock: int) -> None:
        memory, lanes = copy.memory, copy.lanes
        assert memory.written is not None
        early = memory.written[copy.elements]
        if early.any():
            first = int(np.flatnonzero(early)[0])
            raise memory.error("is written while a copy is on its way there", "simt-race", copy.elements, lanes, first)
        now = Lanes(lanes.thread, lanes.block, self.sync.epoch[lanes.block])
        memory.store(copy.elements, now, clock, self.sync.ordered)
        memory.data[copy.elements] = copy.values

    def left(self) -> None:
        """Blocks end: what is still under way would arrive in memory that others have by then."""
        if self.open or any(self.groups):
            raise SimtError("a block may end while its copies are under way", "simt-copy")


@dataclass
class Box:
    """A mailbox of every block of the batch: the bytes it expects, those that have come, and where they lie."""

    size: int
    come: Ints
    places: list[tuple[Memory, Ints]] = field(default_factory=list)


@dataclass
class Mail:
    """What blocks of clusters send each other."""

    sync: Sync
    boxes: dict[str, Box] = field(default_factory=dict)

    def open(self, name: str, size: int, blocks: int) -> None:
        self.boxes[name] = Box(size, np.zeros(blocks, np.int64))

    def send(self, name: str, memory: Memory, elements: Ints, rows: Ints) -> None:
        """Elements stored in the shared memory of the batch's blocks `rows` that nobody may read yet."""
        assert memory.written is not None
        memory.written[elements] = False
        np.add.at(self.boxes[name].come, rows, memory.data.itemsize)
        self.boxes[name].places.append((memory, elements))

    def receive(self, name: str, blocks: Ints, mask: Bools, clock: int) -> None:
        """The blocks of the batch wait; blocks run in lock step, so what has not come never does."""
        here = Sync.arrived(mask, "receive", mask.shape[1])[:, 0]
        box = self.boxes[name]
        if (box.come[here] != box.size).any():
            block = int(np.flatnonzero(here & (box.come != box.size))[0])
            raise SimtError(f"mailbox `{name}` expects {box.size} bytes, {box.come[block]} have come", "simt-mail")
        for memory, elements in box.places:
            assert memory.written is not None
            assert memory.writes is not None
            memory.written[elements] = True
            memory.writes.thread[elements] = NOBODY  # who receives sees them, whoever sent them
        box.places.clear()
        box.come[here] = -1  # one delivery
        self.sync.visible[blocks[here]] = clock
