"""Random numbers of compiled programs: their distribution, their independence, and the same bits on every engine."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import TraceError
from tests.simulate import Simulated

N = 40_000
SIX_SIGMA = 6 / math.sqrt(N)


def draw(name: str, key: int, *args: Any, dtype: str = "float64") -> np.ndarray[Any, Any]:
    """N numbers drawn inside a compiled program."""

    def program(like: Any, key: Any) -> Any:
        return getattr(fuser.ops, name)(key, like.shape, *args, **({} if name == "bernoulli" else {"dtype": dtype}))

    values: np.ndarray[Any, Any] = fuser.compile(program)(np.zeros(N), key)
    return values


def distance(values: np.ndarray[Any, Any], cdf: Any) -> float:
    """Kolmogorov's distance between a sample and a distribution."""
    order = np.sort(values)
    expected = np.array([cdf(v) for v in order])
    steps = np.arange(len(order) + 1) / len(order)
    return float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform(dtype: str) -> None:
    values = draw("uniform", 11, dtype=dtype)
    assert values.dtype == dtype
    assert values.min() >= 0
    assert values.max() < 1
    assert distance(values, lambda v: v) < 1.95 / math.sqrt(N)  # exceeded once in a thousand keys
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < SIX_SIGMA


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype: str) -> None:
    values = draw("normal", 12, dtype=dtype)
    assert distance(values, lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2)))) < 1.95 / math.sqrt(N)
    assert abs(values.mean()) < SIX_SIGMA
    assert abs((values**4).mean() - 3) < 6 * math.sqrt(96 / N)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.93])
def test_bernoulli(p: float) -> None:
    program = fuser.compile(lambda like, key, p: fuser.ops.bernoulli(key, p, like.shape))
    assert abs(program(np.zeros(N), 13, p).mean() - p) < 6 * math.sqrt(p * (1 - p) / N)


def test_dropout_keeps_the_mean_and_scales_what_it_keeps() -> None:
    program = fuser.compile(lambda x, key: fuser.ops.dropout(x, 0.25, key))
    values = program(np.ones(N), 14)
    assert set(np.unique(values)) == {0.0, 1 / 0.75}
    assert abs((values == 0).mean() - 0.25) < 6 * math.sqrt(0.25 * 0.75 / N)
    assert np.array_equal(values, program(np.ones(N), 14))


def test_keys_are_independent() -> None:
    first, second = draw("normal", 1), draw("normal", 2)
    assert abs((first * second).mean()) < SIX_SIGMA
    assert not np.array_equal(first, second)


def test_a_key_of_the_call_is_never_a_constant() -> None:
    program = fuser.compile(lambda x, key: x + fuser.ops.uniform(key, x.shape))
    x = np.zeros(5)
    results = [program(x, key).tolist() for key in (1, 2, 3, 1)]
    assert results[0] == results[3]
    assert len({tuple(r) for r in results}) == 3


@pytest.mark.parametrize("draws", [
    lambda x, key: fuser.ops.uniform(key, x.shape, dtype=np.float32),
    lambda x, key: fuser.ops.uniform(key, x.shape, dtype=np.float64),
    lambda x, key: fuser.ops.bernoulli(key, 0.3, x.shape),
    lambda x, key: fuser.ops.randint(key, x.shape, -3, 9),
    lambda x, key: fuser.ops.dropout(x, 0.4, key),
])  # fmt: skip
def test_the_cpu_and_cuda_kernels_draw_the_same_bits(draws: Any) -> None:
    x = np.random.default_rng(0).random((7, 13)).astype(np.float32)
    cpu, cuda = fuser.compile(draws)(x, 5), np.asarray(Simulated(draws)(x, 5))
    assert cpu.dtype == cuda.dtype
    assert cpu.tobytes() == cuda.tobytes()


GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("program", [
    lambda x: x + np.random.rand(3),
    lambda x: x * np.random.default_rng(0).normal(size=3),
    lambda x: x + GENERATOR.random(3),
    lambda x: x + random.random(),
])  # fmt: skip
def test_other_generators_are_errors_that_point_to_keys(program: Any) -> None:
    with pytest.raises(TraceError, match=r"fuser\.ops\.uniform\(key, shape\)"):
        fuser.compile(program)(np.ones(3))
