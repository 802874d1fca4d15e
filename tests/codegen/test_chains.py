"""Updates of single elements one after another: each value is one step of the program, whatever reads it."""

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.schedule.body import analyse
from tests.engines import Engine, each

RNG = np.random.default_rng(3)


def smoothed(x: Any, a: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, x.shape[0]):
        y[i] = a * x[i] + (1 - a) * y[i - 1]
    return y


def smoothed_across(x: Any, a: Any) -> Any:
    y = np.zeros_like(x)
    y[:, 0] = x[:, 0]
    for i in range(1, x.shape[1]):
        y[:, i] = a * x[:, i] + (1 - a) * y[:, i - 1]
    return y


def solved(m: Any, b: Any) -> Any:
    """Elimination without pivots."""
    m, b = m.copy(), b.copy()
    n = m.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            f = m[i, k] / m[k, k]
            m[i, k:] -= f * m[k, k:]
            b[i] -= f * b[k]
    x = np.zeros_like(b)
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s = s - m[i, j] * x[j]
        x[i] = s / m[i, i]
    return x


def thomas(low: Any, middle: Any, high: Any, right: Any) -> Any:
    """A tridiagonal system, in place of its last argument."""
    n = right.shape[0]
    c = np.zeros_like(high)
    c[0] = high[0] / middle[0]
    right[0] = right[0] / middle[0]
    for i in range(1, n):
        scale = middle[i] - low[i] * c[i - 1]
        c[i] = high[i] / scale
        right[i] = (right[i] - low[i] * right[i - 1]) / scale
    for i in range(n - 2, -1, -1):
        right[i] -= c[i] * right[i + 1]
    return right


def steps(program: Any, *args: Any) -> int:
    """Steps of the largest kernel of a plan for the CPU."""
    plan = fuser.compile(program).plan(*args)
    bodies = [analyse(plan.graph, g, plan.size_class.layouts) for g in plan.groups]
    return max(len(p.steps) for body in bodies for p in body.programs)


@pytest.mark.parametrize("program", [smoothed, smoothed_across])
def test_steps_grow_with_the_length_alone(program: Any) -> None:
    def at(n: int) -> int:
        shape = (n,) if program is smoothed else (1000, n)
        return steps(program, np.zeros(shape), 0.5)

    assert at(32) < 2.2 * at(16)
    assert at(32) <= 10 * 32


def test_steps_of_an_elimination_grow_with_its_work() -> None:
    def at(n: int) -> int:
        return steps(solved, np.eye(n), np.zeros(n))

    assert at(8) < 12 * at(4)  # n**3 operations: 8 times


@each
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (smoothed, (RNG.standard_normal(24), 0.3)),
        (smoothed, (RNG.standard_normal((9, 33)).astype(np.float32), 0.3)),
        (smoothed_across, (RNG.standard_normal((33, 9)), 0.3)),
        (solved, (RNG.standard_normal((5, 5)) + 5 * np.eye(5), RNG.standard_normal(5))),
        (thomas, (*RNG.standard_normal((2, 12)), 4 + RNG.standard_normal(12), RNG.standard_normal(12))),
    ],
)
def test_they_are_numpys_bits(engine: Engine, program: Any, arguments: tuple[Any, ...]) -> None:
    mine, theirs = ([np.copy(a) if np.ndim(a) else a for a in arguments] for _ in range(2))
    got, wanted = engine.compile(program)(*mine), program(*theirs)
    assert got.dtype == wanted.dtype
    assert got.tobytes() == wanted.tobytes()
    for m, t in zip(mine, theirs, strict=True):
        assert np.asarray(m).tobytes() == np.asarray(t).tobytes()
