"""How far apart two right answers of a random program may be.

In: a program. Out: an absolute bound for every element of every value, 0 where all engines must agree exactly. An
operand's bound goes through a statement by running it on operands moved by that much, so that ill-conditioned steps
widen the bound and a comparison that could fall either way makes its element free. First order; the judge takes a
multiple.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fuzz.programs import Array, Program, Statement

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
LIBM_ULPS = 64
SAFETY = 8


def bounds(program: Program) -> dict[str, Array]:
    """The bound of every value."""
    values: dict[str, Array] = {a.name: x for a, x in zip(program.arguments, program.arrays(), strict=True)}
    found: dict[str, Array] = {k: np.zeros(v.shape) for k, v in values.items()}
    for s in program.statements:
        result = np.asarray(s.run(values))
        found[s.target] = _through(s, values, found, result)
        values[s.target] = result
    return found


def _through(s: Statement, values: Mapping[str, Array], known: Mapping[str, Array], result: Array) -> Array:
    operands = {k: values[k] for k in (*s.operands, s.target) if k in values}
    moving = [k for k in dict.fromkeys(operands) if known[k].any()]
    total = np.zeros(result.shape)
    if moving:
        wide = {k: _wide(v) for k, v in operands.items()}
        middle = np.asarray(s.run(wide))
        for k in moving:
            ends = [np.asarray(s.run({**wide, k: _moved(wide[k], sign * known[k])})) for sign in (1, -1)]
            total = total + np.maximum(*(_distance(e, middle) for e in ends))
    return total + _own(s, operands, result, bool(moving))


def _wide(a: Array) -> Array:
    return a if a.dtype.kind in "biu" else a.astype(np.float64)


def _moved(a: Array, by: Array) -> Array:
    """A value off by its bound: floats shifted, integers too, bools flipped."""
    with np.errstate(all="ignore"):
        if a.dtype == bool:
            return a ^ (by != 0)
        if a.dtype.kind in "iu":
            return (a + np.nan_to_num(by, posinf=1, neginf=-1).astype(a.dtype)).astype(a.dtype)
        return np.asarray(a + by)


def _distance(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return np.where(np.isnan(gap), np.inf, gap)


def _own(s: Statement, operands: Mapping[str, Array], result: Array, moved: bool) -> Array:
    """What the statement itself may add; a half that is not exact may fall to either neighbour."""
    eps = EPS.get(result.dtype.name)
    if eps is None or (s.rounding == "exact" and not moved):
        return np.zeros(result.shape)
    working = max(eps, EPS["float32"]) if eps < EPS["float32"] else EPS["float32"]
    if result.dtype == np.float64:
        working = EPS["float64"]
    size = np.abs(_finite(result))
    own = eps * size if eps > EPS["float32"] else np.zeros(result.shape)
    if s.rounding == "libm":
        own = own + LIBM_ULPS * working * (1 + size)
    elif s.rounding != "exact":
        own = own + working * _fold(s, operands, size)
    return own


def _finite(a: Array) -> Array:
    return np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _fold(s: Statement, operands: Mapping[str, Array], size: Array) -> Any:
    """Roundings of a fold in units of the working precision: by the magnitudes that entered."""
    (x,) = operands.values()
    n = max(x.size, 1)
    terms = 8 + n / 16
    largest = float(np.abs(_finite(x)).max(initial=0))
    if s.rounding == "sum":
        return terms * (np.asarray(s.run({k: np.abs(_finite(v)) for k, v in operands.items()})) + size)
    return {"var": terms * 4 * largest**2, "std": terms * 4 * largest, "prod": 2 * n * size}[s.rounding] + size


def beyond(got: Array, want: Array, bound: Array) -> Array:
    """Elements that are further apart than the bound allows; zeros of either sign are equal."""
    a, b = np.asarray(got), np.asarray(want)
    with np.errstate(all="ignore"):
        if a.dtype.kind in "biu":
            gap = np.where(a == b, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)) + 1)
            return np.asarray((gap > 0) & (bound == 0))
        return np.asarray(_distance(a, b) > SAFETY * bound)
