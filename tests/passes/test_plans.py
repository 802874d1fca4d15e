"""Plans of named programs: how many kernels, of which kind, and that groups run by the letter give the right values."""

from collections.abc import Callable

import numpy as np
import pytest

from fuser import device
from fuser.decision import REASONS
from fuser.dtypes import BF16, BOOL, F32, F64, I64
from fuser.graph import Builder, Graph, ItemAttrs, ReduceAttrs
from fuser.hostexpr import lit, scalar_symbol, sym
from fuser.interpreter import evaluate
from fuser.passes.facts import Facts
from fuser.passes.fuse import plan_groups
from fuser.passes.pipeline import prepare
from tests.passes.graphs import fold, literal, mean, op, reshape, row_softmax, spread, transpose, variance, view
from tests.passes.run_groups import run_groups

N, M, C, H = map(sym, "nmch")
SMALL = {"n": 7, "m": 5, "c": 3, "h": 4}
LARGE = {"n": 8192, "m": 4096, "c": 64, "h": 512}
H200 = device.find("sm_90")


def softmax(b: Builder) -> list:
    return [row_softmax(b, b.argument("x", F32, (N, M)), 1)]


def softmax_first(b: Builder) -> list:
    return [row_softmax(b, b.argument("x", F32, (N, M)), 0)]


def softmax_transposed(b: Builder) -> list:
    return [transpose(b, row_softmax(b, b.argument("x", F32, (N, M)), 0), (1, 0))]


def layer_norm(b: Builder) -> list:
    x, w, c = b.argument("x", F32, (N, M)), b.argument("w", F32, (M,)), b.argument("c", F32, (M,))
    centred, var = variance(b, x, [1])
    scale = op(b, "rsqrt", op(b, "add", var, literal(b, 1e-5, var)))
    y = op(b, "multiply", centred, spread(b, scale, x.shape))
    return [op(b, "add", op(b, "multiply", y, spread(b, w, x.shape)), spread(b, c, x.shape))]


def add_rms_norm(b: Builder) -> list:
    x, r, w = b.argument("x", F32, (N, M)), b.argument("r", F32, (N, M)), b.argument("w", F32, (M,))
    h = op(b, "add", x, r)
    scale = op(b, "rsqrt", mean(b, op(b, "multiply", h, h), [1]))
    return [h, op(b, "multiply", op(b, "multiply", h, spread(b, scale, h.shape)), spread(b, w, h.shape))]


def bias_gelu(b: Builder) -> list:
    x, c = b.argument("x", F32, (N, M)), b.argument("c", F32, (M,))
    u = op(b, "add", x, spread(b, c, x.shape))
    cube = op(b, "multiply", op(b, "multiply", u, u), u)
    inner = op(b, "add", u, op(b, "multiply", cube, literal(b, 0.044715, u)))
    inner = op(b, "multiply", inner, literal(b, 0.797884, u))
    half = op(b, "multiply", u, literal(b, 0.5, u))
    return [op(b, "multiply", half, op(b, "add", op(b, "tanh", inner), literal(b, 1, u)))]


def swiglu(b: Builder) -> list:
    from fuser.indexmap import IndexMap, axis

    x = b.argument("x", F32, (N, 2 * M))
    a = view(b, x, IndexMap((axis(0), axis(1))), (N, M))
    c = view(b, x, IndexMap((axis(0), axis(1) + M)), (N, M))
    return [op(b, "multiply", op(b, "multiply", a, op(b, "sigmoid", a)), c)]


def black_scholes(b: Builder) -> list:
    s, k, t = (b.argument(name, F32, (N,)) for name in "skt")
    rate = spread(b, b.scalar(scalar_symbol("rate", "float"), F32), s.shape)
    root = op(b, "sqrt", t)
    d1 = op(b, "divide", op(b, "add", op(b, "log", op(b, "divide", s, k)), op(b, "multiply", rate, t)), root)
    d2 = op(b, "subtract", d1, root)
    discount = op(b, "multiply", k, op(b, "exp", op(b, "negative", op(b, "multiply", rate, t))))
    call = op(b, "subtract", op(b, "multiply", s, op(b, "erf", d1)), op(b, "multiply", discount, op(b, "erf", d2)))
    return [call, op(b, "add", op(b, "subtract", call, s), discount)]


def adam(b: Builder) -> list:
    p, g, m, v = (b.argument(name, F32, (N,)) for name in "pgmv")
    m1 = op(b, "add", op(b, "multiply", m, literal(b, 0.9, m)), op(b, "multiply", g, literal(b, 0.1, g)))
    g2 = op(b, "multiply", g, g)
    v1 = op(b, "add", op(b, "multiply", v, literal(b, 0.99, v)), op(b, "multiply", g2, literal(b, 0.01, g)))
    step = op(b, "divide", m1, op(b, "add", op(b, "sqrt", op(b, "absolute", v1)), literal(b, 1e-3, v)))
    return [op(b, "subtract", p, step), m1, v1]


