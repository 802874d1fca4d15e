"""What the verifier of kernels knows of names, and of a collective's state.

In: declarations as `verify` meets them. Out: a `Scope` a block. Its own file because the verifier is one check a
statement, and this is what all of them share.
"""

from __future__ import annotations

from dataclasses import field

from fuser.codegen.loops import WARP, Alloc
from fuser.dtypes import I32, I64, DType
from fuser.optable.base import Reduction
from fuser.record import dataclass


@dataclass
class Scope:
    """Names declared in one block. constant: literals once loops are unrolled; uniform: equal in all threads."""

    names: dict[str, DType] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    uniform: set[str] = field(default_factory=set)
    arrays: dict[str, Alloc] = field(default_factory=dict)


def fold_together(groups: int, width: int, stride: int = 1) -> bool:
    """Whether one collective folds so many groups of teams: a warp holds the parts of all their warps."""
    return groups > 1 and stride == 1 and width > WARP and groups * (width // WARP) <= WARP


def holds(dtypes: list[DType], row: Reduction, operand: DType) -> bool:
    """Whether a collective's variables hold states of the row; an index (i64) may be narrower before the last fold."""
    declared = row.state(operand)
    narrow = {(I32, I64)} if row.uses_index else set()
    groups = len(dtypes) // len(declared)
    whole = len(dtypes) == groups * len(declared) and groups > 0 and groups & (groups - 1) == 0
    return whole and all(t == d or (t, d) in narrow for t, d in zip(dtypes, [*declared] * groups, strict=True))
