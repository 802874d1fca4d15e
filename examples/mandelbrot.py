"""Escape times of the Mandelbrot set in real arithmetic: 400 operators a point, one kernel, no array in between.

Run: python examples/mandelbrot.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile(static_argnames=("steps",))
def escape(re: "f32[w]", im: "f32[h]", steps=40):
    """How many of `steps` iterations stay within radius 2, for every point of a grid."""
    x, y = re[None, :], im[:, None]
    a, b = np.zeros_like(x + y), np.zeros_like(x + y)
    inside = np.zeros_like(a, dtype=np.int32)
    for _ in range(steps):
        a, b = a * a - b * b + x, 2 * a * b + y
        inside += a * a + b * b <= 4
    return inside


def inputs():
    """A grid around the set."""
    return [np.linspace(-2, 0.6, 321, dtype=np.float32), np.linspace(-1.2, 1.2, 200, dtype=np.float32)]


if __name__ == "__main__":
    script.main(escape, inputs)
