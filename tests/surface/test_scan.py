"""`fuserc check FILE.py:function` lists calls without an operator from the text, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuser.errors import ParseError, UnsupportedError
from fuser.frontend.scan import check_file, scan

HEAD = """import numpy as np
import cupy as cp
import torch, time
import torch.nn.functional as F
from numpy import sort as order
from scipy import special

"""


def found(body: str, function: str = "f") -> list[tuple[str, str]]:
    return [(f.text, f.advice) for f in scan(HEAD + body, "p.py", function)]


@pytest.mark.parametrize(("call", "advice"), [
    ("np.unique(x)", "data"), ("order(x)", "outside"), ("np.linalg.svd(x)", "outside"), ("cp.median(x)", "sorting"),
    ("np.random.rand(3)", "fuser.ops.uniform"), ("torch.randn(3)", "fuser.ops.uniform"), ("torch.sort(x)", "outside"),
    ("special.gammainc(1.0, x)", ""), ("np.add.at(x, 0, 1)", "race"), ("x.tolist()", ""), ("x.sum().item()", ""),
    ("time.time()", "argument"), ("np.tahn(x)", "np.tan"), ("np.fft.fft(x)", ""),
])  # fmt: skip
def test_a_call_without_an_operator(call: str, advice: str) -> None:
    (only,) = found(f"def f(x):\n    return {call}\n")
    assert only[0] == call
    assert advice in only[1]
    assert only[1]


@pytest.mark.parametrize("call", [
    "np.tanh(x)", "np.sum(x, axis=0)", "np.linalg.norm(x)", "np.zeros(3)", "np.float32(2)", "np.add.reduce(x)",
    "F.gelu(x)",
    "special.erf(x)", "torch.exp(x)", "torch.zeros(3)", "x.sum()", "x.astype(np.int8)", "np.einsum('ij->i', x)",
    "cp.exp(x)",
    "np.finfo(np.float32)", "len(x)", "np.copyto(x, x)", "np.abs(x)", "np.conj(x)", "torch.nn.functional.softmax(x, 0)",
])  # fmt: skip
def test_calls_that_trace(call: str) -> None:
    assert found(f"def f(x):\n    return {call}\n") == []


def test_helpers_count_and_other_functions_do_not() -> None:
    body = "def g(x):\n    return np.sort(x)\ndef f(x):\n    return g(x)\ndef other(x):\n    return np.unique(x)\n"
    assert [text for text, _ in found(body)] == ["np.sort(x)"]


def test_the_file_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("import numpy as np\nraise SystemExit\n\ndef f(x):\n    return np.sort(x) + np.unique(x)\n")
    with pytest.raises(UnsupportedError, match="2 calls in `f` have no operator") as caught:
        check_file(f"{file}:f")
    assert "p.py:5" in str(caught.value)
    check_file(f"{file}:absent")
    check_file("absent.py:f")


def test_text_that_is_no_python(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("def f(x:\n")
    with pytest.raises(ParseError):
        check_file(f"{file}:f")
