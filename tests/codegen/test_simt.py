"""The SIMT interpreter gives right answers: hand-written kernels at awkward sizes, before and after `expand`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.loops import Kernel, Launch
from fuser.codegen.simt import run
from fuser.codegen.verify import verify
from fuser.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from fuser.hostexpr import sym
from tests.codegen.handwritten import N, column_sum, full_sum, global_index, row_moments, row_softmax, saxpy

Arrays = dict[str, np.ndarray[Any, Any]]
LENGTHS = [0, 1, 2, 31, 32, 33, 127, 1000, 4097]


def both(kernel: Kernel, arrays: Arrays, env: Mapping[str, Any], seed: int = 0) -> Arrays:
    """Runs a kernel as written and expanded, checks that they agree bit for bit, gives the buffers."""
    results: list[Arrays] = []
    for k, expanded in ((kernel, False), (expand(kernel), True)):
        assert verify(k, expanded=expanded) == []
        copies = {name: a.copy() for name, a in arrays.items()}
        run(k, copies, env, seed)
        results.append(copies)
    for name in arrays:
        np.testing.assert_array_equal(results[0][name].view(np.uint8), results[1][name].view(np.uint8))
    return results[0]


def normal(*shape: int, dtype: DType = F32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype.numpy)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_saxpy(n: int, dtype: DType) -> None:
    x, y = normal(n, dtype=dtype), normal(n, dtype=dtype)
    got = both(saxpy(dtype), {"x": x, "y": y, "out": np.zeros_like(x)}, {"n": n, "=a": 2.5})
    np.testing.assert_array_equal(got["out"], dtype.numpy.type(2.5) * x + y)


@pytest.mark.parametrize("n", [4, 32, 1000])
def test_vectors(n: int) -> None:
    x, y = normal(n), normal(n)
    got = both(saxpy(vector=4), {"x": x, "y": y, "out": np.zeros_like(x)}, {"n": n, "=a": -1.5})
    np.testing.assert_array_equal(got["out"], np.float32(-1.5) * x + y)


@pytest.mark.parametrize(("team", "threads"), [(1, 32), (8, 64), (32, 96), (64, 128), (256, 256)])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (3, 33), (33, 127), (5, 1000)])
def test_row_softmax(team: int, threads: int, rows: int, cols: int) -> None:
    x = normal(rows, cols)
    got = both(
        row_softmax(team, threads), {"x": x.ravel(), "out": np.zeros(x.size, x.dtype)}, {"rows": rows, "cols": cols}
    )
    e = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(got["out"].reshape(x.shape), e / e.sum(axis=1, keepdims=True), rtol=3e-6, atol=1e-9)


@pytest.mark.parametrize(("across", "members"), [(32, 8), (8, 4), (4, 8), (64, 16), (24, 8), (8, 128), (2, 16)])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (33, 31), (127, 65)])
def test_column_sum_with_teams_at_a_stride(across: int, members: int, rows: int, cols: int) -> None:
    x = normal(rows, cols)
    kernel = column_sum(across, members)
    got = both(kernel, {"x": x.ravel(), "out": np.zeros(cols, x.dtype)}, {"rows": rows, "cols": cols})
    np.testing.assert_allclose(got["out"], x.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("team", "threads"), [(8, 64), (64, 128)])
def test_a_state_of_three(team: int, threads: int) -> None:
    x = normal(5, 100)
    buffers = {"x": x.ravel(), "mean": np.zeros(5, x.dtype), "spread": np.zeros(5, x.dtype)}
    got = both(row_moments(team, threads), buffers, {"rows": 5, "cols": 100})
    np.testing.assert_allclose(got["mean"], x.mean(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["spread"], x.var(axis=1) * 100, rtol=1e-5)


@pytest.mark.parametrize("n", LENGTHS)
def test_full_sum_by_the_last_block(n: int) -> None:
    x = normal(n)
    buffers = {
        "x": x,
        "out": np.zeros(1, x.dtype),
        "partials": np.zeros(8, x.dtype),
        "counter": np.zeros(1, np.int32),
    }
    sums = {both(full_sum(), buffers, {"n": n}, seed)["out"].tobytes() for seed in range(4)}
    assert len(sums) == 1, "the sum depends on the order of the blocks"
    np.testing.assert_allclose(np.frombuffer(sums.pop(), x.dtype)[0], x.sum(dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_many_blocks_run_in_batches() -> None:
    n = 200_000
    x, y = normal(n), normal(n)
    got = both(saxpy(), {"x": x, "y": y, "out": np.zeros_like(x)}, {"n": n, "=a": 3.0})
    np.testing.assert_array_equal(got["out"], np.float32(3.0) * x + y)


# -- single rules of the language ------------------------------------------------------------------
def pointwise(op: str, source: DType, target: DType) -> Kernel:
    b = KernelBuilder("pointwise", "cuda")
    x, out = b.buffer("x", source, "in", 0, N), b.buffer("out", target, "out", 1, N)
    i = global_index(b, 32)
    with b.branch((i < b.handle(b.scalar(N, I32))).value):
        b.store(out, i.value, b.let(op, (b.load(x, i.value),), target))
    return b.finish(Launch(((N + 31) // 32, 1), 32))


@pytest.mark.parametrize("half", [F16, BF16])
def test_half_types_convert_as_ml_dtypes_does(half: DType) -> None:
    x = np.concatenate([normal(100), [np.inf, -np.inf, -0.0, 1e-7, 65519.0, 65520.0, 3e38]]).astype(np.float32)
    got = both(pointwise("cast", F32, half), {"x": x, "out": np.zeros(x.size, half.numpy)}, {"n": x.size})["out"]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.view(np.uint16), x.astype(half.numpy).view(np.uint16))
    back = both(pointwise("cast", half, F32), {"x": got, "out": np.zeros(x.size, np.float32)}, {"n": x.size})["out"]
    np.testing.assert_array_equal(back, got.astype(np.float32))


def test_masked_loads_give_zero_and_read_nothing() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", F32, "in", 0, N), b.buffer("out", F32, "out", 1, 128)
    i = b.handle(b.special("thread")) * 4
    values = b.load_vec(x, i.value, 4, (i < b.handle(b.scalar(N, I32))).value)
    b.store_vec(out, i.value, values)
    x_values = np.arange(1, 65, dtype=np.float32)
    got = both(b.finish(Launch((1, 1), 32)), {"x": x_values, "out": np.zeros(128, np.float32)}, {"n": 64})
    np.testing.assert_array_equal(got["out"], np.concatenate([x_values, np.zeros(64, np.float32)]))


def test_divergent_branches_and_loops() -> None:
    """Each thread counts to its own number; even threads then negate it."""
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", I32, "out", 0, 64)
    thread = b.special("thread")
    count = b.mutable("count", b.literal(0, I32))
    with b.loop("j", 0, thread):
        b.assign(count, b.let("add", (count, b.literal(1, I32)), I32))
    even = b.handle(b.let("bitwise_and", (thread, b.literal(1, I32)), I32)).eq(0)
    with b.branch(even.value):
        b.store(out, thread, b.let("negative", (count,), I32))
    with b.otherwise():
        b.store(out, thread, count)
    got = both(b.finish(Launch((1, 1), 64)), {"out": np.zeros(64, np.int32)}, {})
    t = np.arange(64)
    np.testing.assert_array_equal(got["out"], np.where(t % 2 == 0, -t, t))


def test_register_arrays_and_unrolled_loops() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", F32, "in", 0, 256), b.buffer("out", F32, "out", 1, 256)
    thread = b.handle(b.special("thread"))
    row = b.alloc("row", F32, 4, "register")
    for k in range(4):
        b.store(row, k, b.load(x, (thread + 64 * k).value))
    with b.loop("k", 0, 4, kind="unroll") as k:
        v = b.load(row, k)
        b.store(out, (thread + b.handle(k) * 64).value, b.let("multiply", (v, v), F32))
    x_values = normal(256)
    got = both(b.finish(Launch((1, 1), 64)), {"x": x_values, "out": np.zeros(256, np.float32)}, {})
    np.testing.assert_array_equal(got["out"], x_values * x_values)


def test_a_grid_of_two_dimensions() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", I32, "out", 0, 6)
    bx, by = b.handle(b.special("block")), b.handle(b.special("block_y"))
    with b.branch(b.handle(b.special("thread")).eq(0).value):
        b.store(out, (by * 3 + bx).value, (by * 10 + bx).value)
    got = both(b.finish(Launch((3, 2), 32)), {"out": np.zeros(6, np.int32)}, {})
    assert got["out"].tolist() == [0, 1, 2, 10, 11, 12]


def test_narrow_integers_wrap_before_they_widen() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", U8, "in", 0, 4), b.buffer("out", I64, "out", 1, 4)
    i = b.special("thread")
    with b.branch(b.let("less", (i, b.literal(4, I32)), BOOL)):
        v = b.load(x, i)
        b.store(out, i, b.let("cast", (b.let("add", (v, v), U8),), I64))
    got = both(
        b.finish(Launch((1, 1), 32)), {"x": np.array([128, 200, 255, 6], np.uint8), "out": np.zeros(4, np.int64)}, {}
    )
    assert got["out"].tolist() == [0, 144, 254, 12]


def test_a_cpu_kernel_runs_its_parallel_loop() -> None:
    rows, cols = sym("rows"), sym("cols")
    b = KernelBuilder("rows", "cpu")
    x, out = b.buffer("x", F32, "in", 0, rows * cols), b.buffer("out", F32, "out", 1, rows)
    width = b.handle(b.scalar(cols, I64))
    with b.loop("row", b.literal(0, I64), b.scalar(rows, I64), kind="parallel") as row:
        acc = b.mutable("acc", b.literal(0.0, F32))
        with b.loop("j", b.literal(0, I64), width.value) as j:
            v = b.load(x, (b.handle(row) * width + b.handle(j)).value)
            b.assign(acc, b.let("add", (acc, v), F32))
        b.store(out, row, acc)
    kernel = b.finish(Launch((rows, 1), 1))
    data = np.arange(33 * 7, dtype=np.float32)
    buffers = {"x": data, "out": np.zeros(33, np.float32)}
    run(kernel, buffers, {"rows": 33, "cols": 7})
    np.testing.assert_array_equal(buffers["out"], data.reshape(33, 7).sum(axis=1))
