"""Views of views become one view; views move into the pieces and iotas they look at.

In, out: a graph. A view is an index map, so composition is substitution; with the extents of the axes known, a transpose of
a transpose and a reshape of a reshape become the identity and vanish.
before: view(view(x, ($1, $0)), ($1, $0))    after: x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fuser.graph import Graph, IotaAttrs, Node, PieceAttrs, ViewAttrs
from fuser.hostexpr import HostExpr
from fuser.indexmap import Index, IndexMap, Piece, axes, axis, operand
from fuser.passes.base import LocalRewriter, Pass, finish
from fuser.ranges import simplify_index
from fuser.shapes import Shape


@dataclass(frozen=True)
class Fold(Pass):
    """Compose index maps."""

    name: ClassVar[str] = "fold"

    def run(self, graph: Graph) -> Graph:
        return finish(graph, _Folding(graph, self.limit))


class _Folding(LocalRewriter):
    def replace(self, node: Node) -> Node | None:
        if isinstance(node.attrs, ViewAttrs):
            return self._view(node, node.attrs.map)
        if isinstance(node.attrs, PieceAttrs):
            return self._pieces(node, node.attrs.pieces)
        return None

    def _view(self, node: Node, m: IndexMap) -> Node | None:
        source, operands = node.inputs[0], node.inputs[1:]
        tidy = simplify_index(m.exprs, extents(node.shape))
        if not operands and tidy == axes(node.rank) and source.shape == node.shape:
            return source
        used = _operands_used(tidy)
        if len(used) < len(operands):
            return self._renumbered(node, tidy, used)
        if isinstance(source.attrs, ViewAttrs):
            return self._composed(node, tidy, source, source.attrs.map)
        if isinstance(source.attrs, PieceAttrs) and not operands:
            return self._through_pieces(node, tidy, source, source.attrs.pieces)
        if isinstance(source.attrs, IotaAttrs):
            return self._of_iota(node, tidy[source.attrs.axis])
        if tidy is not m.exprs and tidy != m.exprs:
            return self.builder.make("view", node.inputs, ViewAttrs(IndexMap(tidy)), node.dtype, node.shape)
        return None

    def _composed(self, node: Node, outer: Index, source: Node, inner: IndexMap) -> Node:
        """view(view(x, inner), outer): the inner view's operands are looked at through the outer map."""
        operands = list(node.inputs[1:])
        binding: dict[str, HostExpr] = {}
        for k, o in enumerate(source.inputs[1:]):
            binding[f"@{k}"] = operand(len(operands))
            seen = ViewAttrs(IndexMap(outer))
            operands.append(self.rewrite_view(o, seen, node.inputs[1:], node.shape))
        exprs = simplify_index(inner.apply(outer, binding), extents(node.shape))
        inputs = (source.inputs[0], *operands)
        return self.builder.make("view", inputs, ViewAttrs(IndexMap(exprs)), node.dtype, node.shape)

    def rewrite_view(self, x: Node, attrs: ViewAttrs, operands: tuple[Node, ...], shape: Shape) -> Node:
        """A new view of an index operand, itself folded."""
        new = self.builder.make("view", (x, *operands), attrs, x.dtype, shape)
        while True:
            better = self.replace(new)
            if better is None or better is new:
                return new
            new = better

    def _renumbered(self, node: Node, exprs: Index, used: list[int]) -> Node:
        binding = {f"@{old}": operand(new) for new, old in enumerate(used)}
        inputs = (node.inputs[0], *(node.inputs[1 + k] for k in used))
        m = IndexMap(tuple(e.substitute(binding) for e in exprs))
        return self.builder.make("view", inputs, ViewAttrs(m), node.dtype, node.shape)

    def _through_pieces(self, node: Node, outer: Index, source: Node, pieces: tuple[Piece, ...]) -> Node:
        """A view of a piecewise value is piecewise over the view's own axes."""
        binding = {f"${k}": e for k, e in enumerate(outer)}
        sizes = extents(node.shape)
        seen = tuple(
            Piece(
                simplify_index(tuple(e.substitute(binding) for e in p.domain), sizes),
                IndexMap(simplify_index(p.map.apply(outer), sizes)),
            )
            for p in pieces
        )
        return self.builder.make("piecewise", source.inputs, PieceAttrs(seen), node.dtype, node.shape)

    def _of_iota(self, node: Node, expr: HostExpr) -> Node | None:
        """The index along an axis, seen through a map that takes it from one axis: an iota again."""
        for k in range(node.rank):
            if expr == axis(k):
                return self.builder.make("iota", (), IotaAttrs(k), node.dtype, node.shape)
        return None

    def _pieces(self, node: Node, pieces: tuple[Piece, ...]) -> Node | None:
        """Pieces that look at plain views look at what is behind them; a lone piece is a view."""
        if len(pieces) == 1:
            return self.builder.make("view", node.inputs, ViewAttrs(pieces[0].map), node.dtype, node.shape)
        changed, inputs, seen = False, list(node.inputs), list(pieces)
        for k, n in enumerate(node.inputs):
            if isinstance(n.attrs, ViewAttrs) and len(n.inputs) == 1:
                m = IndexMap(n.attrs.map.apply(pieces[k].map.exprs))
                inputs[k], seen[k] = n.inputs[0], Piece(pieces[k].domain, m)
                changed = True
        if not changed:
            return None
        return self.builder.make("piecewise", inputs, PieceAttrs(tuple(seen)), node.dtype, node.shape)


def extents(shape: Shape) -> Mapping[str, HostExpr | int]:
    """What is known of a view's axis variables."""
    return {f"${k}": d for k, d in enumerate(shape)}


def _operands_used(exprs: Index) -> list[int]:
    return sorted({int(s[1:]) for e in exprs for s in e.symbols if s.startswith("@")})
