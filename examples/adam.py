"""One Adam step that updates parameters and both moments in place: four arrays read, three written, one kernel.

Run: python examples/adam.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def adam(p: "f32[n]", g: "f32[n]", m: "f32[n]", v: "f32[n]", step: int, rate: float = 1e-3, decay: float = 0.01):
    """Decoupled weight decay; `p`, `m` and `v` are changed, as NumPy would."""
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.999 * v + 0.001 * g * g
    unbiased_m = m / (1 - 0.9**step)
    unbiased_v = v / (1 - 0.999**step)
    p[:] = p - rate * (unbiased_m / (np.sqrt(unbiased_v) + 1e-8) + decay * p)


def inputs():
    """A parameter vector, its gradient, and moments after some steps."""
    rng = np.random.default_rng(0)
    n = 65_537
    p, g, m = (rng.standard_normal(n, dtype=np.float32) for _ in range(3))
    return [p, g, m, rng.random(n, dtype=np.float32), 3]


if __name__ == "__main__":
    script.main(adam, inputs)
