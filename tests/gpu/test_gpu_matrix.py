"""The operator matrix, the fuzzer and the public cases of the other folders, on a real GPU.

The same cells as on the CPU and in the interpreter, all of them: a GPU runs them in minutes.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from fuser.optable.base import Composite
from tests import engines
from tests.cases.test_public_cases import CASES, NOT_YET, SEPARATE, run_case
from tests.engines import CUDA, SIMT
from tests.fuzz.errors import bounds
from tests.fuzz.generate import long_program, program, rowwise
from tests.fuzz.judge import fault, meaning
from tests.fuzz.programs import Program, eager
from tests.fuzz.test_fuzz import ALL as ALL_PROGRAMS
from tests.fuzz.test_fuzz import AT_ONCE, judged, row_fault
from tests.ops.matrix import Batch, batches, cast_faults, elementwise_faults
from tests.ops.matrix_composites import composite_faults, composites
from tests.ops.matrix_folds import ONE_AXIS, SEVERAL_AXES, Axes, alone_faults, fold_faults, scan_faults
from tests.ops.test_matrix import verdict

pytestmark = pytest.mark.gpu


# -- the matrix ------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch", batches(), ids=str)
def test_elementwise_rows(batch: Batch) -> None:
    verdict(elementwise_faults(CUDA, batch))


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts(source: DType) -> None:
    verdict(cast_faults(CUDA, source))


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("axes", [*ONE_AXIS, *SEVERAL_AXES], ids=str)
def test_reductions(axes: Axes, dtype: DType) -> None:
    verdict(fold_faults(CUDA, axes, dtype))


@pytest.mark.parametrize("dtype", [BOOL, U8, I32, I64, F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("axes", ONE_AXIS, ids=str)
def test_scans(axes: Axes, dtype: DType) -> None:
    verdict(scan_faults(CUDA, axes, dtype))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_row_alone(axis: int, dtype: DType) -> None:
    verdict(alone_faults(CUDA, axis, dtype))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("row", composites(), ids=lambda row: row.name)
def test_composites(row: Composite, dtype: DType) -> None:
    verdict(composite_faults(CUDA, row, dtype))


# -- random programs -------------------------------------------------------------------------------
def fits(p: Program) -> bool:
    """Whether the arrays exist on the GPU: bfloat16 lives in torch tensors, and comes back only from those."""
    values = eager(p)
    given = [a.dtype for a in p.arguments]
    if "bfloat16" not in (*given, *(values[name].dtype.name for name in p.outputs)):
        return True
    return "bfloat16" in given and find_spec("torch") is not None


BLOCKS = [range(k, k + AT_ONCE) for k in range(0, ALL_PROGRAMS, AT_ONCE)]
blocks = pytest.mark.parametrize("block", BLOCKS, ids=lambda b: f"{b.start}-{b.stop - 1}")


@blocks
def test_random_programs(block: range) -> None:
    for seed in block:
        judged(program(seed), lambda p: fault(p, [CUDA]) if fits(p) else None)


def test_random_programs_over_long_axes() -> None:
    for seed in range(100):
        judged(long_program(seed), lambda p: fault(p, [CUDA]) if fits(p) else None)
        judged(long_program(seed), interpreter_fault)


@blocks
def test_random_programs_are_bit_for_bit_those_of_the_interpreter(block: range) -> None:
    """Where no library function is involved: arithmetic and the order of reductions are fixed by the program."""
    for seed in block:
        judged(program(seed), interpreter_fault)


def interpreter_fault(p: Program) -> str | None:
    if any(s.rounding == "libm" for s in p.statements) or not fits(p):
        return None
    results: list[Any] = []
    for engine in (CUDA, SIMT):
        given = p.arrays()
        results.append((engine.compile(p.function())(*given), given))
    return engines.unlike(*results)


@blocks
def test_rows_alone_in_random_programs(block: range) -> None:
    for seed in block:
        judged(rowwise(seed), lambda p: row_fault(p, CUDA) if fits(p) else None)


def test_the_programs_compared_with_the_interpreter_do_reduce() -> None:
    exact = [p for p in map(program, range(ALL_PROGRAMS)) if all(s.rounding != "libm" for s in p.statements)]
    summing = [p for p in exact if any(s.rounding in ("sum", "var", "std") for s in p.statements)]
    assert len(summing) > 50
    assert any(bounds(p)[p.outputs[0]].any() for p in summing)
    assert meaning(summing[0])


# -- cases -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "case", [c for c in CASES if c["id"] not in SEPARATE and c["id"] != "A30"], ids=lambda c: c["id"]
)
def test_public_case(case: dict[str, str], request: pytest.FixtureRequest) -> None:
    if case["id"] in NOT_YET:
        request.applymarker(pytest.mark.xfail(reason=NOT_YET[case["id"]], strict=True))
    run_case(case, CUDA.compile)
