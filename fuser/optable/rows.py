"""Which modules hold the built-in rows, and when they are imported.

In: nothing. Out: `BuiltIn`, the table that `fuser.optable.table()` gives. Rows are registered in a fixed order, which
docs and listings keep. The modules are imported here and not by the package, so that `import fuser` stays light; those
of named functions, which take as long as all others and of which many programs use none, at the first look at one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fuser.optable.base import Reduction, Row, ScalarOp, Scan, Table

OPERATORS = (
    # scalar operators
    "arithmetic", "division", "extrema", "power", "exponential", "trigonometric", "rounding", "floats", "special",
    "comparison", "bitwise", "integers", "casts", "complexes", "near", "variants",
    # reductions and scans
    "reductions", "scans",
)  # fmt: skip
FUNCTIONS = (
    # named functions made of the above
    "activations", "norms", "losses",
    # functions without a node of their own
    "views", "creation", "contraction", "statistics", "selection", "random", "loops",
)  # fmt: skip


class BuiltIn(Table):
    """All built-in rows: those of `OPERATORS` from the start, the others from when something is asked that they may
    answer. A node of such a row exists only once its name was looked up, so that `known` has the row of every node."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._adding, self._whole = True, False
        self._add(OPERATORS)

    def _add(self, modules: Sequence[str]) -> None:
        self._adding = True
        try:
            for name in modules:
                import_module(f"fuser.optable.{name}").register(self)
        finally:
            self._adding = False
        self.built_in = len(self._rows)

    def _complete(self) -> None:
        """Register the rest. The thread that does so comes by here again; others wait."""
        if self._whole:
            return
        with self._lock:
            if not self._whole and not self._adding:
                self._add(FUNCTIONS)
                self._whole = True

    @property
    def rows(self) -> dict[str, Row]:
        self._complete()
        return self._rows

    def register(self, row: Row) -> Row:
        with self._lock:
            if not self._adding:  # a row from outside comes last
                self._complete()
            return super().register(row)

    def find(self, namespace: str, name: str) -> Row | None:
        found = super().find(namespace, name)
        if found is None and not self._whole:
            self._complete()
            found = super().find(namespace, name)
        return found

    def names(self, namespace: str) -> list[str]:
        self._complete()
        return super().names(namespace)

    def of(self, kind: type) -> list[Any]:
        if not issubclass(kind, ScalarOp | Reduction | Scan):
            self._complete()
        return [r for r in self._rows.values() if isinstance(r, kind)]
