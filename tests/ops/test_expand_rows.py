"""Every `expand` gives what the row's reference gives: bit for bit where the row is exact, else within its ulp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.dtypes import DType
from fuser.optable import table
from fuser.optable.base import ScalarOp, pick
from fuser.optable.evaluate import evaluate_expand, evaluate_scalar
from tests.ops.samples import difference, operands, signatures

EXPANDED = [row for row in table().of(ScalarOp) if row.expand is not None]


def needs_expand(row: ScalarOp, dtypes: Sequence[DType]) -> bool:
    """Whether some target has no spelling of its own for these dtypes."""
    second = dtypes[1] if len(dtypes) > 1 else None
    return None in (pick(row.cuda, dtypes[0], second), pick(row.llvm, dtypes[0], second))


@pytest.mark.parametrize("row", EXPANDED, ids=lambda row: row.name)
def test_expand_equals_reference(row: ScalarOp) -> None:
    found = [s for s in signatures(row) if needs_expand(row, s.operands)]
    assert found
    for dtypes in found:
        arrays = operands(row, dtypes.operands)
        want = evaluate_scalar(row, *arrays, dtype=dtypes.result)
        got = np.broadcast_to(evaluate_expand(row, *arrays, dtype=dtypes.result, table=table()), want.shape)
        assert difference(row, got, want, arrays) is None, dtypes
