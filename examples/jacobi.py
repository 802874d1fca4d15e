"""A five-point Jacobi sweep with slice stores: the border keeps its values.

Run: python examples/jacobi.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def jacobi(u: "f64[n, m]"):
    """One sweep; the result is a new array."""
    new = u.copy()
    new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return new


def inputs():
    """A plate with one hot edge."""
    plate = np.zeros((300, 257))
    plate[0] = 1
    return [plate]


if __name__ == "__main__":
    script.main(jacobi, inputs)
