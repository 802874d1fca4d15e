"""`must_fuse` and `no_fuse`: what they do to plans in both front ends, and what is said where they cannot be kept."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FusionLost, TraceError, TraceTypeError

SPEC = "f32[4096, 1024]"


def plan(fn: Any, *specs: str, device: str = "sm_90") -> Any:
    return fuser.compile(fn).plan(*(specs or (SPEC,)), device=device)


def softly(x: Any) -> Any:
    e = np.exp(x)
    y = e * 2
    fuser.no_fuse(e, y)
    return y + 1


def test_no_fuse_keeps_two_values_in_two_kernels_and_says_so() -> None:
    found = plan(softly)
    assert len(found.groups) == 2
    answer = found.why("e", "y")
    assert (answer.together, answer.reason) == (False, "marked")
    assert "marks ask" in str(answer)
    assert any(d.reason == "marked" and d.verdict == "apart" for d in found.decisions)


def test_a_mark_changes_no_value_and_does_nothing_outside_a_trace() -> None:
    x = np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)
    plain = fuser.compile(lambda x: np.exp(x) * 2 + 1)(x)
    np.testing.assert_array_equal(fuser.compile(softly)(x), plain)
    np.testing.assert_allclose(softly(x), plain, rtol=1e-6)


def test_independent_programs_that_must_not_fuse_are_no_batch() -> None:
    def two(a: Any, b: Any) -> Any:
        u, v = np.exp(a), np.sqrt(b)
        fuser.no_fuse(u, v)
        return u, v

    def free(a: Any, b: Any) -> Any:
        return np.exp(a), np.sqrt(b)

    specs = ("f32[1000]", "f32[3000]")
    assert len(plan(free, *specs).groups) == 1
    assert len(plan(two, *specs).groups) == 2


def test_must_fuse_merges_what_would_not_pay() -> None:
    def apart(x: Any) -> Any:
        e = np.exp(x)
        return e / e.sum()

    def marked(x: Any) -> Any:
        e = np.exp(x)
        s = e.sum()
        y = e / s
        fuser.must_fuse(s, y)
        return y

    assert len(plan(apart, "f32[67108864]").groups) == 2
    found = plan(marked, "f32[67108864]")
    assert len(found.groups) == 1
    assert found.why("s", "y").reason == "marked"


def test_a_mark_that_cannot_be_kept_names_its_reason_and_line() -> None:
    def columns_and_all(x: Any) -> Any:
        r = x.sum()
        c = x.sum(axis=0)
        fuser.must_fuse(r, c)
        return r, c

    with pytest.raises(FusionLost, match="must_fuse asks for one kernel for `r` and `c`") as caught:
        plan(columns_and_all)
    assert "reduce different axes" in str(caught.value)
    assert "fuser.must_fuse(r, c)" in str(caught.value)


def test_a_library_call_keeps_its_own_kernel() -> None:
    def product(a: Any, b: Any) -> Any:
        p = a @ b
        y = p + 1
        fuser.must_fuse(p, y)
        return y

    with pytest.raises(FusionLost, match="fast path"):
        plan(product, "f32[512, 512]", "f32[512, 512]")


def test_what_no_kernel_computes_cannot_be_marked() -> None:
    def argument(x: Any) -> Any:
        y = x + 1
        fuser.no_fuse(x, y)
        return y

    def number(x: Any) -> Any:
        y = x + 1
        fuser.must_fuse(y, 3)
        return y

    with pytest.raises(TraceError, match="only values that the program computes"):
        plan(argument)
    with pytest.raises(TraceTypeError, match="`must_fuse` takes arrays"):
        plan(number)


TEXT = """
def softly(x: f32[n, m]):
    e = exp(x)
    y = e * 2
    {mark}(e, y)
    return y + 1
"""


@pytest.mark.parametrize(("mark", "kernels"), [("must_fuse", 1), ("no_fuse", 2)])
def test_marks_in_the_language_are_python(mark: str, kernels: int) -> None:
    text = TEXT.format(mark=mark)
    ast.parse(text)
    program = fuser.parse(text)
    assert len(program.softly.plan(SPEC, device="sm_90").groups) == kernels
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(program.softly(x), fuser.compile(softly)(x))


def test_marks_in_the_language_take_arrays() -> None:
    with pytest.raises(TraceTypeError, match="`no_fuse` takes arrays"):
        fuser.parse(TEXT.format(mark="no_fuse").replace("(e, y)", "(e, 2)")).softly.plan(SPEC)


def test_the_cpu_keeps_marks_too() -> None:
    assert len(plan(softly, device="cpu").groups) == 2
