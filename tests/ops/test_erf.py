"""The CUDA error function, carried out in NumPy: within its row's bound on both sides of where its polynomials meet."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.codegen.cuda.arithmetic import ERF_P, ERF_Q, ERF_SPLIT
from fuser.optable import table
from tests.ops.test_near import fma

Array = np.ndarray[Any, Any]


def polynomial(x: Array, coefficients: tuple[str, ...]) -> Array:
    values = [np.float32(c.rstrip("f")) for c in coefficients]
    result = np.full_like(x, values[0])
    for c in values[1:]:
        result = fma(x, result, np.full_like(x, c))
    return result


def cuda_erf(x: Array) -> Array:
    size = np.abs(x)
    small = fma(x, polynomial(x * x, ERF_P), x)
    large = fma(x, polynomial(size, ERF_Q), x)
    far = np.copysign(1 - np.exp2(-np.abs(large).astype(np.float64)), x).astype(np.float32)
    return np.where(size >= np.float32(ERF_SPLIT.rstrip("f")), far, small)


def test_both_polynomials_keep_the_bound() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-5, 5, 20_000), rng.uniform(0.99, 1.01, 5_000), 10.0 ** rng.uniform(-30, 0, 5_000),
                        [0.0, -0.0, 1e30, -1e30, 20.0]]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        got = cuda_erf(x)
    want = np.array([math.erf(v) for v in x.tolist()])
    ulp = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    assert np.max(np.abs(got - want) / ulp) <= table().scalar("erf").ulp["f32"]
    assert math.copysign(1, float(got[x.tolist().index(0.0) + 1])) == -1


def test_infinities_and_nan() -> None:
    with np.errstate(all="ignore"):
        got = cuda_erf(np.array([np.inf, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(got, [1, -1, np.nan])
