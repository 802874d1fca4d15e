"""Where CuPy or NVRTC is missing, compiling for CUDA says how to get them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fuser.codegen.cuda import nvrtc
from fuser.codegen.cuda.printer import print_kernel
from fuser.errors import DeviceError
from tests.codegen.handwritten import saxpy


def test_without_cupy_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m == "cupy" or m.startswith(("cupy.", "cupy_backends"))]:
        monkeypatch.delitem(sys.modules, name)
    blocked: Any = None
    monkeypatch.setitem(sys.modules, "cupy", blocked)
    nvrtc._binding.cache_clear()
    try:
        with pytest.raises(DeviceError, match="pip install"):
            nvrtc.compile(print_kernel(saxpy()), "saxpy", "sm_90")
    finally:
        nvrtc._binding.cache_clear()
