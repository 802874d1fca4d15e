"""Axes of length 1 under the traces of longer ones: the same values, shapes and bits, and no kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.compiled import Compiled

Program = Callable[[Any], Any]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def stored(x: Any) -> Any:
    y = x + 0
    y[:, 0] = 7
    return y


PROGRAMS: dict[str, Program] = {
    "softmax": softmax,
    "stores": stored,
    "squeeze": lambda x: np.squeeze(x) + 1,
    "squeeze one": lambda x: np.squeeze(x[:1], 0) + 1,
    "difference to the transposed": lambda x: x - x.T,
    "product": lambda x: x @ x.T,
    "flat": lambda x: x.reshape(-1) * 2,
    "swapped shape": lambda x: x.reshape(x.shape[1], x.shape[0]) + 1,
    "total": lambda x: x.sum(),
    "sum down": lambda x: x.sum(0),
    "sum along": lambda x: x.sum(1),
    "prefixes down": lambda x: x.cumsum(0),
    "prefixes along": lambda x: x.cumsum(1),
    "variance": lambda x: x.var(0),
    "first largest": lambda x: x.argmax(1),
    "last row": lambda x: x[-1] * 2,
    "all but one": lambda x: x[1:] * 2,
    "differences": lambda x: np.diff(x, axis=0),
    "covariance": lambda x: np.cov(x),
    "asks for one": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "asks for more": lambda x: x * 2 if x.shape[1] >= 2 else x * 3,
    "its length": lambda x: x * len(x),
    "row by row": lambda x: sum(r * 2 for r in x),
    "spread": lambda x: np.broadcast_to(x, (4, x.shape[1])) + 1,
    "plus a row": lambda x: x + x[:1],
    "less the mean": lambda x: x - x.mean(0),
    "twice": lambda x: np.concatenate([x, x]),
    "along indices": lambda x: np.take_along_axis(x, x.argmax(1)[:, None], 1),
}
SHAPES = ((1, 6), (4, 1), (1, 1))


def answer(run: Program, x: Any) -> Any:
    """What a program gives, or the kind of error it raises."""
    try:
        return np.asarray(run(x))
    except Exception as error:
        return type(error).__name__


def apart(program: Program) -> Compiled:
    """A program whose axes of length 1 are static in every trace."""
    compiled = fuser.compile(program)
    bind = compiled._bind
    compiled._bind = lambda args, kwargs, lift=False: bind(args, kwargs)  # type: ignore[method-assign]
    return compiled


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("longer_first", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_have_the_bits_of_a_trace_of_their_own(name: str, longer_first: bool) -> None:
    program, rng = PROGRAMS[name], np.random.default_rng(0)
    run = fuser.compile(program)
    if longer_first:
        answer(run, np.ones((4, 6), np.float32))
    for shape in SHAPES:
        x = np.where(rng.random(shape) < 0.3, -0.0, rng.standard_normal(shape)).astype(np.float32)
        got, want, numpy = answer(run, x), answer(apart(program), x), answer(program, x)
        if isinstance(want, str):
            assert got == want
            continue
        assert (got.shape, got.dtype, got.tobytes()) == (want.shape, want.dtype, want.tobytes())
        assert got.shape == numpy.shape


def test_a_batch_of_one_takes_the_trace_and_the_plan_of_many() -> None:
    run = fuser.compile(softmax)
    for first, second in (((5, 40), (1, 40)), ((1, 50), (6, 50))):
        many, one = run.plan(f"f32{list(first)}", device="sm_90"), run.plan(f"f32{list(second)}", device="sm_90")
        assert many.graph is one.graph
        assert many.groups == one.groups


def test_lengths_that_are_broadcast_are_told_apart() -> None:
    run = fuser.compile(lambda x, y: x * y)
    x, row = np.ones((4, 5), np.float32), np.full((1, 5), 2, np.float32)
    np.testing.assert_array_equal(run(x, x), x)
    np.testing.assert_array_equal(run(x, row), 2 * x)
    np.testing.assert_array_equal(run(row, row), row * row)
    np.testing.assert_array_equal(run(row, x), 2 * x)
