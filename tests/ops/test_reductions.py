"""Each reduction's lift, combine and finish give its reference, at lengths that leave lanes empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.dtypes import ALL, F32, F64, I64, DType
from fuser.optable import table
from fuser.optable.base import Reduction, Scan
from fuser.optable.evaluate import NumPyEmit, evaluate_reduction, evaluate_states
from tests.ops.samples import LENGTHS, reduction_operands

Array = np.ndarray[Any, Any]
ROWS: list[Reduction] = table().of(Reduction)


def accepted(row: Reduction) -> list[DType]:
    return sorted({t for t in map(row.accepts, ALL) if t is not None and not t.is_half}, key=str)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("n", LENGTHS)
def test_states_equal_reference(row: Reduction, n: int) -> None:
    for dtype in accepted(row):
        for x in reduction_operands(row, dtype, n):
            got = evaluate_states(row, x, table())
            want = evaluate_reduction(row, x, (1,))
            for a, b, t in zip(got, want, row.results(dtype), strict=True):
                assert a.dtype == b.dtype == t.numpy
                compare(row, a, b, x)


def compare(row: Reduction, got: Array, want: Array, x: Array) -> None:
    if row.exact or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    eps = float(np.finfo(got.dtype).eps)
    if row.name == "prod":  # every factor adds its rounding
        np.testing.assert_allclose(got, want, rtol=eps * x.shape[1])
        return
    size = np.nan_to_num(np.abs(x.astype(np.float64)).sum(axis=1), posinf=0.0)
    for a, b, s in zip(got, want, size, strict=True):  # a sum that cancels keeps the error of its terms
        np.testing.assert_allclose(a, b, rtol=64 * eps, atol=64 * eps * s)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_identity_is_neutral_on_both_sides(row: Reduction) -> None:
    """For infinities and NaN too, so that a lane without elements never shows."""
    emit = NumPyEmit(table())
    for dtype in accepted(row):
        values = reduction_operands(row, dtype, 127)[0][0]
        if dtype.is_float:
            values[:4] = np.inf, -np.inf, np.nan, 0.0
        index = emit.handle(np.arange(values.size, dtype=np.int64))
        with np.errstate(all="ignore"):
            state = row.lift(emit.handle(values), index)
            state = tuple(emit.handle(np.broadcast_to(s.value, values.shape)) for s in state)
            identity = tuple(
                emit.handle(np.full(values.shape, v, t.numpy))
                for v, t in zip(row.identity(dtype), row.state(dtype), strict=True)
            )
            for combined in (row.combine(state, identity), row.combine(identity, state)):
                for got, want in zip(combined, state, strict=True):
                    np.testing.assert_array_equal(got.value, want.value)


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all"])
def test_empty_axis_gives_the_identity(name: str) -> None:
    row = table().reduction(name)
    for dtype in accepted(row):
        x = np.zeros((2, 0), dtype.numpy)
        want = evaluate_reduction(row, x, (1,))[0]
        assert want.tolist() == [row.identity(dtype)[0]] * 2


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_empty_axis_without_identity_raises(name: str) -> None:
    row = table().reduction(name)
    with pytest.raises(ValueError, match="no identity"):
        evaluate_reduction(row, np.zeros((2, 0), np.float32), (1,))
    assert evaluate_reduction(row, np.zeros((0, 2), np.float32), (1,))[0].shape == (0,)


def test_extremes_of_infinities_are_infinite() -> None:
    x = np.full((1, 37), np.inf, np.float32)
    assert evaluate_states(table().reduction("min"), x, table())[0] == np.inf
    assert evaluate_states(table().reduction("max"), -x, table())[0] == -np.inf
    assert evaluate_states(table().reduction("argmin"), x, table())[0] == 0
    assert evaluate_states(table().reduction("argmax"), -x, table())[0] == 0


def test_argmax_takes_the_first_nan_and_the_first_of_ties() -> None:
    row = table().reduction("argmax")
    x = np.array([[1, np.nan, 5, np.nan, 0], [3, 5, 5, 2, 5]], np.float64)
    assert evaluate_states(row, x, table())[0].tolist() == [1, 1]


def test_argmax_over_several_axes_is_row_major() -> None:
    x = np.zeros((2, 3, 4), np.int32)
    x[0, 2, 1] = x[1, 1, 3] = 9
    assert evaluate_reduction(table().reduction("argmax"), x, (0, 2))[0].tolist() == [0, 7, 1]
    assert evaluate_reduction(table().reduction("argmax"), x, (0, 1, 2))[0].tolist() == 9


def test_moments_survive_a_large_mean() -> None:
    x = (np.float32(1e6) + np.tile(np.arange(4, dtype=np.float32), (2, 1024))).astype(np.float32)
    mean, squares = evaluate_states(table().reduction("moments"), x, table())
    np.testing.assert_allclose(mean, 1e6 + 1.5, rtol=1e-6)
    np.testing.assert_allclose(squares / x.shape[1], 1.25, rtol=1e-3)


def test_masked_rows_of_max_sumexp() -> None:
    x = np.array([[-np.inf] * 3, [1000.0] * 3, [-np.inf, 0, -np.inf]], np.float32)
    top, total = evaluate_states(table().reduction("max_sumexp"), x, table())
    assert top.tolist() == [-np.inf, 1000, 0]
    assert total.tolist() == [3, 3, 1]


@pytest.mark.parametrize("row", table().of(Scan), ids=lambda row: row.name)
def test_scan_reference_folds_prefixes(row: Scan) -> None:
    reduction = table().reduction(row.reduction)
    rng = np.random.default_rng(3)
    for dtype in (F32, F64, I64):
        x = np.asarray(rng.integers(-2, 4, (3, 9)), dtype.numpy)
        folded = [evaluate_reduction(reduction, x[:, :k], (1,))[0] for k in range(1, 10)]
        want = np.stack(folded, axis=1)
        np.testing.assert_array_equal(row.reference(x, 1), want)
        back = row.reference(x[:, ::-1], 1, reverse=True)
        np.testing.assert_array_equal(back[:, ::-1], want)
        shifted = row.reference(x, 1, exclusive=True)
        assert shifted.dtype == x.dtype
        np.testing.assert_array_equal(shifted[:, 1:], want[:, :-1])
        assert shifted[:, 0].tolist() == [reduction.identity(dtype)[0]] * 3


def test_scan_of_an_empty_axis() -> None:
    for row in table().of(Scan):
        assert row.reference(np.zeros((2, 0), np.float32), 1, exclusive=True).shape == (2, 0)
