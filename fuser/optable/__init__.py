"""The operator table: every operator of fuser, declared once (see `base` for what a row is).

`table()` is the table with all built-in rows, made on first use. Front ends, reference, cost model,
printers, docs and tests all read it; no other file lists operators.
"""

from __future__ import annotations

from functools import cache

from fuser.optable.base import Row, Table

__all__ = ["Row", "Table", "register", "table"]


@cache
def table() -> Table:
    """The table of built-in rows, and of those registered from outside."""
    from fuser.optable.rows import BuiltIn

    return BuiltIn()


def register(row: Row) -> Row:
    """Add an out-of-tree operator to the table."""
    return table().register(row)
