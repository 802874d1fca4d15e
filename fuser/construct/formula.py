"""Row arithmetic over graph nodes: formulas written with `S`, as rows' own `expand` functions are.

In: nodes of one dtype. Out: handles whose Python operators build nodes, broadcast like any elementwise operator. So the
formula of an activation reads the same as that of a scalar row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct import elementwise as ew
from fuser.dtypes import DType
from fuser.graph import Builder, Node
from fuser.optable.base import S, ScalarOp
from fuser.record import dataclass


@dataclass(frozen=True)
class GraphEmit:
    """`Emit` on graph nodes."""

    builder: Builder

    def apply(self, op: str, args: Sequence[Any], dtype: DType) -> Node:
        if op == "cast":
            return ew.cast(self.builder, args[0], dtype)
        return ew.combine(self.builder, op, args, dtype)

    def literal(self, value: Any, dtype: DType) -> Node:
        return ew.as_node(self.builder, value, dtype)


def handle(b: Builder, x: Node) -> S:
    """A node as an operand of a formula."""
    return S(GraphEmit(b), x, x.dtype)


def expanded(b: Builder, row: ScalarOp, nodes: Sequence[Node]) -> Node:
    """What a row's `expand` makes of nodes."""
    assert row.expand is not None, row.name
    return node_of(b, row.expand(*(handle(b, n) for n in nodes)))


def node_of(b: Builder, s: S) -> Node:
    """The node a formula has built."""
    assert isinstance(s.value, Node)
    return s.value
