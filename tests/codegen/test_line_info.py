"""Lines of the program inside CUDA kernels, and calls as NVTX ranges: on request, for profilers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.runtime import cuda
from fuser.settings import settings

TEXT = """def softmax(x):
    m = max(x, axis=-1, keepdims=True)
    e = exp(x - m)
    return e / sum(e, axis=-1, keepdims=True)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Both settings on, for this test."""
    monkeypatch.setenv("FUSER_LINE_INFO", "1")
    monkeypatch.setenv("FUSER_NVTX", "1")
    settings.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def source(text: str) -> str:
    (only,) = fuser.parse(text, "norms.fuse").softmax.plan("f32[1024, 1024]", device="sm_90").sources().values()
    return only


def lines_of(source: str, what: str) -> set[int]:
    """The user's lines that statements with this in them are said to come from."""
    return {int(n) for n, text in re.findall(r'#line (\d+) "norms.fuse"\n(.*)', source) if what in text}


def test_statements_lead_to_the_line_that_computes_them(asked: pytest.MonkeyPatch) -> None:
    found = source(TEXT)
    assert lines_of(found, " = expf(") == {3}
    assert lines_of(found, "const float divide") == {4}
    assert lines_of(source("\n\n" + TEXT), " = expf(") == {5}, "a kernel of other lines is another kernel"


def test_lines_change_no_code(asked: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    plan = fuser.parse(TEXT, "norms.fuse").softmax.plan("f32[1024, 1024]", device="sm_90")
    with_lines = plan.kernels[0].registers
    asked.setenv("FUSER_LINE_INFO", "0")
    settings.cache_clear()
    plain = fuser.parse(TEXT, "norms.fuse").softmax.plan("f32[1024, 1024]", device="sm_90")
    assert plain.kernels[0].registers == with_lines
    assert "#line" not in next(iter(plain.sources().values()))
    assert source(TEXT).replace("\n", "") == re.sub(r"#line .*\n", "", source(TEXT)).replace("\n", "")


def test_calls_are_ranges(asked: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    asked.setattr(cuda, "nvtx", lambda: (seen.append, lambda: seen.append("end")))
    f = fuser.parse(TEXT, "norms.fuse").softmax
    x = np.ones((3, 4))
    out = np.empty((3, 4))
    assert f(x).shape == (3, 4)
    assert f(x, out=out) is out
    with pytest.raises(TypeError):
        f(x, x)
    assert seen == ["fuser softmax", "end"] * 3
    assert isinstance(f, fuser.Compiled)


def test_without_a_library_calls_are_as_ever(asked: pytest.MonkeyPatch) -> None:
    asked.setattr(cuda, "nvtx", lambda: None)
    assert type(fuser.compile(lambda x: x + 1)) is fuser.Compiled
