"""Random numbers from a key: rows over `fuser.construct.random` (Philox4x32-10 on the logical index).

In: nothing. Out: `Function` rows `random_bits uniform normal bernoulli randint dropout`, in no array library's
namespace: `np.random` inside a program is an error that points here.
"""

from __future__ import annotations

from fuser.construct import random
from fuser.optable.adapt import arrays, function
from fuser.optable.base import Table

ROWS = (
    function("random_bits", random.bits, "bits(key, shape): u32, or u64 by dtype=", dsl="bits"),
    function(
        "uniform", random.uniform, "uniform(key, shape, low=0, high=1), multiples of 2^-24 (f64: 2^-53) times the width"
    ),
    function("normal", random.normal, "normal(key, shape, mean=0, std=1), by Box and Muller"),
    function("bernoulli", random.bernoulli, "bernoulli(key, p, shape): bool"),
    function("randint", random.randint, "randint(key, shape, low, high): i64"),
    function("dropout", arrays(1, random.dropout), "dropout(x, p, key): kept elements are scaled by 1 / (1 - p)"),
)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
