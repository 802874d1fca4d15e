"""Row and column results from one read on a GPU: the bits of the interpreter, and of kernels that reduce one way alone.

Rows that are copied ahead into shared memory, several strips a block, elements that no vector divides; and the time
when a block's strip has many rows, which the interpreter is too slow for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.dtypes import BF16
from tests.codegen.test_margins import (
    Program,
    batches,
    columns_of_softmax,
    extremes,
    margins,
    masked,
    merged,
    norm_backward,
    random_array,
    rms_backward,
)
from tests.engines import CUDA, SIMT, OnDevice, unlike

pytestmark = pytest.mark.gpu


def arguments(program: Program, shape: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    x = random_array(rng, shape)
    if program is rms_backward:
        half = x.astype(BF16.numpy)
        return [half, x[0], random_array(rng, shape, BF16.numpy), np.abs(x[:, 0])]
    if program is norm_backward:
        return [x.astype(BF16.numpy), x[0].astype(BF16.numpy), random_array(rng, shape, BF16.numpy)]
    return [x, random_array(rng, shape)] if program is masked else [x.round(2)]


EVERY = (margins, rms_backward, norm_backward, extremes, masked, columns_of_softmax)


@pytest.mark.parametrize("shape", [(2, 2), (9, 33), (300, 515), (130, 1024), (1025, 96)], ids=str)
@pytest.mark.parametrize("program", EVERY)
def test_bits_of_the_interpreter(program: Program, shape: tuple[int, int]) -> None:
    args = arguments(program, shape)
    got, want = merged(program, OnDevice)(*args), merged(program)(*args)
    if program is columns_of_softmax:  # the GPU's own exponential
        want = CUDA.compile(program, fused=False)(*args)
    assert unlike(([*got], []), ([*want], [])) is None


@pytest.mark.parametrize("shape", [(20000, 1024), (9001, 4096), (5000, 8192), (3000, 3001), (2050, 16384)], ids=str)
@pytest.mark.parametrize("program", EVERY)
def test_bits_of_kernels_that_reduce_one_way(program: Program, shape: tuple[int, int]) -> None:
    args = arguments(program, shape)
    got, want = OnDevice(program)(*args), CUDA.compile(program, fused=False)(*args)
    assert unlike(([*got], []), ([*want], [])) is None


def test_rows_over_two_axes() -> None:
    x = random_array(np.random.default_rng(1), (70, 90, 512))
    got, want = merged(batches, OnDevice)(x), SIMT.compile(batches, fused=False)(x)
    assert unlike(([*got], []), ([*want], [])) is None
