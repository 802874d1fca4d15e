"""What compiling costs, in counts that do not depend on the machine: how often each step runs, and how that grows.

Times are the business of benchmarks/; a step that runs twice as often as it must shows here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from tests import engines
from tests.engines import Array

Step = tuple[str, str]


def calls(run: Callable[[], Any], package: str = "/passes/") -> dict[Step, int]:
    """How often each Python function of a package was entered while `run` ran."""
    counts: dict[Step, int] = {}

    def enter(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and package in code.co_filename:
            step = (
                code.co_filename.rsplit("/", 1)[-1],
                code.co_qualname if hasattr(code, "co_qualname") else code.co_name,
            )
            counts[step] = counts.get(step, 0) + 1

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counts


def chain(length: int) -> Callable[[Any], Any]:
    def program(x: Any) -> Any:
        for k in range(length):
            x = x * 1.5 + 0.25 if k % 2 else np.maximum(x, 0.1)
        return x

    return program


def fan(width: int) -> Callable[[Any], Any]:
    """Many readers of one value, and one reader of them all."""

    def program(x: Any) -> Any:
        total = x
        for k in range(width):
            total = total + np.sqrt(x + k)
        return total

    return program


def reductions(count: int) -> Callable[[Any], Any]:
    def program(x: Any) -> Any:
        for k in range(count):
            x = x - np.mean(x, axis=1, keepdims=True) * k
        return x

    return program


@pytest.mark.parametrize("device", ["cpu", "sm_90"])
@pytest.mark.parametrize(
    ("family", "small"), [(chain, 200), (fan, 60), (reductions, 10)], ids=["chain", "fan", "reductions"]
)
def test_planning_work_grows_in_step_with_the_program(family: Any, small: int, device: str) -> None:
    """Four times the operators, at most about five times the calls: nothing in the planner is quadratic."""
    work = []
    for size in (small, 4 * small):
        compiled = fuser.compile(family(size))
        x = np.ones((4, 64), np.float32)
        work.append(sum(calls(lambda c=compiled, x=x: c.plan(x, device=device)).values()))
    assert work[1] < 5.5 * work[0], work


def test_two_thousand_operators_are_a_handful_of_kernels_and_each_is_built_once() -> None:
    built: list[str] = []

    def counting(tools: Any) -> Any:
        def build(kernel: Any, device: Any) -> Any:
            built.append(kernel.name)
            return tools.build(kernel, device)

        return replace(tools, build=build)

    program = chain(1400)  # 2,100 operators
    compiled = engines.with_tools(fuser.compile(program), counting)
    x = np.linspace(-1, 1, 37, dtype=np.float32)
    for _ in range(3):
        got: Array = compiled(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, program(x))
    assert 1 <= len(built) <= 12
    assert len(set(built)) == len(built)


def test_ten_thousand_operators_need_no_deep_recursion() -> None:
    compiled = fuser.compile(chain(6667))
    limit = sys.getrecursionlimit()
    plan = compiled.plan("f32[64]", device="sm_90")
    assert sys.getrecursionlimit() == limit <= 1000
    assert len([n for n in plan.graph.nodes if n.inputs]) >= 10_000
    assert len(plan.groups) < 60


def test_shared_work_is_not_repeated() -> None:
    """a = a + a a hundred times is a hundred nodes, not two to the hundredth."""

    def program(a: Any) -> Any:
        for _ in range(100):
            a = a + a
        return a

    compiled = fuser.compile(program)
    plan = compiled.plan("f64[8]", device="sm_90")
    assert len(plan.graph.nodes) < 110
    (kernel,) = (k for built in plan.built for k in built)
    assert kernel.source().count("\n") < 300
    assert compiled(np.ones(8)).tolist() == [2.0**100] * 8


WATCHING = ("capture.py", "watch.py")  # look at what a program reads from outside, until native code does


def test_a_second_call_traces_plans_and_builds_nothing() -> None:
    compiled = fuser.compile(lambda x: np.exp(x) / np.sum(np.exp(x), axis=1, keepdims=True))
    x = np.ones((8, 100), np.float32)
    compiled(x)
    for package in ("/passes/", "/codegen/", "/frontend/", "/construct/"):
        again = calls(lambda: compiled(x), package)
        assert {s: n for s, n in again.items() if s[0] not in WATCHING} == {}, package
