"""Bad input of every kind that issue 2 names: an error of fuser's own class, its slug, its words, the user's line.

Never a traceback from Lark, networkx, llvmlite or CuPy, and never a wrong answer instead of an error.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError
from fuser.runtime import cuda

X = np.ones((4, 5), np.float32)
HERE = Path(__file__).name


def refused(slug: str, call: Callable[[], Any], *words: str) -> str:
    """The text of the error that `call` must raise: of fuser's own class and shape, with this slug and these words."""
    with pytest.raises(FuserError) as caught:
        call()
    text = str(caught.value)
    first, *rest = text.splitlines()
    assert caught.value.slug == slug, text
    assert first.endswith(f" [{slug}]")
    assert caught.value.message
    assert not caught.value.message.endswith(".")
    assert all(line.startswith("  ") for line in rest if line.strip()), text
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, (FuserError, OSError)), text
    for word in words:
        assert word in text, text
    return text


def dsl(text: str, *args: Any) -> Callable[[], Any]:
    return lambda: fuser.parse(text, "program.fuse")["f"](*args)


def python(function: Any, *args: Any, **options: Any) -> Callable[[], Any]:
    return lambda: fuser.compile(function, **options)(*args)


def underlined(text: str, source: str) -> str:
    """What the carets under a source line point at."""
    lines = text.splitlines()
    (at,) = [k for k, line in enumerate(lines) if source in line]
    carets = lines[at + 1]
    start = carets.index("^")
    return lines[at][start : start + len(carets[start:].split(" ")[0])]


# -- names -----------------------------------------------------------------------------------------
def test_an_unknown_name_names_the_nearest() -> None:
    text = refused(
        "unknown-name", dsl("def f(x):\n    return sofmax(x)\n", X), "did you mean `softmax`?", "program.fuse:2"
    )
    assert underlined(text, "return sofmax(x)") == "sofmax"
    refused("unknown-name", dsl("def f(image):\n    return imaeg + 1\n", X), "did you mean `image`?")


def test_an_unknown_function_of_a_program_names_the_nearest() -> None:
    program = fuser.parse("def normalise(x):\n    return x\n", "p.fuse")
    refused("unknown-function", lambda: program["normalize"], "did you mean `normalise`?", "p.fuse")
    with pytest.raises(AttributeError, match="normalise"):
        _ = program.normalize
    assert not hasattr(program, "other")


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"fuser.ops has no `softmx`: did you mean `softmax`\?"):
        _ = fuser.ops.softmx
    assert not hasattr(fuser.ops, "qqq")


def test_what_cannot_be_compiled() -> None:
    refused("not-callable", lambda: fuser.compile(3), "compile takes a function or text; this is of type int")
    refused("not-callable", lambda: fuser.compile(dict)(X), "`dict` has no signature", "lambda x: dict(x)")


def test_errors_are_also_what_python_would_have_raised() -> None:
    for call, kind in (
        (dsl("def f(x):\n    return y\n", X), NameError),
        (python(lambda x, y: x + y, X, X[:3]), ValueError),
        (python(lambda x: x < 1, X.astype("c8")), TypeError),
        (python(lambda x: np.sort(x), X), NotImplementedError),
        (python(lambda x: x[7], X), IndexError),
        (dsl("def f(x:\n", X), SyntaxError),
        (python(lambda x: x, X, device="tpu"), RuntimeError),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, FuserError)


# -- shapes and dtypes -----------------------------------------------------------------------------
MATRIX = "def f(x: f32[n, d], w: f32[d]):\n    return x * w\n"


def test_a_wrong_rank() -> None:
    text = refused("declared-rank", dsl(MATRIX, X[0], X[0]), "`x` has rank 1", "rank 2 is declared", "program.fuse:1")
    assert underlined(text, "def f(x") == "f32[n, d]"


def test_a_wrong_dtype() -> None:
    refused(
        "declared-dtype", dsl(MATRIX, X.astype(np.float64), X[0]), "`x` is f64", "f32 is declared", "program.fuse:1"
    )


def test_dims_that_clash_name_both_sites() -> None:
    text = refused("dim-clash", dsl(MATRIX, X, X[0, :3]), "`d` is 5 from `x` but 3 from `w`", "program.fuse:1")
    (carets,) = [line for line in text.splitlines() if set(line.strip()) <= {"^", " "} and "^" in line]
    assert carets.count("^") == 2
    refused("declared-dim", dsl("def f(x: f32[n, 3]):\n    return x\n", X), "`x`", "5", "3")
    refused("broadcast", python(lambda x, y: x + y, X, X[0, :4]), "`x` f32[4, 5]", "`y` f32[4]", f"{HERE}:")


def test_dims_that_clash_only_in_a_later_call() -> None:
    """The first trace is for equal dims; a call in which they differ must not run it."""
    for add in (fuser.compile(lambda x, y: x + y), fuser.parse(MATRIX)["f"]):
        add(X, X[0])
        with pytest.raises(FuserError):
            add(X, X[0, :3])
        np.testing.assert_array_equal(add(X[:, :3], X[0, :3]).shape, (4, 3))


