"""Asynchronous copies: what the interpreter makes of them, what is refused, and rows that wait for theirs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser.codegen import simt
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.expand import expand
from fuser.codegen.loops import AsyncCopy, AsyncWait, Kernel, Launch, walk
from fuser.codegen.text import kernel_text
from fuser.codegen.verify import verify
from fuser.dtypes import BF16, BOOL, F32, I32, DType
from tests.codegen.corpus import Case
from tests.codegen.test_schedule_long import chosen_for, few_rows, sizes, under

THREADS, WIDTH = 32, 4
Step = Callable[[KernelBuilder, str], None]


def nothing(b: KernelBuilder, place: str) -> None:
    pass


def await_all(b: KernelBuilder, place: str) -> None:
    b.commit()
    b.await_copies(0)


def copying(between: Step = await_all, after: Step = nothing, width: int = WIDTH) -> Kernel:
    """Each thread copies a vector of `x` into shared memory and stores it to `out`. between: from copy to load."""
    b = KernelBuilder("through", "cuda")
    x, out = b.buffer("x", F32, "in", None, 2 * THREADS * width), b.buffer("out", F32, "out", None, 2 * THREADS * width)
    place = b.alloc("place", F32, THREADS * width, "shared", dynamic=True)
    at = b.apply("multiply", (b.special("thread"), b.literal(width, I32)), I32)
    first = b.apply("multiply", (b.special("block"), b.literal(THREADS * width, I32)), I32)
    source = b.apply("add", (first, at), I32)
    b.copy(place, at, x, source, width)
    between(b, place)
    b.store_vec(out, source, b.load_vec(place, at, width))
    after(b, place)
    return b.finish(Launch((2, 1), THREADS))


def run(kernel: Kernel) -> tuple[list[float], list[float]]:
    x = np.arange(2 * THREADS * WIDTH, dtype=np.float32)
    out = np.zeros_like(x)
    simt.run(kernel, {"x": x, "out": out}, {})
    return x.tolist(), out.tolist()


def test_a_copy_arrives_once_it_is_awaited() -> None:
    kernel = copying()
    assert verify(kernel) == []
    want, got = run(kernel)
    assert got == want
    want, got = run(expand(kernel))
    assert got == want


def commit_only(b: KernelBuilder, place: str) -> None:
    b.commit()


def wait_for_older(b: KernelBuilder, place: str) -> None:
    b.commit()
    b.await_copies(1)


def overwrite(b: KernelBuilder, place: str) -> None:
    at = b.apply("multiply", (b.special("thread"), b.literal(WIDTH, I32)), I32)
    b.store(place, at, b.literal(1.0, F32))
    await_all(b, place)


def again(b: KernelBuilder, place: str) -> None:
    at = b.apply("multiply", (b.special("thread"), b.literal(WIDTH, I32)), I32)
    b.copy(place, at, "x", at, WIDTH)


@pytest.mark.parametrize(
    ("between", "after", "what"),
    [
        (nothing, await_all, "nothing wrote"),
        (commit_only, await_all, "nothing wrote"),
        (wait_for_older, await_all, "nothing wrote"),
        (overwrite, nothing, "on its way"),
        (await_all, again, "under way"),
    ],
)
def test_what_is_under_way_is_left_alone(between: Step, after: Step, what: str) -> None:
    with pytest.raises(simt.SimtError, match=what):
        run(copying(between, after))


def test_another_thread_needs_a_barrier() -> None:
    def neighbour(b: KernelBuilder, place: str) -> None:
        await_all(b, place)
        other = b.apply("bitwise_xor", (b.special("thread"), b.literal(1, I32)), I32)
        b.load(place, b.apply("multiply", (other, b.literal(WIDTH, I32)), I32))

    with pytest.raises(simt.SimtError, match="another thread"):
        run(copying(neighbour))


def test_masked_copies_leave_their_places_alone() -> None:
    def masked(b: KernelBuilder, place: str) -> None:
        await_all(b, place)
        at = b.apply("multiply", (b.special("thread"), b.literal(WIDTH, I32)), I32)
        b.copy(place, at, "x", b.literal(0, I32), WIDTH, b.literal(False, BOOL))
        odd = b.apply("less", (b.special("thread"), b.literal(0, I32)), BOOL)
        b.copy(place, at, "x", b.literal(0, I32), WIDTH, odd)
        await_all(b, place)

    want, got = run(copying(masked))
    assert got == want


def test_copies_are_checked() -> None:
    kernel = copying()
    (copy,) = [s for s in kernel.body if isinstance(s, AsyncCopy)]

    def findings(other: AsyncCopy | AsyncWait) -> list[str]:
        kind = type(other)
        return verify(replace(kernel, body=tuple(other if isinstance(s, kind) else s for s in kernel.body)))

    assert findings(replace(copy, width=3))
    assert findings(replace(copy, width=8))
    assert findings(replace(copy, target="out"))
    assert findings(replace(copy, buffer="place"))
    assert findings(AsyncWait(-1))
    assert "copy place[" in kernel_text(kernel)
    assert "await copies" in kernel_text(kernel)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_copies_compile(arch: str, width: int) -> None:
    nvrtc = pytest.importorskip("fuser.codegen.cuda.nvrtc")
    kernel = copying(width=width)
    assert nvrtc.compile(print_kernel(expand(kernel)), kernel.name, arch).spills == 0


# -- rows ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("m", [16_384, 33_008])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "residual_norm", "cross_entropy"])
def test_rows_that_are_copied_keep_their_bits(name: str, dtype: DType, m: int) -> None:
    case = few_rows(name, dtype, 2, m)
    first = chosen_for(case)
    chosen = replace(first, copies=True, parked=True)
    assert first.copies == (name != "residual_norm" and first.parked)  # two streams would crowd a block's shared memory
    case.__dict__["schedules"] = (chosen, *case.schedules[1:])
    assert any(isinstance(s, AsyncCopy) for s in walk(case.kernels[0].body))
    assert [f for k in case.kernels for f in verify(k)] == []
    got = [a.tobytes() for a in case.run()]
    for unroll in (1, 8):
        assert under(case, replace(chosen, unroll=unroll)) == got
    assert under(case, replace(chosen, copies=False)) == got


def test_only_whole_vectors_on_devices_that_can_are_copied() -> None:
    assert not chosen_for(Case("softmax", BF16, sizes(140, 33_001))).copies
    assert not chosen_for(Case("softmax", BF16, sizes(140, 32_768), aligned=False)).copies
    assert not chosen_for(Case("softmax", BF16, sizes(140, 32_768), arch="sm_75")).copies
    assert chosen_for(Case("softmax", BF16, sizes(140, 32_768), arch="sm_80")).copies
