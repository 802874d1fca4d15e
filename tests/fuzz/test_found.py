"""Programs that the fuzzer and the matrix found wrong once, kept small: each must equal NumPy on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests import engines
from tests.engines import Array, Engine

Found = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def _stored_unread(x: Any, y: Any) -> Any:
    """An argument that is written and never read has no input node."""
    y[:] = x + 1
    return x * 2


FOUND: dict[str, Found] = {
    "scan-of-one": (lambda x: (np.cumsum(x, axis=-1), np.cumsum(x, axis=0)), ((3, 1),)),
    "scan-of-one-column": (lambda x: np.cumprod(x, axis=0), ((1, 5),)),
    "pad-of-three-axes": (lambda x: np.pad(x, 1), ((2, 13, 8),)),
    "pad-around-one": (lambda x: np.pad(x, 1), ((2, 1, 127),)),
    "pad-unevenly": (lambda x: np.pad(x, ((1, 2), (0, 3), (2, 1)))[:, ::-1], ((3, 4, 5),)),
    "stored-unread": (_stored_unread, ((4, 1), (4, 1))),
    "repeat-of-a-scalar": (lambda x: np.repeat(np.sum(x), 2, axis=0), ((5,),)),
}


@engines.each
@pytest.mark.parametrize("name", FOUND)
def test_equals_numpy(engine: Engine, name: str) -> None:
    function, shapes = FOUND[name]
    mine: list[Array] = [np.arange(1, 1 + np.prod(s), dtype=np.float32).reshape(s) for s in shapes]
    theirs = [a.copy() for a in mine]
    got, want = engine.compile(function)(*mine), function(*theirs)
    assert engines.unlike((got, mine), (want, theirs)) is None


@engines.each
def test_the_sign_of_a_literal_nan(engine: Engine) -> None:
    """Three programs that differ in nothing but the signs of their NaNs."""
    x = np.array([1, -2, 3], np.float32)
    functions: list[Callable[..., Any]] = [
        lambda x: (np.copysign(x, -np.nan), np.signbit(np.where(x > 0, np.nan, -np.nan))),
        lambda x: (np.copysign(x, np.nan), np.signbit(np.where(x > 0, -np.nan, np.nan))),
        lambda x: (np.copysign(x, np.nan), np.signbit(np.where(x > 0, -np.nan, -np.nan))),
    ]
    for function in functions:
        assert engines.unlike(engine.compile(function)(x), function(x)) is None
