"""What a kernel's loading asks of the driver for its dynamic shared memory."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from fuser.runtime import cuda


@pytest.mark.parametrize(("shared", "asked"), [(0, False), (48 << 10, True), (100 << 10, True)])
def test_static_arrays_count_towards_what_needs_leave(
    shared: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 KiB of dynamic memory beside the few bytes of a collective are refused at the launch otherwise."""
    calls: list[tuple[str, int, int]] = []
    driver = SimpleNamespace(
        launchKernel=None,
        moduleLoadData=lambda cubin: "module",
        moduleGetFunction=lambda module, name: name,
        funcSetAttribute=lambda function, attribute, value: calls.append((function, attribute, value)),
    )
    fake, inner = ModuleType("cupy"), ModuleType("cupy.cuda")
    inner.runtime, inner.driver = SimpleNamespace(free=lambda pointer: None), driver  # type: ignore[attr-defined]
    fake.cuda = inner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", inner)
    cuda.CudaKernel(b"", "k", shared)
    assert calls == ([("k", cuda.MAX_DYNAMIC_SHARED, shared)] if asked else [])
