"""argmax and argmin on the CPU: positions are kept narrow within a share, and nothing of that shows."""

import re
from typing import Any

import numpy as np
import pytest

import fuser

ROUTES = {  # shape, axis: how it is scheduled
    "short rows": ((40, 5), -1),
    "rows": ((40, 777), -1),
    "rows of several shares": ((70, 9001), -1),
    "few long rows": ((3, 300_001), -1),
    "all": ((700_001,), None),
    "middle": ((19, 60, 70), 1),
    "columns": ((37, 1000), 0),
    "columns of several shares": ((1100, 130), 0),
    "few columns": ((40_000, 20), 0),
}


def _values(shape: tuple[int, ...], kind: str, dtype: str) -> np.ndarray[Any, Any]:
    r = np.random.default_rng(len(kind) + sum(shape))
    if np.dtype(dtype).kind != "f":
        lowest = np.iinfo(dtype).min
        return (np.full(shape, lowest) if kind == "worst" else r.integers(lowest, lowest + 4, shape)).astype(dtype)
    if kind == "worst":
        return np.full(shape, -np.inf, dtype)
    x = r.integers(-3, 4, shape).astype(dtype)  # ties everywhere
    x[r.random(shape) < 0.3] = -0.0
    if kind == "nan":
        x[r.random(shape) < 0.02] = np.nan
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8"])
@pytest.mark.parametrize("kind", ["ties", "worst", "nan"])
@pytest.mark.parametrize("route", ROUTES)
def test_the_first_of_the_best_is_found(route: str, kind: str, dtype: str) -> None:
    shape, axis = ROUTES[route]
    x = _values(shape, kind, dtype)
    for function in (np.argmax, np.argmin):
        y = -x if function is np.argmin and np.dtype(dtype).kind == "f" else x
        compiled = fuser.compile(lambda a, f=function: f(a, axis=axis))
        assert (np.asarray(compiled(y)) == function(y, axis=axis)).all()


@pytest.mark.parametrize("n", [5, 130, 5000])
@pytest.mark.parametrize("kind", ["ties", "worst", "nan"])
def test_bands_of_rows(kind: str, n: int) -> None:
    x, y = _values((20, n), kind, "f4"), _values((n, 20), kind, "f4")
    compiled = fuser.compile(lambda a, b: np.argmax(a + b.T, axis=1))
    assert (compiled(x, y) == np.argmax(x + y.T, axis=1)).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_take_no_more_room_than_values(axis: int) -> None:
    plan = fuser.compile(lambda x: np.argmax(x, axis=axis)).plan("f32[512, 4096]", device="cpu")
    kernel = next(iter(plan.sources().values()))  # the one that reads x
    lanes = max(int(w) for w in re.findall(r"load <(\d+) x float>", kernel))
    assert re.search(rf"select <{lanes} x i1> [^,]*, <{lanes} x i32>", kernel), kernel
