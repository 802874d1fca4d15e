"""The distance step of k-means: nearest centre and squared distance, the points-by-centres table never stored.

Run: python examples/kmeans.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def nearest(points: "f32[n, d]", centres: "f32[k, d]"):
    """Index of the nearest centre of every point, and the distance to it squared."""
    gap = points[:, None, :] - centres[None, :, :]
    squared = (gap * gap).sum(axis=-1)
    return squared.argmin(axis=1), squared.min(axis=1)


def inputs():
    """Two thousand points, sixteen centres."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2000, 8), dtype=np.float32), rng.standard_normal((16, 8), dtype=np.float32)]


if __name__ == "__main__":
    script.main(nearest, inputs)
