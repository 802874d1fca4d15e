"""`guards`: divisions behind a common test give the bits of divisions, on every operand, whatever moves around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen import guards
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.expand import expand
from fuser.codegen.loops import If, Kernel, Launch, Operand, walk
from fuser.codegen.simt import run
from fuser.codegen.verify import verify
from fuser.dtypes import F32, F64, DType
from fuser.optable import table
from fuser.optable.base import Table
from fuser.schedule import CudaSchedule

THREADS = 64
EDGES = [0.0, -0.0, 1.0, -3.0, 1e-30, 1e-38, 1e-45, 1e30, 3e38, np.inf, -np.inf, np.nan, 2.0**-100, 2.0**-101, 7.0]


def lanes(count: int, dtype: DType = F32, chained: bool = False) -> Kernel:
    """`count` lanes a thread: sqrt(a/b) and a/sqrt(b), or with `chained` each lane divides the one before it."""
    b = KernelBuilder("lanes", "cuda")
    names = [b.buffer(n, dtype, "in", k, THREADS * count) for k, n in enumerate("xy")]
    out = b.buffer("out", dtype, "out", 2, THREADS * count)
    total = b.buffer("total", dtype, "out", 3, THREADS)
    thread = b.handle(b.special("thread"))
    loaded = [[b.load(n, (thread * count + j).value) for n in names] for j in range(count)]
    sum_ = b.mutable("sum", b.literal(0.0, dtype))
    before: Operand | None = None
    results = []
    for x, y in loaded:
        quotient = b.apply("divide", (before if chained and before is not None else x, y), dtype)
        root = b.apply("sqrt", (b.apply("absolute", (quotient,), dtype),), dtype)
        b.assign(sum_, b.apply("add", (sum_, root), dtype))
        other = b.apply("divide", (x, b.apply("sqrt", (y,), dtype)), dtype)
        before = b.apply("add", (root, other), dtype)
        results.append(before)
    for j, value in enumerate(results):
        b.store(out, (thread * count + j).value, value)
    b.store(total, thread.value, sum_)
    return b.finish(Launch((1, 1), THREADS))


def careless(rows: Table) -> Table:
    """Rows whose `near` ones are wrong wherever their test fails: what nobody may use there. (By a number that
    fails the test again, as the real ones do.)"""
    out = Table()
    for row in rows.rows.values():
        out.register(row)
    for name in ("divide", "sqrt"):
        near, holds = rows.scalar(f"{name}.near"), rows.scalar(f"{name}.holds")

        def wrong(*args: Any, near: Any = near, holds: Any = holds) -> Any:
            exact = near.reference(*args)
            return np.where(holds.reference(*args, exact), exact, np.float32(2.0**-130))

        out.rows[near.name] = replace(near, reference=wrong)  # type: ignore[index]
    return out


def values(kernel: Kernel, seed: int, rows: Table) -> list[Any]:
    rng = np.random.default_rng(seed)
    sizes = {p.name: p.size for p in kernel.buffers}
    dtype = kernel.buffers[0].dtype.numpy
    filled: dict[str, Any] = {n: np.zeros(int(str(s)), dtype) for n, s in sizes.items()}
    for n in "xy":
        drawn = rng.standard_normal(filled[n].size).astype(dtype) * 10.0 ** rng.integers(-3, 4, filled[n].size)
        edge = rng.random(drawn.size) < 0.3
        filled[n][:] = np.where(edge, rng.choice(np.array(EDGES, dtype), drawn.size), drawn)
    run(kernel, filled, {}, table=rows)
    return [filled["out"], filled["total"]]


def branches(kernel: Kernel) -> int:
    return sum(isinstance(s, If) for s in walk(kernel.body))


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4, 12])
def test_bits_are_those_of_plain_divisions(count: int, chained: bool) -> None:
    plain = lanes(count, chained=chained)
    assert guards.guard(plain) is plain
    guarded = guards.guard(replace(plain, guarded=True))
    assert verify(guarded) == []
    assert branches(guarded) > 0
    for seed in range(3):
        for want, got in zip(values(plain, seed, table()), values(guarded, seed, careless(table())), strict=True):
            np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_a_test_covers_so_many_divisions_at_most() -> None:
    guarded = guards.guard(replace(lanes(64), guarded=True))
    sizes = [len(s.then) // 2 for s in walk(guarded.body) if isinstance(s, If)]
    assert sum(sizes) == 4 * 64
    assert max(sizes) == guards.TOGETHER
    assert len(sizes) == 4 * 64 // guards.TOGETHER


def test_what_has_a_slow_path_of_its_own_or_no_company_stays() -> None:
    assert branches(guards.guard(replace(lanes(4, F64), guarded=True))) == 0
    b = KernelBuilder("one", "cuda")
    x, out = b.buffer("x", F32, "in", 0, 32), b.buffer("out", F32, "out", 1, 32)
    thread = b.special("thread")
    b.store(out, thread, b.apply("divide", (b.load(x, thread), b.literal(3.0, F32)), F32))
    one = replace(b.finish(Launch((1, 1), 32)), guarded=True)
    assert guards.guard(one) == one


def test_a_chain_of_divisions_is_left_in_near_linear_time() -> None:
    b = KernelBuilder("chain", "cuda")
    x, out = b.buffer("x", F32, "in", 0, 32), b.buffer("out", F32, "out", 1, 32)
    thread = b.special("thread")
    first = b.load(x, thread)
    value: Operand = first
    for _ in range(20_000):
        value = b.apply("divide", (value, b.apply("add", (value, first), F32)), F32)
    b.store(out, thread, value)
    chain = replace(b.finish(Launch((1, 1), 32)), guarded=True)
    assert guards.guard(chain) == chain


def test_assignments_keep_their_order() -> None:
    """A variable that is read, changed and read again around divisions."""
    b = KernelBuilder("order", "cuda")
    x, y = (b.buffer(n, F32, "in", k, THREADS) for k, n in enumerate("xy"))
    out, total = b.buffer("out", F32, "out", 2, THREADS), b.buffer("total", F32, "out", 3, THREADS)
    thread = b.special("thread")
    given, by = b.load(x, thread), b.load(y, thread)
    state = b.mutable("state", given)
    kept = []
    for k in range(4):
        kept.append(b.apply("divide", (b.apply("add", (state, b.literal(float(k), F32)), F32), by), F32))
        b.assign(state, b.apply("multiply", (kept[-1] if k % 2 else by, by), F32))
    sum_ = kept[0]
    for value in kept[1:]:
        sum_ = b.apply("add", (sum_, value), F32)
    b.store(out, thread, sum_)
    b.store(total, thread, state)
    plain = b.finish(Launch((1, 1), THREADS))
    guarded = guards.guard(replace(plain, guarded=True))
    assert branches(guarded) > 0
    for want, got in zip(values(plain, 0, table()), values(guarded, 0, careless(table())), strict=True):
        np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_the_source_has_one_branch_for_all_lanes() -> None:
    source = print_kernel(expand(replace(lanes(4), guarded=True)))
    assert source.count("if (fails") == 2
    assert source.count("= fuser_divide_near(") == 8


def nbody(position: Any) -> Any:
    gap = position[None, :, :] - position[:, None, :]
    squared = np.sum(gap * gap, axis=-1) + 1e-3
    return np.sum(gap / (squared * np.sqrt(squared))[:, :, None], axis=1)


def moments(x: Any) -> Any:
    """Divides once a row, which is nothing beside the reads."""
    return np.mean(x, axis=1), np.var(x, axis=1)


@pytest.mark.parametrize(
    ("program", "spec", "wanted"),
    [
        (nbody, "f32[32768, 3]", (True, 8)),
        (moments, "f32[32768, 8192]", (False, 1)),
        (lambda x: x / (np.sqrt(abs(x)) + 1), "f32[1048576]", (False, 1)),  # bound by memory
    ],
)
def test_kernels_that_arithmetic_bounds_ask_for_groups(program: Any, spec: str, wanted: tuple[bool, int]) -> None:
    found = fuser.compile(program).plan(spec, device="sm_90").schedules
    assert [(s.guarded, s.min_blocks) for s in found if isinstance(s, CudaSchedule)] == [wanted]
