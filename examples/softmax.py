"""Softmax over rows, as plain NumPy: five operators, one kernel.

Run: python examples/softmax.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def softmax(x: "f32[n, d]"):
    """Normalised exponentials of every row."""
    m = x.max(axis=-1, keepdims=True)
    e = np.exp(x - m)
    s = e.sum(axis=-1, keepdims=True)
    return e / s


def inputs():
    """One array of 512 rows."""
    return [np.random.default_rng(0).standard_normal((512, 1000), dtype=np.float32)]


if __name__ == "__main__":
    script.main(softmax, inputs)