def cross_entropy(b: Builder) -> list:
    """Mean over rows of logsumexp(row) - row[0]: the mean waits for every row."""
    from fuser.indexmap import IndexMap, axis

    x = b.argument("x", F32, (N, M))
    top = b.make("max_sumexp", (x,), ReduceAttrs((1,)), F32, (N,))
    total = b.make("item", (top,), ItemAttrs(1), F32, (N,))
    target = view(b, x, IndexMap((axis(0), lit(0))), (N,))
    return [mean(b, op(b, "subtract", op(b, "add", top, op(b, "log", total)), target), [0])]


def batch_norm(b: Builder) -> list:
    """Statistics of 64 channels in one pass (`moments`), then normalise: 64 rows cannot keep a GPU busy together."""
    x = b.argument("x", F32, (N, C, H, H))
    mu = b.make("moments", (x,), ReduceAttrs((0, 2, 3)), F32, (C,))
    scatter = b.make("item", (mu,), ItemAttrs(1), F32, (C,))
    scale = op(b, "rsqrt", op(b, "add", scatter, literal(b, 1e-3, scatter)))
    per_channel = [spread(b, reshape(b, v, (C, 1, 1)), x.shape) for v in (mu, scale)]
    return [op(b, "multiply", op(b, "subtract", x, per_channel[0]), per_channel[1]), mu]


def column_statistics(b: Builder) -> list:
    x = b.argument("x", F32, (N, M))
    _, var = variance(b, x, [0])
    return [mean(b, x, [0]), var, fold(b, "max", x, [0])]


def multi_statistics(b: Builder) -> list:
    x = b.argument("x", F32, (N,))
    positive = op(b, "greater", x, literal(b, 0.5, x), dtype=BOOL)
    count = fold(b, "sum", op(b, "cast", positive, dtype=I64), [0], False)
    squares = fold(b, "sum", op(b, "multiply", x, x), [0], False)
    return [fold(b, "sum", x, [0], False), squares, fold(b, "min", x, [0], False), fold(b, "max", x, [0], False), count]


def normalise_whole(b: Builder) -> list:
    x = b.argument("x", F32, (N, M))
    return [op(b, "divide", x, spread(b, fold(b, "sum", x, [0, 1]), x.shape))]


def whole_softmax(b: Builder) -> list:
    x = b.argument("x", F32, (N, M))
    e = op(b, "exp", x)
    return [op(b, "divide", e, spread(b, fold(b, "sum", e, [0, 1]), x.shape))]


def group_norm(b: Builder) -> list:
    x, w = b.argument("x", F32, (N, 6, H, H)), b.argument("w", F32, (6,))
    y = reshape(b, x, (N, 2, 3 * H * H))
    centred, var = variance(b, y, [2])
    y = op(b, "divide", centred, spread(b, op(b, "sqrt", op(b, "add", var, literal(b, 1e-5, var))), y.shape))
    return [op(b, "multiply", reshape(b, y, x.shape), spread(b, reshape(b, w, (6, 1, 1)), x.shape))]


def rows_and_columns(b: Builder) -> list:
    e = op(b, "exp", b.argument("x", F32, (N, M)))
    return [fold(b, "sum", e, [0], False), fold(b, "sum", e, [1], False)]


def transposed_add(b: Builder) -> list:
    x, y = b.argument("x", F32, (N, M)), b.argument("y", F32, (M, N))
    return [op(b, "maximum", op(b, "add", x, transpose(b, y, (1, 0))), literal(b, 0, x))]


def half_softmax(b: Builder) -> list:
    return [row_softmax(b, b.argument("x", BF16, (N, M)), 1)]


def row_mean_of_row_max(b: Builder) -> list:
    return [fold(b, "sum", fold(b, "max", b.argument("x", F64, (N, M)), [1], False), [0], False)]


def scan_of_product(b: Builder) -> list:
    from fuser.graph import ScanAttrs

    x, y = b.argument("x", F64, (N, M)), b.argument("y", F64, (N, M))
    product = op(b, "multiply", x, y)
    running = b.make("cumsum", (product,), ScanAttrs(1), F64, product.shape)
    return [op(b, "exp", op(b, "negative", op(b, "absolute", running)))]


