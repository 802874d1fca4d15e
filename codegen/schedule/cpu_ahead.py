"""Operands that are contiguous across the rows of a reduction, copied ahead of the rows that are being added.

In: a stage whose reduced axes are several, as in `sum(x + y.T)`: elements are added row by row, and a row reads one
element of each cache line of `y`. Out: statements that copy, before a row that is not there yet, some rows of such
operands to arrays, along their own contiguous axis; the row then reads those. The order of addition is untouched.
"""

from __future__ import annotations

from fuser.codegen.evaluate import mask_operand
from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Operand
from fuser.codegen.schedule.body import Body, StageBody
from fuser.codegen.schedule.cpu_sweep import Sweep, Walk, crossing

AHEAD_BYTES = 3 << 17  # of the arrays, on the stack of a thread and in its L2
MOST_ROWS, LEAST_ROWS = 16, 4  # a cache line of 4-byte elements; fewer rows than these would not pay
SPARE = 16  # elements beyond a row, so that the rows of an array do not compete for the same lines of a cache


def crossing_of(body: Body, stage: StageBody) -> list[int]:
    """The loads of a stage that cross the rows of its reduced axes."""
    return crossing(stage.loop, body.reduced[-2], body.reduced[-1]) if len(body.reduced) > 1 and stage.reduces else []


def rows_ahead(body: Body, width: int) -> int:
    """How many rows of `width` elements to copy at a time, a power of two; 0 where nothing crosses rows, or where they
    are too long."""
    loads = [[s.loop.fetch(k).dtype.bytes for k in crossing_of(body, s)] for s in body.stages]
    most = max((sum(sizes) for sizes in loads), default=0)
    rows = min(AHEAD_BYTES // (most * (width + SPARE)), MOST_ROWS) if most else 0
    return 1 << (rows.bit_length() - 1) if rows >= LEAST_ROWS else 0


class Ahead:
    """The copies of one stage: of `height` rows of at most `width` elements, as runs `first` to `last` need them."""

    def __init__(
        self, walk: Walk, body: Body, stage: StageBody, shape: tuple[int, int], runs: tuple[Operand, Operand]
    ) -> None:
        self.walk, self.body, self.loop = walk, body, stage.loop
        self.height, self.pitch = shape[0], shape[1] + SPARE
        b = walk.frame.builder
        self.last = runs[1]
        self.until = b.mutable("until", runs[0])  # runs before this one are there
        self.base = b.mutable("base", walk.operand(0))  # row of the first one that is
        size, steps = self.height * self.pitch, crossing_of(body, stage)
        self.arrays = {k: b.alloc("ahead", self.loop.fetch(k).dtype, size, "register") for k in steps}

    def use(self, sweep: Sweep) -> None:
        """Let the stage's program read the copies."""
        sweep.staged.update({step: (array, self._place) for step, array in self.arrays.items()})

    def _place(self, at: IndexEmitter) -> Operand:
        across, along = (axis.name for axis in self.body.reduced[-2:])
        row = self.walk.op("subtract", at.bindings[across], self.base)
        return self.walk.op("add", self.walk.op("multiply", row, self.pitch), at.bindings[along])

    def reach(self, q: Operand, at: IndexEmitter) -> None:
        """Before run `q`, at which `at` binds all axes but the innermost: copy it and the next ones, if need be."""
        walk, b = self.walk, self.walk.frame.builder
        across, along = self.body.reduced[-2:]
        row = at.bindings[across.name]
        with b.branch(walk.holds("greater_equal", q, self.until)):
            left = walk.op("subtract", self.last, q)
            if len(self.body.reduced) > 2:
                left = walk.least(left, walk.op("subtract", across.extent, row))
            number = walk.least(left, self.height)
            b.assign(self.base, row)
            b.assign(self.until, walk.op("add", q, number))
            stop = walk.operand(along.extent)
            with walk.loop("column", 0, stop) as j, walk.loop("ahead", 0, number, kind="vector") as k:
                here = at.bound(**{across.name: walk.op("add", row, k), along.name: j})
                place = walk.op("add", walk.op("multiply", k, self.pitch), j)
                for step, array in self.arrays.items():
                    fetch = self.loop.fetch(step)
                    mask = mask_operand(b, here, fetch.mask)
                    b.store(array, place, b.load(walk.frame.buffer_of(fetch), here.value(fetch.index[0]), mask))
