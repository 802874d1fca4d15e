"""How many kernels many shapes take, counted from plans: nothing is compiled, so that devices need not be here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import kernels
from fuser.plan import Plan

Law = Callable[[np.random.Generator], int]

LAWS: dict[str, Law] = {
    "any size": lambda rng: int(rng.integers(1, 20_001)),
    "any magnitude": lambda rng: int(2 ** rng.uniform(0, np.log2(20_000))),
}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rms_norm(x: Any, w: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


# Of each program: the axis that is reduced, and kernels a capacity (the power of two that holds the reduced length).
# Column sums have two a capacity on average: few columns need their rows spread over blocks or tasks, many do not; on a
# CPU the former are two kernels. On CUDA columns that are whole vectors have kernels of their own besides.
PROGRAMS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "softmax": (softmax, 1, 1),
    "rms_norm": (rms_norm, 1, 1),
    "column_sums": (column_sums, 0, 2),
}
MORE = 4


def codes(plan: Plan) -> set[str]:
    """The kernels of a plan, by what their binaries are made of."""
    tools, found = plan.toolchain, set[str]()
    for group, schedule in zip(plan.groups, plan.schedules, strict=True):
        assert schedule is not None
        lowered = tools.lower(plan.graph, group, schedule, plan.device, plan.size_class.layouts)
        found |= {kernels.content(k) for k in lowered}
    return found


@pytest.mark.parametrize("device", ["cpu", "sm_90"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_hundred_shapes_take_a_kernel_or_two_a_capacity(program: str, law: str, device: str) -> None:
    fn, axis, each = PROGRAMS[program]
    rng, run = np.random.default_rng(0), fuser.compile(fn)
    capacities, found, seen = set[int](), set[str](), set[Any]()
    for _ in range(200):
        shape = LAWS[law](rng), LAWS[law](rng)
        capacities.add((shape[axis] - 1).bit_length())
        specs = [f"f32{list(shape)}", f"f32[{shape[1]}]"]
        plan = run.plan(*specs[: 2 if fn is rms_norm else 1], device=device)
        if (id(plan.graph), plan.size_class) not in seen:
            seen.add((id(plan.graph), plan.size_class))
            found |= codes(plan)
    assert len(capacities) >= 9
    assert len(found) <= each * len(capacities) + MORE
