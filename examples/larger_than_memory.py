"""Statistics of an array that no memory holds: one fused kernel a block and pass, joined by dask's tree.

Run: python examples/larger_than_memory.py 400000000    (rows of 64 numbers: 102 GB)
     python examples/larger_than_memory.py [--dump-graph]
"""

import sys

import numpy as np

import fuser
from fuser import script


@fuser.compile
def summary(x: "f32[n, d]"):
    """Mean and deviation of every column, and how many of its values lie beyond three deviations."""
    mean = x.mean(axis=0)
    gap = x - mean
    deviation = np.sqrt((gap * gap).mean(axis=0))
    return mean, deviation, (np.abs(gap) > 3 * deviation).sum(axis=0)


def inputs():
    """A few thousand rows."""
    return [np.random.default_rng(0).standard_normal((5000, 64), dtype=np.float32)]


def in_blocks(rows: int) -> None:
    """The same function on a dask array. Blocks of 64 MB are drawn as they are needed, and again for each of the three
    passes; they could as well come from files (`dask.array.from_zarr`, `from_array` over a memory map)."""
    import dask
    import dask.array as da

    x = da.random.default_rng(0).standard_normal((rows, 64), chunks=(1 << 18, 64), dtype=np.float32)
    mean, deviation, beyond = dask.compute(*summary(x))
    print(f"{x.nbytes / 1e9:.1f} GB in {x.npartitions} blocks")
    print(f"means within {np.abs(mean).max():.1e} of 0, deviations within {np.abs(deviation - 1).max():.1e} of 1")
    print(f"beyond three deviations: {beyond.sum() / x.size:.4%} (a normal distribution has 0.2700%)")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        in_blocks(int(sys.argv[1]))
    else:
        script.main(summary, inputs)
