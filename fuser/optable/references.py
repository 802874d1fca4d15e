"""NumPy references of library functions.

In: a function on f64 arrays. Out: a reference that gives f32 to half an ulp, by computing in f64 and rounding
once, so tests hold backends against the value and not against NumPy's own f32 code (up to 4 ulp off). Also
the functions that NumPy lacks and Python's math module has. Its own file because several row modules share
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ArrayFunction = Callable[..., Any]


def in_double(function: ArrayFunction) -> ArrayFunction:
    """`function` computed in f64, its result rounded to the dtype of the first float operand."""

    @wraps(function)
    def reference(*arrays: Array) -> Array:
        target = next(a.dtype for a in arrays if a.dtype.kind == "f")
        wide = (a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays)
        return np.asarray(function(*wide)).astype(target)

    return reference


def elementwise(function: Callable[[float], float]) -> ArrayFunction:
    """A function of Python's math module on every element; an error of domain gives NaN, one of range infinity."""

    def one(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    applied = np.frompyfunc(one, 1, 1)

    def reference(x: Array) -> Array:
        return np.asarray(applied(np.asarray(x, np.float64)), dtype=np.float64)

    return in_double(reference)
