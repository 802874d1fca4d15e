"""The approximate instructions behind variants, on a real GPU, against float64 and what their rows state.

`tests/ops/test_variants.py` does the same with no GPU, on the documented errors of the instructions.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from fuser.codegen.cuda import nvrtc
from fuser.codegen.cuda.arithmetic import ARITHMETIC
from fuser.dtypes import F32
from fuser.optable import table
from fuser.optable.base import Call, ScalarOp
from fuser.optable.evaluate import evaluate_scalar
from tests.ops.test_variants import EXACT, FLUSHES, SMALLEST, VARIANTS, relative, samples

pytestmark = pytest.mark.gpu


def on_device(name: str, *arrays: Any) -> Any:
    """A device function applied to f32 arrays."""
    import cupy

    from fuser.runtime.cuda import CudaKernel

    capability = cupy.cuda.Device().compute_capability
    names = [f"x{k}" for k in range(len(arrays))]
    parameters = "".join(f"const float* {n}, " for n in names)
    call = f"{name}({', '.join(f'{n}[i]' for n in names)})"
    body = f"const int i = blockIdx.x * 256 + threadIdx.x; if (i < n) out[i] = {call};"
    source = "\n".join([*ARITHMETIC[name], f'extern "C" __global__ void k({parameters}float* out, int n) {{ {body} }}'])
    kernel = CudaKernel(nvrtc.compile(source, "k", f"sm_{capability}").cubin, "k")
    held = [cupy.asarray(a) for a in arrays]
    out = cupy.empty_like(held[0])
    pointers = [ctypes.c_void_p(a.data.ptr) for a in (*held, out)]
    kernel.launch((-(-out.size // 256), 1), 256, [*pointers, ctypes.c_int(out.size)], 0)
    cupy.cuda.Device().synchronize()
    return cupy.asnumpy(out)


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: row.name)
def test_errors_stay_below_what_the_row_states(row: ScalarOp) -> None:
    spelled, variant = row.cuda["f32"], table().scalar(row.variant_of).variants["fast"]
    assert isinstance(spelled, Call)
    arrays = samples(row)
    got = on_device(spelled.name, *arrays)
    with np.errstate(all="ignore"):
        want = EXACT[row.variant_of](*(a.astype(np.float64) for a in arrays))
    error = relative(got, want, SMALLEST)
    if not variant.budget:
        error = np.fmin(error, np.abs(got - want))
    if row.variant_of in FLUSHES:
        error = np.where((np.abs(want) < SMALLEST) & (got == 0), 0.0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= variant.error, [float(a[worst]) for a in arrays]


@pytest.mark.parametrize("name", ["largest", "smallest"])
def test_extremes_are_the_rows_bits(name: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)
    a, b = (v.ravel().copy() for v in np.meshgrid(values, values))
    got, want = on_device(f"fuser_{name}", a, b), evaluate_scalar(table().scalar(name), a, b, dtype=F32)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
