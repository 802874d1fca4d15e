"""Programs whose plans are compared (`benchmarks.plans`), beside those of the public workloads.

In: nothing. Out: `PROGRAMS`, workloads over functions written for fuser. They ask what the public ones do not: values
with several readers, reductions over different axes of one array, a whole array between two passes, many values alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads import Workload

Program = Callable[..., Any]
_MATRIX = "f32[8192, 8192]"


def two_axes(x: Any) -> Any:
    """Row and column sums of one expensive expression."""
    e = np.exp(-x * x)
    return e.sum(axis=0), e.sum(axis=1)


def over_total(x: Any) -> Any:
    """A result that is known only after the whole array."""
    e = np.exp(x)
    return e / e.sum()


def spread(x: Any) -> Any:
    """Two whole passes, one after the other."""
    centred = x - x.mean()
    return centred / np.sqrt((centred * centred).mean() + 1e-6)


def many_readers(x: Any, y: Any) -> Any:
    """One value that three results and a sum read."""
    t = np.tanh(x * y + 1)
    return t * 2, t - x, np.maximum(t, y), (t * t).sum(axis=1)


def columns_after_rows(x: Any) -> Any:
    """A softmax of rows, and the mean of its columns."""
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    return p.mean(axis=0)


def outer_products(a: Any, b: Any, x: Any) -> Any:
    """Small vectors made first, spread over a matrix afterwards."""
    u, v = np.exp(a) / (1 + np.exp(a)), np.sqrt(np.abs(b) + 1)
    return x * u[:, None] + v[None, :]


def long_chain(x: Any) -> Any:
    """Sixty operators with two results on the way: bound by arithmetic."""
    y, kept = x, []
    for k in range(12):
        y = np.tanh(y * 1.1 + 0.1) + np.exp(-y * y) * 0.5
        if k % 6 == 5:
            kept.append(y)
    return tuple(kept)


def both_ways(x: Any, y: Any) -> Any:
    """An array and its transpose, and a sum of each row."""
    s = x + y.T
    return s * 0.5, s.sum(axis=1)


def alive(operators: int = 300, width: int = 60) -> Program:
    """An expression of so many operators in which `width` values are alive at once."""

    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        inputs = (a, b, c, d)
        values = [inputs[k % 4] * (0.5 + k / width) + inputs[(k + 1) % 4] for k in range(width)]
        step = 7
        while operators - 2 * width > 0 and step < 7 + (operators - 3 * width) // width * 4:
            values = [v * values[(step * k + 3) % width] for k, v in enumerate(values)]
            step += 4
        total = values[0]
        for v in values[1:]:
            total = total + v
        return total

    return program


def polynomials(count: int = 12, terms: int = 18) -> Program:
    """So many polynomials of degree two in as many variables."""

    def program(*x: Any) -> Any:
        out = []
        for i in range(count):
            total = x[i] * 0.25
            for j in range(terms):
                a, b = (i + 3 * j) % count, (5 * j + i * i + 1) % count
                total = total + x[a] * x[b] * (0.1 + 0.01 * ((i * j) % 7))
            out.append(total)
        return tuple(out)

    return program


class _Own(Workload):
    """A workload over a function of this module."""

    @property
    def fn(self) -> Program:
        found: Program = globals()[self.program]
        return found if self.options is None else found(*self.options)


PROGRAMS: tuple[Workload, ...] = (
    _Own("L01", "row and column sums", "two_axes", ("f32[16384, 8192]",)),
    _Own("L02", "over the total", "over_total", ("f32[134217728]",)),
    _Own("L03", "standardised array", "spread", ("f32[134217728]",)),
    _Own("L04", "one value, many readers", "many_readers", (_MATRIX,) * 2),
    _Own("L05", "column means of a softmax", "columns_after_rows", ("f32[16384, 8192]",)),
    _Own("L06", "vectors over a matrix", "outer_products", ("f32[16384]", "f32[8192]", "f32[16384, 8192]")),
    _Own("L07", "long chain, two results", "long_chain", ("f32[67108864]",)),
    _Own("L08", "an array and its transpose", "both_ways", (_MATRIX,) * 2),
    _Own("L09", "300 operators, 60 values alive", "alive", ("f32[16777216]",) * 4, options=(300, 60)),
    _Own("L10", "300 operators, 60 values alive, f64", "alive", ("f64[8388608]",) * 4, options=(300, 60)),
    _Own("L11", "12 polynomials in 12 variables", "polynomials", ("f32[8388608]",) * 12, options=(12, 18)),
    _Own("L12", "12 polynomials in 12 variables, f64", "polynomials", ("f64[4194304]",) * 12, options=(12, 18)),
)
