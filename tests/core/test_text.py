"""The text form: what it looks like, that it parses back, and what it says of bad text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.construct import creation, elementwise, indexing, joining, reduction, storing, views
from fuser.construct.composite import composite
from fuser.dtypes import BF16, F32, I64
from fuser.errors import ParseError
from fuser.exprtext import Printer, Reader
from fuser.graph import Builder, CompositeAttrs, Effect, Graph, Node, RoundAttrs
from fuser.hostexpr import HostExpr, call, lit, scalar_symbol, sym
from fuser.optable import table
from fuser.text import print_graph
from fuser.textparse import parse_graph
from tests.core.test_hostexpr import expressions

N, D, H = sym("n"), sym("d"), scalar_symbol("h", "float")


def everything() -> Graph:
    """A graph with every kind of node and attribute."""
    b = Builder("all of it")
    x = b.argument("x", F32, (N, D))
    b.argument("unread arg", BF16, (sym("weird name!"), 1))
    k = b.argument("k", I64, (3,), captured=True)
    parts = [
        elementwise.node(b, "multiply", x, call("*", 2.0, H)),
        indexing.getitem(b, x, (slice(1, -1), slice(None, None, -1))),
        indexing.getitem(b, x, (k, 0)),
        storing.setitem(b, x, (slice(None, None, 2), 1), 0),
        joining.pad(b, x, 1, "reflect"),
        reduction.std(b, x, -1, keepdims=True),
        reduction.scan(b, "cumsum", x, 0, exclusive=True, reverse=True),
        reduction.item(b, reduction.raw(b, "max_sumexp", x, (0, 1)), 1),
        reduction.reduce(b, "sum", x, ()),
        creation.arange(b, N),
        b.make("round", (x,), RoundAttrs(BF16), F32, x.shape),
        composite(b, "gelu", [x], approximate="tanh"),
        composite(b, "rms_norm", [x], axis=(0, 1), eps=H, scale=False, shift=False),
        elementwise.as_node(b, float("-inf"), F32),
        elementwise.as_node(b, -0.0, F32),
        elementwise.cast(b, x, BF16),
    ]
    b.label(parts[0], "y")
    b.label(parts[0], 'odd "name"')
    return b.close(parts, [Effect(0, elementwise.node(b, "add", x, 1.0))])


def same_graph(g: Graph, h: Graph) -> None:
    """Structural equality of all that the text holds."""
    assert (g.name, g.arguments, g.guards) == (h.name, h.arguments, h.guards)

    def key(n: Node) -> object:
        return n.id, n.op, tuple(i.id for i in n.inputs), n.attrs, n.dtype, n.shape

    assert [key(n) for n in g.nodes] == [key(n) for n in h.nodes]
    assert [n.id for n in g.outputs] == [n.id for n in h.outputs]
    assert [(e.argument, e.node.id) for e in g.effects] == [(e.argument, e.node.id) for e in h.effects]
    named = {n.id: names for n, names in g.names.items() if n in set(g.nodes)}
    assert {n.id: names for n, names in h.names.items()} == named


def test_everything_parses_back() -> None:
    g = everything()
    same_graph(g, parse_graph(print_graph(g)))


def test_what_it_looks_like() -> None:
    b = Builder("softmax")
    x = b.argument("x", F32, (N, D))
    e = elementwise.node(b, "exp", elementwise.node(b, "subtract", x, reduction.reduce(b, "max", x, -1, keepdims=True)))
    b.label(e, "e")
    assert print_graph(b.close([elementwise.node(b, "divide", e, 2)])) == (
        'graph "softmax"\n'
        "arg x: f32[n, d]\n"
        "%0: f32[n, d] = input {0} ; x\n"
        "%1: f32[n] = max(%0) {1}\n"
        "%2: f32[n, 1] = view(%1) {($0)}\n"
        "%3: f32[n, d] = view(%2) {($0, 0)}\n"
        "%4: f32[n, d] = subtract(%0, %3)\n"
        "%5: f32[n, d] = exp(%4) ; e\n"
        "%6: f32[] = scalar {2.0}\n"
        "%7: f32[n, d] = view(%6) {()}\n"
        "%8: f32[n, d] = divide(%5, %7)\n"
        "return %8\n"
    )


def round_trip(e: HostExpr) -> HostExpr:
    printer = Printer()
    printer.announce([e])
    text = printer.show(e)
    kinds = {n.value: n.kind for n in e.walk() if n.op == "sym"}
    lets: list[HostExpr] = []
    for line in printer.lets:
        lets.append(Reader(line, 1, lets, kinds).expression())
    reader = Reader(text, 1, lets, kinds)
    back = reader.expression()
    assert reader.peek == ""
    return back


@given(expressions())
def test_integer_expressions_parse_back(e: HostExpr) -> None:
    assert identical(round_trip(e), e)


def identical(a: HostExpr, b: HostExpr) -> bool:
    """The same tree, node by node (equality goes through text, which is what is tested)."""
    stack = [(a, b)]
    while stack:
        p, q = stack.pop()
        if (p.op, p.kind, repr(p.value), len(p.args)) != (q.op, q.kind, repr(q.value), len(q.args)):
            return False
        stack.extend(zip(p.args, q.args, strict=True))
    return True


def float_expressions() -> st.SearchStrategy[HostExpr]:
    leaf = st.sampled_from([H, N, scalar_symbol("flag", "bool")]) | st.floats().map(lit) | st.booleans().map(lit)
    ops = sorted({"+", "-", "*", "/", "**", "min", "<", "==", "&", "<<", "//", "%"})

    def grow(inner: st.SearchStrategy[HostExpr]) -> st.SearchStrategy[HostExpr]:
        unary = st.builds(call, st.sampled_from(["neg", "sqrt", "not", "float", "abs"]), inner)
        return (
            st.builds(call, st.sampled_from(ops), inner, inner)
            | unary
            | st.builds(call, st.just("where"), inner, inner, inner)
        )

    return st.recursive(leaf, grow, max_leaves=10)


@given(float_expressions())
def test_other_expressions_parse_back(e: HostExpr) -> None:
    assert identical(round_trip(e), e)


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "-0.0"])
def test_special_floats_parse_back(value: str) -> None:
    assert round_trip(lit(float(value))) == lit(float(value))


def test_deep_and_shared_expressions_parse_back() -> None:
    deep: HostExpr = H
    for _ in range(3000):
        deep = deep * 1.5 + 0.5
    assert round_trip(deep).evaluate({"=h": 0.0}) == deep.evaluate({"=h": 0.0})
    shared: HostExpr = H
    for _ in range(200):
        shared = shared + shared
    printer = Printer()
    printer.announce([shared])
    assert len(printer.show(shared)) + sum(map(len, printer.lets)) < 10_000
    assert round_trip(shared).evaluate({"=h": 1.0}) == 2.0**200


def test_a_long_graph_prints_and_parses() -> None:
    b = Builder()
    y = b.argument("x", F32, (N,))
    for _ in range(10_000):
        y = elementwise.node(b, "add", y, y)
    g = b.close([y])
    same_graph(g, parse_graph(print_graph(g)))


def test_half_written_text_and_blank_lines() -> None:
    g = parse_graph('graph "f"\n\narg x: f32[3]\n%4: f32[3] = input {0}\n\nreturn %4')
    assert [n.id for n in g.nodes] == [4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grph", "does not start with `grph`"),
        ("arg x f32[n]", "expected `:`"),
        ("arg x: f33[n]", "no dtype"),
        ("arg x: f32[n", "expected `,`"),
        ("%0: f32[n] = sine(%1)", "not defined above"),
        ("%0: f32[n] = sine", "no operator is called `sine`"),
        ("%0: f32[n] = input", "needs attributes"),
        ("%0: f32[n] = input {0} {1}", "too many"),
        ("return %3", "%3 is not defined"),
        ("guard n < 3", "a guard says"),
        ("arg x: f32[__import__(1)]", "no host function"),
        ("arg x: f32[" + "(" * 500 + "n" + ")" * 500 + "]", "too deeply"),
        ("arg x: f32[\x00]", "no token"),
        ("scalar =h: str", "int, float or bool"),
        ("let ?3 = n", "the next let is ?0"),
    ],
)
def test_bad_text_is_a_parse_error_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words.replace("?", r"\?")) as caught:
        parse_graph(f'graph "f"\n{text}\nreturn')
    assert caught.value.spans[0].line == 2


def test_text_must_end() -> None:
    with pytest.raises(ParseError, match="return"):
        parse_graph('graph "f"')


def test_every_row_kind_has_a_text() -> None:
    assert isinstance(everything().nodes[-1], Node)
    kinds = {type(n.attrs) for n in everything().nodes}
    assert CompositeAttrs in kinds
    assert len(kinds) == 11
    assert views.view is not None
    assert len(table().rows) > 200
