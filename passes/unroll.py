"""Reductions over a few elements become operators: vectors of three components, colour channels, pairs.

In: a widened graph. Out: the same program without reductions of 1 to 8 elements (a static number) that keep one value.
Elements combine pairwise from the low bits up, as lanes do in `fuser.order`, on every device. What is left is
elementwise, so it fuses with reductions over other axes, and nothing of the operand's size need be stored.
before: sum(x: f32[n, 3]) {1}    after: add(add(x[:, 0], x[:, 1]), x[:, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from fuser.dtypes import I64, DType
from fuser.graph import Builder, Graph, Node, ReduceAttrs, ViewAttrs
from fuser.hostexpr import lit
from fuser.indexmap import IndexMap, axis, unravel
from fuser.optable import table
from fuser.optable.base import S
from fuser.passes.base import LocalRewriter, Pass, finish
from fuser.record import dataclass
from fuser.shapes import Shape

LONGEST = 8


@dataclass(frozen=True)
class UnrollSmall(Pass):
    """Write out small reductions."""

    name: ClassVar[str] = "unroll_small"

    def run(self, graph: Graph) -> Graph:
        if not any(isinstance(n.attrs, ReduceAttrs) for n in graph.nodes):
            return graph
        return finish(graph, _Unrolling(graph, self.limit))


class _Unrolling(LocalRewriter):
    def replace(self, node: Node) -> Node | None:
        if not isinstance(node.attrs, ReduceAttrs):
            return None
        row = table().reduction(node.op)
        lengths = [d for k, d in enumerate(node.inputs[0].shape) if k in node.attrs.axes]
        static = [d for d in lengths if isinstance(d, int)]
        if len(static) < len(lengths) or not 1 <= prod(static) <= LONGEST:
            return None
        if row.uses_index or len(row.state(node.inputs[0].dtype)) > 1:
            return None
        emit = _Nodes(self.builder, node.shape)
        elements = [S(emit, self._element(node, k), node.inputs[0].dtype) for k in range(prod(static))]
        states = [row.lift(x, S(emit, None, I64)) for x in elements]
        while len(states) > 1:
            pairs = [row.combine(a, b) for a, b in zip(states[::2], states[1::2], strict=False)]
            states = pairs + states[len(pairs) * 2 :]
        found: Node = row.finish(states[0], S(emit, None, I64))[0].value
        return found

    def _element(self, node: Node, k: int) -> Node:
        """Element `k` of what each result is reduced from."""
        assert isinstance(node.attrs, ReduceAttrs)
        (x,), axes = node.inputs, node.attrs.axes
        place = dict(zip(axes, unravel(lit(k), tuple(x.shape[a] for a in axes)), strict=True))
        kept = iter(range(len(node.shape)))
        index = tuple(place[a] if a in place else axis(next(kept)) for a in range(x.rank))
        return self.builder.make("view", (x,), ViewAttrs(IndexMap(index)), x.dtype, node.shape)


@dataclass(frozen=True)
class _Nodes:
    """An `Emit` that builds nodes of one shape."""

    builder: Builder
    shape: Shape

    def apply(self, op: str, args: Sequence[Node], dtype: DType) -> Node:
        return self.builder.make(op, tuple(args), None, dtype, self.shape)

    def literal(self, value: float | int | bool, dtype: DType) -> Node:
        scalar = self.builder.scalar(lit(value), dtype)
        return self.builder.make("view", (scalar,), ViewAttrs(IndexMap(())), dtype, self.shape)
