"""What a Python function depends on besides its arguments: globals, closure cells, defaults, `self`.

In: a function. Out: `snapshot`, a hashable picture of all that its code (and that of functions it reaches) refers to,
taken anew at each call: a change of any number, string, function, or array dtype or shape gives another trace. Arrays'
contents are not part of it: captured arrays are hidden inputs, read at each call (`captured_arrays`), unless
Python looked at their elements while tracing (`look_at`).
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np

from fuser.errors import TraceError
from fuser.graph import Graph

DEPTH, ITEMS = 6, 4096  # how far nested containers and objects are looked into
LOOKED_AT_BYTES = 1 << 16
_LIBRARIES = {*sys.stdlib_module_names, "numpy", "scipy", "cupy", "torch", "ml_dtypes", "fuser", "builtins"}
_PLAIN = (int, bool, str, bytes, type(None), type(Ellipsis))


@dataclass(frozen=True)
class Same:
    """An object compared by identity, kept alive so that its id cannot be taken by another."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


# -- which names a piece of code refers to -------------------------------------------------------------
@functools.cache
def global_names(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Global names that code (and code nested in it) loads, each with the attributes read off it right away."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for part in _nested(code):
        instructions = list(dis.get_instructions(part))
        for k, instruction in enumerate(instructions):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                chain = []
                for after in instructions[k + 1 :]:
                    if after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                        break
                    chain.append(str(after.argval))
                found[str(instruction.argval), tuple(chain)] = None
    return tuple(found)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    stack = [code]
    while stack:
        part = stack.pop()
        yield part
        stack.extend(c for c in part.co_consts if isinstance(c, types.CodeType))


def is_library(module: str | None) -> bool:
    """Whether a module is Python's or an array library's, whose functions and constants do not change."""
    return (module or "").partition(".")[0] in _LIBRARIES


def is_users_function(value: object) -> TypeGuard[types.FunctionType]:
    """Whether a value is a Python function of the user's own."""
    return isinstance(value, types.FunctionType) and not is_library(value.__module__)


def inner_function(value: object) -> Any:
    """The Python function inside a compiled (or `cupy.fuse`d) one, which traces as if it had been called plainly."""
    if type(value).__module__ == "cupy._core.fusion":
        return getattr(value, "func", None)
    return getattr(value, "__wrapped__", None) if type(value).__module__ == "fuser.compiled" else None


# -- snapshots ---------------------------------------------------------------------------------------
def snapshot(fn: Any) -> Any:
    """A hashable picture of everything that `fn` reads from outside. Cheap where that is little."""
    try:
        looked = _looked.get(_key(fn), frozenset())
    except TypeError:  # a NumPy ufunc, say: it cannot be held weakly, and nothing of it was looked into
        looked = frozenset()
    return _Picture(looked).of(fn, "", 0)


class _Picture:
    """One walk. `looked` names arrays whose contents count; each function and object is visited once."""

    def __init__(self, looked: frozenset[str]) -> None:
        self.looked = looked
        self.seen: dict[int, int] = {}
        self.items = 0

    def of(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return (kind, value)
        if kind is float or kind is complex:
            return (kind, repr(value))
        if isinstance(value, types.ModuleType):
            return Same(value)
        if isinstance(value, np.generic):
            return (value.dtype.str, value.tobytes())
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        return self._compound(value, kind, path, depth)

    def _array(self, value: np.ndarray[Any, Any], path: str) -> Any:
        content = value.tobytes() if path in self.looked else None
        return ("array", value.dtype.str, value.shape, content)

    def _compound(self, value: Any, kind: type, path: str, depth: int) -> Any:
        if id(value) in self.seen:
            return ("seen", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.items += 1
        if depth > DEPTH or self.items > ITEMS:
            return Same(value)
        inner = inner_function(value)
        if inner is not None:
            return self.of(inner, path, depth + 1)
        if isinstance(value, types.FunctionType):
            return self._function(value, path, depth) if is_users_function(value) else Same(value)
        if isinstance(value, types.MethodType):
            return ("method", self.of(value.__func__, path, depth), self.of(value.__self__, "self", depth + 1))
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return ("partial", *(self.of(p, f"{path}.{k}", depth + 1) for k, p in enumerate(parts)))
        if isinstance(value, (tuple, list)):
            return (kind, *(self.of(v, f"{path}.{k}", depth + 1) for k, v in enumerate(value)))
        if isinstance(value, dict):
            keys = (k if isinstance(k, str) else Same(k) for k in value)
            pairs = zip(keys, value.items(), strict=True)
            return (kind, *((k, self.of(v, f"{path}.{name}", depth + 1)) for k, (name, v) in pairs))
        return self._object(value, path, depth)

    def _object(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, type) or is_library(type(value).__module__):
            return Same(value)
        parts: list[Any] = [Same(type(value))]
        call = vars(type(value)).get("__call__")
        if is_users_function(call):
            parts.append(self.of(call, path, depth + 1))
        for name, item in getattr(value, "__dict__", {}).items():
            parts.append((name, self.of(item, f"{path}.{name}", depth + 1)))
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name):
                parts.append((name, self.of(getattr(value, name), f"{path}.{name}", depth + 1)))
        return tuple(parts) if len(parts) > 1 else Same(value)

    def _function(self, f: types.FunctionType, path: str, depth: int) -> Any:
        parts: list[Any] = [Same(f), Same(f.__code__)]
        for name, chain in global_names(f.__code__):
            if name in f.__globals__:
                where, value = resolve(f.__globals__[name], name, chain)
                parts.append(self.of(value, where, depth + 1))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            parts.append(self.of(cell_value(cell), name, depth + 1))
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            parts.append(self.of(value, "default", depth + 1))
        return tuple(parts)


def resolve(value: Any, path: str, chain: Sequence[str]) -> tuple[str, Any]:
    """Follow attributes through user modules: `config.SCALE` depends on the number, not on the module."""
    for name in chain:
        if not isinstance(value, types.ModuleType) or is_library(value.__name__) or not hasattr(value, name):
            break
        value, path = getattr(value, name), f"{path}.{name}"
    return path, value


def cell_value(cell: Any) -> Any:
    """A closure cell's value; None while it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


# -- arrays that Python looked into --------------------------------------------------------------------
_looked: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()


def _key(fn: Any) -> Any:
    """What can be held weakly: a bound method's function."""
    return getattr(fn, "__func__", getattr(fn, "func", fn)) if not isinstance(fn, types.FunctionType) else fn


def look_at(fn: Any, path: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements of a captured array, which become part of every later snapshot of `fn`."""
    if array.nbytes > LOOKED_AT_BYTES:
        message = f"elements of `{path}` ({array.nbytes} bytes) are needed while tracing"
        raise TraceError(message, "captured-constant", notes=("pass what is needed of it as an argument",))
    key = _key(fn)
    try:
        _looked[key] = _looked.get(key, frozenset()) | {path}
    except TypeError:  # an object that cannot be held weakly: its arrays must not be looked into
        message = f"elements of `{path}` are needed while tracing a {type(fn).__name__}"
        raise TraceError(message, "captured-constant", notes=("compile a function or method instead",)) from None
    return array.copy()


def captured_arrays(fn: Callable[..., Any], graph: Graph) -> Sequence[Any]:
    """The present values of a graph's hidden inputs, in the order of its arguments."""
    return [get() for get in getattr(graph.output_tree, "captured", ())]
