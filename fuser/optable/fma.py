"""Fused multiply-add on NumPy arrays, correctly rounded: NumPy has none, and `fma` needs a meaning.

In: three arrays of one float dtype. Out: a*b + c rounded once. f32 goes through f64 with a sum rounded to
odd; f64 through error-free transformations (Boldo and Melquiond, "Emulation of FMA and correctly rounded
sums", 2008), and through exact rationals where those could over- or underflow. Its own file because it is an
algorithm, not a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SPLIT = float((1 << 27) + 1)  # Veltkamp's constant for 53 bits
# Exponents within which every partial product and sum of the f64 algorithm is exact and finite.
_SAFE_LOW, _SAFE_HIGH = 2.0**-440, 2.0**440


def fma_array(a: Array, b: Array, c: Array) -> Array:
    """a*b + c with one rounding. a, b, c: broadcastable, all f32 or all f64."""
    a, b, c = np.broadcast_arrays(a, b, c)
    return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    p = a * b
    ah = _SPLIT * a - (_SPLIT * a - a)
    bh = _SPLIT * b - (_SPLIT * b - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b in f64, rounded to odd: inexact sums end in an odd bit, so a second rounding does no harm."""
    s, error = _two_sum(a, b)
    bits = s.view(np.int64)
    adjust = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (s > 0)  # the exact sum lies beyond s, seen from zero
    return np.asarray(np.where(adjust, bits + np.where(away, 1, -1), bits)).view(np.float64)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 24 + 24 bits
    wide = c.astype(np.float64)
    plain = product + wide
    return np.where(np.isfinite(plain), _odd_sum(product, wide), plain).astype(np.float32)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    high, low = _two_product(a, b)
    t, u = _two_sum(c, low)
    v, w = _two_sum(high, t)
    found = np.asarray(v + _odd_sum(u, w))
    plain = a * b + c
    usual = np.isfinite(plain) & _safe(a) & _safe(b) & _safe(c) & (c != 0) & (a != 0) & (b != 0)
    exact = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ~usual & (a != 0) & (b != 0)
    found = np.where(usual, found, np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, plain))
    for index in zip(*np.nonzero(exact), strict=True):
        found[index] = _rational(float(a[index]), float(b[index]), float(c[index]))
    return found


def _safe(x: Array) -> Array:
    size = np.abs(x)
    return np.asarray((size > _SAFE_LOW) & (size < _SAFE_HIGH))


def _rational(a: float, b: float, c: float) -> float:
    from fractions import Fraction  # a slow import that hardly any program needs

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:  # an exact zero keeps IEEE's sign rule
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
