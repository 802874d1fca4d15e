"""CuPy without a GPU: its own ufuncs hand traced arrays over, and functions under `cupy.fuse` trace through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import UnsupportedError

cp = pytest.importorskip("cupy")

X = np.arange(1.0, 5.0)
UFUNCS = [n for n in dir(cp) if isinstance(getattr(cp, n), cp.ufunc) and isinstance(getattr(np, n, None), np.ufunc)]
SCALE = 2.0


def _direct(name: str) -> Any:
    """A function in which the real `cupy` ufunc is called, as a library's code would."""
    ufunc = getattr(cp, name)
    table = {"ufunc": ufunc}

    def program(*arrays: Any) -> Any:
        return table["ufunc"](*arrays)

    program.__module__ = "cupy.somewhere"  # what a trace leaves as it is
    return lambda *arrays: program(*arrays)


@pytest.mark.parametrize("name", UFUNCS)
def test_real_ufuncs_hand_over(name: str) -> None:
    kind = np.int64 if "b" in getattr(np, name).types[0] and "dd->d" not in getattr(np, name).types else np.float64
    arrays = [(X + k).astype(kind) for k in range(getattr(np, name).nin)]
    try:
        wanted = getattr(np, name)(*arrays)
    except TypeError:
        pytest.skip("another kind of number")
    got = fuser.reference(_direct(name))(*arrays)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        np.testing.assert_allclose(g, w, rtol=1e-12)


@cp.fuse()  # type: ignore[untyped-decorator]
def fused(x: Any, y: Any) -> Any:
    return cp.sqrt(x) * y + SCALE


def test_a_fused_function_inside_and_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = fuser.compile(lambda x: fused(x, x) - 1)
    for scale in (2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        np.testing.assert_allclose(inside(X), np.sqrt(X) * X + scale - 1)
        np.testing.assert_allclose(fuser.compile(fused)(X, X), np.sqrt(X) * X + scale)


def test_kernels_of_cuda_text_are_refused() -> None:
    kernel = cp.ElementwiseKernel("float64 x", "float64 y", "y = x", "identity_kernel")
    with pytest.raises(UnsupportedError, match="CUDA C"):
        fuser.compile(lambda x: kernel(x))(X)
