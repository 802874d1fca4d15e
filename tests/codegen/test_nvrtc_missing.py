"""Where CuPy or NVRTC is missing or old, compiling for CUDA says how to get them or goes without."""

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


class OldCompiler:
    """An NVRTC that does not know `--no-cache`."""

    class NVRTCError(RuntimeError):
        status = 5

    def __init__(self) -> None:
        self.runs: list[tuple[str, ...]] = []

    def compileProgram(self, program: Any, options: tuple[str, ...]) -> None:
        self.runs.append(options)
        if "--no-cache" in options:
            raise self.NVRTCError


def test_an_nvrtc_without_a_cache_of_its_own_is_asked_twice() -> None:
    old = OldCompiler()
    nvrtc._run(old, None, nvrtc.options("sm_80"))
    assert old.runs == [(*nvrtc.options("sm_80"), "--no-cache"), nvrtc.options("sm_80")]
    assert "--no-cache" not in nvrtc.options("sm_80")  # the key of a kernel on disk asks no compiler
