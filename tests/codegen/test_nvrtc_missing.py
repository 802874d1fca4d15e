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
    """An NVRTC that does not know some options."""

    class NVRTCError(RuntimeError):
        status = 5

    def __init__(self, unknown: set[str]) -> None:
        self.unknown = unknown
        self.runs: list[tuple[str, ...]] = []

    def compileProgram(self, program: Any, options: tuple[str, ...]) -> None:
        self.runs.append(options)
        if self.unknown & set(options):
            raise self.NVRTCError


@pytest.mark.parametrize(
    ("unknown", "known"),
    [
        (set(), ("--minimal", "--no-cache")),
        ({"--minimal"}, ("--no-cache",)),
        ({"--no-cache"}, ()),
        ({"--minimal", "--no-cache"}, ()),
    ],
)
def test_an_older_nvrtc_is_asked_again_without_what_it_does_not_know(unknown: set[str], known: tuple[str, ...]) -> None:
    old = OldCompiler(unknown)
    nvrtc._run(old, None, nvrtc.options("sm_80"))
    assert old.runs[-1] == (*nvrtc.options("sm_80"), *known)
    assert all(unknown & set(options) for options in old.runs[:-1])


def test_an_option_that_no_nvrtc_knows_is_an_error() -> None:
    old = OldCompiler({"--std=c++17"})
    with pytest.raises(OldCompiler.NVRTCError):
        nvrtc._run(old, None, nvrtc.options("sm_80"))


def test_what_changes_no_code_is_not_part_of_a_key() -> None:
    assert "--no-cache" not in nvrtc.options("sm_80")  # the key of a kernel on disk asks no compiler
