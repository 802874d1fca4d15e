"""How wide vector loops run: what the analysis of a body decides."""

from collections.abc import Callable

import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.llvm.lanewidth import lane_width, literal_trip
from fuser.codegen.loops import For, Launch, Var, walk
from fuser.dtypes import BF16, BOOL, F32, F64, I64, U8, DType
from fuser.hostexpr import sym

Write = Callable[[KernelBuilder, Var, str], None]


def loop_of(write: Write, stop: int | None = None) -> For:
    """The vector loop around what `write(builder, j, x)` writes; `x` is the name of an f32 buffer."""
    b = KernelBuilder("k", "cpu")
    x = b.buffer("x", F32, "inout", 0, sym("n"))
    end = b.scalar(sym("n"), I64) if stop is None else b.literal(stop, I64)
    with b.loop("j", b.literal(0, I64), end, b.literal(1, I64), "vector") as j:
        write(b, j, x)
    kernel = b.finish(Launch((1, 1), 1))
    return next(s for s in walk(kernel.body) if isinstance(s, For))


@pytest.mark.parametrize(("t", "lanes"), [(F32, 8), (F64, 4), (BF16, 16), (U8, 32), (I64, 4)])
def test_the_widest_value_fills_a_register(t: DType, lanes: int) -> None:
    b = KernelBuilder("k", "cpu")
    x, y = b.buffer("x", t, "in", 0, 9), b.buffer("y", t, "out", 1, 9)
    with b.loop("j", b.literal(0, I64), b.scalar(sym("n"), I64), b.literal(1, I64), "vector") as j:
        b.store(y, j, b.load(x, b.apply("add", (j, b.scalar(sym("a"), I64)), I64)))
    (loop,) = b.finish(Launch((1, 1), 1)).body
    assert isinstance(loop, For)
    assert lane_width(loop, 32) == lanes


def test_index_arithmetic_and_masks_do_not_count_but_indices_as_data_do() -> None:
    def masked(b: KernelBuilder, j: Var, x: str) -> None:
        b.store(x, j, b.load(x, b.apply("multiply", (j, b.literal(3, I64)), I64), b.apply("less", (j, j), BOOL)))

    def data(b: KernelBuilder, j: Var, x: str) -> None:
        odd = b.apply("bitwise_and", (j, b.literal(1, I64)), I64)
        b.store(x, j, b.apply("convert", (odd,), F32))

    assert lane_width(loop_of(masked), 64) == 16
    assert lane_width(loop_of(data), 64) == 8


def test_short_loops_are_not_wider_than_they_are_long() -> None:
    def copy(b: KernelBuilder, j: Var, x: str) -> None:
        b.store(x, j, b.load(x, j))

    assert lane_width(loop_of(copy, stop=5), 64) == 4
    assert lane_width(loop_of(copy, stop=1), 64) == 1
    assert literal_trip(loop_of(copy, stop=5)) == 5
    assert literal_trip(loop_of(copy)) is None


def test_bodies_that_differ_between_iterations_run_one_by_one() -> None:
    def branching(b: KernelBuilder, j: Var, x: str) -> None:
        with b.branch(b.apply("greater", (b.load(x, j), b.literal(0.0, F32)), BOOL)):
            b.store(x, j, b.literal(0.0, F32))

    def bounded(b: KernelBuilder, j: Var, x: str) -> None:
        with b.loop("k", b.literal(0, I64), j) as k:
            b.store(x, k, b.literal(0.0, F32))

    assert lane_width(loop_of(branching), 32) == 1
    assert lane_width(loop_of(bounded), 32) == 1
    b = KernelBuilder("k", "cpu")
    x = b.buffer("x", F32, "in", 0, 9)
    total = b.mutable("total", b.literal(0.0, F32))
    with b.loop("j", b.literal(0, I64), b.scalar(sym("n"), I64), b.literal(1, I64), "vector") as j:
        b.assign(total, b.apply("add", (total, b.load(x, j)), F32))
    loop = b.finish(Launch((1, 1), 1)).body[-1]
    assert isinstance(loop, For)
    assert lane_width(loop, 32) == 1
