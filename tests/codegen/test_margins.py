"""Row and column results from one read: the bits of kernels that reduce one way alone, whatever the shape.

`always` merges what is legal also where that does not pay, so that small shapes are met.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import ops
from fuser.codegen.schedule import cuda, cuda_mixed
from fuser.dtypes import BF16
from fuser.schedule import CudaSchedule
from tests.engines import SIMT, unlike, with_tools
from tests.simulate import Simulated

Array = np.ndarray[Any, Any]
Program = Callable[..., Any]


def merged(program: Program, make: Callable[[Program], Any] = Simulated) -> Any:
    """The program in as few kernels as are legal."""
    made = make(program)
    made.compiled = with_tools(made.compiled, lambda t: replace(t, plan_groups=partial(t.plan_groups, always=True)))
    return made


def assert_same_bits(program: Program, *args: Array) -> None:
    together = merged(program)
    assert "mixed" in [g.kind for g in together.compiled.plan(*args, device="sm_90").groups]
    got, want = together(*args), SIMT.compile(program, fused=False)(*args)
    assert unlike(([*got], []), ([*want], [])) is None


def margins(x: Any) -> Any:
    return np.sum(x * x, axis=1), np.sum(x * x, axis=0)


def rms_backward(x: Any, w: Any, dy: Any, scale: Any) -> Any:
    hat = x.astype(np.float32) * scale[:, None]
    wanted = dy.astype(np.float32)
    g = wanted * w
    dx = (g - hat * np.mean(g * hat, axis=-1, keepdims=True)) * scale[:, None]
    return dx.astype(BF16.numpy), np.sum(wanted * hat, axis=0)


def norm_backward(x: Any, w: Any, dy: Any) -> Any:
    """Of a layer norm, its statistics computed again: two stages before dx, two results down the columns."""
    wide, wanted = x.astype(np.float32), dy.astype(np.float32)
    centred = wide - np.mean(wide, axis=-1, keepdims=True)
    scale = 1 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    hat = centred * scale
    g = wanted * w.astype(np.float32)
    dx = (g - np.mean(g, axis=-1, keepdims=True) - hat * np.mean(g * hat, axis=-1, keepdims=True)) * scale
    dw, db = np.sum(wanted * hat, axis=0), np.sum(wanted, axis=0)
    return dx.astype(BF16.numpy), dw.astype(BF16.numpy), db.astype(BF16.numpy)


def extremes(x: Any) -> Any:
    """States with an index, and results that a column's own values join."""
    return np.argmax(x, axis=1), np.argmin(x, axis=0), np.max(x, axis=0) - x[0], np.mean(x, axis=1)


def masked(x: Any, y: Any) -> Any:
    return np.sum(x, axis=1, where=y > 0), np.sum(x, axis=0, where=y > 0), np.max(y, axis=0)


def columns_of_softmax(x: Any) -> Any:
    p = ops.softmax(x)
    return p, np.sum(p, axis=0)


def batches(x: Any) -> Any:
    """Rows over two axes."""
    return np.max(x, axis=-1), np.sum(x, axis=(0, 1)), x - np.sum(x, axis=-1, keepdims=True)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


SHAPES = [(2, 2), (3, 16), (5, 64), (9, 33), (130, 260), (2, 300), (777, 96), (257, 1000)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BF16.numpy, np.int32], ids=lambda t: np.dtype(t).name)
def test_sums_of_squares(shape: tuple[int, int], dtype: Any) -> None:
    rng = np.random.default_rng(shape[0])
    x = random_array(rng, shape) * 8
    assert_same_bits(margins, x.astype(dtype))


