"""The register model: what takes a register, what does not, and what the two orders of a kernel need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen import registers
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.codegen.registers.instructions import flatten
from fuser.codegen.registers.pressure import in_order, scheduled
from fuser.dtypes import BOOL, F32, F64, I32, DType
from fuser.hostexpr import sym

Write = Callable[[KernelBuilder, Operand], None]


def kernel(write: Write, dtype: DType = F32, threads: int = 256, blocks: int = 1) -> Kernel:
    """A kernel over arrays `x` and `y`; `write` gets a thread's position."""
    b = KernelBuilder("k", "cuda")
    b.buffer("x", dtype, "in", 0, sym("n"))
    b.buffer("y", dtype, "out", 1, sym("n"))
    at = b.let("add", [b.let("multiply", [b.special("block"), b.literal(threads, I32)], I32), b.special("thread")], I32)
    write(b, at)
    return b.finish(Launch((sym("n"), 1), threads, blocks))


def sums(count: int, apart: int = 1, dtype: DType = F32, late: bool = True) -> Write:
    """Loads `count` elements `apart` from each other, then adds them up (or each at once where not `late`)."""

    def write(b: KernelBuilder, at: Operand) -> None:
        places = [b.let("add", [at, b.literal(k * apart, I32)], I32) for k in range(count)]
        total: Operand = b.literal(0.0, dtype)
        if late:
            for x in [b.load("x", p) for p in places]:
                total = b.let("add", [total, x], dtype)
        else:
            for p in places:
                total = b.let("add", [total, b.load("x", p)], dtype)
        b.store("y", at, total)

    return write


def test_a_value_that_waits_takes_a_register_and_one_of_64_bits_two() -> None:
    few, many = (in_order(flatten(kernel(sums(n)))) for n in (8, 24))
    assert many - few == 16
    few, many = (in_order(flatten(kernel(sums(n, dtype=F64), F64))) for n in (8, 24))
    assert many - few == 32


def test_places_that_differ_by_a_constant_share_one_address() -> None:
    near = in_order(flatten(kernel(sums(16))))
    assert near == in_order(flatten(kernel(sums(16, apart=1000))))
    assert near <= 16 + 4  # the values, one address, the thread's place


def test_the_scheduler_starts_loads_that_are_written_late() -> None:
    late = kernel(sums(32, late=False))
    assert in_order(flatten(late)) < 8
    assert scheduled(flatten(late)) >= 32


def test_loads_stay_behind_a_store_that_may_change_them() -> None:
    def write(b: KernelBuilder, at: Operand) -> None:
        for k in range(32):
            place = b.let("add", [at, b.literal(k, I32)], I32)
            b.store("y", place, b.load("y", place))

    b = kernel(write)
    assert scheduled(flatten(b)) < 12  # one after another, not 32 at once


def test_what_a_loop_reads_from_outside_lives_to_its_end() -> None:
    def write(b: KernelBuilder, at: Operand) -> None:
        kept = [b.load("x", b.let("add", [at, b.literal(k, I32)], I32)) for k in range(10)]
        total = b.mutable("total", b.literal(0.0, F32))
        with b.loop("i", at, b.scalar(sym("n"), I32), 256) as i:
            value: Operand = b.load("x", i)
            for k in kept:
                value = b.let("multiply", [value, k], F32)
            b.assign(total, b.let("add", [total, value], F32))
        b.store("y", at, total)

    assert in_order(flatten(kernel(write))) >= 10 + 2


def test_what_nobody_reads_and_what_is_known_takes_nothing() -> None:
    def write(b: KernelBuilder, at: Operand) -> None:
        x = b.load("x", at)
        b.load("x", b.let("add", [at, b.literal(7, I32)], I32))
        never = b.let("less", [x, x], BOOL)
        b.store("y", at, b.let("where", [never, b.literal(1.0, F32), x], F32))

    bare = kernel(lambda b, at: b.store("y", at, b.load("x", at)))
    assert registers.estimate(kernel(write)) == registers.estimate(bare)


def test_a_called_operator_keeps_its_scratch_beside_what_is_alive() -> None:
    def write(op: str) -> Write:
        def body(b: KernelBuilder, at: Operand) -> None:
            xs = [b.load("x", b.let("add", [at, b.literal(k, I32)], I32)) for k in range(8)]
            found = b.let(op, xs[:2], F64) if op == "divide" else b.let(op, xs[:1], F64)
            for k, x in enumerate(xs):
                b.store("y", b.let("add", [at, b.literal(k, I32)], I32), b.let("multiply", [x, found], F64))

        return body

    plain, divided = (in_order(flatten(kernel(write(op), F64))) for op in ("negative", "divide"))
    assert divided - plain >= 10


@pytest.mark.parametrize(("threads", "blocks", "limit"), [(256, 1, 255), (256, 5, 48), (1024, 1, 64), (128, 1, 255)])
def test_launch_bounds_limit_the_estimate(threads: int, blocks: int, limit: int) -> None:
    wide = kernel(sums(300), threads=threads, blocks=blocks)
    assert registers.allowed(wide) == limit
    assert registers.estimate(wide) == limit
