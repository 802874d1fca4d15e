"""Long programs: thousands of steps trace without recursion and in about linear time and size."""

from typing import Any

import numpy as np

from tests.frontend.trace.running import check, traced

X = np.linspace(-1, 1, 257)


def test_doubling_a_hundred_times_is_a_hundred_nodes() -> None:
    def f(a: Any) -> Any:
        for _ in range(100):
            a = a + a
        return a

    assert len(traced(f, X).graph.nodes) == 101
    check(f, np.array([1.0, -3.0, 0.5]))


def test_five_thousand_steps() -> None:
    def f(x: Any) -> Any:
        for k in range(5000):
            x = x * 1.0001 if k % 2 else x - 0.001
        return x

    assert len(traced(f, X).graph.nodes) < 5010
    check(f, X)


def test_seven_hundred_arguments() -> None:
    def f(*xs: Any) -> Any:
        t = xs[0]
        for v in xs[1:]:
            t = t + v
        return t

    arrays = [np.full((5, 7), float(k + 1)) for k in range(700)]
    assert len(traced(f, *arrays).graph.arguments) == 700
    check(f, *arrays)


def test_a_long_recurrence_of_scalars() -> None:
    def f(x: Any, h: Any) -> Any:
        for _ in range(2000):
            h = h * 0.5 + 1.0
        return x * h

    check(f, X, 3.0)


def test_time_steps_with_stores_and_swapped_buffers() -> None:
    def f(u: Any) -> Any:
        u = u.copy()
        v = np.empty_like(u)
        for _ in range(200):
            v[0], v[-1] = u[0], u[-1]
            v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
            u, v = v, u
        return u

    assert len(traced(f, X).graph.nodes) < 200 * 40
    check(f, X)
