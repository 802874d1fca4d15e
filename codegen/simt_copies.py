"""Asynchronous copies in the SIMT interpreter: what is under way is in no memory yet.

In: elements that threads copy, commits, waits. Out: a copy's elements count as unwritten from its start until a wait
names its group, so whoever reads too early is found. Its own file because only copies outlive the statement that
starts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.codegen.simt_memory import Ints, Lanes, Memory, SimtError
from fuser.codegen.simt_sync import Sync


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
