"""Which operators a target has itself: the question that `expand`, `verify`, printers and emitters share.

In: a scalar row, a target, operands and result dtype. Out: the row's spelling there, or None where its `expand`
writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fuser.codegen.loops import Operand
from fuser.dtypes import DType
from fuser.optable.base import ScalarOp, Spelling, pick

Target = Literal["cuda", "cpu"]


def spelling(row: ScalarOp, target: Target, args: Sequence[Operand], result: DType) -> Spelling | None:
    """How the target spells the row for these operands; conversions are told apart by source and result."""
    spellings = row.cuda if target == "cuda" else row.llvm
    if row.converts:
        return pick(spellings, args[0].dtype, result)
    return pick(spellings, args[0].dtype, args[1].dtype if len(args) > 1 else None)
