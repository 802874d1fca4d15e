"""Programs as a newcomer brings them: objects with state, parameters in dataclasses, complex numbers, odd corners.

In: arrays and Python numbers. Out: `PROGRAMS`, (function, arguments) by name, as in `programs_scientific`; nothing is
written for fuser.
"""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

rng = np.random.default_rng(2)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
Fit = namedtuple("Fit", "slope intercept r2")


def program(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function with what it is called with."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = (function, arguments)
        return function

    return register


class Kalman:
    """A scalar filter a row; one method calls another."""

    def __init__(self, q: float = 1e-3, r: float = 1e-1) -> None:
        self.q, self.r = q, r

    def update(self, x: Any, p: Any, z: Any) -> Any:
        p = p + self.q
        gain = p / (p + self.r)
        return x + gain * (z - x), (1 - gain) * p

    def filter(self, z: Any) -> Any:
        x, p = np.zeros(z.shape[0]), np.ones(z.shape[0])
        out = np.empty_like(z)
        for k in range(z.shape[1]):
            x, p = self.update(x, p, z[:, k])
            out[:, k] = x
        return out


class Smoothed(Kalman):
    def filter(self, z: Any) -> Any:
        forward = super().filter(z)
        return (forward + super().filter(z[:, ::-1])[:, ::-1]) / 2


KALMAN, SMOOTHED = Kalman(), Smoothed(r=0.5)


@program(rng.random((4, 9)))
def kalman(z: Any) -> Any:
    return KALMAN.filter(z), SMOOTHED.filter(z), Kalman(q=0.1).filter(z)


@dataclass
class Lorenz:
    sigma: float = 10.0
    rho: float = 28.0
    beta: float = 8 / 3
    dt: float = 0.01
    names: list[str] = field(default_factory=lambda: ["x", "y", "z"])

    def slope(self, s: Any) -> Any:
        x, y, z = s
        return np.stack([self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z])


LORENZ = Lorenz()


@program(rng.random((3, 20)))
def lorenz(s: Any) -> Any:
    for _ in range(3):
        one = LORENZ.slope(s)
        two = LORENZ.slope(s + LORENZ.dt / 2 * one)
        s = s + LORENZ.dt * two
    return dict(zip(LORENZ.names, s, strict=True))


@program(rng.random((10, 12)))
def thomas(d: Any) -> Any:
    """A tridiagonal system a row: recurrences by stores into columns, forward and back."""
    n = d.shape[1]
    a, b, c = -1.0, 4.0, -1.0
    cp, dp, x = np.zeros(n), np.zeros_like(d), np.zeros_like(d)
    cp[0] = c / b
    dp[:, 0] = d[:, 0] / b
    for i in range(1, n):
        m = b - a * cp[i - 1]
        cp[i] = c / m
        dp[:, i] = (d[:, i] - a * dp[:, i - 1]) / m
    x[:, -1] = dp[:, -1]
    for i in range(n - 2, -1, -1):
        x[:, i] = dp[:, i] - cp[i] * x[:, i + 1]
    return x


@program(rng.random(64) + 1j * rng.random(64))
def goertzel(z: Any) -> Any:
    n = np.arange(len(z))
    return np.array([np.abs(np.sum(z * np.exp(-2j * np.pi * k * n / len(z)))) ** 2 for k in (1, 5, 9)])


@program(rng.random((8, 8)))
def givens(a: Any) -> Any:
    a = a.copy()
    for i in range(3):
        r = np.hypot(a[i, i], a[i + 1, i])
        c, s = a[i, i] / r, a[i + 1, i] / r
        a[i], a[i + 1] = c * a[i] + s * a[i + 1], -s * a[i] + c * a[i + 1]
    return a


@program(rng.random((3, 16, 16)).astype("f4"))
def saturation(image: Any) -> Any:
    red, green, blue = image
    gray = 0.299 * red + 0.587 * green + 0.114 * blue
    high, low = image.max(axis=0), image.min(axis=0)
    found = np.divide(high - low, high, out=np.zeros_like(high), where=high != 0)
    return gray, found, (np.clip(gray, 0, 1) * 255).astype(np.uint8)


@program(rng.random(40), rng.random(40))
def line_fit(x: Any, y: Any) -> Any:
    n, sx, sy = x.size, x.sum(), y.sum()
    slope = (n * (x * y).sum() - sx * sy) / (n * (x * x).sum() - sx**2)
    b = (sy - slope * sx) / n
    return Fit(slope, b, 1 - ((y - (slope * x + b)) ** 2).sum() / ((y - y.mean()) ** 2).sum())


@program(rng.random((6, 20)))
def moving_average(x: Any, alpha: float = 0.2) -> Any:
    y = np.empty_like(x)
    y[:, 0] = x[:, 0]
    for t in range(1, x.shape[1]):
        y[:, t] = alpha * x[:, t] + (1 - alpha) * y[:, t - 1]
    return y


@program(rng.random(20) * 10)
def option_prices(spot: Any) -> Any:
    from math import exp, sqrt

    strike, rate, sigma, time = 5.0, 0.03, 0.2, 1.0
    d1 = (np.log(spot / strike) + (rate + sigma**2 / 2) * time) / (sigma * sqrt(time))
    d2 = d1 - sigma * sqrt(time)

    def normal(x: Any) -> Any:
        return 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    call = spot * normal(d1) - strike * exp(-rate * time) * normal(d2)
    return np.round(call, 4), call - spot + strike * math.exp(-rate * time)


@program(rng.random((10, 3)))
def rotated_by_a_quaternion(v: Any) -> Any:
    q = np.array([0.5, 0.5, 0.5, 0.5])
    w, u = q[0], q[1:]
    return v + 2 * np.cross(u, np.cross(u, v) + w * v)


@program(rng.random((5, 40)))
def histogram_by_edges(x: Any) -> Any:
    edges = np.linspace(0, 1, 9)
    counts = np.array([((x >= lo) & (x < hi)).sum() for lo, hi in itertools.pairwise(edges)])
    return counts, np.cumsum(counts) / counts.sum()


@program(rng.random((9, 9)))
def power_iteration(a: Any) -> Any:
    m = a @ a.T
    v = np.ones(len(m)) / np.sqrt(len(m))
    for _ in range(8):
        w = m @ v
        v = w / np.linalg.norm(w)
    return v @ m @ v, v
