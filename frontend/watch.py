"""A cheap test that nothing a function reads from outside has changed.

In: a function. Out: a `Watched`, which says in well under a microsecond whether every global, closure cell and
default it (and the functions it reaches) reads is still the very same object; or None, where something mutable is
among them, and only `capture.snapshot` can tell.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from fuser.frontend.capture import (
    cell_value,
    global_names,
    imported,
    inner_function,
    is_library,
    is_users_function,
    names_of,
    resolve,
    surroundings,
)
from fuser.record import dataclass

_CONSTANT = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    np.generic,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
)
GLOBAL, CELL, FUNCTION = range(3)  # kinds of `Watched.entries`
_MISSING = object()


@dataclass
class Watched:
    """What is watched: (namespace, name, value) with `_MISSING` for names that are built-ins so far, (cell, value), and
    (function, code, defaults)."""

    names: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    cells: list[tuple[Any, Any]] = field(default_factory=list)
    functions: list[tuple[types.FunctionType, Any, Any]] = field(default_factory=list)

    def __call__(self) -> bool:
        """Whether nothing has changed."""
        for space, name, value in self.names:
            if space.get(name, _MISSING) is not value:
                return False
        for cell, value in self.cells:
            if cell_value(cell) is not value:
                return False
        return all(f.__code__ is code and f.__defaults__ is defaults for f, code, defaults in self.functions)

    def entries(self, nothing: Any) -> Sequence[tuple[int, Any, Any, Any]]:
        """The same as (kind, a, b, expected) for native code; `nothing` stands for what is not there."""
        found: list[tuple[int, Any, Any, Any]] = []
        for space, name, value in self.names:
            found.append((GLOBAL, space, name, nothing if value is _MISSING else value))
        found += [(CELL, cell, nothing, value) for cell, value in self.cells]
        for f, code, defaults in self.functions:
            found.append((FUNCTION, f, code, nothing if defaults is None else defaults))
        return found


def watch(fn: Any) -> Watched | None:
    """The test for `fn`, or None where identity does not settle the matter."""
    if not isinstance(fn, types.FunctionType):
        return None
    watched = Watched()
    todo, seen = [fn], {id(fn)}
    while todo:
        f = todo.pop()
        watched.functions.append((f, f.__code__, f.__defaults__))
        found = _read_by(f, watched)
        if found is None or not all(isinstance(d, _CONSTANT) for d in f.__defaults__ or ()) or f.__kwdefaults__:
            return None
        for value in found:
            if is_users_function(value) and id(value) not in seen:
                seen.add(id(value))
                todo.append(value)
    return watched


def _read_by(f: types.FunctionType, watched: Watched) -> list[Any] | None:
    """Notes what `f` reads; the values, or None if one of them can change inside."""
    if _reads_process(f) or f.__dict__.keys() - {"__wrapped__"}:
        return None
    values = []
    for name, chain in global_names(f.__code__):
        value = f.__globals__.get(name, _MISSING)
        watched.names.append((f.__globals__, name, value))
        if value is _MISSING:
            continue
        if isinstance(value, types.ModuleType) and not is_library(value.__name__) and chain:
            return None  # an attribute of a user's module
        values.append(resolve(value, name, chain)[1])
        if isinstance(values[-1], types.ModuleType) and not is_library(values[-1].__name__):
            return None  # the module goes on to be read as an object
    for cell in f.__closure__ or ():
        values.append(cell_value(cell))
        watched.cells.append((cell, values[-1]))
    return values if all(map(_steady, values)) else None


def _reads_process(f: types.FunctionType) -> bool:
    """Whether code may read what no name of its own holds: modules imported inside, the environment, a clock."""
    names = names_of(f.__code__)
    if imported(f.__code__, f.__globals__.get("__package__")):
        return True
    return any(surroundings(names, clock=True))


def _steady(value: Any) -> bool:
    """Whether identity settles that a value is what it was: a constant, a function, a library's class or function."""
    if isinstance(value, _CONSTANT) or is_users_function(value):
        return True
    if isinstance(value, (type, types.FunctionType)):
        return is_library(value.__module__)
    kind = type(value)  # NumPy's dispatchers and CuPy's ufuncs
    library = kind.__module__.partition(".")[0]
    holds = any(isinstance(v, np.ndarray) for v in getattr(value, "__dict__", {}).values())  # a polynomial, say
    return callable(value) and library in ("numpy", "cupy", "torch") and inner_function(value) is None and not holds
