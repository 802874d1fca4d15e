"""Variants are chosen where a rounding hides their error, and nowhere else; what they choose is bounded in f64."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fuser.dtypes import BF16, F16, F32, I32, DType
from fuser.graph import Builder, Graph, Node, ReduceAttrs, RoundAttrs
from fuser.hostexpr import lit, sym
from fuser.indexmap import IndexMap
from fuser.optable import table
from fuser.passes.conditioning import Conditioning, Sign, is_log_sumexp
from fuser.passes.pipeline import prepare
from fuser.passes.variants import TOLERANCE, Variants
from fuser.verify import verify

N, M = sym("n"), sym("m")


class Program:
    """A graph by hand: f32 nodes of shape [n, m] unless said otherwise."""

    def __init__(self) -> None:
        self.b = Builder("f")
        self.x = self.half("x")
        self.y = self.half("y")

    def half(self, name: str, dtype: DType = BF16) -> Node:
        return self.op("cast", self.b.argument(name, dtype, (N, M)))

    def op(self, name: str, *inputs: Node, dtype: DType = F32) -> Node:
        return self.b.make(name, inputs, None, dtype, inputs[0].shape)

    def literal(self, value: float) -> Node:
        return self.spread(self.b.scalar(lit(value), F32), ())

    def spread(self, node: Node, index: Sequence[int]) -> Node:
        """A view of [n, m] that reads a node of fewer axes."""
        from fuser.graph import ViewAttrs

        return self.b.make("view", (node,), ViewAttrs(IndexMap(tuple(sym(f"${k}") for k in index))), F32, (N, M))

    def fold(self, name: str, node: Node) -> Node:
        return self.b.make(name, (node,), ReduceAttrs((1,)), F32, (N,))

    def chosen(self, *results: Node, to: DType = BF16, fast_math: bool = False) -> list[str]:
        """The operators of the program that are variants, or fused, when the results are rounded to a half type."""
        outputs = [n if n.dtype.is_half else self.b.make("cast", (n,), None, to, n.shape) for n in results]
        return ops(Variants(fast_math=fast_math).run(self.b.close(outputs)))


def ops(graph: Graph) -> list[str]:
    assert verify(graph) == []
    return [n.op for n in graph.nodes if "." in n.op or n.op == "fma"]


# -- where errors may go ---------------------------------------------------------------------------
def test_a_function_that_is_rounded_at_once() -> None:
    for name in ("exp", "sigmoid", "tanh", "sqrt", "rsqrt", "reciprocal"):
        p = Program()
        assert p.chosen(p.op(name, p.x)) == [f"{name}.fast"]


def test_a_logarithm_may_be_near_its_root() -> None:
    p = Program()
    assert p.chosen(p.op("log", p.op("exp", p.x))) == []


def test_a_result_in_f32_shows_every_error() -> None:
    p = Program()
    e = p.op("exp", p.x)
    rounded = p.b.make("cast", (e,), None, BF16, e.shape)
    assert ops(Variants().run(p.b.close([rounded, e]))) == []


@pytest.mark.parametrize("jump", ["less", "floor", "int", "sin"])
def test_a_jump_shows_every_error(jump: str) -> None:
    p = Program()
    e = p.op("exp", p.x)
    if jump == "less":
        from fuser.dtypes import BOOL

        result = p.op("where", p.op("less", e, p.y, dtype=BOOL), p.x, p.y)
    elif jump == "int":
        result = p.op("cast", p.op("cast", e, dtype=I32))
    else:
        result = p.op(jump, e)
    assert p.chosen(result, e) == []


def test_a_value_rounded_before_a_comparison_is_a_rounding_like_any_other() -> None:
    from fuser.dtypes import BOOL

    p = Program()
    e = p.b.make("round", (p.op("exp", p.x),), RoundAttrs(BF16), F32, (N, M))
    less = p.b.make("less", (e, p.y), None, BOOL, (N, M))
    assert ops(Variants().run(p.b.close([less]))) == ["exp.fast"]


# -- cancellation ----------------------------------------------------------------------------------
def test_sums_of_one_sign_pass_errors_on_and_differences_do_not() -> None:
    p = Program()
    e, f = p.op("exp", p.x), p.op("exp", p.y)
    assert p.chosen(p.op("add", e, f)) == ["exp.fast", "exp.fast"]
    p = Program()
    e, f = p.op("exp", p.x), p.op("exp", p.y)
    assert p.chosen(p.op("subtract", e, f)) == []
    p = Program()
    assert p.chosen(p.op("add", p.op("exp", p.x), p.y)) == []


def test_a_sum_over_positive_elements_passes_errors_on() -> None:
    p = Program()
    assert p.chosen(p.fold("sum", p.op("exp", p.x))) == ["exp.fast"]
    p = Program()
    assert p.chosen(p.fold("sum", p.op("tanh", p.x))) == []


def test_signs_follow_products_and_odd_powers() -> None:
    p = Program()
    square = p.op("multiply", p.x, p.x)
    cube = p.op("multiply", square, p.op("multiply", p.x, p.literal(-0.5)))
    tanh = p.op("tanh", p.x)
    graph = p.b.close([p.op("add", cube, tanh), p.op("absolute", p.y)])
    signs = Conditioning(graph).signs
    own = frozenset({p.x.inputs[0].id})  # a cast keeps the sign
    assert signs[square] == Sign()
    assert signs[cube] == Sign(True, own)
    assert signs[tanh] == Sign(False, own)
    assert Conditioning(graph).growth(graph.outputs[0]) == (np.inf, np.inf)


def test_views_of_other_elements_have_signs_of_their_own() -> None:
    p = Program()
    row = p.b.argument("r", F32, (M,))
    a, b = p.spread(row, (1,)), p.op("multiply", p.x, p.x)
    graph = p.b.close([p.op("multiply", a, b), p.spread(p.fold("sum", p.op("exp", p.y)), (0,))])
    signs = Conditioning(graph).signs
    assert signs[a] == Sign(factors=frozenset({a.id}))
    assert signs[graph.outputs[1]] == Sign()


# -- log-sum-exp -----------------------------------------------------------------------------------
def log_softmax(p: Program, of: Node, top_of: Node) -> tuple[Node, Node]:
    shifted = p.op("subtract", of, p.spread(p.fold("max", top_of), (0,)))
    total = p.fold("sum", p.op("exp", shifted))
    logarithm = p.op("log", total)
    return p.op("subtract", shifted, p.spread(logarithm, (0,))), logarithm


def test_log_softmax_is_well_conditioned_below_its_own_maximum_only() -> None:
    p = Program()
    result, logarithm = log_softmax(p, p.x, p.x)
    assert is_log_sumexp(logarithm)
    assert p.chosen(result, to=F16) == ["exp.fast"]
    p = Program()
    result, logarithm = log_softmax(p, p.x, p.y)
    assert not is_log_sumexp(logarithm)
    assert p.chosen(result) == []


def test_composites_of_half_rows_use_one_cheap_exponential() -> None:
    from fuser.construct.composite import composite

    for name in ("softmax", "log_softmax", "logsumexp"):
        b = Builder("f")
        x = b.argument("x", F16, (N, M))
        params = {"axis": (1,)} | ({"keepdims": False} if name == "logsumexp" else {})
        made = prepare(b.close([composite(b, name, [x], **params)]))
        found = [n.op for n in made.nodes if n.op.startswith("exp")]
        assert found == (["exp"] if name == "logsumexp" else ["exp.fast"]), name  # its sum may cancel


# -- budgets ---------------------------------------------------------------------------------------
def chain(length: int) -> Callable[[Program], Node]:
    def build(p: Program) -> Node:
        v = p.x
        for _ in range(length):
            v = p.op("tanh", v)
        return v

    return build


def test_errors_of_a_chain_add_up_until_the_budget_is_spent() -> None:
    error = table().scalar("tanh").variants["fast"].error
    for to in (BF16, F16):
        p = Program()
        taken = p.chosen(chain(200)(p), to=to)
        assert len(taken) == int(TOLERANCE[to] / error)


def test_what_is_too_much_together_is_given_up_before_that_rounding_only() -> None:
    p = Program()
    v = p.literal(1.0)
    for k in range(12):  # a product of 12 sigmoids: each alone is within f16's budget, together they are not
        v = p.op("multiply", v, p.op("sigmoid", p.half(f"a{k}")))
    other = p.op("sqrt", p.op("absolute", p.y))
    assert p.chosen(v, other, to=F16) == ["sqrt.fast"]


def test_long_chains_do_not_recurse() -> None:
    p = Program()
    v = p.x
    for _ in range(10_000):
        v = p.op("multiply", p.op("add", v, p.literal(1.0)), p.y)
    assert p.chosen(p.op("absolute", v)) == []  # a product of unknown sign plus 1 may cancel


def test_a_limit_permits_only_the_first_rewrites() -> None:
    p = Program()
    result = p.op("multiply", p.op("exp", p.x), p.op("sqrt", p.op("absolute", p.y)))
    graph = p.b.close([p.b.make("cast", (result,), None, BF16, result.shape)])
    assert ops(Variants(limit=1).run(graph)) == ["exp.fast"]
    assert Variants(limit=0).run(graph).nodes == graph.nodes or ops(Variants(limit=0).run(graph)) == []


def test_each_op_rounding_leaves_numpys_bits_alone() -> None:
    p = Program()
    graph = p.b.close([p.b.make("exp", (p.b.nodes[0],), None, BF16, (N, M))])
    assert "exp" in [n.op for n in prepare(graph, rounding="each-op").nodes]
    assert "exp.fast" in [n.op for n in prepare(graph).nodes]


# -- sums and products -----------------------------------------------------------------------------
def test_one_plus_a_function_of_single_use_is_one_function() -> None:
    for name in ("tanh", "erf"):
        p = Program()
        sum_ = p.op("add", p.op(name, p.x), p.literal(1.0))
        assert p.chosen(p.op("multiply", p.y, sum_)) == [f"one_plus_{name}.fast"]
        p = Program()
        f = p.op(name, p.x)
        assert p.chosen(p.op("add", f, p.literal(1.0)), p.op("multiply", f, f)) == []


def test_products_fuse_where_no_digit_is_lost() -> None:
    p = Program()
    assert p.chosen(p.op("subtract", p.op("multiply", p.x, p.y), p.op("sin", p.x))) == ["fma"]  # exact product
    p = Program()
    inexact = p.op("multiply", p.op("sin", p.x), p.y)
    assert p.chosen(p.op("subtract", inexact, p.x)) == []
    p = Program()
    positive = p.op("multiply", p.op("exp", p.x), p.op("exp", p.y))
    assert p.chosen(p.op("add", p.op("absolute", p.x), positive)) == ["exp.fast", "exp.fast", "fma"]
    p = Program()
    used_twice = p.op("multiply", p.x, p.y)
    assert p.chosen(p.op("add", used_twice, p.x), used_twice) == []


def test_division_by_a_literal_is_multiplication() -> None:
    p = Program()
    graph = p.b.close([p.b.make("cast", (p.op("divide", p.x, p.literal(3.0)),), None, BF16, (N, M))])
    assert [n.op for n in Variants().run(graph).nodes][-2:] == ["multiply", "cast"]
    for odd in (0.0, np.inf, np.nan, 1e-40):
        p = Program()
        assert p.chosen(p.op("divide", p.x, p.literal(odd))) == ["divide.fast"]


# -- fast_math -------------------------------------------------------------------------------------
def test_fast_math_takes_every_variant_and_fuses_every_product() -> None:
    p = Program()
    v = p.op("subtract", p.op("exp", p.x), p.op("multiply", p.op("log", p.y), p.x))
    result = Variants(fast_math=True).run(p.b.close([v]))
    assert ops(result) == ["exp.fast", "log.fast", "fma"]
    assert Variants().run(p.b.close([v])) is not result
    assert ops(Variants().run(p.b.close([v]))) == []
