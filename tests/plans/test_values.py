"""Programs whose plans took a rewrite to reach: their CUDA kernels, run in the interpreter, give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import libraries
from tests.simulate import Simulated

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)


def run_both(program: str, *args: Array, options: tuple[Any, ...] | None = None) -> tuple[list[Array], list[Array]]:
    """(simulated in f32, NumPy in f64) results."""

    def bound(library: Any) -> Callable[..., Any]:
        found = getattr(libraries.programs(library), program)
        return found if options is None else found(*options)

    got = Simulated(bound(libraries.fuser()))(*args)
    want = bound(libraries.numpy())(*(a.astype(np.float64) for a in args))
    as_list = [list(r) if isinstance(r, tuple) else [r] for r in (got, want)]
    return as_list[0], as_list[1]


@pytest.mark.parametrize("axis", [0, 1, None], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (70, 33), (2, 4099), (1300, 9)], ids=str)
def test_variance_in_one_pass(axis: Any, shape: tuple[int, int]) -> None:
    x = (RNG.standard_normal(shape) + 1e4).astype(np.float32)
    got, want = run_both("mean_var", x, options=(axis, 1 if axis == 1 else 0))
    np.testing.assert_allclose(got[0], want[0], rtol=2e-6)
    np.testing.assert_allclose(got[1], want[1], rtol=8e-6)


@pytest.mark.parametrize("bodies", [5, 37])
def test_all_pairs(bodies: int) -> None:
    got, want = run_both("nbody", RNG.standard_normal((bodies, 3)).astype(np.float32))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 8, 5), (3, 12, 32)], ids=str)
def test_group_norm(shape: tuple[int, int, int]) -> None:
    x, w, b = (RNG.standard_normal(s).astype(np.float32) for s in (shape, shape[1:2], shape[1:2]))
    got, want = run_both("groupnorm", x, w, b)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
