"""Variances read their data once, and stay accurate far from zero and with values that no sample shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser

F32 = np.finfo(np.float32).eps
AXES = [None, 0, 1, (0, 2), (1, 2)]


def _data(offset: float, shape: tuple[int, ...] = (40, 96, 65)) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(5).standard_normal(shape) * 2 + offset).astype(np.float32)


def _relative(got: Any, want: Any) -> float:
    return float(np.max(np.abs(np.asarray(got, np.float64) - want) / np.abs(want)))


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, -3e7])
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_as_good_as_float64_allows_whatever_the_offset(axis: Any, offset: float) -> None:
    @fuser.compile
    def spread(x):  # type: ignore[no-untyped-def]
        return np.mean(x, axis=axis), np.var(x, axis=axis)

    x = _data(offset)
    mean, var = spread(x)
    assert _relative(var, x.astype(np.float64).var(axis=axis)) < 32 * F32
    wanted = x.astype(np.float64).mean(axis=axis)
    assert np.max(np.abs(mean - wanted)) <= 16 * F32 * max(abs(offset), 4)


def _outlier_first(x: np.ndarray[Any, Any]) -> None:
    x[0] = 1e8


def _outlier_sampled(x: np.ndarray[Any, Any]) -> None:
    x[x.size // 2] = -1e8


def _half_zero(x: np.ndarray[Any, Any]) -> None:
    x[: x.size // 2] = 0


def _mostly_zero(x: np.ndarray[Any, Any]) -> None:
    x[np.arange(x.size) % 100 != 0] = 0


def _sorted(x: np.ndarray[Any, Any]) -> None:
    x.sort()


@pytest.mark.parametrize("spoil", [_outlier_first, _outlier_sampled, _half_zero, _mostly_zero, _sorted])
def test_accurate_for_data_that_is_not_drawn_alike(spoil: Callable[[np.ndarray[Any, Any]], None]) -> None:
    @fuser.compile
    def spread(x):  # type: ignore[no-untyped-def]
        return np.var(x)

    x = _data(1e3, (1 << 18,))
    spoil(x)
    assert _relative(spread(x), x.astype(np.float64).var()) < 128 * F32


def test_equal_elements_vary_by_exactly_nothing() -> None:
    @fuser.compile
    def spread(x):  # type: ignore[no-untyped-def]
        return np.var(x, axis=1), np.std(x, axis=0)

    rows, columns = spread(np.full((300, 70), 1 / 3, np.float32))
    assert not rows.any()
    assert not columns.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 50, 99])
def test_nan_and_infinities_make_it_nan(bad: float, place: int) -> None:
    @fuser.compile
    def spread(x):  # type: ignore[no-untyped-def]
        return np.mean(x), np.var(x)

    x = _data(0, (100,))
    x[place] = bad
    mean, var = spread(x)
    assert np.isnan(var)
    assert np.array_equal(mean, np.float32(bad), equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)], ids=str)
def test_one_read_on_any_device(axis: Any) -> None:
    @fuser.compile
    def spread(x):  # type: ignore[no-untyped-def]
        return np.mean(x, axis=axis), np.var(x, axis=axis)

    for device in ("sm_90", "cpu"):
        plan = spread.plan("f32[65536, 4096]", device=device)
        assert len(plan.groups) == 1
        assert len(plan.groups[0].stages[0]) == 1
        assert plan.bytes_moved == plan.bytes_floor
