"""Functions written with torch trace unchanged and equal torch: values, dtypes, shapes, nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import DTypeError, GradientError, TraceError, UnsupportedError

torch = pytest.importorskip("torch")

from tests.surface.torch_programs import PROGRAMS  # noqa: E402

TOLERANCES = {"torch.float16": 4e-3, "torch.float32": 1e-5}


def arguments(dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(0)
    floats = [rng.standard_normal(s) * 1.5 for s in ((4, 6), (4, 6), (6,))]
    return [torch.tensor(a).to(getattr(torch, dtype)) for a in floats] + [torch.tensor(rng.integers(0, 9, (4, 6)))]


def same(got: Any, wanted: Any, name: str) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(got) == len(wanted), name
        for g, w in zip(got, wanted, strict=True):
            same(g, w, name)
        return
    assert isinstance(got, torch.Tensor), f"{name}: {got!r}"
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
    tolerance = TOLERANCES.get(str(wanted.dtype), 0.0)
    torch.testing.assert_close(
        got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_torch(name: str) -> None:
    program = PROGRAMS[name]
    same(fuser.compile(program)(*arguments()), program(*arguments()), name)


def test_one_compiled_function_serves_both_libraries() -> None:
    f = fuser.compile(lambda x, n: x * 2.5 + n)
    assert f(np.arange(3), 1).dtype == np.float64
    assert f(torch.arange(3), 1).dtype == torch.float32


WEIGHT = torch.arange(6.0)


def test_a_captured_tensor_is_read_at_each_call() -> None:
    f = fuser.compile(lambda x: x * WEIGHT)
    x = torch.ones(2, 6)
    same(f(x), x * WEIGHT, "before")
    WEIGHT.add_(1)
    same(f(x), x * WEIGHT, "after")


def test_a_tensor_that_requires_grad_is_refused() -> None:
    with pytest.raises(GradientError, match="detach"):
        fuser.compile(lambda x: x * 2)(torch.ones(3, requires_grad=True))


def test_random_numbers_point_to_keys() -> None:
    with pytest.raises(TraceError, match=r"fuser\.ops\.uniform"):
        fuser.compile(lambda x: x + torch.rand(3))(torch.ones(3))


def test_every_call_without_an_operator_is_listed() -> None:
    with pytest.raises(UnsupportedError) as caught:
        fuser.compile(lambda x: torch.sort(x)[0] + torch.fft.fft(x).real)(torch.ones(3))
    assert "torch.sort(x)" in str(caught.value)
    assert "torch.fft.fft(x)" in str(caught.value)


def test_a_pair_where_an_array_is_wanted_says_what_to_write() -> None:
    with pytest.raises(DTypeError, match="a tuple of results") as caught:
        fuser.compile(lambda x: np.exp(x - x.max(axis=-1, keepdims=True)))(torch.ones(2, 3))
    assert "x.amax(axis)" in caught.value.notes[0]
