"""A ring of rows in shared memory: the next few on their way by asynchronous copies while one is worked on.

In: the loads of a row kernel that are whole vectors in every row, how many rows the ring holds. Out: copies into the
row's turn, and the elements of the turn that has come. A row's copies are started when the row whose turn they take is
done; so at most `unroll - 1` rows are on their way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Operand
from fuser.codegen.program import Fetch
from fuser.codegen.schedule.alignment import Alignment
from fuser.codegen.schedule.body import Body
from fuser.codegen.schedule.frame import Frame
from fuser.codegen.schedule.geometry import RowTeams
from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.dtypes import BOOL
from fuser.schedule import CudaSchedule

MOST_COPY = 16  # bytes of an asynchronous copy
Place = tuple[Operand, "Operand | None"]  # where a tile of a thread's is in a row, and whether it exists


def copied(body: Body, alignment: Alignment, width: int) -> frozenset[Fetch]:
    """The loads of all stages that differ from row to row and are whole vectors of 16 bytes in every one."""
    inner, rows = body.reduced[-1], {a.name for a in body.parallel}
    loads = {f for stage in reuse_of(body).stages for f in stage.raw.values() if not f.mask}
    own = [f for f in loads if not rows.isdisjoint(f.index[0].symbols) and width * f.dtype.bytes <= 2 * MOST_COPY]

    def whole(f: Fetch) -> bool:
        piece = max(MOST_COPY // f.dtype.bytes, width)
        return alignment.divides(piece, inner.extent) and alignment.whole(piece, f.index[0], inner.name)

    return frozenset(f for f in own if whole(f)) if width > 1 else frozenset()


class Ring:
    """`unroll` rows, of which all but one are on their way. Without loads to copy it is empty, and nothing happens.

    Where a thread's elements are 16 bytes it copies its own. Narrower ones are copied 16 bytes a thread all the same,
    by whichever thread of the team: the team then meets at a barrier before it reads a row.
    """

    def __init__(
        self, frame: Frame, rows: RowTeams, schedule: CudaSchedule, brought: frozenset[Fetch], places: Sequence[Place]
    ) -> None:
        self.frame, self.rows, self.places, self.row = frame, rows, places, schedule.capacity
        self.team, self.teams = schedule.threads_per_row, schedule.threads // schedule.threads_per_row
        self.size = schedule.unroll if brought else 0
        self.ahead = max(self.size - 1, 0)
        self.meets = any(rows.width * f.dtype.bytes < MOST_COPY for f in brought)
        b, count = frame.builder, self.size * self.row * self.teams
        ordered = sorted(brought, key=lambda f: (f.node, str(f.index)))
        self.arrays = {f: b.alloc("ring", f.dtype, count, "shared", dynamic=True) for f in ordered}
        if self.size:
            self.here = b.mutable("turn", frame.number(0))  # the row that is worked on
            self.first = frame.mul(frame.div(frame.thread(), self.team), self.row)  # of the team's part of a turn

    @property
    def behind(self) -> Operand:
        """The turn before the one that is worked on: that of the last row on its way."""
        f, b = self.frame, self.frame.builder
        if not self.size:
            return f.number(0)
        first = b.apply("equal", (self.here, f.number(0)), BOOL)
        before = b.apply("subtract", (self.here, f.number(1)), f.index)
        return b.apply("where", (first, f.number(self.size - 1), before), f.index)

    def fill(self, turn: Operand, row: IndexEmitter, length: Operand, exists: Operand) -> None:
        """Starts the copies of a row."""
        f, b = self.frame, self.frame.builder
        for fetch, name in self.arrays.items():
            piece = MOST_COPY // fetch.dtype.bytes
            for position, guard in self._pieces(piece, length):
                source = self.rows.tile_at(row, position)[0].value(fetch.index[0])
                mask = f.masked(guard, exists)
                b.copy(name, self._at(turn, position), f.buffer_of(fetch), source, piece, mask)
        b.commit()

    def _pieces(self, piece: int, length: Operand) -> Iterator[tuple[Operand, Operand | None]]:
        """Where in the row the pieces are that this thread copies, and which of them exist."""
        f = self.frame
        if not self.meets:
            for position, exists in self.places:
                for j in range(0, self.rows.width, piece):
                    yield f.add(position, j), exists
            return
        for k in range(0, self.row, piece * self.team):
            position = f.add(f.mul(self.rows.member, piece), k)
            yield position, f.less(position, length)

    def wait(self) -> None:
        """Until the row of the turn is here, and nobody reads the turn before any more."""
        if self.size:
            self.frame.builder.await_copies(self.ahead - 1)
            if self.meets:
                self.frame.builder.barrier()

    def take(self, fetch: Fetch, position: Operand, width: int, exists: Operand | None) -> tuple[Operand, ...]:
        """Elements of the row that is worked on."""
        f, name, step = self.frame, self.arrays[fetch], min(MOST_COPY // fetch.dtype.bytes, width)
        out = list[Operand]()
        for j in range(0, width, step):
            out += f.builder.load_vec(name, self._at(self.here, f.add(position, j)), step, exists)
        return tuple(out)

    def turn(self) -> None:
        """The row is done."""
        f, b = self.frame, self.frame.builder
        if self.size:
            later = f.add(self.here, 1)
            last = b.apply("equal", (later, f.number(self.size)), BOOL)
            b.assign(self.here, b.apply("where", (last, f.number(0), later), f.index))

    def end(self) -> None:
        """No copy is left on its way."""
        if self.size:
            self.frame.builder.await_copies(0)

    def _at(self, turn: Operand, position: Operand) -> Operand:
        """Rows lie as in memory: neighbouring threads read neighbouring pieces."""
        f = self.frame
        return f.add(f.add(f.mul(turn, self.row * self.teams), self.first), position)
