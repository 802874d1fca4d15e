"""What follows a running fold at its own place shares its kernel, and no bit of any result changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.dtypes import BF16
from tests import engines
from tests.engines import SIMT, Engine, Program

PROGRAMS: dict[str, Program] = {
    "scaled": lambda x, y: np.cumsum(np.abs(x), axis=-1) * 2 + 1,
    "with another array": lambda x, y: np.maximum.accumulate(x, axis=-1) - y,
    "with its own operand": lambda x, y: x / (1 + np.cumsum(x * x, axis=-1)),
    "with a value a row": lambda x, y: np.cumsum(x, axis=-1) * y[:, :1],
    "beside it": lambda x, y: (np.cumsum(x, axis=-1), np.exp(x), np.cumsum(x, axis=-1) < y),
    "down columns": lambda x, y: np.exp(-np.abs(np.cumsum(x, axis=0))) + y,
    "of everything": lambda x, y: np.cumsum(x).reshape(x.shape) * y,
}


@engines.each
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(3, 1), (5, 33), (40, 7), (2, 1000), (2, 40_001)], ids=str)
def test_fused_equals_apart(engine: Engine, name: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    fused, apart = engine.compile(PROGRAMS[name]), engine.compile(PROGRAMS[name], fused=False)
    assert engines.unlike(fused(x, y), apart(x, y)) is None


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("device", ["sm_90", "cpu"])
def test_one_kernel(name: str, device: str) -> None:
    plan = fuser.compile(PROGRAMS[name]).plan("f32[512, 4096]", "f32[512, 4096]", device=device)
    assert [g.kind for g in plan.groups] == ["scan"]
    assert plan.bytes_moved == plan.bytes_floor


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_precision_is_rounded_in_the_kernel(dtype: str) -> None:
    """A running sum of halves is kept in f32, and stored once, as halves."""

    def program(x: Any) -> Any:
        return np.cumsum(x, axis=-1)

    plan = fuser.compile(program).plan(f"{dtype}[512, 4096]", device="sm_90")
    assert len(plan.groups) == 1
    assert plan.bytes_moved == 2 * 512 * 4096 * 2
    x = np.random.default_rng(0).standard_normal((3, 1000)).astype(BF16.numpy if dtype == "bf16" else np.float16)
    exact = np.cumsum(x.astype(np.float64), axis=-1)
    got = np.asarray(SIMT.compile(program)(x)).astype(np.float64)
    assert np.abs(got - exact).max() <= np.abs(exact).max() * (2.0**-8 if dtype == "bf16" else 2.0**-11)
