"""The verifier finds each kind of broken graph, and lists all findings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.dtypes import BF16, BOOL, F32, F64, I64
from fuser.graph import (
    Attrs,
    Builder,
    Effect,
    Graph,
    InputAttrs,
    IotaAttrs,
    ItemAttrs,
    Node,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
)
from fuser.hostexpr import lit, sym
from fuser.indexmap import IndexMap, Piece, axis, operand
from fuser.shapes import Guard
from fuser.verify import MAX_FINDINGS, verify

N, D = sym("n"), sym("d")
Make = Callable[[Builder, Node], Node]


def graph_of(make: Make) -> Graph:
    b = Builder()
    return b.close([make(b, b.argument("x", F32, (N, D)))])


def test_a_sound_graph_has_no_findings() -> None:
    assert verify(graph_of(lambda b, x: b.make("add", (x, x), None, F32, (N, D)))) == []


def view(*exprs: object, shape: tuple[object, ...] = (N, D)) -> Make:
    attrs = ViewAttrs(IndexMap(exprs))  # type: ignore[arg-type]
    return lambda b, x: b.make("view", (x,), attrs, F32, shape)  # type: ignore[arg-type]


def made(op: str, attrs: Attrs | None, dtype: object = F32, shape: object = (N, D), count: int = 1) -> Make:
    return lambda b, x: b.make(op, (x,) * count, attrs, dtype, shape)  # type: ignore[arg-type]


BROKEN: list[tuple[Make, str]] = [
    (made("sine", None), "no such operator"),
    (made("add", None), "1 operands, not 2"),
    (made("add", None, F64, count=2), "where the row says"),
    (made("add", None, shape=(N,), count=2), "another shape"),
    (made("add", ReduceAttrs((0,)), count=2), "has no attributes"),
    (made("bitwise_and", None, count=2), "refuses"),
    (made("bitcast", None, BF16), "bitcast"),
    (made("sum", None, shape=(N,)), "ReduceAttrs"),
    (made("sum", ReduceAttrs((1, 0)), shape=()), "axes"),
    (made("sum", ReduceAttrs((2,)), shape=(N, D)), "axes"),
    (made("sum", ReduceAttrs((1,)), shape=(D,)), "shape"),
    (made("sum", ReduceAttrs((1,)), F64, (N,)), "gives f32"),
    (made("cumsum", ScanAttrs(2)), "axis 2"),
    (made("item", ItemAttrs(1)), "one result"),
    (made("round", RoundAttrs(F32)), "rounds"),
    (made("softmax", None), "CompositeAttrs"),
    (made("input", InputAttrs(3), count=0), "argument 3"),
    (made("input", InputAttrs(0), F64, count=0), "where argument `x` is"),
    (made("iota", IotaAttrs(2), I64, count=0), "axis 2"),
    (made("scalar", ScalarAttrs(lit(1.5)), I64, (), count=0), "float expression"),
    (made("scalar", ScalarAttrs(lit(1.5)), count=0), "shape"),
    (view(axis(0)), "map to 1 axes"),
    (view(axis(0), axis(2)), "names $2"),
    (view(axis(0), operand(0)), "names @0"),
    (view(axis(0) + 1, axis(1)), "spans"),
    (view(axis(0), axis(1) - 1), "spans"),
    (made("view", ViewAttrs(IndexMap((axis(0), axis(1)))), F64), "a view of f32 as f64"),
    (made("piecewise", PieceAttrs((Piece((), IndexMap((axis(0), axis(1)))),) * 2), count=2), "last piece"),
    (made("piecewise", PieceAttrs((Piece((axis(0),), IndexMap((axis(0), axis(1)))),))), "last piece"),
    (made("piecewise", PieceAttrs(())), "0 pieces"),
    (made("sin", None, shape=(N, sym("z"))), "belongs to no argument"),
    (made("sin", None, shape=(N, lit(3))), "normal form"),
]


@pytest.mark.parametrize(("make", "words"), BROKEN, ids=[w for _, w in BROKEN])
def test_each_fault_is_found(make: Make, words: str) -> None:
    findings = verify(graph_of(make))
    assert any(words in f for f in findings), findings


def test_guards_are_taken_into_account() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    reading = b.make("view", (x,), ViewAttrs(IndexMap((axis(0) + 30,))), F32, (5,))
    g = b.close([reading])
    assert any("spans" in f for f in verify(g))
    assert verify(g.with_(guards=(Guard(N, ">=", lit(35)),))) == []


def test_effects() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    y = b.make("sin", (x,), None, F32, (N,))
    wrong = b.make("cast", (x,), None, F64, (N,))
    g = b.close([y], [Effect(0, y)])
    assert verify(g) == []
    assert any("effect on argument 4" in f for f in verify(b.close([y], [Effect(4, y)])))
    assert any("holds f64" in f for f in verify(b.close([y], [Effect(0, wrong)])))
    assert any("two effects" in f for f in verify(b.close([y], [Effect(0, y), Effect(0, y)])))


def test_order_and_liveness() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    y = b.make("sin", (x,), None, F32, (N,))
    g = b.close([y])
    assert any("comes later" in f for f in verify(g.with_(nodes=(y, x))))
    assert any("not in the graph" in f for f in verify(g.with_(nodes=(y,))))
    dead = b.make("cos", (x,), None, F32, (N,))
    assert any("no result needs" in f for f in verify(g.with_(nodes=(x, y, dead))))


def test_findings_are_all_listed_up_to_a_limit() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    bad = [b.make("sin", (x,), None, BOOL, (N, k)) for k in range(500)]
    found = verify(b.close(bad))
    assert len(found) == MAX_FINDINGS
