"""A bound CPU program that takes torch tensors and Python numbers: the short road's launch.

In: as for `quickcpu.CpuCall`. Out: `TorchCall`, which differs in how tensors are looked at and made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.dtypes import DType
from fuser.runtime import arrays, tensors
from fuser.runtime.arrays import CPU
from fuser.runtime.bound import BoundProgram
from fuser.runtime.quickcpu import CpuCall, Maker


class TorchCall(CpuCall):
    """See the module's docstring."""

    torch = True

    @staticmethod
    def suits(program: BoundProgram, inputs: Sequence[Any]) -> bool:
        """Whether all arrays are torch's, and kernels store all effects."""
        stored = all(program.places[e.node.id] == e.argument for e in program.graph.effects)
        return stored and all(arrays.family_of(a) == "torch" for a in inputs)

    def overlapping(self, args: Sequence[Any]) -> bool:
        found = {k: arrays.describe(args[k]) for pair in self.pairs for k in pair}
        return any(arrays.overlaps(found[k], found[r]) for k, r in self.pairs)

    def _tell(self, args: Sequence[Any]) -> None:
        if self.written:
            tensors.bump()(tuple(args[k] for k in self.written))

    def maker(self, shape: tuple[int, ...], dtype: DType) -> Maker:
        return tensors.maker(shape, dtype, CPU)

    def _addresses(self, args: Sequence[Any], results: Sequence[Any]) -> list[int]:
        return [*(args[k].data_ptr() for k in self.places.arrays), *(r.data_ptr() for r in results)]
