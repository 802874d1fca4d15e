"""Graphs and builders: interning, pruning, dims renamed on close, walks that do not recurse."""

from __future__ import annotations

from fuser.construct import elementwise as ew
from fuser.construct import indexing, reduction
from fuser.dtypes import F32
from fuser.errors import Span
from fuser.graph import Builder, Effect, Graph, Node, Rewriter
from fuser.hostexpr import scalar_symbol, sym
from fuser.text import print_graph


def chain(length: int) -> Graph:
    b = Builder()
    y: Node = b.argument("x", F32, (sym("n"),))
    for _ in range(length):
        y = ew.node(b, "add", y, y)
    return b.close([y])


def test_nodes_are_interned() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    assert ew.node(b, "sin", x) is ew.node(b, "sin", x)
    assert ew.node(b, "sin", x) is not ew.node(b, "cos", x)


def test_both_edges_of_a_square_are_kept() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    y = ew.node(b, "multiply", x, x)
    g = b.close([y])
    assert g.users[x] == (y, y)
    assert g.networkx().number_of_edges() == 2


def test_close_prunes_and_renames() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    y = b.argument("y", F32, (sym("m"),))
    ew.node(b, "sin", x)  # read by nothing
    g = b.close([ew.node(b, "add", x, y)])
    assert [n.op for n in g.nodes] == ["input", "input", "add"]
    assert {str(a.shape) for a in g.arguments} == {"(HostExpr(m),)"} or len({a.shape for a in g.arguments}) == 1
    assert len(g.symbols) == 1


def test_spans_and_names_stay_beside_the_nodes() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    first, second = Span("a.py", 1), Span("a.py", 2)
    b.span = first
    y = ew.node(b, "sin", x)
    b.span = second
    assert ew.node(b, "sin", x) is y
    b.label(y, "y")
    g = b.close([y])
    assert g.spans[y] == (first, second)
    assert g.names[y] == ("y",)


def test_symbols_of_maps_and_parameters_count() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    k = scalar_symbol("k", "int")
    g = b.close([indexing.getitem(b, x, k)])
    assert g.symbols == {"n", "=k"}


def test_deep_graphs() -> None:
    g = chain(10_000)
    assert len(g.nodes) == 10_001
    assert len(Rewriter(g).run().nodes) == 10_001
    assert g.symbols == {"n"}


def test_rewriting_carries_everything() -> None:
    b = Builder("f")
    x = b.argument("x", F32, (sym("n"), sym("d")))
    y = reduction.mean(b, x, 1, keepdims=True)
    b.label(y, "m")
    g = b.close([ew.node(b, "subtract", x, y)], [Effect(0, ew.node(b, "add", x, 1))])
    assert print_graph(Rewriter(g).run()) == print_graph(Rewriter(Rewriter(g).run()).run())
    again = Rewriter(g).run()
    assert [names for n in again.nodes if (names := again.names.get(n))] == [("x",), ("m",)]
    assert again.effects[0].argument == 0
