"""What plans say of boundaries and of launches that several programs share."""

from __future__ import annotations

import sys
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


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns tell a cast that was written from one that was not")
def test_a_float64_number_that_widens_an_array_is_noted_with_its_line() -> None:
    double = np.float64(2)

    def fn(x: Any) -> Any:
        return np.exp(x * double) + 1

    line = fn.__code__.co_firstlineno + 1
    note = f"line {line:<4} x is f32, and a float64 number makes it f64 (NumPy's rule), 2x bytes; write float(...)"
    assert note in plan(fn, zeros(9, 9)).to_text()
    assert note in str(fuser.compile(fn).report(zeros(9, 9)))
    assert note in plan(lambda x, h: fn(x) * h, zeros(9, 9), double).explain()


def test_f64_that_was_asked_for_is_not_noted() -> None:
    assert "float64" not in plan(lambda x: x.astype(np.float64) * 2.0, zeros(9, 9)).to_text()
    assert "float64" not in plan(lambda x: x.astype(np.int32) * 2.5, zeros(9, 9)).to_text()
    assert "float64" not in plan(lambda x: x * 2.5 + 1, zeros(9, 9)).to_text()
