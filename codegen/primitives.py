"""Which operators a target has itself: the question that `expand`, `verify`, printers and emitters share.

In: a scalar row, a target, operands. Out: the row's spelling there, or None where its `expand` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fuser.codegen.loops import Operand
from fuser.optable.base import ScalarOp, Spelling, pick

Target = Literal["cuda", "cpu"]


def spelling(row: ScalarOp, target: Target, args: Sequence[Operand]) -> Spelling | None:
    """How the target spells the row for these operands; a row without operands is never primitive."""
    spellings = row.cuda if target == "cuda" else row.llvm
    if not args:
        return None
    return pick(spellings, args[0].dtype, args[1].dtype if len(args) > 1 else None)
