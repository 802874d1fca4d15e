"""Forty programs as scientists write them with NumPy: stencils, time steps, solvers, masks, recurrences, statistics.

In: arrays and Python numbers. Out: `PROGRAMS`, (function, arguments) by name. Plain loops, slices and stores; nothing
is written for fuser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

rng = np.random.default_rng(1)
GRID = rng.random((12, 14))
CUBE = rng.random((6, 7, 8))
LINE = rng.random(32)
POINTS = rng.random((9, 3))
SQUARE = rng.random((6, 6)) + 6 * np.eye(6)
IMAGE = rng.integers(0, 256, (10, 12, 3)).astype(np.uint8)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def program(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function with what it is called with."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = (function, arguments)
        return function

    return register


# -- stencils and time steps -----------------------------------------------------------------------
@program(GRID, np.zeros_like(GRID), 2)
def jacobi_2d(a: Any, b: Any, steps: Any) -> None:
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


@program(LINE, 4)
def jacobi_1d(a: Any, steps: Any) -> Any:
    for _ in range(steps):
        b = a.copy()
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a = b
    return a


@program(CUBE, 2)
def heat_3d(u: Any, steps: Any) -> Any:
    for _ in range(steps):
        new = u.copy()
        inner = u[1:-1, 1:-1, 1:-1]
        new[1:-1, 1:-1, 1:-1] = (
            inner
            + 0.1 * (u[2:, 1:-1, 1:-1] - 2 * inner + u[:-2, 1:-1, 1:-1])
            + 0.1 * (u[1:-1, 2:, 1:-1] - 2 * inner + u[1:-1, :-2, 1:-1])
            + 0.1 * (u[1:-1, 1:-1, 2:] - 2 * inner + u[1:-1, 1:-1, :-2])
        )
        u = new
    return u


@program(LINE, np.roll(LINE, 1), 0.4, 3)
def wave_equation(now: Any, before: Any, courant: Any, steps: Any) -> Any:
    for _ in range(steps):
        after = np.zeros_like(now)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + courant**2 * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, after
    return now


@program(LINE, 0.05, 0.1, 4)
def advection_upwind(u: Any, dt: Any, dx: Any, steps: Any) -> Any:
    for _ in range(steps):
        u = u - dt / dx * (u - np.roll(u, 1))
    return u


@program(LINE + 1, 0.01, 0.1)
def burgers_step(u: Any, dt: Any, dx: Any) -> Any:
    new = u.copy()
    new[1:-1] = u[1:-1] - u[1:-1] * dt / dx * (u[1:-1] - u[:-2]) + 0.07 * dt / dx**2 * (u[2:] - 2 * u[1:-1] + u[:-2])
    new[0], new[-1] = new[-2], new[1]
    return new


@program(GRID, GRID[::-1].copy(), 2)
def gray_scott(u: Any, v: Any, steps: Any) -> Any:
    for _ in range(steps):
        lu = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        lv = np.roll(v, 1, 0) + np.roll(v, -1, 0) + np.roll(v, 1, 1) + np.roll(v, -1, 1) - 4 * v
        uvv = u * v * v
        u = u + 0.16 * lu - uvv + 0.035 * (1 - u)
        v = v + 0.08 * lv + uvv - 0.1 * v
    return u, v


@program(np.zeros((8, 9)), np.zeros((8, 9)), np.zeros((8, 9)), GRID[:8, :9].copy())
def fdtd_2d(ex: Any, ey: Any, hz: Any, source: Any) -> None:
    for k in range(3):
        ey[0, :] = source[k]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


@program((rng.random((9, 9)) > 0.6).astype(int), 2)
def game_of_life(world: Any, steps: Any) -> Any:
    for _ in range(steps):
        padded = np.pad(world, 1)
        neighbours = sum(
            padded[1 + di : padded.shape[0] - 1 + di, 1 + dj : padded.shape[1] - 1 + dj]
            for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0)
        )  # fmt: skip
        world = ((neighbours == 3) | ((world == 1) & (neighbours == 2))).astype(int)
    return world


@program(GRID)
def sobel(image: Any) -> Any:
    gx = image[:-2, 2:] + 2 * image[1:-1, 2:] + image[2:, 2:] - image[:-2, :-2] - 2 * image[1:-1, :-2] - image[2:, :-2]
    gy = image[2:, :-2] + 2 * image[2:, 1:-1] + image[2:, 2:] - image[:-2, :-2] - 2 * image[:-2, 1:-1] - image[:-2, 2:]
    return np.hypot(gx, gy)


@program(CUBE, np.zeros((4, 5, 8)))
def horizontal_diffusion(field: Any, out: Any) -> Any:
    lap = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    flux = lap[1:, :] - lap[:-1, :]
    limited = np.where(flux * (field[2:-1, 1:-1] - field[1:-2, 1:-1]) > 0, 0, flux)
    out[1:] = field[2:-1, 1:-1] - 0.1 * limited
    return out


@program(CUBE.copy(), CUBE[::-1].copy())
def vertical_solver(a: Any, d: Any) -> Any:
    x = np.zeros_like(a)
    for k in range(1, 6):
        d[k] = d[k] - 0.3 * a[k - 1] * d[k - 1]
    x[5] = d[5]
    for k in range(4, -1, -1):
        x[k] = d[k] - 0.2 * x[k + 1]
    return x


# -- solvers ---------------------------------------------------------------------------------------
@program(SQUARE, LINE[:6].copy())
def conjugate_gradient(a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    r = b - a @ x
    p = r.copy()
    rs = r @ r
    for _ in range(4):
        ap = a @ p
        alpha = rs / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        p = r + new / rs * p
        rs = new
    return x


@program(SQUARE, LINE[:6].copy())
def jacobi_solver(a: Any, b: Any) -> Any:
    d = np.diag(a)
    rest = a - np.diag(d)
    x = np.zeros_like(b)
    for _ in range(5):
        x = (b - rest @ x) / d
    return x


@program(LINE * 5 + 1)
def newton_cube_root(a: Any) -> Any:
    x = a.copy()
    for _ in range(6):
        x -= (x**3 - a) / (3 * x**2)
    return x


@program(SQUARE, np.ones(6))
def power_iteration(a: Any, v: Any) -> Any:
    for _ in range(5):
        v = a @ v
        v = v / np.linalg.norm(v)
    return v, v @ a @ v


@program(LINE)
def bisection(target: Any) -> Any:
    low, high = np.zeros_like(target), np.full_like(target, 2.0)
    for _ in range(20):
        middle = 0.5 * (low + high)
        below = middle**2 < target
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return low


@program(SQUARE.copy())
def gram_schmidt(a: Any) -> Any:
    q = np.zeros_like(a)
    for k in range(3):
        column = a[:, k].copy()
        for j in range(k):
            column -= (q[:, j] @ a[:, k]) * q[:, j]
        q[:, k] = column / np.linalg.norm(column)
    return q


@program(SQUARE[:4, :4].copy())
def gaussian_elimination(a: Any) -> Any:
    for k in range(3):
        factor = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k:] -= factor[:, None] * a[k, k:]
    return a


@program(SQUARE.copy(), LINE[:6].copy())
def forward_substitution(lower: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    for i in range(6):
        x[i] = (b[i] - lower[i, :i] @ x[:i]) / lower[i, i]
    return x


@program(np.linspace(-2, 0.5, 15), np.linspace(-1, 1, 10), 12)
def mandelbrot(re: Any, im: Any, limit: Any) -> Any:
    cx, cy = np.meshgrid(re, im)
    x, y = np.zeros_like(cx), np.zeros_like(cx)
    count = np.zeros(cx.shape, dtype=np.int64)
    for _ in range(limit):
        alive = x * x + y * y < 4
        count[alive] += 1
        x, y = np.where(alive, x * x - y * y + cx, x), np.where(alive, 2 * x * y + cy, y)
    return count


# -- particles, finance, physics ----------------------------------------------------------------------
@program(POINTS, POINTS[:, 0] + 1, 1e-2)
def gravity(position: Any, mass: Any, softening: Any) -> Any:
    delta = position[None, :, :] - position[:, None, :]
    inverse = (np.sum(delta**2, axis=-1) + softening**2) ** -1.5
    return (delta * (mass[None, :] * inverse)[..., None]).sum(axis=1)


@program(POINTS.copy(), np.zeros((9, 3)), 0.01)
def verlet(x: Any, v: Any, dt: Any) -> Any:
    for _ in range(3):
        v += -0.5 * dt * x
        x += dt * v
        v += -0.5 * dt * x
    return 0.5 * np.sum(v * v) + 0.5 * np.sum(x * x)


@program(POINTS)
def lennard_jones(x: Any) -> Any:
    d = x[:, None] - x[None]
    r2 = (d * d).sum(-1) + np.eye(len(x))
    inverse = 1 / r2**3
    energy = 4 * (inverse * inverse - inverse)
    np.fill_diagonal(energy, 0)
    return energy.sum() / 2


@program(POINTS)
def pairwise_distance(x: Any) -> Any:
    squares = (x**2).sum(axis=1)
    return np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * x @ x.T, 0))


@program(LINE + 1, LINE[::-1] + 0.5, 0.7, 0.03, 0.2)
def black_scholes(spot: Any, strike: Any, t: Any, r: Any, sigma: Any) -> Any:
    d1 = (np.log(spot / strike) + (r + sigma**2 / 2) * t) / (sigma * np.sqrt(t))
    d2 = d1 - sigma * np.sqrt(t)
    phi = [0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (d + 0.044715 * d**3))) for d in (d1, d2)]
    return spot * phi[0] - strike * np.exp(-r * t) * phi[1]


@program(100.0, 105.0, 0.05, 0.3, 8)
def binomial_option(spot: Any, strike: Any, rate: Any, sigma: Any, n: Any) -> Any:
    dt = 1.0 / n
    up = np.exp(sigma * np.sqrt(dt))
    q = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    prices = spot * up ** (2.0 * np.arange(n + 1) - n)
    value = np.maximum(prices - strike, 0)
    for _ in range(n):
        value = np.exp(-rate * dt) * (q * value[1:] + (1 - q) * value[:-1])
    return value[0]


@program(LINE, 0.1, 3)
def runge_kutta(y: Any, h: Any, steps: Any) -> Any:
    def slope(v: Any) -> Any:
        return np.sin(v) - 0.5 * v

    for _ in range(steps):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


# -- statistics, images, signals --------------------------------------------------------------------
@program(POINTS)
def covariance(data: Any) -> Any:
    centred = data - data.mean(axis=0)
    return centred.T @ centred / (len(data) - 1)


@program(POINTS)
def correlation(data: Any) -> Any:
    spread = data.std(axis=0, ddof=1)
    spread[spread <= 0.1] = 1.0
    z = (data - np.mean(data, axis=0)) / spread
    return z.T @ z / (data.shape[0] - 1)


@program(POINTS, POINTS[:3])
def k_means_step(points: Any, centres: Any) -> Any:
    distance = ((points[:, None] - centres[None]) ** 2).sum(-1)
    nearest = distance.argmin(axis=1)
    one_hot = (nearest[:, None] == np.arange(3)).astype(points.dtype)
    return one_hot.T @ points / np.maximum(one_hot.sum(0), 1)[:, None]


@program(IMAGE)
def to_grey(image: Any) -> Any:
    return (image[..., 0] * 0.299 + image[..., 1] * 0.587 + image[..., 2] * 0.114).astype(np.uint8)


@program(IMAGE, 1.3, 10)
def contrast(image: Any, gain: Any, bias: Any) -> Any:
    return np.clip(image.astype(np.float32) * gain + bias, 0, 255).astype(np.uint8)


@program(LINE, 3)
def moving_average(x: Any, width: Any) -> Any:
    total = np.cumsum(np.concatenate(([0.0], x)))
    return (total[width:] - total[:-width]) / width


@program(LINE[:8].copy(), 0.3)
def exponential_smoothing(x: Any, alpha: Any) -> Any:
    out = np.empty_like(x)
    out[0] = x[0]
    for i in range(1, len(x)):
        out[i] = alpha * x[i] + (1 - alpha) * out[i - 1]
    return out


@program(GRID - 0.5)
def masked_normalise(x: Any) -> Any:
    valid = x > 0
    x[~valid] = 0
    return x / x.sum(axis=1, keepdims=True), x[valid].mean()


@program(GRID, np.array([0.2, 0.5, 0.3]))
def separable_blur(image: Any, kernel: Any) -> Any:
    padded = np.pad(image, 1, mode="edge")
    rows = sum(kernel[k] * padded[k : k + image.shape[0]] for k in range(3))
    return sum(kernel[k] * rows[:, k : k + image.shape[1]] for k in range(3))


@program(LINE, LINE[::-1].copy())
def trapezoid_work(force: Any, path: Any) -> Any:
    return np.trapezoid(force, path), np.gradient(force), np.interp(0.5, [0.0, 1.0], [2.0, 4.0]) * force


@program(GRID[:6, :6].copy())
def floyd_warshall(path: Any) -> Any:
    for k in range(6):
        path[:] = np.minimum(path, path[:, k, None] + path[None, k, :])
    return path


@program(LINE, 12)
def histogram_by_comparison(x: Any, bins: Any) -> Any:
    edges = np.linspace(0, 1, bins + 1)
    return ((x[:, None] >= edges[:-1]) & (x[:, None] < edges[1:])).sum(axis=0)


@program(SQUARE, LINE[:6].copy(), 0.1)
def neural_layer(weights: Any, x: Any, rate: Any) -> Any:
    hidden = np.maximum(weights @ x, 0)
    out = np.exp(hidden - hidden.max())
    out /= out.sum()
    gradient = np.outer(out - (np.arange(6) == 2), x)
    weights -= rate * gradient
    return out, -np.log(out[2])
