"""Rows of halves whose length no vector divides: few threads each, with the bits of any other number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import ops
from fuser.codegen.loops import If, Statement
from fuser.codegen.schedule import cuda
from fuser.dtypes import BF16
from fuser.schedule import CudaSchedule
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import sizes
from tests.simulate import Simulated


def softmax(x: Any) -> Any:
    return ops.softmax(x)


def norm(x: Any) -> Any:
    return ops.layer_norm(x, x[0], x[1])


def argmax(x: Any) -> Any:
    return np.argmax(x, axis=1)


def total(x: Any) -> Any:
    return np.sum(x, axis=1)


def schedule(program: Any, spec: str) -> CudaSchedule:
    (kernel,) = fuser.compile(program).plan(spec, device="sm_90").kernels
    assert isinstance(kernel.schedule, CudaSchedule)
    return kernel.schedule


@pytest.mark.parametrize(
    ("n", "team"), [(33, 16), (127, 16), (257, 32), (1023, 64), (1025, 128), (2049, 128), (4097, 256), (12345, 512)]
)
def test_threads_a_row(n: int, team: int) -> None:
    for program, most in ((softmax, 512), (argmax, 512), (total, 256)):
        found = schedule(program, f"bf16[40000, {n}]")
        found = found.ragged or found  # one kernel may have code for whole vectors too
        assert (found.vector, found.threads_per_row) == (1, min(team, most))


def test_few_rows_of_one_stage_keep_wide_teams_and_short_ones_narrow_ones() -> None:
    assert schedule(total, "bf16[264, 1001]").threads_per_row == 256
    assert schedule(softmax, "bf16[264, 1001]").threads_per_row == 64
    assert schedule(total, "bf16[40000, 25]").threads_per_row == 8


def test_the_end_of_a_row_is_found_once_a_stage() -> None:
    (kernel,) = Case("softmax", BF16, sizes(40, 257)).kernels
    assert depth(kernel.body) >= 8  # half of the 16 elements a thread may be missing


def depth(body: Sequence[Statement]) -> int:
    """Of conditions within conditions."""
    return max((1 + depth(s.then) for s in body if isinstance(s, If)), default=0)


def test_wider_elements_and_whole_vectors_keep_their_own() -> None:
    assert schedule(total, "f32[40000, 1023]").threads_per_row == 64
    assert schedule(total, "f64[40000, 1023]").threads_per_row > 64
    assert schedule(softmax, "f32[40000, 8191]").threads_per_row == 256
    assert schedule(softmax, "bf16[40000, 1024]").threads_per_row == 32


@pytest.mark.parametrize("program", [softmax, norm, argmax, total])
@pytest.mark.parametrize("n", [65, 257, 1023, 1025])
def test_the_number_of_threads_changes_no_bit(program: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(n).standard_normal((9, n)).astype(BF16.numpy)
    got = Simulated(program)(x).tobytes()
    monkeypatch.setattr(cuda._Chooser, "_lone_team", staticmethod(lambda team, length: team))
    assert got == Simulated(program)(x).tobytes()