def test_unsupported_dtypes() -> None:
    for bad, name in ((np.array([None]), "object"), (np.array(["a"]), "<U1"), (np.zeros(2, "M8[D]"), "datetime64"),
                      (np.zeros(2, [("a", "f4")]), "'a'"), (np.zeros(2, "V3"), "V3")):  # fmt: skip
        refused("dtype", python(lambda x: x, bad), "`x`", name, "f32")
    if np.dtype(np.longdouble).itemsize > 8:
        refused("dtype", python(lambda x: x, np.zeros(2, np.longdouble)), "`x`")


def test_what_complex_numbers_do_not_have_is_listed_at_once() -> None:
    def program(z: Any) -> Any:
        return z < 1j, z.max(), np.floor(z), z.astype(np.float32), np.arctan2(z, z)

    text = refused("unsupported-call", python(program, X.astype(np.complex64)), "5 of 5 calls", "np.abs(z)")
    assert "z.real" in text
    assert "np.angle(z)" in text
    with pytest.raises(TypeError):
        python(program, X.astype(np.complex64))()


def test_a_python_integer_that_does_not_fit_is_refused_at_each_call() -> None:
    run, small = fuser.compile(lambda x, k: x + k), np.zeros(3, np.int8)
    assert run(small, 100).tolist() == [100] * 3
    refused("integer-out-of-range", lambda: run(small, 300), "300", "i8")
    with pytest.raises(OverflowError):
        run(small, -129)
    assert run(small, -128).tolist() == [-128] * 3


# -- control flow and unsupported calls ------------------------------------------------------------
def branches(x: Any) -> Any:
    if x > 0:
        return x
    return 0.01 * x


def test_a_data_dependent_if() -> None:
    text = refused(
        "data-dependent-if", python(branches, X), "`if`", "`x > 0`", "np.where(x > 0, x, 0.01 * x)", f"{HERE}:"
    )
    assert underlined(text, "if x > 0:") == "x > 0"


def test_other_uses_of_unknown_values() -> None:
    refused("data-dependent-number", python(lambda x: x * float(np.sum(x)), X), "`float()`", f"{HERE}:")
    refused("unsupported-call", python(lambda x: x[x > 0], X), "np.where", f"{HERE}:")


def unsupported(x: Any) -> Any:
    a = np.sort(x)
    b = np.tanh(x)
    c = np.fft.fft(b)
    return a + np.partition(c, 2)


def test_unsupported_functions_all_at_once() -> None:
    text = refused("unsupported-call", python(unsupported, X), "3 of ", "`unsupported`")
    for call in ("np.sort(x)", "np.fft.fft(b)", "np.partition(c, 2)"):
        (line,) = [line for line in text.splitlines() if call in line]
        assert f"{HERE}:" in line