Kinds = list[str]
PLANS: dict[Callable[[Builder], list], Kinds] = {
    softmax: ["rows"],
    softmax_first: ["columns"],
    softmax_transposed: ["columns"],
    layer_norm: ["rows"],
    add_rms_norm: ["rows"],
    bias_gelu: ["pointwise"],
    swiglu: ["pointwise"],
    black_scholes: ["pointwise"],
    adam: ["pointwise"],
    cross_entropy: ["rows", "full"],
    batch_norm: ["rows", "pointwise"],
    column_statistics: ["columns"],
    multi_statistics: ["full"],
    normalise_whole: ["full", "pointwise"],
    whole_softmax: ["full", "pointwise"],
    group_norm: ["rows"],
    rows_and_columns: ["mixed"],
    transposed_add: ["pointwise"],
    half_softmax: ["rows"],
    row_mean_of_row_max: ["rows", "full"],
    scan_of_product: ["scan"],
}


def program(build: Callable[[Builder], list]) -> Graph:
    b = Builder(build.__name__)
    return prepare(b.close(build(b)))


def arrays_for(graph: Graph, sizes: dict) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = [[d if isinstance(d, int) else int(d.evaluate(sizes)) for d in a.shape] for a in graph.arguments]
    return [(rng.random(s) + 0.5).astype(a.dtype.numpy) for s, a in zip(shapes, graph.arguments, strict=True)]


@pytest.mark.parametrize("build", PLANS, ids=lambda f: f.__name__)
def test_kernels_of_named_programs(build: Callable[[Builder], list]) -> None:
    groups, decisions = plan_groups(program(build), LARGE, H200)
    assert sorted(g.kind for g in groups) == sorted(PLANS[build])
    assert all(d.reason in REASONS for d in decisions)
    assert len({g.name for g in groups}) == len(groups)


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("build", PLANS, ids=lambda f: f.__name__)
def test_groups_compute_the_program(build: Callable[[Builder], list], sizes: dict) -> None:
    """Planned for `sizes`, run at small ones: a plan is right whatever it was planned for."""
    graph = program(build)
    groups, _ = plan_groups(graph, sizes, H200)
    env = {**SMALL, "=rate": 0.1}
    arrays = arrays_for(graph, SMALL)
    want, _ = evaluate(graph, arrays, env)
    got = run_groups(graph, groups, arrays, env)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(
            a.astype(float), b.astype(float), rtol=1e-2 if graph.nodes[0].dtype == BF16 else 2e-5
        )


@pytest.mark.parametrize("build", PLANS, ids=lambda f: f.__name__)
def test_every_operand_between_operators_has_one_decision(build: Callable[[Builder], list]) -> None:
    graph = program(build)
    facts = Facts(graph, LARGE)
    groups, decisions = plan_groups(graph, LARGE, H200)
    operands = [(r.source, k) for k in facts.cores for r in facts.reads[k] if r.source in facts.core_set]
    found = [(d.producer, d.consumer) for d in decisions if d.kind in ("vertical", "library")]
    assert sorted(found) == sorted(operands)
    homes = {k: [n for n, g in enumerate(groups) if k in g.members] for k in facts.cores}
    for d in decisions:
        if d.kind == "vertical" and d.verdict == "fused":
            assert set(homes[d.producer]) & set(homes[d.consumer])


def test_stages_of_softmax() -> None:
    (group,), _ = plan_groups(program(softmax), LARGE, H200)
    shape = [([r.node for r in s.reducers], [st.node for st in s.stores]) for s in group.stages[0]]
    assert [bool(r) for r, _ in shape] == [True, True, False]
    assert [bool(st) for _, st in shape] == [False, False, True]


def test_a_result_that_needs_no_statistic_is_stored_in_the_first_stage() -> None:
    graph = program(add_rms_norm)
    (group,), _ = plan_groups(graph, LARGE, H200)
    assert [[s.node for s in stage.stores] for stage in group.stages[0]] == [
        [graph.outputs[0].id],
        [graph.outputs[1].id],
    ]


def test_a_small_array_is_one_row_even_when_its_sum_feeds_back() -> None:
    groups, _ = plan_groups(program(normalise_whole), {"n": 64, "m": 64}, H200)
    assert [g.kind for g in groups] == ["full"]


def test_why_the_whole_sum_stays_apart() -> None:
    _, decisions = plan_groups(program(normalise_whole), LARGE, H200)
    apart = [d for d in decisions if d.verdict == "apart"]
    assert {d.reason for d in apart} == {"barrier"}
    assert all(d.numbers["us_together"] > d.numbers["us_apart"] for d in apart)


def test_exponentials_are_computed_again_rather_than_stored() -> None:
    graph = program(whole_softmax)
    groups, decisions = plan_groups(graph, LARGE, H200)
    assert [d.reason for d in decisions if d.kind == "recompute"] == ["recompute"]
    argument = graph.inputs[0].id
    assert all(argument in g.inputs for g in groups)


def test_few_long_rows_are_not_kept_together() -> None:
    groups, _ = plan_groups(program(softmax), {"n": 4, "m": 1 << 24}, H200)
    assert len(groups) > 1
