"""Random programs: every plan is a partition without cycles, right by the letter, and independent of
insertion order.
"""

import numpy as np
import pytest

from fuser import device
from fuser.graph import Graph
from fuser.group import Group
from fuser.hostexpr import sym
from fuser.interpreter import evaluate
from fuser.passes.facts import Facts
from fuser.passes.fuse import plan_groups
from fuser.passes.pipeline import prepare
from fuser.verify import verify
from tests.passes.graphs import RandomGraph, shuffled
from tests.passes.run_groups import run_groups

DIMS = (sym("n"), sym("m"), sym("k"), 3)
SMALL = {"n": 3, "m": 4, "k": 5}
LARGE = {"n": 5000, "m": 4096, "k": 3000}
H200, CPU = device.find("sm_90"), device.find("cpu")
PROGRAMS = 500


def program(seed: int) -> Graph:
    graph = RandomGraph(seed, DIMS).build(5 + seed % 26)
    return prepare(graph) if seed % 2 else graph


def assert_partition(graph: Graph, groups: tuple[Group, ...]) -> None:
    """Every value that is read is there already, and every result is stored once."""
    there = {n.id for n in graph.inputs.values()}
    for g in groups:
        assert set(g.inputs) <= there, g
        assert there.isdisjoint(g.outputs), g
        there.update(g.outputs)
    assert {n.id for n in graph.results} <= there
    needed = {k for g in groups for k in g.inputs} | {n.id for n in graph.results}
    assert all(set(g.outputs) <= needed for g in groups), "a value is stored that nobody reads"


def fingerprint(graph: Graph, groups: tuple[Group, ...]) -> list:
    """A plan by structural hashes: which values share a kernel, which are stored."""
    digests = Facts(graph).digests
    return sorted((sorted(digests[m] for m in g.members), sorted(digests[m] for m in g.outputs)) for g in groups)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("block", range(10))
def test_random_programs(block: int) -> None:
    share = PROGRAMS // 10
    for seed in range(block * share, (block + 1) * share):
        graph = program(seed)
        assert verify(graph) == []
        rng = np.random.default_rng(seed)
        arrays = [rng.standard_normal([d if isinstance(d, int) else int(d.evaluate(SMALL)) for d in a.shape])
                  for a in graph.arguments]  # fmt: skip
        want, _ = evaluate(graph, arrays, SMALL)
        groups, _ = plan_groups(graph, LARGE if seed % 3 else SMALL, CPU if seed % 5 == 0 else H200)
        assert_partition(graph, groups)
        got = run_groups(graph, groups, arrays, SMALL)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10, err_msg=f"seed {seed}")


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 10))
def test_insertion_order_does_not_matter(seed: int) -> None:
    graph = program(seed)
    plan = fingerprint(graph, plan_groups(graph, LARGE, H200)[0])
    for shuffle in range(3):
        other = shuffled(graph, shuffle)
        assert fingerprint(other, plan_groups(other, LARGE, H200)[0]) == plan


def test_random_programs_do_fuse() -> None:
    """The tests above would pass with nothing fused: most programs must need far fewer kernels than operators."""
    kernels = operators = 0
    for seed in range(100):
        graph = program(seed)
        operators += len(Facts(graph).cores)
        kernels += len(plan_groups(graph, LARGE, H200)[0])
    assert kernels * 3 < operators
