"""How threads of the SIMT interpreter meet: barriers, tickets, shuffles and collectives.

In: the mask of threads that arrive. Out: epochs and the order of tickets, from which `simt_memory` knows what
is a race; exchanged values. A divergent arrival is a `SimtError`. Its own file because this is all that
one thread can know of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.codegen.simt_memory import MANY, Bools, Ints, Lanes, SimtError
from fuser.dtypes import DType
from fuser.optable.base import Reduction, S, State
from fuser.optable.evaluate import NumPyEmit
from fuser.record import dataclass

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Taken:
    """One ticket: which counter, its place in time, who took it, and what was visible to the device by then.

    released: per thread of the block, the clock up to which what it did is handed on: its block's last barrier.
    """

    counter: tuple[str, int]
    number: int
    last: bool
    clock: int
    thread: int
    epoch: int
    released: Ints


class Sync:
    """Synchronisation state of a whole grid of `blocks` blocks of `threads` threads."""

    def __init__(self, blocks: int, threads: int, cluster: int = 1) -> None:
        self.threads, self.cluster = threads, cluster
        self.epoch = np.zeros(blocks, np.int64)
        self.tickets: dict[int, list[Taken]] = defaultdict(list)
        self.taken = 0
        self.met = np.zeros(blocks, np.int64)  # clock of each block's last barrier
        # Clusters, a block each: when it arrived (-1: it has not), up to when others' writes are visible to it, and
        # when another block last wrote to it.
        self.pending = np.full(blocks, -1, np.int64)
        self.visible = np.zeros(blocks, np.int64)
        self.reached = np.zeros(blocks, np.int64)

    # -- meeting -----------------------------------------------------------------------------------
    @staticmethod
    def arrived(mask: Bools, what: str, unit: int) -> Bools:
        """Per block, whether its threads arrive: all of each `unit` consecutive threads, or none.

        mask: [blocks, threads]. Returns [blocks, threads] rounded to units (equal to `mask`).
        """
        groups = mask.reshape(mask.shape[0], -1, unit)
        some, every = groups.any(axis=2), groups.all(axis=2)
        if (some != every).any():
            block, group = (int(i[0]) for i in np.nonzero(some != every))
            count = int(groups[block, group].sum())
            raise SimtError(
                f"divergent {what}: {count} of {unit} threads arrive (block {block} of the batch)",
                "simt-divergent",
            )
        return mask

    def barrier(self, blocks: Ints, mask: Bools, clock: int) -> None:
        """blocks: global numbers of the batch's blocks; mask: [blocks, threads]."""
        here = blocks[self.arrived(mask, "barrier", self.threads)[:, 0]]
        self.epoch[here] += 1
        self.met[here] = clock

    # -- clusters ----------------------------------------------------------------------------------
    def cluster_arrive(self, blocks: Ints, mask: Bools, clock: int) -> None:
        here = blocks[self.arrived(mask, "cluster arrive", self.threads)[:, 0]]
        if (self.pending[here] >= 0).any():
            raise SimtError("a block arrives twice before it waits", "simt-cluster")
        self.pending[here] = clock

    def cluster_wait(self, blocks: Ints, mask: Bools) -> None:
        here = blocks[self.arrived(mask, "cluster wait", self.threads)[:, 0]]
        mates = (here // self.cluster * self.cluster)[:, None] + np.arange(self.cluster)
        arrived = self.pending[mates]
        if (arrived < 0).any():
            raise SimtError("a block waits for one that has not arrived", "simt-cluster")
        self.visible[here] = arrived.min(axis=1)
        self.pending[here] = -1
        self.epoch[here] += 1  # it is a barrier of the block too

    def reach(self, targets: Ints, clock: int) -> None:
        """Blocks `targets` are written to by another block of their cluster."""
        if (self.visible[targets] == 0).any():
            raise SimtError("a block is written to before it has surely started", "simt-cluster")
        self.reached[targets] = clock

    def left(self, blocks: Ints) -> None:
        """Blocks end: nobody may still be writing to them."""
        if (self.reached[blocks] > self.visible[blocks]).any():
            raise SimtError("a block may end while another block of its cluster writes to it", "simt-cluster")

    # -- tickets -----------------------------------------------------------------------------------
    def ticket(self, key: tuple[str, int], block: int, lane: int, last: bool, clock: int) -> None:
        """Records that thread `lane` of `block` took a ticket of a counter."""
        released = np.full(self.threads, self.met[block])
        released[lane] = clock
        thread = block * self.threads + lane
        self.taken += 1
        taken = Taken(key, self.taken, last, clock, thread, int(self.epoch[block]), released)
        self.tickets[block].append(taken)

    def ordered(self, by: Ints, times: Ints, lanes: Lanes) -> Bools:
        """Whether accesses of threads `by` (of other blocks) at `times` happen before what `lanes` do now."""
        mates = (by >= 0) & (by // self.threads // self.cluster == lanes.block // self.cluster)
        fine: Bools = mates & (times < self.visible[lanes.block])
        if not self.tickets:
            return fine
        pairs = np.stack([np.where(by < 0, MANY, by // self.threads), lanes.block])
        distinct, which = np.unique(pairs, axis=1, return_inverse=True)
        for k, (writer, reader) in enumerate(distinct.T.tolist()):
            at = np.flatnonzero(which.ravel() == k)
            for mine in self.tickets.get(reader, ()):
                behind = (lanes.epoch[at] > mine.epoch) | (lanes.thread[at] == mine.thread)
                fine[at] |= behind & self.before(writer, by[at], times[at], mine)
        return fine

    def before(self, writer: int, by: Ints, times: Ints, mine: Taken) -> Bools:
        """Which accesses of block `writer` were released to whoever took the ticket `mine`.

        Reads by MANY threads are only known to be over once the last ticket is taken.
        """
        if writer == MANY:
            return np.full(by.size, mine.last) & (times < mine.clock)
        fine = np.zeros(by.size, np.bool_)
        for theirs in self.tickets.get(writer, ()):
            if theirs.counter == mine.counter and theirs.number < mine.number:
                fine |= times < theirs.released[by % self.threads]
        return fine


# -- exchange --------------------------------------------------------------------------------------
def shuffle(value: Values, xor: int) -> Values:
    """`value` of lane `lane ^ xor` in each warp; value: [blocks, threads]."""
    return value[:, np.arange(value.shape[1]) ^ xor]


def collective(
    row: Reduction, emit: NumPyEmit, dtypes: Sequence[DType], state: Sequence[Values], width: int, stride: int
) -> tuple[Values, ...]:
    """State tuples [blocks, threads] combined over teams, every member given the result.

    Pairwise from the low bits of the member number: neighbours first, the lower one as the first operand. Further
    tuples are of further members: those of the second one come after all of the first.
    """
    blocks, threads = state[0].shape
    shape = (blocks, threads // (width * stride), width, stride)
    size = len(dtypes)
    members = width * (len(state) // size)
    groups = [np.concatenate([v.reshape(shape) for v in state[k::size]], axis=2) for k in range(size)]
    parts: State = tuple(S(emit, v, t) for v, t in zip(groups, dtypes, strict=True))
    while members > 1:
        lower, upper = (tuple(S(emit, s.value[:, :, k::2], s.dtype) for s in parts) for k in (0, 1))
        members //= 2
        half = (*shape[:2], members, stride)
        parts = tuple(S(emit, np.broadcast_to(s.value, half), s.dtype) for s in row.combine(lower, upper))
    return tuple(np.broadcast_to(s.value, shape).reshape(blocks, threads) for s in parts)
