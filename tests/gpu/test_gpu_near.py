"""Divisions and roots without their slow path, on a real device: the bits of NumPy's wherever their test holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.schedule import CudaSchedule
from tests.gpu.test_gpu_variants import on_device

pytestmark = pytest.mark.gpu
COUNT = 1 << 20


def patterns(seed: int, near: bool) -> list[Any]:
    """Pairs of f32 of any bits; `near`: of nearly equal mantissas, so that quotients lie next to powers of two."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1 << 32, (2, COUNT), np.uint64).astype(np.uint32)
    if near:
        b = (b & 0xFF800000) | ((a + rng.integers(-4, 5, COUNT).astype(np.uint32)) & 0x7FFFFF)
    return [a.view(np.float32), b.view(np.float32)]


def busy(a: Any, b: Any) -> Any:
    """Enough arithmetic for the schedule to group what divides: quotients, roots and both of each other."""
    q, r = a / b, np.sqrt(abs(a))
    s = r / abs(b)
    wasted = np.exp(-np.exp(-np.exp(-np.exp(-abs(a)))) - np.exp(-np.log(abs(b)))) * np.exp(-np.log(abs(a)))
    return q, r, s, np.sqrt(s), np.sqrt(b), wasted


@pytest.mark.parametrize("near", [False, True])
def test_grouped_divisions_have_numpys_bits(near: bool) -> None:
    import cupy

    f = fuser.compile(busy)
    given = patterns(3, near)
    on_device = [cupy.asarray(x) for x in given]
    schedules = f.plan(*on_device).schedules
    assert [s.guarded for s in schedules if isinstance(s, CudaSchedule)] == [True]
    with np.errstate(all="ignore"):
        q, r = given[0] / given[1], np.sqrt(abs(given[0]))
        s = r / abs(given[1])
        want = [q, r, s, np.sqrt(s), np.sqrt(given[1])]
    for got, expected in zip(f(*on_device), want, strict=False):
        found = got.get()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        same = found.view(np.int32) == expected.view(np.int32)
        assert np.all(same | np.isnan(expected))


def test_the_logistic_functions_quotient_is_exact() -> None:
    """x/(1+x) for every 61st f32 of [0, 1], subnormals too, by the instructions that `sigmoid` uses."""
    e = np.arange(0, 0x3F800001, 61, np.uint32).view(np.float32)
    divisor = np.float32(1) + e
    np.testing.assert_array_equal(
        on_device("fuser_divide_near", e, divisor).view(np.int32), (e / divisor).view(np.int32)
    )
