"""What plans say of boundaries and of launches that several programs share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import NameResolutionError
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


def test_what_lies_on_the_way_is_named() -> None:
    def fn(x: Any, w: Any) -> Any:
        h = np.exp(x)
        y = h @ w
        z = y * 2.0
        return z

    found = plan(fn, zeros(256, 128), zeros(128, 64))
    said = found.why("h", "z")
    assert not said.together
    assert said.reason == "library"
    assert "on the way, h -> " in said.text
    assert "apart (memory | L1): on the way" not in found.why("w", "y").text
    assert found.why("x", "w").reason == "unconnected"


def test_arguments_are_read_from_memory() -> None:
    found = plan(lambda x, w: np.exp(x) @ w, zeros(256, 128), zeros(128, 64))
    assert found.why("w", "out").reason == "argument"
    assert (
        found.why("x", "exp").text == "x -> exp  apart (memory | K1): an argument, which the kernel reads from memory"
    )
    both = plan(lambda x: x / x.sum(axis=1, keepdims=True), zeros(256, 128))
    assert both.why("x", "sum").together


def test_a_plan_is_its_first_line_where_python_prints_it() -> None:
    found = plan(lambda x: x + 1.0, zeros(9))
    assert repr(found) == f"<fuser.Plan <lambda>: {found}>"
    assert str(found).startswith("1 kernel, was 1 | ")


def test_numbers_of_the_call_are_no_values() -> None:
    found = fuser.compile("lambda x, h: 2.0 * h * x").plan("f32[8, 9]", 0.5)
    with pytest.raises(NameResolutionError, match="`h` is a number of the call"):
        found.why("h", "out")
    with pytest.raises(NameResolutionError, match=r"there are out, x$"):
        found.why("nothing", "out")


def test_candidates_go_by_the_names_that_plans_print() -> None:
    def fn(x: Any) -> Any:
        y = np.exp(x - 1.0) * (x - 2.0)
        return y

    line, found = fn.__code__.co_firstlineno + 1, plan(fn, zeros(9))
    with pytest.raises(NameResolutionError, match=r"(?s)subtract\.1 .*  exp  .*subtract\.2 "):
        found.why(f"line {line}", "x")
