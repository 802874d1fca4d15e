"""Replace dim symbols throughout a graph.

In: a graph and `symbol -> expression`. Out: the same graph over the representatives. Used when
a builder is closed (dims found equal while tracing) and when a plan is made for static dims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fuser.graph import Attrs, Graph, Node, PieceAttrs, Rewriter, ScalarAttrs, ViewAttrs
from fuser.hostexpr import HostExpr, as_dim
from fuser.indexmap import IndexMap, Piece
from fuser.shapes import substitute


def closure(merged: Mapping[str, HostExpr]) -> dict[str, HostExpr]:
    """Follow chains (a -> b, b -> c) so that one substitution suffices."""
    out: dict[str, HostExpr] = {}
    for name, expr in merged.items():
        while not expr.symbols.isdisjoint(merged):
            expr = expr.substitute(merged)
        out[name] = expr
    return out


def rename_attrs(attrs: Attrs | None, binding: Mapping[str, HostExpr]) -> Attrs | None:
    """Attributes with symbols replaced in every expression they hold."""
    if isinstance(attrs, ScalarAttrs):
        return replace(attrs, expr=attrs.expr.substitute(binding))
    if isinstance(attrs, ViewAttrs):
        return ViewAttrs(_rename_map(attrs.map, binding))
    if isinstance(attrs, PieceAttrs):
        return PieceAttrs(
            tuple(
                Piece(tuple(e.substitute(binding) for e in p.domain), _rename_map(p.map, binding)) for p in attrs.pieces
            )
        )
    params: Any = getattr(attrs, "params", None)
    if params:
        return replace(attrs, params=tuple((k, _rename_value(v, binding)) for k, v in params))  # type: ignore[type-var]
    return attrs


def _rename_map(m: IndexMap, binding: Mapping[str, HostExpr]) -> IndexMap:
    return IndexMap(tuple(e.substitute(binding) for e in m.exprs))


def _rename_value(value: Any, binding: Mapping[str, HostExpr]) -> Any:
    if isinstance(value, HostExpr):
        return as_dim(value.substitute(binding))
    if isinstance(value, tuple):
        return tuple(_rename_value(v, binding) for v in value)
    return value


class _RenameDims(Rewriter):
    def __init__(self, graph: Graph, binding: dict[str, HostExpr]) -> None:
        super().__init__(graph)
        self.binding = binding
        self.builder.arguments = [replace(a, shape=substitute(a.shape, binding)) for a in graph.arguments]

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        shape = substitute(node.shape, self.binding)
        return self.builder.make(node.op, inputs, rename_attrs(node.attrs, self.binding), node.dtype, shape)


def apply_dims(graph: Graph, merged: Mapping[str, HostExpr]) -> Graph:
    """The graph with `merged` applied to shapes, maps, scalars and arguments.

    Guards keep the symbols of the arguments as called: they are what is checked on a call.
    """
    binding = closure(merged)
    return _RenameDims(graph, binding).run()


def substitute_dims(graph: Graph, binding: Mapping[str, HostExpr]) -> Graph:
    """The graph with dims as expressions that may hold the same symbols: substituted once. Guards stay as they are."""
    return _RenameDims(graph, dict(binding)).run()
