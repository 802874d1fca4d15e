"""Algebra that is exact for every value, NaN and -0.0 included, and nothing else.

In, out: a graph. Integers lose additions of 0 and multiplications by 1; casts that change nothing go, as do
roundings of what is rounded already; `where` on a literal takes its side. Floats are never touched: x + 0.0
turns -0.0 into 0.0 and x * 0.0 may be NaN.
before: cast(cast(x: i8, i32), i64)    after: cast(x: i8, i64)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fuser.dtypes import BOOL, F32, F64, DType
from fuser.graph import Graph, Node, RoundAttrs, ScalarAttrs, ViewAttrs
from fuser.optable import table
from fuser.optable.base import ScalarOp
from fuser.passes.base import LocalRewriter, Pass, finish
from fuser.record import dataclass


@dataclass(frozen=True)
class Simplify(Pass):
    """Exact algebra, node by node."""

    name: ClassVar[str] = "simplify"

    def run(self, graph: Graph) -> Graph:
        return finish(graph, _Simplifying(graph, self.limit))


class _Simplifying(LocalRewriter):
    def replace(self, node: Node) -> Node | None:
        if node.op == "cast":
            return self._cast(node)
        if isinstance(node.attrs, RoundAttrs):
            return node.inputs[0] if representable(node.inputs[0], node.attrs.to) else None
        if node.op == "where":
            condition = literal_of(node.inputs[0])
            return None if condition is None else node.inputs[1 if condition else 2]
        if node.dtype.is_integer and len(node.inputs) == 2:
            return _neutral(node)
        return None

    def _cast(self, node: Node) -> Node | None:
        (x,) = node.inputs
        if x.dtype == node.dtype:
            return x
        if isinstance(x.attrs, RoundAttrs) and x.attrs.to == node.dtype:  # the cast itself rounds
            return self.builder.make("cast", x.inputs, None, node.dtype, node.shape)
        if x.op == "cast" and skips(x.inputs[0].dtype, x.dtype, node.dtype):
            source = x.inputs[0]
            if source.dtype == node.dtype:
                return source
            return self.builder.make("cast", (source,), None, node.dtype, node.shape)
        return None


def _neutral(node: Node) -> Node | None:
    row = table().known.get(node.op)
    if not isinstance(row, ScalarOp):
        return None
    for kept, other, unit in zip(node.inputs[::-1], node.inputs, row.units, strict=True):
        if unit is not None and kept.dtype == node.dtype and literal_of(other) == unit:
            return kept
    return None


def behind_views(node: Node) -> Node:
    """The node whose elements a view of a view ... of it shows."""
    while isinstance(node.attrs, ViewAttrs):
        node = node.inputs[0]
    return node


def literal_of(node: Node) -> float | int | bool | None:
    """The value of a literal seen through views, None for anything else."""
    node = behind_views(node)
    if isinstance(node.attrs, ScalarAttrs) and node.attrs.expr.is_literal:
        value: float | int | bool = node.attrs.expr.value
        return value
    return None


def is_exact(value: float | int | bool, to: DType) -> bool:
    """Whether a dtype has a number itself, unrounded."""
    return float(np.asarray(value).astype(to.numpy)) == float(value)


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide == narrow or narrow == BOOL:
        return True
    if wide == BOOL or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return wide in (F32, F64) and wide.bits > narrow.bits
    if wide.is_float:
        return narrow.bits <= {16: 0, 32: 16, 64: 32}[wide.bits]
    if wide.kind == narrow.kind:
        return wide.bits >= narrow.bits
    return wide.kind == "i" and wide.bits > narrow.bits


def skips(a: DType, b: DType, c: DType) -> bool:
    """Whether casting a -> b -> c is casting a -> c for every value: a fits b, and b -> c follows a's own rule."""
    if not holds_all(b, a):
        return False
    # An integer seen as a float would saturate into an integer type where the integer itself wraps.
    return not (a.is_integer and b.is_float and not c.is_float and c != BOOL)


def representable(node: Node, to: DType) -> bool:
    """Whether an f32 value is certain to be a value of the half type `to` already."""
    node = behind_views(node)
    if isinstance(node.attrs, RoundAttrs):
        return node.attrs.to == to
    return node.op == "cast" and (node.inputs[0].dtype == to or node.inputs[0].dtype == BOOL)
