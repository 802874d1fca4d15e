"""Reports: verdicts from numbers (no stopwatch), and that a real report holds together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.report import KernelTime, Measured, Report, judge

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


def hot_loop(x):
    return fuser.ops.loop(300, lambda i, y: np.sin(y) + 0.5, x)


BOUND_BY = {
    "bandwidth": (lambda x: np.abs(x).sum(), ((1 << 24,),)),
    "launch": (lambda x: x + 1, ((16,),)),
    "library": (lambda x, y: (x @ y) + 1, ((700, 700), (700, 700))),
    "issue": (hot_loop, ((1 << 17,),)),
}


@pytest.mark.parametrize("verdict", BOUND_BY)
def test_programs_that_are_bound_by_one_thing(verdict: str) -> None:
    program, shapes = BOUND_BY[verdict]
    rng = np.random.default_rng(2)
    args = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    compiled = fuser.compile(program)
    seen = []
    for _ in range(4):  # other processes may take the machine away for a while
        seen.append(compiled.report(*args, samples=5).verdict)
        if seen[-1] == verdict:
            return
    raise AssertionError(seen)


FRESH = """
import numpy as np
import fuser
x = np.ones(1 << 24, np.float32)
f = fuser.compile(lambda x: x + 1)
seen = []
while len(seen) < 4 and seen[-1:] != ["page-fault"]:
    report = f.report(x, samples=5)
    seen.append(report.verdict)
assert seen[-1] == "page-fault", (seen, report)
assert report.measured.faults < report.measured.call
assert "are page faults of the fresh output: pass out=" in str(report)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts page faults as Linux does")
def test_a_program_that_is_bound_by_page_faults() -> None:
    """64 MB of fresh small pages a call: nothing is recycled, and NumPy asks for no large pages."""
    environment = {**os.environ, "FUSER_POOL_BYTES": "0", "NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run([sys.executable, "-c", FRESH], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_with_several_results_and_with_scalars_are_measured() -> None:
    x = np.ones((300, 300))
    for program in (lambda x: (x + 1, {"d": x * 2}), lambda x: np.sum(x), lambda x: (x + 1, np.sum(x))):
        assert fuser.compile(program).report(x, samples=2).measured.call > 0
