"""The plan of every public workload as text: which operators share a kernel, what each reads and writes, what is apart
and why. A change that moves a boundary shows here as a diff; FUSER_UPDATE_GOLDEN=1 writes the files anew, to be read.

Schedules and registers are left out: they change with every tuning, and other tests hold them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fuser
from benchmarks.workloads import GPU, WORKLOADS, Workload
from fuser.draw import facts, kernels, text, units
from fuser.group import Stage
from fuser.plan import Plan, PlannedKernel
from fuser.settings import settings

GOLDEN = Path(__file__).parent / "golden"
DEVICES = ("sm_90", "sm_80")  # named models: the plan of a CPU follows its cores
MARGINS = tuple(w for w in GPU if w.id in ("M20", "M21", "M22"))  # row and column results from one read
KEPT = (*WORKLOADS, *MARGINS)


def snapshot(plan: Plan) -> str:
    """The lines of one plan."""
    lines = [f"{plan.graph.name} on {plan.device.name}", text.summary(plan)]
    for k in plan.outline:
        lines += [f"{k.label}  {k.group.name}  {kernels.space(k)}", *kernel(plan, k)]
    lines += [f"again  {a.name} in {', '.join(a.kernels)}" for a in facts.recomputed(plan)]
    for a in facts.apart(plan):
        readers = ", ".join(a.consumers) if a.consumers else "readers"
        lines.append(f"apart  {' | '.join(a.kernels)}  {a.producer} -> {readers}: {a.decision.reason}, {text.why(a)}")
    return "\n".join(lines) + "\n"


def kernel(plan: Plan, k: PlannedKernel) -> Iterator[str]:
    for part in kernels.parts(k):
        yield f"    part    {part}"
    for what, sizes in (("reads", k.reads), ("writes", k.writes)):
        yield f"    {what:<7} {', '.join(f'{name} {units.size(size)}' for name, size in sizes.items()) or 'nothing'}"
    stages = [" then ".join(_stage(plan, stage) for stage in stages) for stages in k.group.stages]
    yield from (f"    stages  {line}" for line in stages)
    if k.group.column_stores:
        yield f"    columns store {', '.join(plan.names[s.node] for s in k.group.column_stores)}"
    yield f"    does    {' '.join(k.operators)}"


def _stage(plan: Plan, stage: Stage) -> str:
    done = {
        "finish": [plan.names[r.node] for r in stage.reducers],
        "finish down columns": [plan.names[r.node] for r in stage.across],
        "store": [plan.names[s.node] for s in stage.stores],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in done.items() if names)


def stem(w: Workload) -> str:
    return f"{w.id}_{w.name}".replace(" ", "_")


@cache
def planned(name: str, device: str) -> Plan:
    (w,) = (w for w in KEPT if w.id == name)
    return fuser.compile(w.fn, fast_math=w.fast_math).plan(*w.specs, device=device)


@pytest.fixture(autouse=True)
def stable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No times and nothing of this machine."""
    monkeypatch.setenv("FUSER_STABLE", "1")
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.parametrize("w", KEPT, ids=lambda w: w.id)
def test_the_plan_is_the_one_on_file(w: Workload) -> None:
    found = "\n".join(snapshot(planned(w.id, d)) for d in DEVICES)
    path = GOLDEN / f"{stem(w)}.txt"
    if os.environ.get("FUSER_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert path.exists(), f"{path} is missing; run with FUSER_UPDATE_GOLDEN=1 and read it"
    assert found == path.read_text(encoding="utf-8")


def test_there_is_a_file_for_every_workload_and_no_other() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(map(stem, KEPT))
