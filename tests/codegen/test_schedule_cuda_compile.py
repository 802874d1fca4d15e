"""Every corpus kernel compiles for every architecture that must work, and none spills."""

import pytest

from fuser.codegen.cuda import nvrtc, printer
from fuser.codegen.expand import expand
from fuser.dtypes import BF16, F32, DType
from tests.codegen.corpus import PROGRAMS, Case

pytest.importorskip("cupy")

SIZES = ((8192, 8192, 16), (65_536, 1000, 3), (512, 65_536, 2))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_spills(name: str, arch: str) -> None:
    for dtype in (F32, BF16):
        for n, m, k in SIZES:
            _compile(name, dtype, (n, m, k), arch)


@pytest.mark.parametrize("name", ["polynomial", "softmax", "column_sum", "abs_sum", "joined", "running_sum"])
def test_typical_kernels_compile_without_spills(name: str) -> None:
    _compile(name, BF16, (8192, 8192, 16), "sm_90")


def _compile(name: str, dtype: DType, size: tuple[int, int, int], arch: str) -> None:
    n, m, k = size
    for kernel in Case(name, dtype, (("n", n), ("m", m), ("k", k)), arch=arch).kernels:
        binary = nvrtc.compile(printer.print_kernel(expand(kernel)), kernel.name, arch)
        assert (binary.spills, binary.stack) == (0, 0), f"{kernel.name} at {size}: {binary.registers} registers"
        assert 0 < binary.registers <= 255
