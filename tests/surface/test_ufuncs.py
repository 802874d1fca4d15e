"""All of NumPy's ufuncs with a real, integer or boolean form trace and equal NumPy on every such dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import DTypeError, UnsupportedError
from tests.surface import ufuncs
from tests.surface.running import compare


def _supported(name: str) -> list[tuple[str, list[np.ndarray[Any, Any]]]]:
    return [c for c in ufuncs.cases(name) if ufuncs.accepted(name, c[1])]


def _over(name: str) -> Any:
    def program(groups: Any) -> Any:
        return tuple(getattr(np, name)(*arrays) for arrays in groups)

    program.__name__ = name
    return program


def test_none_is_left_out() -> None:
    assert len(ufuncs.names()) > 80


@pytest.mark.parametrize("name", ufuncs.names())
def test_means_what_numpy_computes(name: str) -> None:
    compare(_over(name), [tuple(tuple(arrays) for _, arrays in _supported(name))], runner=fuser.reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", ufuncs.names())
def test_compiled_equals_numpy(name: str) -> None:
    compare(_over(name), [tuple(tuple(arrays) for _, arrays in _supported(name))])


@pytest.mark.parametrize("name", ufuncs.names())
def test_refuses_what_numpy_refuses(name: str) -> None:
    for _, arrays in ufuncs.cases(name):
        if not ufuncs.accepted(name, arrays):
            with pytest.raises((DTypeError, UnsupportedError)):
                fuser.reference(_over(name))((tuple(arrays),))


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "hypot", "logaddexp", "power", "fmod"])
def test_options_of_ufuncs(name: str) -> None:
    def program(x: Any, y: Any, mask: Any, out: Any) -> Any:
        ufunc = getattr(np, name)
        ufunc(x, y, out=out, where=mask)
        return ufunc(x, y, dtype=np.float64), ufunc(x, 2.0, casting="same_kind"), ufunc.outer(x[0], y[0])

    rng = np.random.default_rng(0)
    x, y = (rng.random((3, 4)).astype(np.float32) for _ in range(2))
    compare(program, [x, y, x > 0.5, np.zeros((3, 4), np.float32)])


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_and", "logical_or"])
def test_reduce_and_accumulate(name: str) -> None:
    def program(x: Any) -> Any:
        ufunc = getattr(np, name)
        return (
            ufunc.reduce(x),
            ufunc.reduce(x, axis=(0, 1)),
            ufunc.reduce(x, axis=1, keepdims=True),
            ufunc.reduce(x, axis=None),
        )

    compare(program, [np.random.default_rng(0).random((3, 4, 5))])


def test_methods_without_an_operator_are_refused_by_name() -> None:
    def program(x: Any) -> Any:
        np.add.at(x, [0, 1], 1)
        return np.add.reduceat(x, [0, 2])

    with pytest.raises(UnsupportedError) as caught:
        fuser.compile(program)(np.ones(4))
    assert "np.add.at(x, [0, 1], 1)" in str(caught.value)
    assert "np.add.reduceat(x, [0, 2])" in str(caught.value)
