"""Plan records: what is taken from the disk cache is the plan that was stored, found under nothing but its own key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from benchmarks.workloads import WORKLOADS, Workload
from fuser import kernels, planrecord
from fuser.compiled import Compiled
from fuser.device import find
from fuser.graph import Graph
from fuser.hostexpr import lit, sym
from fuser.optable import table
from fuser.optable.base import Table
from fuser.plan import Plan
from fuser.runtime import cache
from fuser.runtime.cache import Store
from fuser.textparse import parse_graph
from fuser.toolchain import Toolchain
from fuser.wiring import toolchain
from tests import engines
from tests.plans.test_golden import planned


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A cache of the test's own, and a process that remembers no kernel."""
    own = Store((tmp_path / "cache",), 1 << 28)
    monkeypatch.setattr(cache, "store", lambda: own)
    kernels.forget()
    yield own
    kernels.forget()


def second(compiled: Compiled) -> Compiled:
    """The function in another process, as far as memory goes: what is left is on disk."""
    kernels.forget()
    return compiled.with_options()


def rows(x: Any, w: Any) -> Any:
    y = x - x.max(axis=1, keepdims=True)
    e = np.exp(y)
    return e / e.sum(axis=1, keepdims=True) * w, (x * w).sum(axis=0)


def last_plan(compiled: Compiled) -> Plan:
    ((traced,),) = compiled._traces.values()
    (plan,) = traced.plans.values()
    return plan


