"""NVRTC: printed kernels compile for several architectures with no GPU present; options, reports, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.cuda import nvrtc
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.expand import expand
from fuser.codegen.loops import Kernel, Launch
from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from fuser.errors import DeviceError, InternalError
from tests.codegen.handwritten import column_sum, full_sum, row_moments, row_softmax, saxpy

ARCHS = ["sm_80", "sm_90", "sm_120"]


@pytest.fixture(autouse=True)
def _needs_nvrtc() -> None:
    try:
        nvrtc.version()
    except DeviceError as error:
        pytest.skip(f"NVRTC cannot be used here: {error.message}")


def vectors(dtype: DType) -> Kernel:
    """Copies vectors of 16 bytes."""
    width = 16 // dtype.bytes
    b = KernelBuilder("copy_vectors", "cuda")
    x, out = b.buffer("x", dtype, "in", 0, 64 * width), b.buffer("out", dtype, "out", 1, 64 * width)
    at = (b.handle(b.special("thread")) * width).value
    b.store_vec(out, at, b.load_vec(x, at, width))
    return b.finish(Launch((1, 1), 64))


def state(dtype: DType) -> Kernel:
    """A collective over a state of this dtype, through shuffles and shared memory."""
    b = KernelBuilder("largest", "cuda")
    x, out = b.buffer("x", dtype, "in", 0, 64), b.buffer("out", dtype, "out", 1, 64)
    i = b.special("thread")
    acc = b.mutable("acc", b.load(x, i))
    b.collective("max", dtype, (acc,), 64)
    b.store(out, i, acc)
    return b.finish(Launch((1, 1), 64))


KERNELS: dict[str, Callable[[], Kernel]] = {
    "saxpy": lambda: saxpy(vector=4),
    "softmax": lambda: row_softmax(64, 128),
    "columns": lambda: column_sum(24, 8),
    "full": full_sum,
    "moments": lambda: row_moments(64, 128),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_without_spills(name: str, arch: str) -> None:
    kernel = KERNELS[name]()
    binary = nvrtc.compile(print_kernel(expand(kernel)), kernel.name, arch)
    assert binary.cubin.startswith(b"\x7fELF")
    assert 8 <= binary.registers <= 64
    assert (binary.spills, binary.stack) == (0, 0)


@pytest.mark.parametrize("dtype", ALL)
def test_vectors_of_every_dtype_are_one_access(dtype: DType) -> None:
    kernel = vectors(dtype)
    binary = nvrtc.compile(print_kernel(kernel), kernel.name, "sm_90")
    assert binary.registers <= 16  # 16 bytes are 4 registers; element by element they would be up to 16 more


@pytest.mark.parametrize("dtype", [BOOL, U8, I32, I64, F32, F64])
def test_states_of_every_width_are_exchanged(dtype: DType) -> None:
    kernel = state(dtype)
    binary = nvrtc.compile(print_kernel(expand(kernel)), kernel.name, "sm_90")
    assert binary.shared == 2 * dtype.bytes  # one partial for each of two warps


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("half", [F16, BF16])
def test_half_conversions_compile(half: DType, arch: str) -> None:
    b = KernelBuilder("halves", "cuda")
    x, out = b.buffer("x", half, "in", 0, 32), b.buffer("out", half, "out", 1, 32)
    i = b.special("thread")
    v = b.let("cast", (b.load(x, i),), F32)
    b.store(out, i, b.let("cast", (b.let("exp", (v,), F32),), half))
    kernel = expand(b.finish(Launch((1, 1), 32)))
    assert nvrtc.compile(print_kernel(kernel), kernel.name, arch).spills == 0


def test_arithmetic_is_ieee_unless_asked_otherwise() -> None:
    exact, fast = nvrtc.options("sm_90"), nvrtc.options("sm_90", fast_math=True)
    assert {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"} <= set(exact)
    assert {"--fmad=true", "--ftz=false", "--prec-div=false", "--prec-sqrt=false"} <= set(fast)


def test_no_contraction_unless_asked_for() -> None:
    """a*x + y is one instruction less when contracted, and the code is smaller for it."""
    source = print_kernel(saxpy(vector=4))
    exact = nvrtc.compile(source, "saxpy", "sm_90").cubin
    fast = nvrtc.compile(source, "saxpy", "sm_90", fast_math=True).cubin
    assert exact != fast


def test_a_source_that_does_not_compile_is_quoted() -> None:
    source = print_kernel(saxpy()).replace("a * xv", "a * nothing")
    with pytest.raises(InternalError, match="NVRTC refuses the source of `saxpy`") as caught:
        nvrtc.compile(source, "saxpy", "sm_90")
    text = str(caught.value)
    assert 'identifier "nothing" is undefined' in text
    assert any(line.strip().startswith(">") and "a * nothing" in line for line in text.splitlines())


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(DeviceError, match="sm_42") as caught:
        nvrtc.compile(print_kernel(saxpy()), "saxpy", "sm_42")
    assert "sm_90" in str(caught.value)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'k' for 'sm_90'\n"
            "ptxas info    : Function properties for k\n"
            "    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n"
            "ptxas info    : Used 40 registers, used 1 barriers, 24 bytes cumulative stack size, 2048 bytes smem\n",
            (40, 20, 24, 2048),
        ),
        ("ptxas info    : Used 8 registers, used 0 barriers\n", (8, 0, 0, 0)),
    ],
)
def test_the_report_of_ptxas(log: str, expected: tuple[int, ...]) -> None:
    binary = nvrtc._report(b"", log)
    assert (binary.registers, binary.spills, binary.stack, binary.shared) == expected
