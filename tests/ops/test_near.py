"""Divisions and roots without their slow path: right wherever their test holds, whatever the unit's last bit was.

The instructions are carried out in NumPy, the unit's result one below, at or above the rounded one; `tests/gpu` asks a
real unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.optable import table

Array = np.ndarray[Any, Any]
COUNT = 200_000
NORMAL = np.float32(2.0**-126)
LARGEST = float(np.finfo(np.float32).max)
EDGES = np.array([0, 1, 2.0**-149, 2.0**-126, 2.0**-125, 2.0**-101, 2.0**-100, 2.0**126, LARGEST, np.inf, np.nan], "f4")


def fma(a: Array, b: Array, c: Array) -> Array:
    """One rounding: the product is exact in f64, the sum rounded to odd there, then to f32."""
    product, wide = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + wide
    back = total - product
    lost = (product - (total - back)) + (wide - back)
    even = total.view(np.int64) & 1 == 0
    odd = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    return np.where(np.isfinite(total) & (lost != 0) & even, odd, total).astype(np.float32)


def unit(operand: Array, result: Array, off: int) -> Array:
    """What the special-function unit gives: subnormal numbers are zero, the last bit is off by so much."""
    flushed = np.where(np.abs(operand) < NORMAL, np.copysign(np.float32(np.inf), operand), result)
    moved = (flushed.view(np.int32) + off).view(np.float32)
    moved = np.where(np.isfinite(flushed) & (flushed != 0), moved, flushed)
    return np.where(np.abs(moved) < NORMAL, np.copysign(np.float32(0), moved), moved)


def divide_near(a: Array, b: Array, off: int) -> Array:
    r = unit(b, np.float32(1) / b, off)
    r = fma(r, fma(-b, r, np.ones_like(r)), r)
    q = a * r
    return fma(r, fma(-b, q, a), q)


def sqrt_near(x: Array, off: int) -> Array:
    r = unit(x, (1 / np.sqrt(x.astype(np.float64))).astype(np.float32), off)
    s = np.abs(x) * r
    return fma(fma(-s, s, x), r * np.float32(0.5), s)


def operands(kind: str) -> tuple[Array, Array]:
    """Pairs of any bits; of quotients about the largest and the least number; of edges."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 1 << 32, (2, COUNT), np.uint64).astype(np.uint32)
    if kind == "edges":
        both = np.concatenate([EDGES, -EDGES])
        drawn = a.view(np.float32)[: len(both)]
        return tuple(x.ravel() for x in np.meshgrid(np.concatenate([both, drawn]), np.concatenate([both, drawn])))  # type: ignore[return-value]
    if kind != "any":
        mantissas = (a & 0x7FFFFF).astype(np.int64) + rng.integers(-4, 5, COUNT)
        apart = {"largest": 128, "least": -125}[kind] + rng.integers(-1, 2, COUNT)
        exponent = rng.integers(64, 190, COUNT)
        a = (a & 0x807FFFFF) | (np.clip(exponent + apart // 2, 1, 254) << 23).astype(np.uint32)
        b = (np.clip(exponent - (apart - apart // 2), 1, 254) << 23 | mantissas.clip(0, 0x7FFFFF)).astype(np.uint32)
    return a.view(np.float32), b.view(np.float32)


def check(near: Array, exact: Array, holds: Array) -> None:
    np.testing.assert_array_equal(near[holds].view(np.int32), exact[holds].view(np.int32))


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["any", "largest", "least", "edges"])
def test_quotients_that_pass_the_test_are_exact(kind: str, off: int) -> None:
    a, b = operands(kind)
    with np.errstate(all="ignore"):
        near = divide_near(a, b, off)
        holds = table().scalar("divide.holds").reference(a, b, near)
        check(near, a / b, holds)
    if kind == "any":
        assert holds.mean() > 0.6  # for few operands is the slow path needed


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["any", "edges"])
def test_roots_that_pass_the_test_are_exact(kind: str, off: int) -> None:
    x, _ = operands(kind)
    with np.errstate(all="ignore"):
        near = sqrt_near(x, off)
        holds = table().scalar("sqrt.holds").reference(x, near)
        check(near, np.sqrt(x), holds)
    if kind == "any":
        assert holds[x > 0].mean() > 0.6
