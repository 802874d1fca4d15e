"""Corners of NumPy's functions: values, dtypes and errors at the edges, each against NumPy itself on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError
from tests import engines
from tests.engines import Engine

Program = Callable[..., Any]
I8 = np.array([-128, -5, 0, 7, 127], np.int8)
U8 = np.array([0, 5, 200, 255], np.uint8)
F32 = np.array([np.nan, np.inf, -np.inf, -0.0, 2.5], np.float32)
AT = np.array([-1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.nan])

# A bound beyond every integer of the dtype is none; a number of the call may be one too.
CLIPS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "wide": (lambda x: np.clip(x, -300, 300), (I8,)),
    "unsigned": (lambda x: np.clip(x, -1, 254), (U8,)),
    "above": (lambda x: np.clip(x, None, 2**70), (I8,)),
    "at the call": (lambda x, k: np.clip(x, -k, k), (I8, 1000)),
}


@engines.each
@pytest.mark.parametrize("name", CLIPS)
def test_bounds_beyond_a_dtype(engine: Engine, name: str) -> None:
    program, args = CLIPS[name]
    assert engines.unlike(engine.compile(program)(*args), program(*args)) is None


def test_a_bound_that_leaves_nothing_is_refused() -> None:
    for program in (lambda x: np.clip(x, 200, None), lambda x: np.clip(x, None, -300)):
        with pytest.raises(OverflowError):
            program(I8)
        with pytest.raises(OverflowError, match="out of bounds for int8"):
            fuser.compile(program)(I8)


HEIGHTS = {
    "a negative zero": [-0.0, 2.0, 1.0],
    "one infinite": [np.inf, 2.0, -np.inf],
    "level and infinite": [np.inf, np.inf, 0.0],
    "not a number": [0.0, np.nan, 1.0],
}


@engines.each
@pytest.mark.parametrize("name", HEIGHTS)
def test_interpolation_at_knots_and_between_infinite_ones(engine: Engine, name: str) -> None:
    def program(x: Any, knots: Any, heights: Any) -> Any:
        return np.interp(x, knots, heights)

    args = AT, np.array([0.0, 1.0, 2.0]), np.array(HEIGHTS[name])
    assert engines.unlike(engine.compile(program)(*args), program(*args)) is None


@engines.each
@pytest.mark.parametrize("value", [-0.0, 7, np.float64(1.5), np.int64(3)], ids=repr)
def test_what_takes_the_place_of_nan_keeps_the_dtype(engine: Engine, value: Any) -> None:
    def program(x: Any) -> Any:
        return np.nan_to_num(x, nan=value, posinf=value)

    assert engines.unlike(engine.compile(program)(F32), program(F32)) is None


@engines.each
@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "any", "all", "argmax", "count_nonzero", "nansum", "ptp"]
)
@pytest.mark.parametrize("axis", [0, -1])
def test_an_array_of_no_axes_is_reduced_over_the_first_or_last(engine: Engine, name: str, axis: int) -> None:
    def program(x: Any) -> Any:
        f = getattr(np, name)
        return f(x, axis=axis), f(x, axis=axis, keepdims=True)

    x = np.array(2.5)
    assert engines.unlike(engine.compile(program)(x), program(x)) is None
    with pytest.raises(FuserError, match="axis 1 is out of bounds"):
        fuser.compile(lambda x: getattr(np, name)(x, axis=1))(x)


# -- numbers that no integer array can hold ------------------------------------------------------------
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e40, -200.0, 300], ids=repr)
def test_numbers_that_an_integer_array_cannot_hold_are_not_stored(value: Any) -> None:
    def store(x: Any) -> None:
        x[1:] = value

    for program in (store, lambda x: np.max(x, initial=value)):
        with pytest.raises((OverflowError, ValueError)):
            program(I8.copy())
        with pytest.raises(OverflowError):
            fuser.compile(program)(I8.copy())


@engines.each
def test_large_integers_are_stored_into_floats(engine: Engine) -> None:
    def program(x: Any) -> Any:
        x[1:3] = 2**70
        x[3] = -(2**63)
        return x + 0

    assert engines.unlike(engine.compile(program)(F32.copy()), program(F32.copy())) is None


# -- axes without elements -----------------------------------------------------------------------------
X, I, LONG = np.arange(1.0, 4.0), np.array([0, 1, 2]), np.arange(4.0)
EMPTY: dict[str, tuple[Program, tuple[Any, ...]]] = {  # `x[3:]` has no elements; only the call knows
    "no indices": (lambda x, i: x[3:][i[3:]], (X, I)),
    "no indices, no rows": (lambda x, i: x[i], (np.zeros((0, 4)), I[:0])),
    "diagonal matrix": (lambda x: np.diag(x[3:], 1), (X,)),
    "diagonal matrix of an argument": (lambda x: np.diag(x, -2), (X[:0],)),
    "reflected": (lambda x: np.pad(x[2:], 1, mode="reflect"), (X,)),
    "symmetric": (lambda x: np.pad(x[2:], 2, mode="symmetric"), (X,)),
    "covariance": (np.cov, (np.zeros((3, 0)),)),
    "longer kernel, same": (lambda x, y: np.convolve(x[1:], y, mode="same"), (X, LONG)),
    "longer kernel, valid": (lambda x, y: np.convolve(x[1:], y, mode="valid"), (X, LONG)),
    "longer pattern, same": (lambda x, y: np.correlate(x[1:], y, mode="same"), (X, LONG)),
    "longer pattern, valid": (lambda x, y: np.correlate(x[1:], y, mode="valid"), (X, LONG)),
    "longer pattern, full": (lambda x, y: np.correlate(x[1:], y, mode="full"), (X, LONG)),
}


@pytest.mark.filterwarnings("ignore")
@engines.each
@pytest.mark.parametrize("name", EMPTY)
def test_axes_without_elements(engine: Engine, name: str) -> None:
    """The interpreter of kernels also sees that nothing is read outside of an array."""
    program, args = EMPTY[name]
    assert engines.unlike(engine.compile(program)(*args), program(*args)) is None


REFUSED: dict[str, tuple[type[Exception], Program, tuple[Any, ...]]] = {
    "index array": (IndexError, lambda x, i: x[3:][i], (X, I)),
    "take, wrapped": (IndexError, lambda x, i: np.take(x[3:], i, mode="wrap"), (X, I)),
    "take, clipped": (IndexError, lambda x, i: np.take(x[3:], i, mode="clip"), (X, I)),
    "take_along_axis": (IndexError, lambda x, i: np.take_along_axis(x[3:], i, 0), (X, I)),
    "index of the call": (IndexError, lambda x, k: x[3:][k], (X, 0)),
    "pad": (ValueError, lambda x: np.pad(x[3:], 1, mode="wrap"), (X,)),
    "pad, edge": (ValueError, lambda x: np.pad(x[3:], 1, mode="edge"), (X,)),
    "gradient": (ValueError, lambda x: np.gradient(x[2:]), (X,)),
    "convolve": (ValueError, lambda x: np.convolve(x[3:], x[:2]), (X,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_axes_that_are_too_short(name: str) -> None:
    kind, program, args = REFUSED[name]
    with pytest.raises(kind):
        program(*args)
    with pytest.raises(kind) as caught:
        fuser.compile(program)(*args)
    assert isinstance(caught.value, FuserError)
