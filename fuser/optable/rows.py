"""Which modules hold the built-in rows.

In: a table. Out: the table with every row registered, in this order (docs and listings keep it). The modules are
imported here and not by the package, so that `import fuser` stays light.
"""

from __future__ import annotations

from importlib import import_module

from fuser.optable.base import Table

MODULES = (
    # scalar operators
    "arithmetic", "division", "extrema", "power", "exponential", "trigonometric", "rounding", "floats", "special",
    "comparison", "bitwise", "integers", "casts", "complexes", "near", "variants",
    # reductions and scans
    "reductions", "scans",
    # named functions made of the above
    "activations", "norms", "losses",
    # functions without a node of their own
    "views", "creation", "contraction", "statistics", "selection", "random", "loops",
)  # fmt: skip


def register_all(table: Table) -> None:
    """Register every built-in row."""
    for name in MODULES:
        import_module(f"fuser.optable.{name}").register(table)
