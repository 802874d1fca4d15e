"""The text form of a graph: readable, and parsed back to the same graph.

In: a `Graph`. Out: its text (source spans and the tree of results are left out). Dumps, tests and bug reports use it.
`parse_graph`, the way back, is in `fuser.textparse`.

    graph "softmax"
    arg x: f32[n, d]
    %0: f32[n, d] = input {0} ; x
    %1: f32[n] = max(%0) {1} ; m
    %2: f32[n, d] = view(%1) {($0)}
    %3: f32[n, d] = subtract(%0, %2)
    return %3
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fuser.dtypes import DType
from fuser.exprtext import Printer, symbol_text
from fuser.graph import (
    Argument,
    Attrs,
    CompositeAttrs,
    Graph,
    InputAttrs,
    IotaAttrs,
    ItemAttrs,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
    attr_expressions,
)
from fuser.hostexpr import HostExpr
from fuser.hostfunctions import literal_text
from fuser.loopbody import LoopAttrs
from fuser.shapes import Shape

_BARE = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")


# -- printing --------------------------------------------------------------------------------------
def print_graph(graph: Graph) -> str:
    """The graph's text, one node a line, ending in a newline."""
    printer = Printer()
    exprs = list(_expressions(graph))
    printer.announce(exprs)
    body = [_argument_line(a, printer) for a in graph.arguments]
    guards = [f"guard {printer.show(g.left)} {g.relation} {printer.show(g.right)}" for g in graph.guards]
    nodes = [_node_line(n, graph.names.get(n, ()), printer) for n in graph.nodes]
    kinds = {n.value: n.kind for e in exprs for n in e.walk() if n.op == "sym" and n.kind != "int"}
    scalars = [f"scalar {symbol_text(name)}: {kind}" for name, kind in sorted(kinds.items())]
    lets = [f"let ?{k} = {text}" for k, text in enumerate(printer.lets)]
    tail = [f"return {', '.join(f'%{n.id}' for n in graph.outputs)}".rstrip()]
    tail += [f"effect {e.argument} <- %{e.node.id}" for e in graph.effects]
    return "\n".join([f"graph {json.dumps(graph.name)}", *scalars, *lets, *body, *guards, *nodes, *tail]) + "\n"


def _expressions(graph: Graph) -> Iterator[HostExpr]:
    """Every host expression that the text holds."""
    for g in graph.guards:
        yield from (g.left, g.right)
    for shape in (*(a.shape for a in graph.arguments), *(n.shape for n in graph.nodes)):
        yield from (d for d in shape if isinstance(d, HostExpr))
    for n in graph.nodes:
        yield from attr_expressions(n.attrs)


def _dims(shape: Shape, p: Printer) -> str:
    return ", ".join(p.show(d) if isinstance(d, HostExpr) else str(d) for d in shape)


def _argument_line(a: Argument, p: Printer) -> str:
    return f"arg {_name(a.name)}: {a.dtype}[{_dims(a.shape, p)}]" + (" captured" if a.captured else "")


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _node_line(n: Node, names: Sequence[str], p: Printer) -> str:
    operands = f"({', '.join(f'%{i.id}' for i in n.inputs)})" if n.inputs else ""
    attrs = _attrs_text(n.attrs, p)
    label = f" ; {', '.join(map(_name, names))}" if names else ""
    return f"%{n.id}: {n.dtype}[{_dims(n.shape, p)}] = {n.op}{operands}" + (f" {{{attrs}}}" if attrs else "") + label


def _attrs_text(attrs: Attrs | None, p: Printer) -> str:
    if attrs is None:
        return ""
    if isinstance(attrs, ScanAttrs):
        flags = [f for f in ("exclusive", "reverse") if getattr(attrs, f)]
        return " ".join([str(attrs.axis), *flags])
    if isinstance(attrs, PieceAttrs):
        return "; ".join(f"[{_list(q.domain, p)}] -> ({_list(q.map.exprs, p)})" for q in attrs.pieces)
    if isinstance(attrs, CompositeAttrs | OpaqueAttrs):
        return ", ".join(f"{k}: {_value_text(v, p)}" for k, v in attrs.params)
    if isinstance(attrs, LoopAttrs):
        return _loop_text(attrs, p)
    plain: dict[type[Any], Callable[[Any], str]] = {
        InputAttrs: lambda a: str(a.position),
        ScalarAttrs: lambda a: p.show(a.expr),
        IotaAttrs: lambda a: str(a.axis),
        ViewAttrs: lambda a: f"({_list(a.map.exprs, p)})",
        ReduceAttrs: lambda a: ", ".join(map(str, a.axes)) or "none",
        ItemAttrs: lambda a: str(a.k),
        RoundAttrs: lambda a: a.to.name,
    }
    return plain[type(attrs)](attrs)


def _loop_text(attrs: LoopAttrs, p: Printer) -> str:
    """`state 0 of 2; captured 1; #4: f64 = multiply(#1, #1); until #7; next #4, #5`: values by their numbers."""
    parts = [f"state {attrs.k} of {attrs.states}", f"captured {attrs.captured}"]
    parts += [] if attrs.uniform else ["count varies"]
    for number, s in enumerate(attrs.steps, attrs.parameters):
        operands = f"({', '.join(f'#{a}' for a in s.args)})" if s.args else ""
        inner = f" {{{_attrs_text(s.attrs, p)}}}" if s.attrs is not None else ""
        parts.append(f"#{number}: {s.dtype} = {s.op}{operands}{inner}")
    parts += [] if attrs.stop is None else [f"until #{attrs.stop}"]
    return "; ".join([*parts, f"next {', '.join(f'#{r}' for r in attrs.results)}"])


def _list(exprs: Sequence[HostExpr], p: Printer) -> str:
    return ", ".join(p.show(e) for e in exprs)


def _value_text(value: Any, p: Printer) -> str:
    """A static parameter: number, string, None, dtype, tuple, or an expression in backquotes."""
    if isinstance(value, HostExpr):
        return f"`{p.show(value)}`"
    if isinstance(value, DType):
        return f"<{value}>"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_value_text(v, p)}, " for v in value).rstrip() + ")"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"!{literal_text(value)}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(f"a graph's text cannot hold a {type(value).__name__}")
