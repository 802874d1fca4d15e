"""Decisions: why two operators share a kernel, or do not. Recorded for every pair considered.

In: what legality and the cost model found. Out: records that a plan keeps, answers `why` from and prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from fuser.record import dataclass

DecisionKind = Literal["vertical", "sibling", "view", "library", "replan", "recompute", "effect", "batch"]
Verdict = Literal["fused", "apart"]

REASONS: Mapping[str, str] = {
    # fused
    "elementwise": "one iteration space",
    "reduction-input": "computed on the way into the reduction",
    "row-space": "one row space",
    "row-kept": "row kept until the reduction is known",
    "epilogue": "applied to the reduction's result",
    "view": "read through an index map, no copy",
    "siblings": "one read serves both",
    "batched": "independent of each other, so one launch serves both",
    "recompute": "cheaper to compute again than to store",
    "marked": "as the program's marks ask",
    # apart
    "library": "a library call keeps its own fast path",
    "barrier": "the result is known only after every row",
    "space": "iteration spaces differ",
    "index": "the reduction's result is needed at another row",
    "cycle": "another group lies between them",
    "axes": "their kernels reduce different axes",
    "width": "rows too long to be held beside the sums of their columns",
    "strips": "too few strips of rows whose columns one block may add up",
    "scan": "a running fold shares its kernel with elementwise work at its own place only",
    "registers": "would spill or cut occupancy",
    "arguments": "too many kernel arguments",
    "cost": "predicted slower together",
    "effect": "an argument's old value is still read",
    "length": "a longer kernel would compile slower, not run faster",
    "budget": "not examined: search budget spent",
    "argument": "an argument, which the kernel reads from memory",
    "unconnected": "nothing flows between them",
}


@dataclass(frozen=True)
class Decision:
    """One verdict about a producer and a consumer (or two siblings), by node id.

    reason: a key of `REASONS`. numbers: what it was based on (bytes, registers, microseconds...), JSON-plain.
    """

    kind: DecisionKind
    producer: int
    consumer: int
    verdict: Verdict
    reason: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The reason in words."""
        return REASONS[self.reason]
