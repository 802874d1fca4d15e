"""What may not share a kernel, and why: one small graph a reason."""

from collections.abc import Callable

import pytest

from fuser import device
from fuser.dtypes import F32, F64
from fuser.graph import Builder, Graph, Node, OpaqueAttrs, ScanAttrs
from fuser.group import Group
from fuser.hostexpr import lit, scalar_symbol, sym, wrap
from fuser.indexmap import IndexMap, axis
from fuser.passes.fuse import Options, plan_groups
from fuser.passes.legality import Refusal, form
from tests.passes.graphs import fold, literal, op, reshape, row_softmax, spread, transpose, view

N, M = sym("n"), sym("m")
LARGE = {"n": 8192, "m": 4096}
H200 = device.find("sm_90")


def everything(build: Callable[[Builder, Node], list[Node]]) -> Group | Refusal:
    """All operators of a small program over x: f64[n, m], asked to be one group."""
    b = Builder("f")
    graph = b.close(build(b, b.argument("x", F64, (N, M))))
    return form(graph, frozenset(n.id for n in graph.nodes))


def two_axes(b: Builder, x: Node) -> list[Node]:
    return [fold(b, "sum", x, [0]), fold(b, "sum", x, [1])]


def other_row(b: Builder, x: Node) -> list[Node]:
    """Each row minus the sum of the row before it."""
    total = fold(b, "sum", x, [1], False)
    before = view(b, total, IndexMap((wrap(N) - 1 - axis(0),)), x.shape)
    return [op(b, "subtract", x, before)]


def other_shape(b: Builder, x: Node) -> list[Node]:
    y = view(b, x, IndexMap((axis(0), lit(0))), (N,))
    return [op(b, "exp", x), op(b, "exp", y)]


def other_outer_product(b: Builder, x: Node) -> list[Node]:
    """A row's sum spread over a new axis that is not the reduced one."""
    total = fold(b, "sum", x, [1])
    return [op(b, "exp", spread(b, total, (N, sym("k"))))]


def library(b: Builder, x: Node) -> list[Node]:
    product = b.make("matmul", (x, b.argument("w", F64, (M, M))), OpaqueAttrs(), F64, (N, M))
    return [op(b, "exp", product)]


def running(b: Builder, x: Node, axis: int = 1) -> Node:
    return b.make("cumsum", (x,), ScanAttrs(axis), F64, x.shape)


def scan_read_elsewhere(b: Builder, x: Node) -> list[Node]:
    """Each running sum minus that of the row before it."""
    here = running(b, x)
    before = view(b, here, IndexMap((wrap(N) - 1 - axis(0), axis(1))), x.shape)
    return [op(b, "subtract", here, before)]


def scan_stored_transposed(b: Builder, x: Node) -> list[Node]:
    return [op(b, "exp", transpose(b, running(b, x), (1, 0)))]


def scan_of_scan(b: Builder, x: Node) -> list[Node]:
    return [running(b, op(b, "exp", running(b, x)))]


def scan_and_sum(b: Builder, x: Node) -> list[Node]:
    return [op(b, "divide", running(b, x), fold(b, "sum", x, [1]))]


def rows_of_rows(b: Builder, x: Node) -> list[Node]:
    return [fold(b, "sum", fold(b, "max", x, [1], False), [0], False)]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (two_axes, "axes"),
        (other_row, "index"),
        (other_shape, "space"),
        (other_outer_product, "space"),
        (library, "library"),
        (scan_read_elsewhere, "scan"),
        (scan_stored_transposed, "scan"),
        (scan_of_scan, "scan"),
        (scan_and_sum, "scan"),
        (rows_of_rows, "axes"),
    ],
)
def test_refusals(build: Callable[[Builder, Node], list[Node]], reason: str) -> None:
    found = everything(build)
    assert isinstance(found, Refusal)
    assert found.reason == reason


@pytest.mark.parametrize("along", [0, 1])
def test_what_follows_a_scan_at_its_own_place_joins_it(along: int) -> None:
    def program(b: Builder, x: Node) -> list[Node]:
        found = running(b, op(b, "absolute", x), along)
        return [op(b, "divide", x, found), op(b, "exp", x)]

    group = everything(program)
    assert isinstance(group, Group)
    assert group.kind == "scan"
    assert len(group.outputs) == 2


def test_a_stencil_pyramid_is_refused_before_it_explodes() -> None:
    def pyramid(b: Builder, x: Node) -> list[Node]:
        for k in range(14):
            flipped = view(b, x, IndexMap((wrap(N) - 1 - axis(0), axis(1))), x.shape)
            shifted = view(b, x, IndexMap(((axis(0) + k + 1) % N, axis(1))), x.shape)
            x = op(b, "add", flipped, shifted)
        return [x]

    found = everything(pyramid)
    assert isinstance(found, Refusal)
    assert found.reason == "cost"


def test_reducers_of_differently_shaped_views_share_a_space() -> None:
    """Sums over [n, m] and over its reshape [1, n, m] are the same rows."""

    def build(b: Builder, x: Node) -> list[Node]:
        return [fold(b, "sum", x, [1]), fold(b, "max", reshape(b, x, (1, N, M)), [2])]

    found = everything(build)
    assert isinstance(found, Group)
    assert found.space.parallel == (N,)


