"""What one kernel may not exceed, however it came about: operators, parameter bytes, registers.

In: the cores, inputs and stored values of a would-be kernel. Out: a `Refusal` with its numbers, or None. The
search asks for every merge, the repairs for every kernel they change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from fuser.device import Device
from fuser.passes import registers
from fuser.passes.facts import Facts
from fuser.passes.legality import Refusal

MEMBER_LIMIT = 512  # operators: compile time grows with them, and past a few hundred nothing is left to save
PARAMETER = 8  # bytes of a pointer, scalar, dim or stride in the parameter block
FIXED_PARAMETERS = 24 * PARAMETER  # dims, divisors and strides of the group's own space


class Limits:
    """The limits of one device. strided: ids of arguments that may need strides among the parameters."""

    def __init__(self, facts: Facts, device: Device, strided: Set[int]) -> None:
        self.facts, self.device, self.strided = facts, device, strided

    def members(self, count: int) -> Refusal | None:
        """Too many operators."""
        if count <= MEMBER_LIMIT:
            return None
        return Refusal("length", numbers={"operators": count, "limit": MEMBER_LIMIT})

    def arguments(self, inputs: Iterable[int], outputs: int, scalars: Collection[int]) -> Refusal | None:
        """Too large a parameter block: pointers of inputs and outputs, strides of strided arguments, scalars."""
        pointers = strides = 0
        for k in inputs:
            pointers += 1
            strides += self.facts.nodes[k].rank if k in self.strided else 0
        size = FIXED_PARAMETERS + PARAMETER * (pointers + strides + outputs + len(scalars))
        if size <= self.device.argument_bytes:
            return None
        return Refusal("arguments", numbers={"argument_bytes": size, "limit": self.device.argument_bytes})

    def registers(self, live: int, inputs: Iterable[int]) -> tuple[int, Refusal | None]:
        """Registers a thread with `live` values at once, and a refusal if it would have to spill."""
        needs, limit = registers.estimate(self.facts, live, inputs), self.device.thread_registers
        if needs <= limit:
            return needs, None
        return needs, Refusal("registers", numbers={"needs": needs, "limit": limit})

    def kernel(self, cores: Set[int], inputs: Collection[int], stored: Collection[int]) -> Refusal | None:
        """All limits, counted from scratch."""
        scalars = {s for k in cores for s in self.facts.scalars[k]}
        refusal = self.members(len(cores)) or self.arguments(inputs, len(stored), scalars)
        if refusal is not None or self.device.kind == "cpu":
            return refusal
        live = registers.peak(self.facts, cores, stored) + registers.accumulators(self.facts, cores)
        return self.registers(live, inputs)[1]
