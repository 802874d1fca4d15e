"""Every public workload reaches its published plan: the number of kernels, and no byte more than inputs and results.

What is not reached yet is marked, with the reason, and must fail: who reaches it takes the mark away.
"""

from __future__ import annotations

from functools import cache

import pytest

import fuser
from benchmarks.workloads import WORKLOADS, Workload
from fuser import device
from fuser.dtypes import F32
from fuser.graph import Builder, Graph
from fuser.hostexpr import sym
from fuser.passes.fuse import plan_groups
from fuser.passes.search import Search
from fuser.plan import Plan
from tests.passes.graphs import op
from tests.passes.test_reasons import assert_told

# Where benchmarks.md's table says fewer kernels than the suite's own rows ask for, or the other way round.
PUBLISHED = {"P26": 2}
NOT_REACHED: dict[str, str] = {}
# Traffic beyond inputs and results that the kernel count itself brings: a second read, values between two kernels.
SECOND_READ = {"P26"}
BETWEEN = {"P13", "P28"}


def rows(excluded: dict[str, str]) -> list[object]:
    def marks(w: Workload) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.xfail(reason=excluded[w.id], strict=True),) if w.id in excluded else ()

    return [pytest.param(w, id=w.id, marks=marks(w)) for w in WORKLOADS]


def planned(w: Workload) -> Plan:
    return _plan(w.id)


@cache
def _plan(name: str) -> Plan:
    (w,) = (w for w in WORKLOADS if w.id == name)
    return fuser.compile(w.fn, fast_math=w.fast_math).plan(*w.specs, device="sm_90")


@pytest.mark.parametrize("w", rows(NOT_REACHED))
def test_kernels_are_as_many_as_published(w: Workload) -> None:
    assert len(planned(w).groups) <= PUBLISHED.get(w.id, w.kernels)


@pytest.mark.parametrize("w", rows(NOT_REACHED))
def test_every_byte_is_moved_once(w: Workload) -> None:
    plan = planned(w)
    if w.id in SECOND_READ:
        assert plan.bytes_moved <= plan.bytes_floor + max(plan.graph.arguments[0].dtype.bytes, 1) * _elements(w) + 4096
    elif w.id in BETWEEN:
        assert plan.bytes_moved <= plan.bytes_floor * 1.002
    elif w.gathers:
        assert plan.bytes_moved <= plan.bytes_floor
    else:
        assert plan.bytes_moved == plan.bytes_floor


def _elements(w: Workload) -> int:
    dims = str(w.specs[0]).partition("[")[2].rstrip("]").split(",")
    total = 1
    for d in dims:
        total *= int(d)
    return total


def test_nothing_of_the_size_of_all_pairs_is_stored() -> None:
    (w,) = (w for w in WORKLOADS if w.program == "nbody")
    assert planned(w).temporary_bytes < 64 << 20


def test_halves_of_a_line_are_no_stencil() -> None:
    """Each thread loads its own places of queries and keys, and takes one vector."""
    (w,) = (w for w in WORKLOADS if w.program == "rope")
    ((kernel,),) = planned(w).built
    assert kernel.resources.registers <= 64


# -- planning work grows with the graph ----------------------------------------------------------------
def chain(length: int) -> Graph:
    b = Builder("chain")
    x = b.argument("x", F32, (sym("n"),))
    for k in range(length):
        x = op(b, ("exp", "sin", "negative")[k % 3], x)
    return b.close([x])


def wide(width: int) -> Graph:
    b = Builder("wide")
    x = b.argument("x", F32, (sym("n"),))
    readers = [x]
    for _ in range(width):
        readers.append(op(b, "add", x, readers[-1]))
    return b.close([op(b, "negative", r) for r in readers[1:]])


def steps(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> int:
    """Candidates that the search looks at."""
    count = 0
    step = Search._step

    def counted(self: Search, candidate: object) -> None:
        nonlocal count
        count += 1
        step(self, candidate)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Search, "_step", counted)
        plan_groups(graph, {"n": 1 << 20}, device.find("sm_90"))
    return count


@pytest.mark.parametrize(("build", "size"), [(chain, 400), (wide, 100)], ids=["chain", "wide"])
def test_candidates_grow_with_the_graph_not_with_its_square(
    build: object, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(build)
    few, many = steps(build(size), monkeypatch), steps(build(8 * size), monkeypatch)
    assert few > 0
    assert many <= 14 * few


@pytest.mark.parametrize("w", rows({}))
def test_every_boundary_has_a_reason(w: Workload) -> None:
    plan = planned(w)
    assert_told(plan.graph, plan.groups, list(plan.decisions))
