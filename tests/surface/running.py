"""Compile a function on the CPU, call it, and compare everything with the library that it is written in.

In: a function and arguments. Out: nothing, or an AssertionError about a result's nesting, dtype, shape or values, or
about what was stored into an argument.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fuser
from fuser import trees

TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-11}


def compare(
    fn: Callable[..., Any], args: Sequence[Any], scale: float = 1.0, runner: Callable[..., Any] = fuser.compile
) -> None:
    """`runner(fn)(*args)` (compiled, or `fuser.reference`) returns and stores what `fn(*args)` does."""
    mine, theirs = copy.deepcopy(list(args)), copy.deepcopy(list(args))
    with np.errstate(all="ignore"):
        wanted = fn(*theirs)
        got = runner(fn)(*mine)
    name = getattr(fn, "__name__", "result")
    assert_same(got, wanted, name, scale)
    for k, (m, t) in enumerate(zip(mine, theirs, strict=True)):
        assert_same(m, t, f"{name}: argument {k}", scale)


def assert_same(got: Any, wanted: Any, what: str, scale: float = 1.0) -> None:
    """Equal nesting, dtypes, shapes; values to the tolerance of the dtype (exact for integers).

    A rank-0 result is a NumPy scalar in fuser, where NumPy has a scalar, a 0-d array or (`np.allclose`) a Python bool.
    """
    mine, my_tree = trees.flatten(got, is_leaf=_is_array)
    theirs, their_tree = trees.flatten(wanted, is_leaf=_is_array)
    assert my_tree == their_tree, f"{what}: {my_tree} for {their_tree}"
    for g, w in zip(mine, theirs, strict=True):
        _assert_leaf(g, w, what, scale)


def _assert_leaf(got: Any, wanted: Any, what: str, scale: float) -> None:
    wanted = np.bool_(wanted) if isinstance(wanted, bool) and isinstance(got, np.bool_) else wanted
    if not _is_array(wanted):
        assert type(got) is type(wanted), f"{what}: {got!r} for {wanted!r}"
        assert got == wanted or (got != got and wanted != wanted), f"{what}: {got!r} for {wanted!r}"
        return
    assert np.asarray(got).dtype == wanted.dtype, f"{what}: {np.asarray(got).dtype} for {wanted.dtype}"
    assert np.shape(got) == wanted.shape, f"{what}: {np.shape(got)} for {wanted.shape}"
    assert wanted.ndim or isinstance(got, np.generic), f"{what}: {type(got)} for {type(wanted)}"
    tolerance = TOLERANCES.get(str(wanted.dtype), 0.0) * scale
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=what)


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic))
