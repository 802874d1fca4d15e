"""The operator matrix on the CPU and on the CUDA kernels in the interpreter: see `matrix*.py` for what is compared.

The usual dtypes always run; the others are marked slow. tests/gpu runs the same cells on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from fuser.optable import table
from fuser.optable.base import Composite, Reduction, ScalarOp, Scan
from tests import engines
from tests.engines import Engine, Program
from tests.ops.matrix import Batch, batches, callable_rows, cast_faults, elementwise_faults
from tests.ops.matrix_composites import CALLS, composite_faults, composites
from tests.ops.matrix_folds import (
    FOLDS,
    ONE_AXIS,
    SCANS,
    SEVERAL_AXES,
    Axes,
    alone_faults,
    fold_faults,
    scan_faults,
)

SHOWN = 12


def verdict(found: list[str]) -> None:
    assert not found, f"{len(found)} findings:\n" + "\n".join(found[:SHOWN])


def cells(always: Sequence[tuple[Any, ...]], slow: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Parameters of a test; those of `slow` that are not in `always` are marked."""
    late = [c for c in slow if c not in always]
    return [pytest.param(*c, id=_id(c)) for c in always] + [
        pytest.param(*c, id=_id(c), marks=pytest.mark.slow) for c in late
    ]


def _id(cell: tuple[Any, ...]) -> str:
    return "-".join(str(getattr(c, "name", c)) for c in cell)


# -- elementwise -----------------------------------------------------------------------------------
@engines.each
@pytest.mark.parametrize("batch", batches(), ids=str)
def test_elementwise_rows_agree_at_every_length_and_offset(engine: Engine, batch: Batch) -> None:
    verdict(elementwise_faults(engine, batch))


@engines.each
@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts_agree(engine: Engine, source: DType) -> None:
    verdict(cast_faults(engine, source))


# -- reductions and scans --------------------------------------------------------------------------
USUAL = (BOOL, I8, BF16, F32)


@engines.each
@pytest.mark.parametrize(
    ("axes", "dtype"),
    cells(
        [(a, t) for a in ONE_AXIS for t in USUAL] + [(a, F32) for a in SEVERAL_AXES],
        [(a, t) for a in ONE_AXIS for t in ALL] + [(a, t) for a in SEVERAL_AXES for t in (BOOL, F16, F32, I32)],
    ),
)
def test_reductions_agree(engine: Engine, axes: Axes, dtype: DType) -> None:
    verdict(fold_faults(engine, axes, dtype))


@engines.each
@pytest.mark.parametrize(
    ("axes", "dtype"),
    cells(
        [(a, t) for a in ONE_AXIS for t in (F32, I32)],
        [(a, t) for a in ONE_AXIS for t in (BOOL, U8, I64, F16, BF16, F64)],
    ),
)
def test_scans_agree(engine: Engine, axes: Axes, dtype: DType) -> None:
    verdict(scan_faults(engine, axes, dtype))


@engines.each
@pytest.mark.parametrize(
    ("axis", "dtype"), cells([(0, F32), (1, F32), (1, BF16)], [(a, t) for a in (0, 1) for t in (F16, BF16, F64)])
)
def test_a_row_alone_is_the_row_in_a_batch(engine: Engine, axis: int, dtype: DType) -> None:
    verdict(alone_faults(engine, axis, dtype))


# -- composites ------------------------------------------------------------------------------------
@engines.each
@pytest.mark.parametrize(
    ("row", "dtype"),
    cells([(r, F32) for r in composites()], [(r, t) for r in composites() for t in (F16, BF16, F64)]),
)
def test_composites_agree(engine: Engine, row: Composite, dtype: DType) -> None:
    verdict(composite_faults(engine, row, dtype))


# -- nothing is left out ---------------------------------------------------------------------------
def test_every_public_row_is_in_the_matrix() -> None:
    covered = {r.name for b in batches() for r in b.rows} | {"cast"}
    hidden = {r.name for r in table().of(ScalarOp) if r.hidden} - {"clip", "cast"}
    assert covered == {r.name for r in table().of(ScalarOp)} - hidden
    assert {r.name for r in callable_rows()} == covered - {"cast"}
    assert {r.name for r in table().of(Scan)} == set(SCANS)
    through_composites = {
        "moments",
        "max_sumexp",
        "complex_prod",
    }
    assert {r.name for r in table().of(Reduction)} - through_composites <= set(FOLDS)
    assert set(CALLS) <= {r.name for r in composites()}


class Faulty:
    """An engine whose results have one wrong value: the matrix must see it."""

    def __init__(self, result: int) -> None:
        self.result = result

    def compile(self, fn: Program, **options: Any) -> Program:
        inner = engines.SIMT.compile(fn, **options)

        def run(*arrays: Any) -> Any:
            results = list(inner(*arrays))
            broken = np.array(results[self.result])
            if broken.size > 40:
                broken.flat[37] = broken.flat[38] if broken.dtype == bool else 77
            results[self.result] = broken
            return tuple(results)

        return run


@pytest.mark.parametrize("result", [0, 3])
def test_the_matrix_sees_one_wrong_value(result: int) -> None:
    engine: Any = Faulty(result)
    batch = next(b for b in batches() if b.dtypes == (F32, F32))
    assert any(f.startswith(batch.rows[result].name) for f in elementwise_faults(engine, batch))
    assert any("cumsum" in f or "cummin" in f for f in scan_faults(engine, ONE_AXIS[0], F32))