@pytest.mark.parametrize("shape", [(40, 128), (300, 515), (9, 1024), (2100, 64)], ids=str)
def test_backward_of_norms(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    n, d = shape
    x, dy = (random_array(rng, shape, BF16.numpy) for _ in range(2))
    w, scale = random_array(rng, (d,)), np.abs(random_array(rng, (n,)))
    assert_same_bits(rms_backward, x, w, dy, scale)
    assert_same_bits(norm_backward, x, w.astype(BF16.numpy), dy)


@pytest.mark.parametrize("shape", [(40, 128), (300, 77), (1030, 34)], ids=str)
@pytest.mark.parametrize("program", [extremes, columns_of_softmax])
def test_other_results(program: Program, shape: tuple[int, int]) -> None:
    x = random_array(np.random.default_rng(2), shape).round(1)  # with ties
    x[3, 5] = np.nan
    assert_same_bits(program, x)


@pytest.mark.parametrize("shape", [(40, 128), (300, 77)], ids=str)
def test_masks(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    assert_same_bits(masked, random_array(rng, shape), random_array(rng, shape))


@pytest.mark.parametrize("shape", [(3, 50, 64), (70, 9, 129)], ids=str)
def test_rows_over_two_axes(shape: tuple[int, ...]) -> None:
    assert_same_bits(batches, random_array(np.random.default_rng(4), shape))


def test_arguments_with_strides_and_no_alignment() -> None:
    x = random_array(np.random.default_rng(5), (300, 200))
    assert_same_bits(margins, x[:, 3:131])
    assert_same_bits(margins, x[::2, 1:])


@pytest.mark.parametrize("shape", [(0, 16), (4, 0)], ids=str)
def test_nothing_to_add(shape: tuple[int, int]) -> None:
    x = np.empty(shape, np.float32)
    got = merged(margins)(x)
    assert [a.tobytes() for a in got] == [a.tobytes() for a in margins(x)]


def test_an_argument_is_updated_where_it_lies() -> None:
    def step(x: Any, total: Any) -> Any:
        total += np.sum(x, axis=0)
        return np.sum(x, axis=1)

    rng = np.random.default_rng(7)
    x, total = random_array(rng, (90, 64)), random_array(rng, (64,))
    ways = [(merged(step), total.copy()), (SIMT.compile(step, fused=False), total.copy())]
    (got, a), (want, b) = ((run(x, t), t) for run, t in ways)
    assert unlike(([got], [a]), ([want], [b])) is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_75"])
def test_kernels_do_not_spill(arch: str) -> None:
    """Of the shapes that plans make one group of, at the widest rows too."""
    rows, columns = "bf16[32768, {}]", "f32[{}]"
    lengths = (1024, 4096) if arch == "sm_75" else (1024, 4096, 16384)
    programs: list[tuple[Program, tuple[str, ...]]] = [(margins, (f"f32[32768, {d}]",)) for d in lengths]
    programs += [(rms_backward, (rows.format(d), columns.format(d), rows.format(d), "f32[32768]")) for d in lengths]
    if arch == "sm_90":  # elsewhere two kernels are predicted to be faster
        programs += [(norm_backward, (rows.format(d), f"bf16[{d}]", rows.format(d))) for d in (1000, 4096)]
    for program, specs in programs:
        (kernel,) = fuser.compile(program).plan(*specs, device=arch).kernels
        assert kernel.group.kind == "mixed", specs
        assert kernel.spills == 0, (specs, kernel.schedule)


def test_every_retreat_keeps_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried where a kernel spills, and without copies, and with more strips a block."""
    rng = np.random.default_rng(6)
    x, dy = (random_array(rng, (2100, 512), BF16.numpy) for _ in range(2))
    args = x, random_array(rng, (512,)), dy, np.abs(random_array(rng, (2100,)))
    want = [a.tobytes() for a in merged(rms_backward)(*args)]
    found: list[CudaSchedule] = [replace(chosen_now(rms_backward, *args), min_blocks=1)]
    found += [replace(found[0], copies=False, unroll=1), replace(found[0], threads=found[0].threads_per_row * 4)]
    while (weaker := cuda_mixed.weaker(found[-1])) is not None and len(found) < 6:
        found.append(weaker)
    for schedule in found:
        monkeypatch.setattr(cuda._Chooser, "mixed", lambda _, s=schedule: s)
        assert [a.tobytes() for a in merged(rms_backward)(*args)] == want, schedule


def chosen_now(program: Program, *args: Array) -> CudaSchedule:
    plan = merged(program).compiled.plan(*args, device="sm_90")
    (schedule,) = (s for s in plan.schedules if isinstance(s, CudaSchedule) and s.kind == "mixed")
    return schedule


# -- random programs -------------------------------------------------------------------------------
def random_program(seed: int) -> Program:
    """Elementwise work, reductions along rows that feed it, reductions across rows of any of it."""
    drawn = [random.Random(f"{seed} {k}").random() for k in range(40)]  # before tracing, which runs the program twice
    pointwise = (np.multiply, np.subtract, np.maximum, lambda a, b: np.exp(-abs(a)) + b)
    along, across = (np.sum, np.max, np.min, np.mean), (np.sum, np.max, np.min, np.mean, np.argmax)

    def program(x: Any, y: Any, row: Any, column: Any) -> Any:
        numbers = iter(drawn)

        def pick(from_: Any) -> Any:
            return from_[int(next(numbers) * len(from_))]

        values, results = [x, y, x * row, y + column[:, None]], []
        for _ in range(pick((1, 2, 3))):
            made = pick(pointwise)(pick(values), pick(values))
            kept = pick(along)(made, axis=1, keepdims=True)
            values += [made, made - kept]
            results.append(pick((kept[:, 0], made - kept, np.argmax(made, axis=1))))
        results += [pick(across)(pick(values), axis=0) for _ in range(pick((1, 2, 3)))]
        return tuple(results)

    return program


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 400)), int(rng.choice([24, 64, 77, 256, 384])))
    dtype = (np.float32, BF16.numpy, np.float64)[seed % 3]
    args = [random_array(rng, s, dtype) for s in (shape, shape, shape[1:], shape[:1])]
    got, want = merged(random_program(seed))(*args), SIMT.compile(random_program(seed), fused=False)(*args)
    assert unlike(([*got], []), ([*want], [])) is None