# -- devices ---------------------------------------------------------------------------------------
@pytest.fixture
def fresh_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Detection of the GPU starts anew, and again afterwards."""
    cuda.why_unavailable.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    cuda.why_unavailable.cache_clear()


def _no_library(name: Any = None, *rest: Any, **options: Any) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_no_gpu(fresh_cuda: pytest.MonkeyPatch) -> None:
    fresh_cuda.setattr(ctypes, "CDLL", _no_library)
    refused("no-gpu", python(lambda x: x + 1, X, device="cuda"), 'device="cuda"', "was not found", "omit device",
            'f.plan(..., device="sm_90")')  # fmt: skip


def test_cupy_missing_gives_the_pip_line(fresh_cuda: pytest.MonkeyPatch) -> None:
    fresh_cuda.setattr(ctypes, "CDLL", lambda *args, **options: types.SimpleNamespace())
    fresh_cuda.setitem(sys.modules, "cupy", None)
    refused(
        "no-gpu", python(lambda x: x + 1, X, device="cuda"), "CuPy is not installed", "pip install 'fuser-compiler[cuda"
    )


def test_a_device_that_does_not_exist() -> None:
    for name, near in (("tpu", "cpu"), ("sm_9o", "sm_90"), ("cuda:7", "cuda"), ("sm_12", "sm_120")):
        refused("unknown-device", python(lambda x: x + 1, X, device=name), f'"{name}"', f"did you mean {near}?")
        refused("unknown-device", lambda name=name: fuser.compile(lambda x: x).plan(X, device=name), f'"{name}"')


def test_running_for_an_architecture_on_arrays_of_the_host() -> None:
    refused("wrong-device", python(lambda x: x + 1, X, device="sm_90"), "sm_90", "cpu", "f.plan")


class _OnGpu:
    """What fuser looks at of a CuPy array."""

    __module__ = "cupy"
    shape, dtype, strides, itemsize = X.shape, X.dtype, X.strides, X.itemsize

    def __init__(self, ordinal: int) -> None:
        self.data = types.SimpleNamespace(ptr=256)
        self.device = types.SimpleNamespace(id=ordinal)


def test_arrays_of_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=_OnGpu))
    add = fuser.compile(lambda x, y: x + y)
    refused("mixed-devices", lambda: add(X, _OnGpu(0)), "`x` is on cpu", "`y` is on cuda:0")
    refused("mixed-devices", lambda: add(_OnGpu(0), _OnGpu(1)), "`x` is on cuda:0", "`y` is on cuda:1")


def test_arrays_that_a_program_refers_to_are_where_its_arguments_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=_OnGpu))
    weight = _OnGpu(1)
    refused("mixed-devices", lambda: fuser.compile(lambda x: x + X)(_OnGpu(0)), "`X`", "on cpu", "cuda:0")
    refused("mixed-devices", lambda: fuser.compile(lambda x: x + weight)(X), "`weight`", "on cuda:1", "on cpu")
    refused("mixed-devices", lambda: fuser.compile(lambda x: x + weight)(_OnGpu(0)), "on cuda:1", "on cuda:0")


def test_results_go_to_the_device_of_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=_OnGpu))
    refused("mixed-devices", lambda: fuser.compile(lambda x: x + 1)(X, out=_OnGpu(1)), "out= is on cuda:1", "cpu")


# -- text ------------------------------------------------------------------------------------------
def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.fuse"
    path.write_bytes("def f(x):\n    return x  # größer\n".encode("latin-1"))
    refused("encoding", lambda: fuser.load(path), "UTF-8", "latin.fuse:2")


@pytest.mark.parametrize(
    "text",
    ["(" * 3000 + "x" + ")" * 3000, "-" * 3000 + "x", "[" * 3000 + "]" * 3000, "exp(" * 3000 + "x" + ")" * 3000,
     "(" * 3000, ")" * 3000, "x" + "[0" * 3000],
    ids=["round", "minus", "square", "calls", "open", "closed", "index"],
)  # fmt: skip
def test_deep_nesting(text: str) -> None:
    program = f"def f(x):\n    return {text}\n"
    with pytest.raises(FuserError) as caught:
        fuser.parse(program, "deep.fuse")["f"](X)
    assert caught.value.slug in ("nesting", "syntax", "brackets")
    assert "deep.fuse:2" in str(caught.value)
    assert len(str(caught.value)) < 2000
    with pytest.raises(FuserError):
        fuser.compile(f"lambda x: {text}")(X)


def test_broken_text_points_at_the_place() -> None:
    text = refused("syntax", lambda: fuser.parse("def f(x):\n    return x +* 2\n", "p.fuse"), "p.fuse:2")
    assert underlined(text, "return x +* 2") == "*"


# -- calls -----------------------------------------------------------------------------------------
def test_a_clash_of_dims_says_which_call_it_was() -> None:
    f = fuser.parse("def f(x: f32[n, d], w: f32[d]):\n    return x * w\n", "norms.fuse").f
    x, w = np.ones((4, 5), np.float32), np.ones(3, np.float32)
    refused("dim-clash", lambda: f(x, w), "called at ", "test_call_errors.py:", " with f32[4, 5], f32[3]")
    refused("declared-dtype", lambda: f.plan("f64[4, 5]", w), "with f64[4, 5], f32[3]")


def test_numpys_functions_without_an_operator_are_named_in_programs() -> None:
    refused("unknown-name", lambda: fuser.parse("def f(x):\n    return sort(x)\n"), "nothing near; call it outside")
    refused("unknown-name", lambda: fuser.parse("def f(x):\n    return sofmax(x)\n"), "did you mean `softmax`?")


def test_calls_that_do_not_fit_the_signature() -> None:
    refused("call-signature", python(lambda x: x, X, X), "too many")
    refused("call-signature", lambda: fuser.compile(lambda x: x)(y=X), "'x'")
    refused("unhashable-argument", python(lambda x, s: x, X, {1, 2}), "`s` is a set")
    refused("array-subclass", python(lambda x: x, np.ma.masked_array([1.0])), "`x` is a MaskedArray", "np.asarray")
    refused("file-name", lambda: fuser.compile("norms.fuse"), "did you mean fuser.load?")
    refused("bad-option", lambda: fuser.compile(lambda x: x, rounding="none"), "rounding")
    refused("bad-option", lambda: fuser.compile(lambda x: x).with_options(rounding="none"), "rounding")
    refused("bad-option", lambda: fuser.compile(lambda x: x, expect_kernels="1"), "expect_kernels")  # type: ignore
    refused("bad-option", lambda: fuser.compile(lambda x, n: x, static_argnames="m"), "'m'", "there are x, n")
    refused("unknown-device", lambda: fuser.compile(lambda x: x, device="xpu"), "did you mean cpu?")
    assert fuser.compile(lambda x, **more: x, static_argnames=["how"])(X, how="far") is not None
    refused("not-callable", lambda: fuser.compile(3), "int")  # type: ignore[call-overload]
    refused("no-identity", python(lambda x: np.max(x, axis=1), X[:, :0]), "no identity", "initial=")


def test_errors_leave_the_compiled_function_usable() -> None:
    run = fuser.compile(lambda x, y: x + y)
    for _ in range(2):
        with pytest.raises(FuserError):
            run(X, X[0, :4])
        with pytest.raises(FuserError):
            run(X, X.astype("M8[s]"))
        np.testing.assert_array_equal(run(X, X), X + X)
