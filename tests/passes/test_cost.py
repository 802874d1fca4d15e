"""Terms of the cost model that came from measurements, each by what it does to a plan or a prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import device
from fuser.passes import cost


def plan(fn: Any, *specs: str, arch: str = "sm_90") -> Any:
    return fuser.compile(fn).plan(*specs, device=arch)


def microseconds(found: Any) -> float:
    return sum(float(k.predicted["us"]) for k in found.outline)


def test_a_reduction_does_not_read_a_large_array_across_its_rows() -> None:
    def both_ways(x: Any, y: Any) -> Any:
        s = x + y.T
        return s * 0.5, s.sum(axis=1)

    assert len(plan(both_ways, "f32[8192, 8192]", "f32[8192, 8192]").groups) == 2
    assert len(plan(lambda x, y: (x + y).sum(axis=1), "f32[8192, 8192]", "f32[8192, 8192]").groups) == 1


def test_columns_are_read_again_by_each_later_stage() -> None:
    def standardise(axis: int) -> Any:
        return lambda x: np.exp(x - x.max(axis=axis, keepdims=True)) / 2

    rows, columns = (microseconds(plan(standardise(a), "f32[8192, 16384]")) for a in (1, 0))
    assert columns == pytest.approx(1.5 * rows, rel=0.1)


@pytest.mark.parametrize(("arch", "slower"), [("sm_90", 2), ("sm_120", 64)])
def test_f64_arithmetic_has_fewer_units(arch: str, slower: float) -> None:
    def work(x: Any) -> Any:
        for _ in range(64):
            x = x * x + 1
        return x

    single, double = (plan(work, f"{t}[4096, 4096]", arch=arch).outline[0].predicted for t in ("f32", "f64"))
    slots = [p["issue"] * (p["us"] - device.find(arch).launch_us) for p in (single, double)]
    assert slots[1] / slots[0] == pytest.approx(slower, rel=0.1)


def test_few_resident_threads_do_not_fill_the_issue_slots() -> None:
    found = device.find("sm_90")
    busy = cost.Load(instructions=1e9)
    full, half = (replace(busy, filled=f).time_us(found) - found.launch_us for f in (1.0, 0.5))
    assert half == pytest.approx(2 * full)
    assert replace(cost.Load(nbytes=1e9), filled=0.5).time_us(found) == cost.Load(nbytes=1e9).time_us(found)


def test_one_row_of_one_stage_has_a_block_a_segment() -> None:
    """All else about a loss is worked out in the kernel of its rows, of many blocks: 32768 losses are two blocks."""

    def mean_loss(x: Any, target: Any) -> Any:
        top = x.max(axis=1)
        scale = np.log(np.exp(x - top[:, None]).sum(axis=1))
        return (scale + top - x[np.arange(len(x)), target]).mean()

    found = plan(mean_loss, "f32[32768, 4096]", "i64[32768]")
    rows, mean = found.groups
    assert (rows.kind, mean.kind) == ("rows", "full")
    assert len(mean.inputs) == 1
    gathers = plan(lambda x, k: x[k].sum(), "f32[65536]", "i64[32768]").outline[0]
    spread = plan(lambda x, k: x[k].sum(axis=1), "f32[65536]", "i64[4096, 8]").outline[0]
    assert gathers.predicted["us"] > 2 * spread.predicted["us"]


def test_channels_side_by_side_are_not_read_across_rows() -> None:
    def grey(photo: Any) -> Any:
        return (0.3 * photo[:, :, 0] + 0.6 * photo[:, :, 1] + 0.1 * photo[:, :, 2]).max(axis=1)

    (kernel,) = plan(grey, "f32[4096, 4096, 3]").outline
    assert kernel.predicted["bytes"] < 2 * 4096 * 4096 * 12
