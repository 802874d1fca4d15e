"""Minimax polynomials, to fit the coefficients of `fuser.optable.mathlib` again.

In: values of a function and weights on points. Out: coefficients and the largest weighted error. Remez's exchange on a
dense set of points; everything in mpmath's numbers. The shipped coefficients come from this, rounded one after the
other (lowest power first) with the others fitted again after each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath

Number = Any  # mpmath has no types
LEVEL = 1.01  # the largest error over the levelled one at which the exchange ends


def chebyshev(low: Number, high: Number, n: int) -> list[Number]:
    """`n` points from `low` to `high`, denser at the ends."""
    middle, half = (mpmath.mpf(low) + high) / 2, (mpmath.mpf(high) - low) / 2
    return [middle - half * mpmath.cos(mpmath.pi * k / (n - 1)) for k in range(n)]


def evaluate(coefficients: Sequence[Number], x: Number) -> Number:
    """c0 + c1 x + ..."""
    total = mpmath.mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def minimax(
    points: Sequence[Number], values: Sequence[Number], weights: Sequence[Number], terms: int
) -> tuple[list[Number], Number]:
    """c0 ... with the least max |w * (v - (c0 + c1 x + ...))|, and that maximum. All weights are positive."""
    n = len(points)
    chosen = [round((n - 1) * (1 - float(mpmath.cos(mpmath.pi * k / terms))) / 2) for k in range(terms + 1)]
    best: tuple[list[Number], Number] | None = None
    for _ in range(30):
        coefficients, level = _levelled(points, values, weights, chosen, terms)
        errors = [w * (v - evaluate(coefficients, x)) for x, v, w in zip(points, values, weights, strict=True)]
        largest = max(abs(e) for e in errors)
        if best is None or largest < best[1]:
            best = coefficients, largest
        chosen = _alternating(errors, terms + 1)
        if largest <= level * LEVEL or len(chosen) <= terms:
            break
    assert best is not None
    return best


def _levelled(points: Any, values: Any, weights: Any, chosen: list[int], terms: int) -> tuple[list[Number], Number]:
    """The polynomial whose weighted errors at the chosen points are equal but for alternating signs."""
    matrix, right = mpmath.matrix(terms + 1, terms + 1), mpmath.matrix(terms + 1, 1)
    for row, k in enumerate(chosen):
        for power in range(terms):
            matrix[row, power] = points[k] ** power
        matrix[row, terms] = (-1) ** row / weights[k]
        right[row] = values[k]
    solution = mpmath.lu_solve(matrix, right)
    return [solution[k] for k in range(terms)], abs(solution[terms])


def _alternating(errors: Sequence[Number], count: int) -> list[int]:
    """The largest error of each run of one sign; of too many, those at the ends or the smallest pairs go."""
    peaks = [0]
    for k in range(1, len(errors)):
        if (errors[k] > 0) != (errors[peaks[-1]] > 0):
            peaks.append(k)
        elif abs(errors[k]) > abs(errors[peaks[-1]]):
            peaks[-1] = k
    size = [abs(e) for e in errors]
    while len(peaks) > count:
        if len(peaks) == count + 1:
            peaks.pop(0 if size[peaks[0]] < size[peaks[-1]] else -1)
        else:
            k = min(range(len(peaks) - 1), key=lambda k: max(size[peaks[k]], size[peaks[k + 1]]))
            del peaks[k : k + 2]
    return peaks
