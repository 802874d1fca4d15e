"""The reason given for every boundary between two kernels is one that holds for the finished plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser import device
from fuser.decision import Decision
from fuser.dtypes import F64
from fuser.graph import Builder, Graph, ItemAttrs, Node, OpaqueAttrs, ReduceAttrs
from fuser.group import Group
from fuser.hostexpr import sym
from fuser.passes.fuse import plan_groups
from fuser.passes.pipeline import prepare
from tests.passes.graphs import RandomGraph, fold, op, spread

N, M = sym("n"), sym("m")
H200 = device.find("sm_90")
LARGE = {"n": 8192, "m": 8192, "k": 3000}


def product_between(b: Builder) -> list[Node]:
    """exp(x) @ w + exp(x), scaled by a sum over everything: the product lies between, but the sum alone would do."""
    x, w = b.argument("x", F64, (N, N)), b.argument("w", F64, (N, N))
    e = op(b, "exp", x)
    product = b.make("matmul", (e, w), OpaqueAttrs(), F64, (N, N))
    total = fold(b, "sum", e, [0, 1])
    return [op(b, "multiply", op(b, "add", product, e), spread(b, total, e.shape))]


def library_between(b: Builder) -> list[Node]:
    """A value that a library call takes, and that is used again after it."""
    a = op(b, "sin", op(b, "exp", b.argument("x", F64, (N, M))))
    squared = b.make("matmul", (a, b.argument("w", F64, (M, M))), OpaqueAttrs(), F64, a.shape)
    return [op(b, "divide", a, squared), op(b, "negative", a)]


def rows_then_columns(b: Builder) -> list[Node]:
    """Rows divided by their sums, then columns by theirs: the quotient is computed again where it is needed."""
    x = b.argument("x", F64, (N, M))
    y = op(b, "divide", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    return [op(b, "divide", y, spread(b, fold(b, "sum", y, [0]), y.shape))]


def planned(graph: Graph) -> tuple[tuple[Group, ...], list[Decision]]:
    groups, decisions = plan_groups(graph, LARGE, H200)
    return groups, list(decisions)


def program(build: Callable[[Builder], list[Node]]) -> Graph:
    b = Builder(build.__name__)
    return prepare(b.close(build(b)))


def between(graph: Graph, decisions: list[Decision], a: str, b: str) -> Decision:
    """The one decision about operand `a` of operator `b`."""
    ops = {n.id: n.op for n in graph.nodes}
    (found,) = [d for d in decisions if (ops[d.producer], ops[d.consumer], d.kind) == (a, b, "vertical")]
    return found


def test_what_would_do_alone_comes_before_what_lies_between() -> None:
    graph = program(product_between)
    _, decisions = planned(graph)
    found = between(graph, decisions, "exp", "add")
    assert (found.verdict, found.reason) == ("apart", "barrier")
    assert graph.by_id[int(found.numbers["awaits"])].op == "sum"


def test_what_lies_between_is_named() -> None:
    graph = program(library_between)
    _, decisions = planned(graph)
    found = between(graph, decisions, "sin", "divide")
    assert (found.verdict, found.reason) == ("apart", "cycle")
    assert graph.by_id[int(found.numbers["between"])].op == "matmul"


def test_a_copy_reads_what_its_original_was_fused_with() -> None:
    graph = program(rows_then_columns)
    groups, decisions = planned(graph)
    (first, second) = (n for n in graph.nodes if n.op == "sum")
    copied = next(n for n in graph.nodes if n.op == "divide")
    assert copied.id in groups[1].members
    reasons = {(d.producer, d.consumer): (d.verdict, d.reason) for d in decisions if d.kind == "vertical"}
    assert reasons[first.id, copied.id] == ("apart", "axes")
    assert reasons[copied.id, second.id] == ("fused", "recompute")


def assert_told(graph: Graph, groups: tuple[Group, ...], decisions: list[Decision]) -> None:
    """Every value stored for another kernel has a decision with a reason; none is about two ends of one kernel."""
    base = {n.id: n.inputs[0].id if isinstance(n.attrs, ItemAttrs) else n.id for n in graph.nodes}
    apart = [d for d in decisions if d.verdict == "apart"]
    stored = {k for g in groups for k in g.outputs}
    for g in groups:
        for d in apart:
            assert not {d.producer, d.consumer} <= set(g.members) - stored or d.kind == "sibling", d
        for k in set(g.inputs) & stored:
            mine = [d for d in apart if base[d.producer] == base[k] and d.consumer in g.members]
            copied = any(d.reason == "recompute" for d in decisions if d.consumer in g.members)
            assert mine or copied, (graph.by_id[k], g.name)
            assert all(d.reason != "budget" for d in mine)
            assert all("between" in d.numbers for d in mine if d.reason == "cycle")


@pytest.mark.parametrize("block", range(4))
def test_every_boundary_of_random_programs_has_a_reason(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        graph = prepare(RandomGraph(seed, (N, M, sym("k"), 3)).build(8 + seed % 26))
        assert_told(graph, *planned(graph))


def test_barriers_name_what_is_waited_for() -> None:
    for seed in range(60):
        graph = prepare(RandomGraph(seed, (N, M, sym("k"), 3)).build(8 + seed % 26))
        for d in planned(graph)[1]:
            if d.reason == "barrier":
                assert isinstance(graph.by_id[int(d.numbers["awaits"])].attrs, ReduceAttrs)