def test_square_arrays_are_told_apart_by_data_not_by_extent() -> None:
    """x: [n, n]; a column softmax stored transposed: extents alone could not say which axis is which."""
    b = Builder("square")
    x = b.argument("x", F64, (N, N))
    graph = b.close([transpose(b, row_softmax(b, x, 0), (1, 0))])
    found = form(graph, frozenset(n.id for n in graph.nodes))
    assert isinstance(found, Group)
    assert [str(e) for e in found.stores[0].index] == ["p0", "r0"]
    assert not found.space.inner


def test_a_producer_is_stored_where_its_transposed_reader_computes_it() -> None:
    def build(b: Builder, x: Node) -> list[Node]:
        y = op(b, "exp", x)
        return [y, op(b, "sqrt", transpose(b, y, (1, 0)))]

    found = everything(build)
    assert isinstance(found, Group)
    assert {str(s.index[0]) for s in found.stores} == {"p0", "p1"}


def test_reductions_over_axes_of_size_one_keep_a_reduced_axis() -> None:
    b = Builder("one")
    x = b.argument("x", F64, (N, 1))
    graph = b.close([fold(b, "sum", x, [1])])
    found = form(graph, frozenset(n.id for n in graph.nodes))
    assert isinstance(found, Group)
    assert found.space.reduced == (1,)


# -- limits that only the search knows -------------------------------------------------------------
def sum_of(count: int) -> Graph:
    b = Builder("many")
    xs = [b.argument(f"x{k}", F64, (N, M)) for k in range(count)]
    total = xs[0]
    for x in xs[1:]:
        total = op(b, "add", total, x)
    return b.close([total])


def test_wide_sums_respect_the_parameter_space() -> None:
    """700 inputs, possibly strided (a pointer and two strides each), against 4096 bytes of parameters."""
    graph = sum_of(700)
    groups, decisions = plan_groups(graph, LARGE, H200)
    assert all(8 * (3 * len(g.inputs) + len(g.outputs)) <= 4096 for g in groups)
    assert "arguments" in {d.reason for d in decisions}
    contiguous, _ = plan_groups(graph, LARGE, H200, Options(contiguous=range(700)))
    assert len(contiguous) < len(groups)
    assert all(8 * (len(g.inputs) + len(g.outputs)) <= 4096 for g in contiguous)


def test_three_thousand_readers_of_one_array() -> None:
    b = Builder("wide")
    x = b.argument("x", F32, (N,))
    outs = [op(b, "multiply", x, literal(b, float(k), x)) for k in range(3000)]
    groups, _ = plan_groups(b.close(outs), LARGE, H200)
    assert sum(len(g.outputs) for g in groups) == 3000
    assert all(8 * (len(g.inputs) + len(g.outputs)) <= 4096 for g in groups)
    assert len(groups) <= 12


def test_long_chains_are_cut() -> None:
    b = Builder("chain")
    y = b.argument("x", F32, (N,))
    for _ in range(5000):
        y = op(b, "negative", y)
    groups, decisions = plan_groups(b.close([y]), LARGE, H200)
    assert sum(len(g.members) for g in groups) == 5000
    assert max(len(g.members) for g in groups) <= 512
    assert len(groups) <= 20
    assert {d.reason for d in decisions if d.verdict == "apart"} == {"length"}


def test_many_live_values_split_before_they_spill() -> None:
    """160 doubles that are all needed at the end cannot live in 255 registers of a GPU thread; a CPU has its stack."""
    b = Builder("hungry")
    x = b.argument("x", F64, (N,))
    values = [op(b, "multiply", x, literal(b, float(k), x)) for k in range(160)]
    down = values
    while len(down) > 1:  # first with last, second with second to last: all are alive until the middle
        half = (len(down) + 1) // 2
        down = [op(b, "add", down[k], down[-1 - k]) for k in range(len(down) // 2)] + down[len(down) // 2 : half]
    total = down[0]
    for v in values:
        total = op(b, "multiply", total, v)
    graph = b.close([total])
    groups, decisions = plan_groups(graph, LARGE, H200)
    refused = [d for d in decisions if d.reason == "registers"]
    assert len(groups) > 1
    assert refused
    assert all(d.numbers["needs"] > d.numbers["limit"] == 255 for d in refused)
    assert len(plan_groups(graph, LARGE, device.find("cpu"))[0]) == 1


def test_work_grows_linearly() -> None:
    """Pairs considered a graph of 4 times the size: about 4 times as many."""

    def considered(size: int) -> int:
        b = Builder("grid")
        pool = [b.argument(f"x{k}", F32, (N, M)) for k in range(4)]
        for k in range(size):
            pool.append(
                op(b, ("add", "multiply")[k % 2], pool[-1 - k % 7 % len(pool)], pool[-2 - k % 5 % (len(pool) - 1)])
            )
        return len(plan_groups(b.close(pool[-4:]), LARGE, H200)[1])

    assert considered(2000) < 5 * considered(500)


def test_run_time_scalars_count_as_parameters() -> None:
    b = Builder("scalars")
    y = b.argument("x", F32, (N,))
    for k in range(490):
        y = op(b, "add", y, spread(b, b.scalar(scalar_symbol(f"s{k}", "float"), F32), y.shape))
    groups, decisions = plan_groups(b.close([y]), LARGE, H200)
    assert len(groups) == 2
    assert "arguments" in {d.reason for d in decisions}
