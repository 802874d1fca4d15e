"""Views of views become one view; views move into the pieces and iotas they look at.

In, out: a graph. A view is an index map, so composition is substitution; with the extents of the axes known,
a transpose of a transpose and a reshape of a reshape become the identity and vanish.
before: view(view(x, ($1, $0)), ($1, $0))    after: x
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fuser.graph import Graph, IotaAttrs, Node, PieceAttrs, ViewAttrs
from fuser.hostexpr import HostExpr, lit
from fuser.indexmap import Index, IndexMap, Piece, axes, axis, operand
from fuser.passes.base import LocalRewriter, Pass, finish
from fuser.ranges import simplify_index
from fuser.record import dataclass
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
        tidy = tidied(m.exprs, source.shape, node.shape)
        if not operands and source.shape == node.shape and tidy == tidied(axes(node.rank), node.shape, node.shape):
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
        if tidy != m.exprs:
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
        exprs = tidied(inner.apply(outer, binding), source.inputs[0].shape, node.shape)
        inputs = (source.inputs[0], *operands)
        return self.builder.make("view", inputs, ViewAttrs(IndexMap(exprs)), node.dtype, node.shape)

    def rewrite_view(self, x: Node, attrs: ViewAttrs, operands: tuple[Node, ...], shape: Shape) -> Node:
        """A new view of an index operand, itself folded."""
        return self.settled(self.builder.make("view", (x, *operands), attrs, x.dtype, shape))

    def _renumbered(self, node: Node, exprs: Index, used: list[int]) -> Node:
        binding = {f"@{old}": operand(new) for new, old in enumerate(used)}
        inputs = (node.inputs[0], *(node.inputs[1 + k] for k in used))
        m = IndexMap(tuple(e.substitute(binding) for e in exprs))
        return self.builder.make("view", inputs, ViewAttrs(m), node.dtype, node.shape)

    def _through_pieces(self, node: Node, outer: Index, source: Node, pieces: tuple[Piece, ...]) -> Node:
        """A view of a piecewise value is piecewise over the view's own axes."""
        binding = {f"${k}": e for k, e in enumerate(outer)}
        seen = tuple(
            Piece(tuple(e.substitute(binding) for e in p.domain), IndexMap(p.map.apply(outer))) for p in pieces
        )
        return self.builder.make("piecewise", source.inputs, PieceAttrs(seen), node.dtype, node.shape)

    def _of_iota(self, node: Node, expr: HostExpr) -> Node | None:
        """The index along an axis, seen through a map that takes it from one axis: an iota again."""
        for k in range(node.rank):
            if expr == axis(k):
                return self.builder.make("iota", (), IotaAttrs(k), node.dtype, node.shape)
        return None

    def _pieces(self, node: Node, pieces: tuple[Piece, ...]) -> Node | None:
        """Pieces look at what is behind plain views; empty ones and those behind a certain one go; a lone
        one is a view.
        """
        inputs: list[Node] = []
        seen: list[Piece] = []
        for n, p in zip(node.inputs, pieces, strict=True):
            source, p = _behind(n, p)
            p = _tidy_piece(p, source.shape, node.shape)
            if any(e.is_literal and int(e.value) < 0 for e in p.domain):
                continue
            inputs.append(source)
            seen.append(p)
            if not p.domain:
                break
        if len(seen) == 1:
            return self.builder.make("view", inputs, ViewAttrs(seen[0].map), node.dtype, node.shape)
        if tuple(inputs) == node.inputs and tuple(seen) == pieces:
            return None
        return self.builder.make("piecewise", inputs, PieceAttrs(tuple(seen)), node.dtype, node.shape)


def _behind(n: Node, p: Piece) -> tuple[Node, Piece]:
    """What a piece looks at, through a plain view."""
    if isinstance(n.attrs, ViewAttrs) and len(n.inputs) == 1:
        return n.inputs[0], Piece(p.domain, IndexMap(n.attrs.map.apply(p.map.exprs)))
    return n, p


def _tidy_piece(p: Piece, source: Shape, result: Shape) -> Piece:
    """A piece with its map simplified and conditions that always hold left out."""
    domain = simplify_index(p.domain, extents(result))
    open_ones = tuple(e for e in domain if not (e.is_literal and int(e.value) >= 0))
    return Piece(open_ones, IndexMap(tidied(p.map.exprs, source, result)))


def tidied(exprs: Index, source: Shape, result: Shape) -> Index:
    """A map simplified with the extents of the result's axes; an axis of size 1 is read at 0."""
    simple = simplify_index(exprs, extents(result))
    return tuple(lit(0) if d == 1 else e for e, d in zip(simple, source, strict=True))


def extents(shape: Shape) -> Mapping[str, HostExpr | int]:
    """What is known of a view's axis variables."""
    return {f"${k}": d for k, d in enumerate(shape)}


def _operands_used(exprs: Index) -> list[int]:
    return sorted({int(s[1:]) for e in exprs for s in e.symbols if s.startswith("@")})
