"""The samples hold what they promise, and `difference` sees what it must: a blind judge would pass everything."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fuser.dtypes import ALL, BF16, F16, F32, F64, I8, DType
from fuser.optable import table
from fuser.optable.base import ScalarOp
from fuser.optable.evaluate import evaluate_expand, evaluate_scalar
from fuser.optable.fma import fma_array
from tests.ops.samples import difference, operands, random_values, signatures, specials, ulps

FLOATS = (F16, BF16, F32, F64)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_specials_of_every_dtype(dtype: DType) -> None:
    values = specials(dtype)
    assert values.dtype == dtype.numpy
    assert len(np.unique(values.view(f"u{dtype.bytes}"))) == len(values)
    if dtype.is_float:
        wide = values.astype(np.float64)
        assert np.isnan(wide).sum() == 1
        assert np.isinf(wide).sum() == 2
        assert np.signbit(wide[wide == 0]).tolist().count(True) == 1
        tiny = 2.0 ** (-14 if dtype == F16 else -1022 if dtype == F64 else -126)
        assert ((wide != 0) & (np.abs(wide) < tiny)).sum() == 4
    elif dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        assert {info.min, info.max} <= set(values.tolist())


def test_random_values_are_the_same_each_time_and_keep_to_a_domain() -> None:
    for dtype in ALL:
        np.testing.assert_array_equal(random_values(dtype, 50), random_values(dtype, 50))
    x = random_values(F32, 1000, (1e-30, 1e30))
    assert (x < 1).mean() == pytest.approx(0.5, abs=0.1)  # by magnitude, not nearly all of them huge


def test_operands_pair_every_special_with_every_other() -> None:
    x, y = operands(table().scalar("add"), (I8, I8))
    pairs = set(zip(x.tolist(), y.tolist(), strict=True))
    assert {(a, b) for a in (-128, -1, 0, 127) for b in (-128, -1, 0, 127)} <= pairs
    assert len(operands(table().scalar("add"), (F32, F32), n=7)[0]) == 7


def test_difference_sees_one_wrong_bit_a_wrong_zero_and_a_wrong_dtype() -> None:
    row, x = table().scalar("add"), np.array([1.0, 0.0, np.nan, np.inf], np.float32)
    assert difference(row, x.copy(), x) is None
    for k, wrong in [(0, np.nextafter(np.float32(1), np.float32(2))), (1, -0.0), (2, 0.0), (3, np.nan), (3, 3e38)]:
        got = x.copy()
        got[k] = wrong
        assert f"at {k}" in str(difference(row, got, x))
    assert "float64" in str(difference(row, x.astype(np.float64), x))


def test_difference_allows_what_a_row_allows_and_no_more() -> None:
    row, x = table().scalar("tanh"), np.array([0.5], np.float32)  # 2 ulp
    step = np.spacing(x)
    assert difference(row, x + 2 * step, x, [x]) is None
    assert "3 ulp (allowed 2)" in str(difference(row, x + 3 * step, x, [x]))
    outside = np.array([50.0], np.float32)  # beyond the domain: loosely, but not without limit
    assert difference(row, x + 3 * step, x, [outside]) is None
    assert difference(row, x + 0.01, x, [outside]) is not None
    assert difference(row, x * np.nan, x, [outside]) is not None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ulps_count_representable_values(dtype: DType) -> None:
    bits = np.array([1, 2, 100], f"u{dtype.bytes}")  # subnormals
    one = np.array([1.0], dtype.numpy).view(bits.dtype)
    near = np.concatenate([bits, one])
    assert ulps((near + 3).view(dtype.numpy), near.view(dtype.numpy)).tolist() == [3, 3, 3, 3]


# -- what only samples with halves show ------------------------------------------------------------
def test_references_take_halves() -> None:
    for row in table().of(ScalarOp):
        for dtypes in signatures(row, halves=True):
            if any(t.is_half for t in (*dtypes.operands, dtypes.result)):
                arrays = operands(row, dtypes.operands, n=50)
                assert evaluate_scalar(row, *arrays, dtype=dtypes.result).dtype == dtypes.result.numpy


def test_casts_of_halves_expand_to_the_reference() -> None:
    row = table().scalar("cast")
    for dtypes in signatures(row, halves=True):
        if any(t.is_half for t in (*dtypes.operands, dtypes.result)):
            arrays = operands(row, dtypes.operands)
            want = evaluate_scalar(row, *arrays, dtype=dtypes.result)
            got = evaluate_expand(row, *arrays, dtype=dtypes.result, table=table())
            assert difference(row, got, want) is None, dtypes


# -- fma -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_fma_rounds_once(dtype: DType) -> None:
    row = table().scalar("fma")
    a, b, c = operands(row, (dtype,) * 3)
    with np.errstate(all="ignore"):
        cancelling = -(a * b)  # what is left is the product's own rounding error
        for third in (c, cancelling.astype(dtype.numpy)):
            got = fma_array(a, b, third)
            want = np.array([exact_fma(*v) for v in zip(a, b, third, strict=True)], dtype.numpy)
            np.testing.assert_array_equal(got, want)


def exact_fma(a: Any, b: Any, c: Any) -> Any:
    """By rationals; where an operand is not finite, or the exact result is zero, by plain arithmetic."""
    plain = a * b + c
    if not all(map(math.isfinite, (a, b, c))):
        return c if math.isfinite(a) and math.isfinite(b) else plain  # the product, however large, is a number
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return round_to(exact, type(a)) if exact else plain


def round_to(x: Fraction, kind: type) -> float:
    """A rational rounded once, ties to even."""
    info = np.finfo(kind)
    digits, smallest = info.nmant, int(info.minexp)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent = max(exponent - (abs(x) < Fraction(2) ** exponent), smallest)
    unit = Fraction(2) ** (exponent - digits)
    rounded = round(x / unit) * unit
    if abs(rounded) > Fraction(float(info.max)):
        return math.inf if x > 0 else -math.inf
    return float(rounded)
