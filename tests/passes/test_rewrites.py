"""Passes on graphs written as text: what becomes of them, and that both sides compute the same."""

from pathlib import Path

import numpy as np
import pytest

from fuser.errors import InternalError
from fuser.graph import Graph
from fuser.interpreter import evaluate
from fuser.passes.base import Pass
from fuser.passes.cse import Prune, Share
from fuser.passes.divisible import Divisible
from fuser.passes.fold import Fold
from fuser.passes.loops import LoopBodies
from fuser.passes.lower import Lower
from fuser.passes.pipeline import PIPELINE, observe, prepare
from fuser.passes.products import Products
from fuser.passes.results import OwnResults
from fuser.passes.simplify import Simplify
from fuser.passes.split import Split
from fuser.passes.unroll import UnrollSmall
from fuser.passes.variants import Variants
from fuser.passes.widen import Widen
from fuser.settings import Settings
from fuser.text import print_graph
from fuser.textparse import parse_graph
from fuser.verify import verify

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
PASSES: dict[str, Pass] = {
    "cse": Share(),
    "dce": Prune(),
    "divisible": Divisible(),
    "fold": Fold(),
    "loop_bodies": LoopBodies(),
    "loop_bodies-fast-math": LoopBodies(fast_math=True),
    "lower": Lower(),
    "products": Products(),
    "results": OwnResults(),
    "simplify": Simplify(),
    "split": Split(),
    "unroll_small": UnrollSmall(),
    "variants": Variants(),
    "variants-fast-math": Variants(fast_math=True),
    "widen": Widen(),
    "widen-each-op": Widen(rounding="each-op"),
}
# Fewer roundings, or another formula: the two sides agree within a few units of the narrowest type.
CLOSE = {
    "widen": 4e-2,
    "lower": 1e-6,
    "variants": 8e-3,
    "variants-fast-math": 1e-5,
    "unroll_small": 1e-6,
    "split": 1e-6,
    "products": 1e-5,
}
SIZES = {"n": 6, "m": 5, "d": 4, "k": 3, "=n": 3}
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -3.0, 1e-3)


def load(path: Path) -> tuple[str, Graph, str]:
    """(pass, graph before, text after) of a case file."""
    head, text = path.read_text(encoding="utf-8").split("\n", 1)
    before, after = text.split("----\n")
    return head[2:].split(":")[0], parse_graph(before), after


def arguments(graph: Graph, seed: int) -> list[np.ndarray]:
    """Arrays for a graph's arguments, special values among the floats, small non-negative integers."""
    rng = np.random.default_rng(seed)
    out = []
    for a in graph.arguments:
        shape = [d if isinstance(d, int) else int(d.evaluate(SIZES)) for d in a.shape]
        if a.dtype.is_float:
            values = rng.standard_normal(shape)
            spots = rng.random(shape) < 0.2
            values[spots] = rng.choice(SPECIAL, int(spots.sum()))
        elif a.dtype.is_complex:
            values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        else:
            values = rng.integers(0, 3, shape)
        out.append(values.astype(a.dtype.numpy))
    return out


def assert_same(got: list[np.ndarray], want: list[np.ndarray], tolerance: float) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        if tolerance:
            wide = complex if a.dtype.kind == "c" else float
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a.astype(float)), np.signbit(b.astype(float)))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_before_and_after(path: Path) -> None:
    name, before, after = load(path)
    assert verify(before) == []
    done = PASSES[name].run(before)
    assert print_graph(done) == after
    assert verify(done) == []


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_both_sides_compute_the_same(path: Path) -> None:
    name, before, _ = load(path)
    done = PASSES[name].run(before)
    for seed in range(3):
        arrays = arguments(before, seed)
        outputs, effects = evaluate(before, arrays, SIZES)
        new_outputs, new_effects = evaluate(done, arrays, SIZES)
        assert_same(new_outputs, outputs, CLOSE.get(name, 0.0))
        if name != "results":
            assert_same(new_effects, effects, CLOSE.get(name, 0.0))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_nothing_left_to_do_returns_the_same_object(path: Path) -> None:
    name, before, _ = load(path)
    done = PASSES[name].run(before)
    if not name.startswith("widen"):  # a widened graph still has casts to half, which the pass looks at again
        assert PASSES[name].run(done) is done


def test_every_pass_has_a_case() -> None:
    covered = {load(p)[0] for p in CASES}
    assert {p.name for p in PIPELINE} - {"dce"} <= covered


def test_a_limit_permits_only_the_first_rewrites() -> None:
    _, before, _ = load(Path(__file__).parent / "cases" / "simplify-integers.txt")
    assert Simplify(limit=0).run(before) is before
    sizes = [len(Simplify(limit=k).run(before).nodes) for k in (1, 2, 3)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2]


def test_prune_drops_what_nobody_needs() -> None:
    graph = parse_graph('graph "f"\narg x: f32[n]\n%0: f32[n] = input {0}\n%1: f32[n] = exp(%0)\nreturn %1\n')
    dead = graph.with_(outputs=(graph.nodes[0],))
    assert [n.id for n in Prune().run(dead).nodes] == [0]
    assert Prune().run(graph) is graph


def test_prepare_leaves_rows_only_and_is_stable() -> None:
    text = """graph "f"
arg x: bf16[n, m]
%0: bf16[n, m] = input {0}
%1: bf16[n, m] = softmax(%0) {axis: (1,)}
%2: bf16[m, n] = view(%1) {($1, $0)}
%3: bf16[n, m] = view(%2) {($1, $0)}
return %3
"""
    ready = prepare(parse_graph(text))
    assert verify(ready) == []
    assert {n.op for n in ready.nodes if n.dtype.is_half} == {"input", "cast"}
    assert "softmax" not in {n.op for n in ready.nodes}
    assert [n.op for n in prepare(ready).nodes] == [n.op for n in ready.nodes]


def test_debug_names_the_pass_that_broke_a_graph_and_dumps_what_it_made(tmp_path: Path) -> None:
    _, graph, _ = load(Path(__file__).parent / "cases" / "cse-equal.txt")
    for _ in range(2):
        observe(graph, "fold", Settings(debug=2, dump_dir=str(tmp_path)))
    assert [f.name for f in sorted(tmp_path.iterdir())] == ["001-f-fold.txt", "002-f-fold.txt"]
    assert parse_graph((tmp_path / "002-f-fold.txt").read_text()).outputs
    broken = graph.with_(nodes=graph.nodes[1:])
    with pytest.raises(InternalError, match="after `fold`"):
        observe(broken, "fold", Settings(debug=1))
    observe(broken, "fold", Settings(debug=0))


def test_a_ten_thousand_operator_chain_needs_no_recursion() -> None:
    lines = ['graph "chain"', "arg x: f32[n, m]", "%0: f32[n, m] = input {0}"]
    shape, other = "n, m", "m, n"
    for k in range(10_000):
        op = f"view(%{k}) {{($1, $0)}}" if k % 5 == 4 else f"negative(%{k})"
        shape, other = (other, shape) if k % 5 == 4 else (shape, other)
        lines.append(f"%{k + 1}: f32[{shape}] = {op}")
    graph = prepare(parse_graph("\n".join([*lines, "return %10000", ""])))
    assert sum(n.op == "negative" for n in graph.nodes) == 8000