def test_values_come_back_as_they_were() -> None:
    n = sym("x.0")
    shared = (n * 3 + 1) % 7
    whole = (shared * shared // (n + 2), lit(-0.0), lit(float("inf")), lit(True), sym("=h", "float") * 2.5)
    (back,) = planrecord._unpacked(planrecord._packed((whole,)))
    assert back == whole
    assert [e.kind for e in back] == [e.kind for e in whole]
    assert str(back[1].value) == "-0.0"


@pytest.mark.parametrize("w", WORKLOADS, ids=lambda w: w.id)
def test_groups_and_decisions_of_every_workload_come_back(w: Workload) -> None:
    plan = planned(w.id, "sm_90")
    assert planrecord._unpacked(planrecord._packed(plan.groups)) == plan.groups
    assert planrecord._unpacked(planrecord._packed(plan.decisions)) == plan.decisions


def test_a_record_gives_the_same_bits_and_the_same_answers(store: Store) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((37, 129), np.float32), rng.standard_normal((1, 129), np.float32)
    first = fuser.compile(rows)
    one = first(x, w)
    assert last_plan(first).recorded is None
    again = second(first)
    compiled = kernels.compiled_count()
    other = again(x, w)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert last_plan(again).recorded is not None
    assert kernels.compiled_count() == compiled
    a, b = first.plan(x, w), again.plan(x, w)
    assert b.explain() == a.explain()
    assert b.sources() == a.sources()
    assert str(b.why("e", "max")) == str(a.why("e", "max"))


@pytest.mark.parametrize("device", ["cpu", "sm_90"])
def test_launches_are_those_of_the_compiled_plan(store: Store, device: str) -> None:
    if device != "cpu":
        pytest.importorskip("cupy")
    specs = ("bf16[4096, 8192]", "bf16[1, 8192]")
    first = fuser.compile(rows)
    plan = first.warm(*specs, device=device)
    found = second(first).warm(*specs, device=device)
    assert found.recorded is not None
    for mine, theirs in zip(found.launches, plan.built, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            ours, whole = a.kernel, b.kernel
            assert isinstance(ours, planrecord.Kernel)
            assert [(p.name, p.dtype, p.role, p.node, p.size) for p in ours.buffers] == [
                (p.name, p.dtype, p.role, p.node, p.size) for p in whole.buffers
            ]
            assert [(s.name, s.dtype, s.expr) for s in ours.scalars] == [
                (s.name, s.dtype, s.expr) for s in whole.scalars
            ]
            for part in ("grid", "block", "grain", "cluster"):
                assert getattr(ours.launch, part) == getattr(whole.launch, part)
            assert (a.resources, a.source()) == (b.resources, b.source())
            if device != "cpu":
                assert vars(a.binary) == vars(b.binary)


def test_a_record_whose_kernel_is_gone_is_planned_and_compiled_again(store: Store) -> None:
    x, w = np.ones((5, 9), np.float32), np.ones((1, 9), np.float32)
    first = fuser.compile(rows)
    first(x, w)
    (kernel, *_) = (k for ks in last_plan(first).launches for k in ks)
    path = store.folders[0] / kernel.key[:2] / (kernel.key[2:] + cache.SUFFIX)
    path.unlink()
    again = second(first)
    again(x, w)
    assert last_plan(again).recorded is None
    assert path.exists()
    assert last_plan_of_another(again, x, w).recorded is not None


def last_plan_of_another(compiled: Compiled, *args: Any) -> Plan:
    again = second(compiled)
    again(*args)
    return last_plan(again)


def test_a_tuned_plan_is_neither_stored_nor_run_from_a_record(store: Store) -> None:
    x, w = np.ones((64, 65), np.float32), np.ones((1, 65), np.float32)
    first = fuser.compile(rows)
    first(x, w)
    plan = last_plan_of_another(first, x, w)
    assert plan.recorded is not None
    schedule = next(s for s in plan.schedules if s is not None)
    tuned = replace(plan, tuned={plan.schedules.index(schedule): replace(schedule, unroll=schedule.unroll)})
    assert tuned.launches == tuned.built
    assert not isinstance(tuned.launches[0][0].kernel, planrecord.Kernel)


def test_demands_are_held_against_recorded_plans_too(store: Store) -> None:
    def marked(x: Any) -> Any:
        a = np.exp(x)
        b = a * 2
        fuser.no_fuse(a, b)
        return b

    def plain(x: Any) -> Any:
        a = np.exp(x)
        return a * 2

    plain.__name__ = "marked"
    x = np.ones((4, 5))
    fuser.compile(plain)(x)
    marks = fuser.compile(marked)
    marks(x)
    assert len(last_plan(marks).groups) == 2
    assert len(last_plan_of_another(marks, x).groups) == 2
    with pytest.raises(fuser.FuserError, match="expect_kernels=1"):
        marks.with_options(expect_kernels=1)(x)


GRAPH = """graph "f"
arg x: f32[n]
%0: f32[n] = input {0} ; x
%1: f32[n] = exp(%0) ; y
return %1
"""


def key(graph: Graph, tools: Toolchain, **changes: Any) -> str:
    plan = planned("P01", "sm_90")
    size_class = replace(plan.size_class, **{k: v for k, v in changes.items() if k != "device"})
    device = replace(find("sm_90"), **changes.get("device", {}))
    return planrecord.key_of(graph, size_class, device, tools.facts(find("cpu")))


def test_the_key_covers_whatever_a_plan_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, graph = toolchain(), parse_graph(GRAPH)
    known = {
        "itself": key(graph, tools),
        "an operator": key(parse_graph(GRAPH.replace("exp", "tanh")), tools),
        "a dtype": key(parse_graph(GRAPH.replace("f32", "f64")), tools),
        "a variable's name": key(parse_graph(GRAPH.replace("; y", "; z")), tools),
        "a class": key(graph, tools, aligned=False),
        "an index width": key(graph, tools, index_bits=64),
        "an overlap": key(graph, tools, overlap=True),
        "a device's number": key(graph, tools, device={"sms": 7}),
        "an architecture": key(graph, tools, device={"name": "sm_100"}),
    }
    from fuser import wiring

    for name, target, value in (
        ("fuser's sources", "sources.fingerprint", lambda *roots: "other"),
        ("a compiler", "_compiler", lambda device, loaded: ("cuda", "sm_90", (99, 0), ())),
        ("NumPy", "np", type("np", (), {"__version__": "9"})),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"fuser.wiring.{target}", value)
            known[name] = key(graph, wiring.toolchain())
    assert key(parse_graph(GRAPH), toolchain()) == known["itself"]
    assert len(set(known.values())) == len(known)


def test_operators_from_outside_leave_nothing_for_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser import wiring

    assert wiring._own_rows() == ""
    rows, exp = Table(), table().scalar("exp")
    for row in (*table().rows.values(), replace(exp, name="mine", names=type(exp.names)())):
        rows.register(row)
    rows.built_in = len(table().rows)
    monkeypatch.setattr("fuser.optable.table", lambda: rows)
    mark = wiring._own_rows()
    assert mark
    assert wiring._own_rows() == mark
    wiring._this_process.cache_clear()  # as in another process
    assert wiring._own_rows() != mark


def test_plans_of_other_tools_are_not_shared(store: Store) -> None:
    def soft(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    x = np.ones((8, 16), np.float32)
    together, apart = fuser.compile(soft), engines.apart(fuser.compile(soft))
    together(x)
    apart(x)
    assert len(apart.plan(x).groups) > len(together.plan(x).groups)
    again = fuser.compile(soft)
    again(x)
    assert len(again.plan(x).groups) == len(together.plan(x).groups)
