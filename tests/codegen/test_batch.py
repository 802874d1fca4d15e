"""Independent programs in one launch give the bits that they give alone, whatever their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import BufferParam
from fuser.codegen.splice import Buffers
from fuser.dtypes import F32
from fuser.errors import InternalError
from tests.engines import SIMT, Engine, each, unlike

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def updates(lr: float, p: Array, q: Array, r: Array, g: Array, h: Array, k: Array) -> Any:
    return p - lr * g, q - lr * h, r - lr * k


def rotated(q: Array, k: Array, c: Array) -> Any:
    return q * c, k * c + 1.0


def rows(x: Array, y: Array, z: Array) -> Any:
    return fuser.ops.softmax(x, axis=-1), y / np.max(y, axis=-1, keepdims=True), np.sum(z, axis=1)


def wide_rows(x: Array, y: Array) -> Any:
    return np.sum(x, axis=1), fuser.ops.softmax(y, axis=-1)


def turned(x: Array, y: Array, z: Array) -> Any:
    return x.T * 2.0 + z, np.exp(y)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], int]] = [
    (updates, (0.5, array(3), array(4, 7), array(1), array(3), array(4, 7), array(1)), 1),
    (
        updates,
        (0.5, array(5000), array(0, 7), array(513, 9), array(5000), array(0, 7), array(513, 9)),
        2,
    ),  # nothing is launched for the empty one
    (updates, (0.5, array(256, 256), array(16), array(2, 3, 5), array(256, 256), array(16), array(2, 3, 5)), 1),
    (rotated, (array(64, 8, 32), array(64, 2, 32), array(64, 1, 32)), 1),
    (rotated, (array(512, 8, 32), array(512, 2, 32), array(512, 1, 32)), 1),
    (rotated, (array(61, 7, 33), array(61, 3, 33), array(61, 1, 33)), 1),
    (rows, (array(9, 40), array(5, 64), array(3, 17)), 1),
    (rows, (array(33, 1000), array(2, 3), array(300, 256)), 1),
    (wide_rows, (array(70, 2000), array(40, 16)), 1),
    (turned, (array(40, 72), array(30), array(72, 40)), 1),
]


@each
@pytest.mark.parametrize(("fn", "args", "kernels"), CASES, ids=[f"{c[0].__name__}-{k}" for k, c in enumerate(CASES)])
def test_together_as_apart(engine: Engine, fn: Callable[..., Any], args: tuple[Any, ...], kernels: int) -> None:
    got, want = engine.compile(fn)(*args), engine.compile(fn, fused=False)(*args)
    assert (found := unlike(got, want)) is None, found
    plan = fuser.compile(fn).plan(*args, device="sm_90" if engine is SIMT else "cpu")
    assert len(plan.groups) == kernels
    assert [len(g.built) for g in plan.compiled if g] == [1] * kernels


@each
def test_arguments_are_updated_in_place(engine: Engine) -> None:
    def step(p: Array, q: Array, g: Array, h: Array) -> None:
        p -= 0.5 * g
        q -= 0.25 * h

    args = [array(300), array(20, 30), array(300), array(20, 30)]
    want = [args[0] - np.float32(0.5) * args[2], args[1] - np.float32(0.25) * args[3]]
    engine.compile(step)(*args)
    assert unlike(args[:2], want) is None


@each
def test_an_old_value_that_another_part_would_read_is_read_first(engine: Engine) -> None:
    def step(p: Array, g: Array, q: Array) -> Any:
        old = p[:2] * 2.0 + q
        p -= g
        return old

    p, g, q = array(64), array(64), array(2)
    want = p[:2] * np.float32(2.0) + q
    assert unlike(engine.compile(step)(p, g, q), want) is None


def blocks(program: str, *args: Array) -> int:
    plan = fuser.compile(program).plan(*args, device="sm_90")
    ((built,),) = plan.built
    assert len({b.node for b in built.kernel.buffers}) == len(built.kernel.buffers)  # what parts share is there once
    return int(built.kernel.launch.grid[0].evaluate(plan.sizes))


def test_grids_follow_one_another() -> None:
    q, k, c = array(512, 8, 32), array(512, 2, 32), array(512, 1, 32)
    first, second = blocks("lambda q, c: q * c", q, c), blocks("lambda k, c: k * c + 1.0", k, c)
    assert blocks("lambda q, k, c: (q * c, k * c + 1.0)", q, k, c) == first + second


def test_no_part_may_write_what_another_reads() -> None:
    builder = KernelBuilder("both", "cuda")
    buffers = Buffers(builder)
    buffers.name(BufferParam("p", F32, "inout", 1, 4))
    with pytest.raises(InternalError, match="which one writes"):
        buffers.name(BufferParam("p", F32, "in", 1, 4))


@each
def test_forty_updates_are_one_launch(engine: Engine) -> None:
    shapes = [(k % 7 + 1, k + 3) for k in range(40)]
    old, slope = [f"p{k}" for k in range(40)], [f"g{k}" for k in range(40)]
    body = ", ".join(f"{p} - lr * {g}" for p, g in zip(old, slope, strict=True))
    program = f"lambda lr, {', '.join([*old, *slope])}: ({body})"
    args = [array(*s) for s in shapes + shapes]
    plan = fuser.compile(program).plan(0.1, *args, device="sm_90" if engine is SIMT else "cpu")
    ((built,),) = plan.built
    assert 8 * len(built.kernel.buffers) + sum(max(s.dtype.bytes, 4) for s in built.kernel.scalars) <= 4096
    got = engine.compile(program)(0.1, *args)
    want = [p - np.float32(0.1) * g for p, g in zip(args[:40], args[40:], strict=True)]
    assert unlike(tuple(got), tuple(want)) is None
