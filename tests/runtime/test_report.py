"""Reports: verdicts from numbers (no stopwatch), and that a real report holds together."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import device, measure
from fuser.compiled import Compiled
from fuser.plan import Plan
from fuser.report import KernelTime, Measured, Report, judge
from fuser.runtime import memory, stopwatch

COPY = 10e9  # bytes a second
CACHE = 1 << 20


def kernel(seconds: float, nbytes: int, library: bool = False, **predicted: float) -> KernelTime:
    shares = {"memory": 1.0, "issue": 0.2, "special": 0.1, **predicted}
    return KernelTime("L1" if library else "K1", "k", nbytes, seconds, library, shares)


def measured(call: float, overhead: float, *kernels: KernelTime, faults: float = 0.0) -> Measured:
    return Measured(call, overhead, faults, COPY, CACHE, kernels)


CASES = {
    "copies at the machine's rate": ("bandwidth", measured(0.0101, 1e-4, kernel(0.01, 90_000_000))),
    "smaller than its call": ("launch", measured(5e-6, 4e-6, kernel(1e-6, 4096))),
    "nothing to do": ("launch", measured(5e-6, 5e-6)),
    "a product and a little": (
        "library", measured(0.01, 1e-5, kernel(0.008, 1 << 24, library=True), kernel(0.002, 1 << 22))
    ),
    "fresh pages": ("page-fault", measured(0.02, 1e-5, kernel(0.02, 90_000_000), faults=0.012)),
    "many instructions": ("issue", measured(0.1, 1e-5, kernel(0.1, 90_000_000, memory=0.1, issue=1.0))),
    "slow although predicted otherwise": ("issue", measured(0.1, 1e-5, kernel(0.1, 90_000_000))),
    "within the cache": ("issue", measured(1e-3, 1e-5, kernel(1e-3, 4096))),
    "near the copy rate whatever is predicted": (
        "bandwidth", measured(0.0101, 1e-4, kernel(0.01, 90_000_000, memory=0.5, issue=1.0))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    verdict, numbers = CASES[name]
    assert judge(numbers) == verdict


def test_the_text() -> None:
    numbers = measured(41.2e-3, 1.6e-6, kernel(41e-3, 268_000_000))
    report = Report("softmax  f32[8192, 4096]", "cpu, 2 threads", 20, (0.11, 0.09), numbers, "bandwidth", 55e-3, 0.301)
    assert str(report).splitlines() == [
        "softmax  f32[8192, 4096]  cpu, 2 threads        median of 20",
        "  first call 0.11 s (compile 0.09)   call 41.2 ms, overhead 1.6 us",
        "  K1  268 MB  41 ms  6.54 GB/s = 65% of this machine's copy",
        "  verdict  bandwidth-bound; ~13.8 ms more are page faults where results are kept: pass out=",
        "  vs numpy  301 ms (7.31x)",
    ]


def test_kernels_that_are_too_short_or_move_nothing_have_no_rate() -> None:
    for seconds, nbytes, text in ((0.0, 128, "too short to be told from the call around it"), (1e-4, 0, "100 us")):
        numbers = measured(1e-6, 1e-6, kernel(seconds, nbytes))
        report = Report("f  f32[4]", "cpu, 2 threads", 20, None, numbers, "launch", None, None)
        assert str(report).splitlines()[2].endswith(f" B  {text}")


def test_a_measured_program() -> None:
    def f(x: Any, w: Any) -> Any:
        return np.exp(x - x.max(axis=-1, keepdims=True)) @ w

    found = fuser.compile(f).report(np.ones((50, 64)), np.ones((64, 8)), samples=3)
    assert [k.library for k in found.measured.kernels] == [False, True]
    assert found.measured.kernels[0].nbytes == 2 * 50 * 64 * 8
    assert found.measured.call > 0
    assert "vs numpy" in str(found)
    assert found.to_json()["schema"] == 1


def test_a_program_that_stores_is_measured_on_copies() -> None:
    def step(x: Any) -> None:
        x += 1

    x = np.zeros(100)
    fuser.compile(step).report(x, samples=2)
    assert (x == 0).all()


# -- a machine without surprises -------------------------------------------------------------------
OVERHEAD, FRESH = 2e-6, 16e-3  # seconds: of a call beside its kernels; of first touches of 64 MB
FEW = 8  # first touches of pages by a call whose memory is there already; 64 MB of fresh memory are 32 pages at least


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run, but on a clock that shows what the cost model predicts for two cores: a kernel takes that long, and
    FRESH more where new pages are touched; a call takes its kernels and OVERHEAD."""
    plans: list[Plan] = []
    plan_of, run_steps = Compiled.plan, measure.Call.step_seconds

    def plan(*args: Any, **kwargs: Any) -> Plan:
        plans.append(plan_of(*args, **kwargs))
        return plans[-1]

    def steps() -> list[float]:
        made = plans[-1]
        return [k.predicted["us"] * 1e-6 - made.device.launch_us * 1e-6 for k in made.kernels]

    def fresh(work: Callable[[], Any]) -> float:
        work()
        before = stopwatch.faults()
        work()
        return FRESH if stopwatch.faults() - before > FEW else 0.0

    def step_seconds(self: measure.Call, programs: Any, _: int) -> list[list[float]]:
        extra = fresh(lambda: run_steps(self, programs, 1))
        return [[s + extra for s in steps()] for _ in programs]

    monkeypatch.setattr(device, "cpu", device.cpu.__wrapped__)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(Compiled, "plan", plan)
    monkeypatch.setattr(measure.Call, "step_seconds", step_seconds)
    monkeypatch.setattr(stopwatch, "per_call", lambda function, *_: OVERHEAD + sum(steps()) + fresh(function))
    monkeypatch.setattr(stopwatch, "copy_rate", lambda place: device.cpu().bandwidth)
    monkeypatch.setattr(fuser.report, "_call_floor", lambda: OVERHEAD)


BOUND_BY = {
    "bandwidth": (lambda x: np.abs(x).sum(), ((1 << 24,),)),
    "launch": (lambda x: x + 1, ((16,),)),
    "library": (lambda x, y: (x @ y) + 1, ((700, 700), (700, 700))),
    "issue": (lambda x: fuser.ops.loop(300, lambda i, y: np.sin(y) + 0.5, x), ((1 << 17,),)),
    "page-fault": (lambda x: x + 1, ((1 << 24,),)),
}


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("verdict", BOUND_BY)
def test_programs_that_are_bound_by_one_thing(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(The program of "page-fault" is given fresh memory for its result by every call.)"""
    program, shapes = BOUND_BY[verdict]
    if verdict == "page-fault":
        if not Path("/proc/self/statm").exists():
            pytest.skip("counts page faults as Linux does")
        shelf = memory._Shelf(0)
        monkeypatch.setattr(memory, "_shelf", lambda: shelf)
    args = [np.ones(s, np.float32) for s in shapes]
    found = fuser.compile(program).report(*args, samples=1)
    assert found.verdict == verdict, found
    told = "are page faults of the fresh output: pass out=" in str(found)
    assert told == (verdict == "page-fault") == (found.measured.faults == pytest.approx(FRESH))


def test_programs_with_several_results_and_with_scalars_are_measured() -> None:
    x = np.ones((300, 300))
    for program in (lambda x: (x + 1, {"d": x * 2}), lambda x: np.sum(x), lambda x: (x + 1, np.sum(x))):
        assert fuser.compile(program).report(x, samples=2).measured.call > 0
