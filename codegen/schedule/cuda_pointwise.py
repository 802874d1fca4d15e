"""CUDA schedules of pointwise groups by formula: plain vectors, strips of rows, stencils, squares that are transposed.

In: the measures of a group. Out: `Pointwise`, whose `pointwise` is the schedule. Its own file because these four share
nothing with reductions but the measures.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.codegen.schedule import lower_stencil, lower_transposed
from fuser.codegen.schedule.exchange import SHARED_LIMIT
from fuser.codegen.schedule.flight import InFlight
from fuser.codegen.schedule.measures import BLOCK, LANE_STEPS
from fuser.hostfunctions import ceil_pow2
from fuser.schedule import CudaSchedule

THIN = 128  # threads of a block of a pointwise kernel: 1-3% faster than 256 on H200, where 64 can be 20% slower
STRIP = 4  # rows that a thread of a strip takes (halves on H200: 1% faster than with 2, in 80 registers)
STRIP_REGISTERS = 32  # for what such a thread has loaded
MARCH = 4  # vectors that a thread of a stencil takes one after another: what lies between them is loaded once


class Pointwise(InFlight):
    """Measures that choose."""

    def pointwise(self) -> CudaSchedule:
        axes = self.body.parallel
        vector = self._vector(axes[-1]) if axes else 1
        if len(axes) > 1:
            vector = self._dividing(vector, axes[-1].extent)
        total = self._representative(self.body.rows)
        if (side := self._square(vector)) and total >= side * side * self.device.sms:
            return replace(self._schedule("pointwise", BLOCK, vector, 1), tile=side)
        vector = self._fewer(vector, total)
        if axes and not self.group.in_place and lower_stencil.neighbours(self.body):
            return self._stencil(vector, total)
        if self.guards:
            return replace(self._schedule("pointwise", THIN, vector, 1), min_blocks=self.device.threads // THIN)
        if (strip := self._strip(vector, total)) > 1:
            return replace(self._schedule("pointwise", THIN, vector, 1), strip=strip)
        if total <= self.device.sms * THIN:  # one H200: gelu of 16,384 f32 with weights 1.47 -> 1.43 us
            return self._schedule("pointwise", BLOCK, 1, 1)
        return self._schedule("pointwise", THIN, vector, self._unroll(vector, total))

    def _strip(self, vector: int, total: int) -> int:
        """Rows a thread takes where loads along a row are the same in all of them; 1 where there are none, or too few
        elements for that."""
        axes = self.body.parallel
        if len(axes) < 2:
            return 1
        program = self.body.stages[0].loop
        along = list(self._streams(program))
        varies = program.dependent(frozenset({axes[-2].name}))
        shared = [k for k in along if not varies[k]]
        if not shared:
            return 1
        once = sum(program.fetch(k).dtype.bytes * vector for k in shared) // 4
        each = sum(program.fetch(k).dtype.bytes * vector for k in along) // 4 - once
        strip = STRIP
        while strip > 1 and (
            strip * each + once > STRIP_REGISTERS
            or strip * vector * self._steps() > LANE_STEPS
            or total < strip * vector * THIN * self.device.sms * 2
        ):
            strip //= 2
        return strip

    def _stencil(self, vector: int, total: int) -> CudaSchedule:
        """At least 128 neighbouring elements a row of a block's tile, so that what two blocks load both is small."""
        inner, march = self.body.parallel[-1].extent, lower_stencil.marching(self.body)
        vector = self._dividing(vector, inner)
        if march is None:
            return self._schedule("pointwise", BLOCK, vector, 1, BLOCK)
        across = min(max(128 // vector, 32), BLOCK, max(ceil_pow2(-(-self._representative(inner) // vector)), 2))
        unroll = min(MARCH, ceil_pow2(self._representative(march.extent)))
        while unroll > 1 and (
            unroll * vector * self._steps() > LANE_STEPS or total < unroll * vector * BLOCK * self.device.sms * 2
        ):
            unroll //= 2
        return self._schedule("pointwise", BLOCK, vector, unroll, across)

    def _square(self, vector: int) -> int:
        """Side of the squares for transposed operands; 0 where there are none, or they do not fit."""
        found = lower_transposed.crossing(self.body)
        if found is None or vector * self._steps() * 4 > LANE_STEPS:
            return 0
        loads = [self.body.stages[0].loop.fetch(k).dtype.bytes for k in found.steps]
        side = 64 if max(loads) <= 4 else 32
        return side if side * (side + lower_transposed.PAD) * sum(loads) <= SHARED_LIMIT else 0
