"""What cuBLAS is asked for, done by hand in the host's memory: pointers, flags, leading dimensions, steps."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from fuser.runtime.cublas import Factor, Memory, Product, products

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def memory(x: Array) -> Memory:
    return Memory(x.ctypes.data, x.shape, x.strides, x.itemsize)


def columns(pointer: int, rows: int, cols: int, line: int) -> Array:
    """A column-major f64 matrix at an address, as BLAS reads one."""
    assert line >= max(rows, 1)
    raw = (ctypes.c_double * (line * (cols - 1) + rows)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw), (rows, cols), (8, 8 * line))


def operand(x: Factor, rows: int, cols: int, number: int) -> Array:
    """op(X), [rows, cols], of one matrix of a batch."""
    at = x.pointer + 8 * number * x.step
    return columns(at, cols, rows, x.line).T if x.transposed else columns(at, rows, cols, x.line)


def run(a: Array, b: Array) -> tuple[Array, int]:
    """(product, calls) as cuBLAS would do it."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.full((*batch, a.shape[-2], b.shape[-1]), np.nan)
    calls = list(products(memory(a), memory(b), memory(out)))
    for p in calls:
        perform(p)
    return out, len(calls)


def perform(p: Product) -> None:
    """One call, as cuBLAS would do it."""
    for number in range(p.count):
        into = columns(p.out + 8 * number * p.m * p.n, p.n, p.m, p.n)
        into[...] = operand(p.b, p.n, p.k, number) @ operand(p.a, p.k, p.m, number)


def array(*shape: int) -> Array:
    return RNG.standard_normal(shape)


HEADS = array(2, 7, 3, 4)
CASES: dict[str, tuple[Array, Array, int]] = {
    "plain": (array(6, 5), array(5, 4), 1),
    "right transposed": (array(6, 5), array(4, 5).T, 1),
    "left transposed": (array(5, 6).T, array(5, 4), 1),
    "both transposed": (array(5, 6).T, array(4, 5).T, 1),
    "some columns": (array(6, 9)[:, 2:7], array(5, 4), 1),
    "every other row": (array(12, 5)[::2], array(5, 8)[:, 1:5], 1),
    "a row and a column": (array(1, 5), array(5, 1), 1),
    "an outer product": (array(6, 1), array(1, 4), 1),
    "a batch": (array(3, 6, 5), array(3, 5, 4), 1),
    "two batch axes": (array(2, 3, 6, 5), array(2, 3, 4, 5).swapaxes(-1, -2), 1),
    "one matrix for all": (array(2, 3, 6, 5), array(5, 4), 1),
    "spread both ways": (array(3, 1, 6, 5), array(2, 5, 4), 3),
    "heads": (HEADS.transpose(0, 2, 1, 3), array(2, 5, 3, 4).transpose(0, 2, 3, 1), 2),
    "every other matrix": (array(6, 6, 5)[::2], array(3, 5, 4), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_compute_the_product(name: str) -> None:
    a, b, calls = CASES[name]
    got, made = run(a, b)
    np.testing.assert_allclose(got, a @ b, rtol=1e-12)
    assert made == calls
