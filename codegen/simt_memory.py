"""Arrays of the SIMT interpreter: values, and the stamps by which misuse is found.

In: element numbers with the thread that touches each. Out: values, or `SimtError` for an element that is
out of bounds, unwritten, misaligned or raced for. Global, shared and register arrays differ only in how
many copies there are and in who can race, so one class serves all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.errors import InternalError
from fuser.record import dataclass

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOBODY, MANY = -1, -2


class SimtError(InternalError):
    """A kernel did what no kernel may: the statement, the thread and the element are in the message and notes."""


@dataclass(frozen=True)
class Lanes:
    """The threads that take part in an access, one entry each: global thread number, block, barriers passed."""

    thread: Ints
    block: Ints
    epoch: Ints

    def repeat(self, width: int) -> Lanes:
        """Every lane `width` times, for the elements of its vector."""
        return Lanes(*(np.repeat(a, width) for a in (self.thread, self.block, self.epoch)))

    def select(self, which: Any) -> Lanes:
        return Lanes(self.thread[which], self.block[which], self.epoch[which])


# (threads that touched elements, times they did) -> whether the lanes may rely on it across blocks.
Ordered = Callable[[Ints, Ints, Lanes], Bools]


@dataclass
class Accesses:
    """Who touched each element last: thread (or NOBODY, MANY), its block, its block's epoch, the clock."""

    thread: Ints
    block: Ints
    epoch: Ints
    time: Ints

    @staticmethod
    def none(size: int) -> Accesses:
        return Accesses(*(np.full(size, NOBODY, np.int64) for _ in range(4)))

    def put(self, e: Ints, lanes: Lanes, clock: int) -> Bools:
        """Stamps elements; says which lanes another lane of the same access stamped over."""
        self.thread[e], self.block[e], self.epoch[e], self.time[e] = lanes.thread, lanes.block, lanes.epoch, clock
        return np.not_equal(self.thread[e], lanes.thread)


class Memory:
    """`copies` arrays of `size` elements, flat.

    written: per element, None where all are from the start. reads/writes: stamps, None where nobody can race.
    """

    def __init__(self, name: str, data: npt.NDArray[Any], size: int, space: str) -> None:
        self.name, self.data, self.size, self.space = name, data, size, space
        self.written: Bools | None = None
        self.reads: Accesses | None = None
        self.writes: Accesses | None = None

    def forget(self) -> None:
        """Contents become undefined: poison that shows in results, and unwritten."""
        raw = self.data.view(np.uint8) if self.data.flags.c_contiguous else None
        if raw is not None:
            raw[...] = 0xCB if self.data.dtype != np.bool_ else 1
        self.written = np.zeros(self.data.size, np.bool_)

    def track(self, reads: bool) -> None:
        """Watches for races; `reads` only where the kernel both loads and stores the array."""
        self.writes = Accesses.none(self.data.size)
        self.reads = Accesses.none(self.data.size) if reads else None

    # -- checks ------------------------------------------------------------------------------------
    def check_bounds(self, index: npt.NDArray[Any], width: int) -> None:
        """`index`: first elements within one copy, of the lanes that take part."""
        if not index.size:
            return
        low, high = int(index.min()), int(index.max())
        if low < 0 or high > self.size - width:
            worst = low if low < 0 else high
            raise SimtError(f"{self.space} `{self.name}`[{worst}] is out of bounds ({self.size})", "simt-bounds")
        if width > 1 and (index % width).any():
            worst = int(index[index % width != 0][0])
            raise SimtError(f"vector of {width} at `{self.name}`[{worst}] is misaligned", "simt-align")
        if width > 1 and self.data.ctypes.data % (width * self.data.itemsize):
            raise SimtError(f"`{self.name}` does not start at a multiple of its vectors", "simt-align")

    def load(self, e: Ints, lanes: Lanes, clock: int, ordered: Ordered) -> None:
        """Checks reads of elements `e` and stamps them."""
        if self.written is not None and not self.written[e].all():
            first = int(np.flatnonzero(~self.written[e])[0])
            raise self.error("reads what nothing wrote", "simt-unwritten", e, lanes, first)
        if self.writes is not None:
            self.check_order("reads while another thread writes", self.writes, e, lanes, ordered)
        if self.reads is not None:
            self.stamp_reads(self.reads, e, lanes, clock)

    def store(self, e: Ints, lanes: Lanes, clock: int, ordered: Ordered) -> None:
        """Checks writes of elements `e` and stamps them."""
        if self.written is not None:
            self.written[e] = True
        if self.reads is not None:
            self.check_order("writes while another thread reads", self.reads, e, lanes, ordered)
        if self.writes is not None:
            self.check_order("writes while another thread writes", self.writes, e, lanes, ordered)
            clash = self.writes.put(e, lanes, clock)
            if clash.any():
                first = int(np.flatnonzero(clash)[0])
                raise self.error("is written by two threads at once", "simt-race", e, lanes, first)

    def check_order(self, what: str, past: Accesses, e: Ints, lanes: Lanes, ordered: Ordered) -> None:
        """Earlier accesses of other threads must lie behind a barrier (same block) or a ticket (other blocks)."""
        by = past.thread[e]
        foreign = (by != NOBODY) & (by != lanes.thread)
        if not foreign.any():
            return
        same = foreign & (past.block[e] == lanes.block)
        bad = same & (past.epoch[e] >= lanes.epoch)
        across = np.flatnonzero(foreign & ~same)
        if across.size:
            fine = ordered(by[across], past.time[e[across]], lanes.select(across))
            bad[across[~fine]] = True
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            other = int(by[first])
            who = f"thread {other}" if other >= 0 else "several threads"
            raise self.error(f"{what} ({who})", "simt-race", e, lanes, first)

    @staticmethod
    def stamp_reads(past: Accesses, e: Ints, lanes: Lanes, clock: int) -> None:
        """Readers of one epoch and block merge to MANY; readers in several blocks to block MANY."""
        block, epoch, thread = past.block[e], past.epoch[e], past.thread[e]
        current = (block == lanes.block) & (epoch == lanes.epoch)
        elsewhere = (block != NOBODY) & (block != lanes.block)
        shared = (current & (thread != lanes.thread)) | elsewhere
        merged = Lanes(np.where(shared, MANY, lanes.thread), np.where(elsewhere, MANY, lanes.block), lanes.epoch)
        past.put(e, merged, clock)
        lost = past.thread[e] != lanes.thread  # another lane of this access, or an earlier one, read it too
        past.thread[e[lost]] = MANY
        past.block[e[past.block[e] != lanes.block]] = MANY

    def error(self, what: str, slug: str, e: Ints, lanes: Lanes, at: int) -> SimtError:
        element = int(e[at]) % max(self.size, 1)
        who = f"thread {int(lanes.thread[at])} of the grid, in block {int(lanes.block[at])}"
        return SimtError(f"{self.space} `{self.name}`[{element}] {what}", slug, notes=[f"by {who}"])
