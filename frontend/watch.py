"""A cheap test that nothing a function reads from outside has changed.

In: a function. Out: a callable that says in well under a microsecond whether every global, closure cell and default it (and
the functions it reaches) reads is still the very same object; or None, where something mutable is among them, and
only `capture.snapshot` can tell.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.frontend.capture import cell_value, global_names, is_library, is_users_function, resolve

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


def watch(fn: Any) -> Callable[[], bool] | None:
    """The test for `fn`, or None where identity does not settle the matter."""
    if not isinstance(fn, types.FunctionType):
        return None
    names: list[tuple[dict[str, Any], str, Any]] = []
    cells: list[tuple[Any, Any]] = []
    functions: list[tuple[types.FunctionType, Any, Any]] = []
    todo, seen = [fn], {id(fn)}
    while todo:
        f = todo.pop()
        functions.append((f, f.__code__, f.__defaults__))
        found = _read_by(f, names, cells)
        if found is None or not all(isinstance(d, _CONSTANT) for d in f.__defaults__ or ()) or f.__kwdefaults__:
            return None
        for value in found:
            if is_users_function(value) and id(value) not in seen:
                seen.add(id(value))
                todo.append(value)

    def unchanged() -> bool:
        for space, name, value in names:
            if space.get(name) is not value:
                return False
        for cell, value in cells:
            if cell.cell_contents is not value:
                return False
        return all(f.__code__ is code and f.__defaults__ is defaults for f, code, defaults in functions)

    return unchanged


def _read_by(
    f: types.FunctionType, names: list[tuple[dict[str, Any], str, Any]], cells: list[tuple[Any, Any]]
) -> list[Any] | None:
    """Notes what `f` reads; the values, or None if one of them can change inside."""
    values = []
    for name, chain in global_names(f.__code__):
        if name not in f.__globals__:
            continue
        value = f.__globals__[name]
        if isinstance(value, types.ModuleType) and not is_library(value.__name__) and chain:
            return None  # an attribute of a user's module
        names.append((f.__globals__, name, value))
        values.append(resolve(value, name, chain)[1])
    for cell in f.__closure__ or ():
        values.append(cell_value(cell))
        cells.append((cell, values[-1]))
    steady = all(
        isinstance(v, _CONSTANT) or is_users_function(v) or is_library(getattr(v, "__module__", "")) for v in values
    )
    return values if steady else None
