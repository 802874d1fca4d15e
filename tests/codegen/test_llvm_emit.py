"""The LLVM emitter on handwritten kernels: lanes, tails, masks, dtypes, and what it refuses."""

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.llvm import jit, link
from fuser.codegen.llvm.convert import Converter
from fuser.codegen.llvm.emit import emit
from fuser.codegen.llvm.host import host
from fuser.codegen.loops import Kernel, Launch, Operand
from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from fuser.errors import InternalError
from fuser.hostexpr import sym
from fuser.optable.casts import cast_array
from tests.codegen.native import compiled, run, same_bits

SIZES = (0, 1, 2, 31, 32, 33, 127, 1000, 4097)
N = sym("n")
Element = Callable[[KernelBuilder, Operand], Operand]


def index(b: KernelBuilder, op: str, x: Operand, y: Operand | int) -> Operand:
    return b.apply(op, (x, b.literal(y, I64) if isinstance(y, int) else y), I64)


def elementwise(source: DType, target: DType, element: Element) -> Kernel:
    """y[j] = element(x[j]) for j below n, as one vector loop in one iteration."""
    b = KernelBuilder("kernel", "cpu")
    x, y = b.buffer("x", source, "in", 0, N), b.buffer("y", target, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        b.store(y, j, element(b, b.load(x, j)))
    return b.finish(Launch((1, 1), 1))


def apply(kernel: Kernel, x: np.ndarray[Any, Any], dtype: DType, native: Any = None) -> np.ndarray[Any, Any]:
    y = np.empty(len(x), dtype.numpy)
    run(kernel, {"x": x, "y": y}, {"n": len(x)}, native=native)
    return y


def numbers(t: DType, n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(n)
    if t == BOOL:
        return rng.random(n) < 0.5
    if t.is_integer:
        info = np.iinfo(t.numpy)
        return rng.integers(info.min, info.max, n, dtype=t.numpy, endpoint=True)
    return (rng.standard_normal(n) * 10).astype(t.numpy)


def square_plus(b: KernelBuilder, x: Operand) -> Operand:
    return b.apply("add", (b.apply("multiply", (x, x), x.dtype), b.literal(3, x.dtype)), x.dtype)


@pytest.mark.parametrize("t", [t for t in ALL if not t.is_half and t != BOOL], ids=str)
def test_every_size_and_position_gives_the_same_bits(t: DType) -> None:
    kernel = elementwise(t, t, square_plus)
    native = compiled(kernel)
    for n in SIZES:
        x = numbers(t, n)
        y = apply(kernel, x, t, native)
        assert same_bits(y, x * x + t.numpy.type(3)), n
        for k in (1, 7):
            assert same_bits(apply(kernel, x[k:], t, native), y[k:]), (n, k)


@pytest.mark.parametrize("t", [BOOL, U8, BF16, F32, F64], ids=str)
def test_streamed_stores_write_what_plain_ones_do(t: DType) -> None:
    """Two results past the caches, wherever their first elements lie; the bytes around them stay."""
    b = KernelBuilder("kernel", "cpu")
    x, y, z = b.buffer("x", t, "in", 0, N), b.buffer("y", t, "out", 1, N), b.buffer("z", t, "out", 2, N)
    zero, one, n, flag = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64), b.scalar(sym("flag"), BOOL)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        element = b.load(x, j)
        b.store(y, j, element, None, flag)
        b.store(z, j, element, None, flag)
    native = compiled(kernel := b.finish(Launch((1, 1), 1)))
    assert "!nontemporal" in native.ir
    for n_, first, second, past in (
        (0, 0, 0, 1),
        (5, 1, 1, 1),
        (1000, 0, 0, 1),
        (999, 3, 3, 1),
        (777, 1, 2, 1),
        (300, 1, 1, 0),
    ):
        data, here, there = numbers(t, n_), numbers(t, n_ + 70), numbers(t, n_ + 70)
        wanted = [here.copy(), there.copy()]
        wanted[0][first : first + n_], wanted[1][second : second + n_] = data, data
        buffers = {"x": data, "y": here[first:], "z": there[second:]}
        run(kernel, buffers, {"n": n_, "flag": bool(past)}, native=native)
        assert same_bits(here, wanted[0]), n_
        assert same_bits(there, wanted[1]), n_


def test_products_and_sums_are_not_contracted() -> None:
    kernel = elementwise(F32, F32, lambda b, x: b.apply("subtract", (b.apply("multiply", (x, x), F32), x), F32))
    x = numbers(F32, 1000)
    fused = (x.astype(np.float64) * x - x).astype(np.float32)
    assert (fused != x * x - x).any()  # the sample can tell
    assert same_bits(apply(kernel, x, F32), x * x - x)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts(source: DType) -> None:
    """To every dtype, in one kernel."""
    b = KernelBuilder("casts", "cpu")
    x_ = b.buffer("x", source, "in", 0, N)
    outs = [b.buffer(f"to_{t}", t, "out", k + 1, N) for k, t in enumerate(ALL)]
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        v = b.load(x_, j)
        for out, t in zip(outs, ALL, strict=True):
            b.store(out, j, b.apply("cast", (v,), t))
    x = numbers(source, 203)
    if source.is_float:
        with np.errstate(over="ignore"):
            x[:6] = np.array([np.nan, np.inf, -np.inf, -0.0, 3e38, -1.5]).astype(source.numpy)
    got = {f"to_{t}": np.empty(203, t.numpy) for t in ALL}
    run(b.finish(Launch((1, 1), 1)), {"x": x, **got}, {"n": 203})
    for t in ALL:
        with np.errstate(all="ignore"):
            assert same_bits(got[f"to_{t}"], cast_array(x, t)), t


@pytest.mark.parametrize("native_half", [True, False])
def test_f16_both_ways(native_half: bool) -> None:
    machine = replace(host(), native_half=native_half and host().native_half)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    widen = elementwise(F16, F32, lambda b, x: b.apply("convert", (x,), F32))
    assert same_bits(apply(widen, every, F32, _for(widen, machine)), every.astype(np.float32))
    narrow = elementwise(F32, F16, lambda b, x: b.apply("convert", (x,), F16))
    exact = every.astype(np.float32)
    numbers_ = exact[np.isfinite(exact)]
    near = np.concatenate(
        [exact, np.nextafter(numbers_, np.float32(1e9)), _midpoints(exact), np.float32([1e-9, 70000])]
    )
    with np.errstate(over="ignore"):
        assert same_bits(apply(narrow, near, F16, _for(narrow, machine)), near.astype(np.float16))


def _midpoints(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    finite = np.sort(x[np.isfinite(x)])
    return ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)


def _for(kernel: Kernel, machine: Any) -> Any:
    text = str(emit(expand(kernel), machine))
    with link.lock:
        module = jit._optimised(text, kernel.name, jit._machine())
        return link.link(kernel.name, str(module), jit._machine().emit_object(module))


def test_converter_refuses_what_the_machine_leaves_open() -> None:
    converter = Converter(None, True)
    for source, target in ((BF16, F32), (F16, F64), (F32, BOOL)):
        with pytest.raises(InternalError, match="no machine conversion"):
            converter.convert(None, source, target)
    with pytest.raises(InternalError, match="bitcast"):
        converter.bitcast(None, F32, I64)


# -- memory ----------------------------------------------------------------------------------------
def walked(step: int | None, t: DType = F32) -> Kernel:
    """y[j] = x[start + j * step]; step None: a scalar of the host's."""
    b = KernelBuilder("walked", "cpu")
    x, y = b.buffer("x", t, "in", 0, N), b.buffer("y", t, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    by = b.scalar(sym("step"), I64) if step is None else b.literal(step, I64)
    start = b.scalar(sym("start"), I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        b.store(y, j, b.load(x, index(b, "add", start, index(b, "multiply", j, by))))
    return b.finish(Launch((1, 1), 1))


@pytest.mark.parametrize("t", [F32, BOOL, F64, U8], ids=str)
@pytest.mark.parametrize("step", [1, -1, 2, -3, 0])
def test_strides(step: int, t: DType) -> None:
    for fixed in (True, False):
        kernel = walked(step if fixed else None, t)
        native = compiled(kernel)
        for n in (1, 16, 37):
            x = numbers(t, 200)
            y = np.empty(n, t.numpy)
            start = 150 if step < 0 else 3
            run(kernel, {"x": x, "y": y}, {"n": n, "step": step, "start": start}, native=native)
            assert same_bits(y, x[start + step * np.arange(n)]), (fixed, n)


@pytest.mark.parametrize("step", [1, -1])
def test_stores_backwards_and_by_a_stride_of_the_host(step: int) -> None:
    b = KernelBuilder("scatter", "cpu")
    x, y = b.buffer("x", I32, "in", 0, N), b.buffer("y", I32, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    by, start = b.scalar(sym("step"), I64), b.scalar(sym("start"), I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        b.store(y, index(b, "add", start, index(b, "multiply", j, by)), b.load(x, j))
        b.store(y, index(b, "subtract", b.literal(199, I64), j), b.load(x, j))
    kernel = b.finish(Launch((1, 1), 1))
    for n_, by_ in ((37, step), (20, 2 * step)):
        values = np.arange(n_, dtype=np.int32)
        y_ = np.full(200, -1, np.int32)
        run(kernel, {"x": values, "y": y_}, {"n": n_, "step": by_, "start": 50})
        expected = np.full(200, -1, np.int32)
        expected[50 + by_ * np.arange(n_)] = values
        expected[199 - np.arange(n_)] = values
        assert (y_ == expected).all()


@pytest.mark.parametrize("t", [F32, F16, BOOL, I64], ids=str)
def test_masked_off_lanes_touch_no_memory(t: DType) -> None:
    """The array ends where an unreadable page begins; loads and stores beyond it are masked."""
    b = KernelBuilder("masked", "cpu")
    x, y = b.buffer("x", t, "in", 0, N), b.buffer("y", t, "inout", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, b.literal(40, I64), one, "vector") as j:
        inside = b.apply("less", (j, n), BOOL)
        b.store(y, j, b.load(x, j, inside), inside)
    kernel = b.finish(Launch((1, 1), 1))
    native = compiled(kernel)
    for count in (0, 1, 17, 39):
        source, target = _before_guard(numbers(t, count)), _before_guard(np.zeros(count, t.numpy))
        run(kernel, {"x": source, "y": target}, {"n": count}, native=native)
        assert same_bits(np.array(target), np.array(source))


def _before_guard(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of the values that ends at a page nobody may touch."""
    page = mmap.PAGESIZE
    block = mmap.mmap(-1, 2 * page)
    raw = np.frombuffer(block, np.uint8)
    guard = raw.__array_interface__["data"][0] + page
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), page, 0) == 0
    placed = raw[page - values.nbytes : page].view(values.dtype)
    placed[:] = values
    return placed


def test_register_arrays_fold_in_pairs() -> None:
    """Lanes in one register array, combined from the low bits up: constant strides become shuffles."""
    lanes = 32
    b = KernelBuilder("tree", "cpu")
    x, y = b.buffer("x", F32, "in", 0, N), b.buffer("y", F32, "out", 1, 1)
    zero, one = b.literal(0, I64), b.literal(1, I64)
    with b.loop("p", zero, one, one, "parallel"):
        acc = b.alloc("acc", F32, lanes, "register")
        with b.loop("l", zero, b.literal(lanes, I64), one, "vector") as lane:
            b.store(acc, lane, b.load(x, lane))
        size = lanes
        while size > 1:
            size //= 2
            half = b.alloc("half", F32, size, "register")
            with b.loop("l", zero, b.literal(size, I64), one, "vector") as lane:
                left = index(b, "multiply", lane, 2)
                pair = (b.load(acc, left), b.load(acc, index(b, "add", left, 1)))
                b.store(half, lane, b.apply("add", pair, F32))
            acc = half
        b.store(y, zero, b.load(acc, zero))
    kernel = b.finish(Launch((1, 1), 1))
    x_, y_ = numbers(F32, lanes), np.empty(1, np.float32)
    native = compiled(kernel)
    run(kernel, {"x": x_, "y": y_}, {}, native=native)
    expected = x_
    while len(expected) > 1:
        expected = expected[0::2] + expected[1::2]
    assert same_bits(y_, expected)
    assert "alloca" not in native.ir  # it all lives in registers


# -- structure -------------------------------------------------------------------------------------
def test_serial_loops_branches_and_mutables_inside_lanes() -> None:
    """Each lane sums the powers of its element; the branch is the same for all lanes."""
    b = KernelBuilder("powers", "cpu")
    x, y = b.buffer("x", F64, "in", 0, N), b.buffer("y", F64, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        v = b.load(x, j)
        total, power = b.mutable("total", b.literal(0.0, F64)), b.mutable("power", b.literal(1.0, F64))
        with b.loop("k", zero, b.scalar(sym("k"), I64)) as k:
            with b.branch(b.apply("not_equal", (k, b.literal(2, I64)), BOOL)):
                b.assign(total, b.apply("add", (total, power), F64))
            with b.otherwise():
                b.assign(total, b.apply("subtract", (total, power), F64))
            b.assign(power, b.apply("multiply", (power, v), F64))
        b.store(y, j, total)
    kernel = b.finish(Launch((1, 1), 1))
    x_, y_ = numbers(F64, 37), np.empty(37)
    run(kernel, {"x": x_, "y": y_}, {"n": 37, "k": 4})
    assert same_bits(y_, ((0.0 + 1.0) + x_) - x_ * x_ + x_ * x_ * x_)


def test_a_branch_that_differs_between_lanes_falls_back_to_single_elements() -> None:
    b = KernelBuilder("diverging", "cpu")
    x, y = b.buffer("x", I32, "in", 0, N), b.buffer("y", I32, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        v = b.load(x, j)
        with b.branch(b.apply("greater", (v, b.literal(0, I32)), BOOL)):
            b.store(y, j, v)
        with b.otherwise():
            b.store(y, j, b.literal(0, I32))
    kernel = b.finish(Launch((1, 1), 1))
    x_, y_ = numbers(I32, 50), np.empty(50, np.int32)
    run(kernel, {"x": x_, "y": y_}, {"n": 50})
    assert (y_ == np.maximum(x_, 0)).all()


def test_a_branch_that_only_computes_runs_in_lanes() -> None:
    """Taken where any lane takes it; the others keep what they had."""
    b = KernelBuilder("rare", "cpu")
    x, y = b.buffer("x", I32, "in", 0, N), b.buffer("y", I32, "out", 1, N)
    zero, one, n = b.literal(0, I64), b.literal(1, I64), b.scalar(N, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("j", zero, n, one, "vector") as j:
        v = b.load(x, j)
        out = b.mutable("out", v)
        with b.branch(b.apply("greater", (v, b.literal(50, I32)), BOOL)):
            b.assign(out, b.apply("negative", (v,), I32))
            with b.branch(b.apply("greater", (v, b.literal(80, I32)), BOOL)):
                b.assign(out, b.literal(7, I32))
        b.store(y, j, out)
    kernel = b.finish(Launch((1, 1), 1))
    native = compiled(kernel)
    for high in (40, 70, 100):
        x_, y_ = np.random.default_rng(high).integers(0, high, 61, dtype=np.int32), np.empty(61, np.int32)
        run(kernel, {"x": x_, "y": y_}, {"n": 61}, native=native)
        assert (y_ == np.where(x_ > 80, 7, np.where(x_ > 50, -x_, x_))).all()


def test_the_tail_calls_the_same_library_function_as_the_body() -> None:
    kernel = elementwise(F64, F64, lambda b, x: b.apply("cbrt", (x,), F64))
    x = numbers(F64, 100)
    y = apply(kernel, x, F64)
    assert same_bits(y, np.array([apply(kernel, x[k : k + 1], F64)[0] for k in range(100)]))


def test_code_and_assembly_can_be_read_and_code_loaded_again() -> None:
    kernel = elementwise(F32, F32, square_plus)
    native = compiled(kernel)
    assert "define" in native.ir
    assert kernel.name in native.assembly
    again = jit.load(native.name, native.ir, native.code)
    x = numbers(F32, 33)
    assert same_bits(apply(kernel, x, F32, again), apply(kernel, x, F32, native))


def test_refusals() -> None:
    good = elementwise(F32, F32, square_plus)
    with pytest.raises(InternalError, match="kernel for cuda"):
        emit(replace(good, target="cuda"), host())
    with pytest.raises(InternalError, match="several parallel loops"):
        emit(replace(good, body=good.body * 2), host())
    with pytest.raises(InternalError, match="has no LLVM spelling"):
        emit(elementwise(F32, I32, lambda b, x: b.apply("cast", (x,), I32)), host())
    b = KernelBuilder("simt", "cpu")
    b.barrier()
    with pytest.raises(InternalError, match="not for CPUs"):
        emit(b.finish(Launch((1, 1), 1)), host())
