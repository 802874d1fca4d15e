"""Escape times of the Mandelbrot set in real arithmetic: a loop inside the kernel, which every point leaves by itself.

Run: python examples/mandelbrot.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def escape(re: "f32[w]", im: "f32[h]", steps: int = 200):
    """How many of `steps` rounds of z*z + c stay within radius 2, for every point of a grid."""
    x, y = re[None, :], im[:, None]

    def step(i, a, b, count):
        return a * a - b * b + x, 2 * a * b + y, count + 1

    def outside(a, b, count):
        return a * a + b * b > 4

    return fuser.ops.loop(steps, step, 0.0, 0.0, np.int32(0), until=outside)[2]


def inputs():
    """A grid around the set, and how many rounds."""
    return [np.linspace(-2, 0.6, 321, dtype=np.float32), np.linspace(-1.2, 1.2, 200, dtype=np.float32), 200]


if __name__ == "__main__":
    script.main(escape, inputs)
