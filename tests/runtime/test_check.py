"""`f.check`: results and stored arguments are held against the reference, for arrays of every library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.compiled import Compiled
from fuser.errors import CheckFailed


def names(verdicts: Any) -> list[str]:
    return [v.name for v in verdicts]


def step(p: Any, g: Any) -> None:
    p -= 0.5 * g


def both(p: Any, g: Any) -> Any:
    p[1:] = g[1:] * 2
    return p.sum(), None, {"a": g + 1}


def test_results_and_stored_arguments_are_compared() -> None:
    p, g = np.ones(9, np.float32), np.arange(9, dtype=np.float32)
    assert names(fuser.compile(step).check(p, g)) == ["argument p"]
    assert names(fuser.compile(both).check(p, g)) == ["result 0", "result 2", "argument p"]
    assert (p == 1).all(), "check works on copies"


def test_a_wrong_result_is_found_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fuser.compile(lambda x: x * 2)
    x = np.arange(12.0).reshape(3, 4)

    def wrong(self: Compiled, x: Any) -> Any:
        y = x * 2
        y[2, 1] = 7
        return y

    monkeypatch.setattr(Compiled, "__call__", wrong)
    with pytest.raises(CheckFailed, match=r"at \(2, 1\): got 7.0, reference 18.0"):
        f.check(x)


def test_a_store_that_is_wrong_or_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fuser.compile(step)
    monkeypatch.setattr(Compiled, "__call__", lambda self, p, g: None)
    with pytest.raises(CheckFailed, match="argument p"):
        f.check(np.ones(9), np.ones(9))


def test_methods_are_those_of_the_arrays_library() -> None:
    torch = pytest.importorskip("torch")
    f = fuser.compile(lambda x: (x.max(-1).values, x.std(), x.unsqueeze(0)))
    x = torch.arange(12.0).reshape(3, 4)
    assert names(f.check(x)) == ["result 0", "result 1", "result 2"]
    values, deviation, lifted = fuser.reference(f)(x)
    assert (values.tolist(), lifted.shape) == ([3, 7, 11], (1, 3, 4))
    assert float(deviation) == pytest.approx(float(x.std()))
    assert names(fuser.compile(lambda x: (x * 2).exp()).check(x.bfloat16())) == ["result"]


def test_arrays_of_other_libraries() -> None:
    numpy = pytest.importorskip("jax.numpy")
    assert names(fuser.compile(lambda x: np.exp(x) * 2).check(numpy.ones(5))) == ["result"]


def test_what_was_rounded_on_the_way_may_differ_by_a_unit_of_that_type(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(1, 2, 4097, dtype=np.float32)
    f = fuser.compile(lambda x: (np.exp(x).astype(np.float16).astype(np.float32), x.astype(np.float16).sum()))
    assert [round(v.allowed, 6) for v in f.check(x)] == [0.002, 0.002]
    g = fuser.compile(lambda x: (x + 1, x > 1.5))  # a half argument is exact
    assert [v.allowed for v in g.check(x)] == [2e-5, 0.0]
    monkeypatch.setattr(Compiled, "__call__", lambda self, x: (x * np.float32(1.0001) + 1, x > 1.5))
    with pytest.raises(CheckFailed, match="result 0"):
        g.check(x)
    assert g.check(x, rtol=1e-3)
