"""What plans say of boundaries and of launches that several programs share."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser
from fuser.plan import Plan


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def plan(fn: Any, *args: Any) -> Plan:
    return fuser.compile(fn).plan(*args, device="sm_90")


def test_parts_of_a_launch_are_together_because_they_are_independent() -> None:
    found = plan(lambda x, y, z: (np.exp(x), np.sin(y), z * 2.0), zeros(100, 30), zeros(50), zeros(7))
    assert len(found.groups) == 1
    for a, b in (("exp", "sin"), ("sin", "multiply"), ("exp", "multiply")):
        said = found.why(a, b)
        assert said.together
        assert said.reason == "batched"
        assert "one launch serves both" in said.text


def test_a_batch_is_told_part_by_part() -> None:
    found = plan(lambda x, y, z: (np.exp(x), np.sin(y), z * 2.0), zeros(100, 30), zeros(50), zeros(7)).to_text()
    assert "batch of 3: pointwise" in found
    assert found.count("  part  ") == 3
    assert "independent, in one launch" in found
    assert "saves 2 launches" in found


def test_of_several_that_are_waited_for_the_one_that_flows_is_named() -> None:
    found = plan(lambda x: (x - x.min()) / (x.max() - x.min()), zeros(1 << 26)).to_text()
    assert "min is known only after every row" in found
    assert "max is known only after every row" in found


def test_few_long_rows_are_no_grid_wide_barrier() -> None:
    found = plan(lambda x: x / x.sum(1, keepdims=True), zeros(4, 1 << 24))
    assert len(found.groups) == 2
    assert "4 rows are too few to fill the device" in found.to_text()


def test_the_kernel_between_is_named() -> None:
    def fn(x: Any) -> Any:
        a = np.sin(np.exp(x))
        return a / (a @ a), -a

    assert "matmul lies between them" in plan(fn, zeros(4096, 4096)).to_text()
