"""What a Python function depends on besides its arguments: globals, closure cells, defaults, `self`.

In: a function. Out: `snapshot`, a hashable picture of all that its code (and that of functions it reaches) refers to,
taken anew at each call: a change of any number, string, function, or array dtype or shape gives another trace. Arrays'
contents are not part of it: captured arrays are hidden inputs, read at each call (`captured_arrays`), unless
Python looked at their elements while tracing (`look_at`).
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import dis
import functools
import importlib.util
import os
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np

from fuser.errors import TraceError
from fuser.graph import Graph
from fuser.hostfunctions import literal_text
from fuser.record import dataclass

DEPTH, ITEMS = 40, 4096  # how far nested containers and objects are looked into
LOOKED_AT_BYTES = 1 << 16
_LIBRARIES = {*sys.stdlib_module_names, "numpy", "scipy", "cupy", "torch", "ml_dtypes", "fuser", "builtins"}
_HOLDERS = {"argparse", "types", "collections", "_thread", "threading", "numpy"}  # whose objects hold users' values
_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "attrgetter", "globals", "eval", "exec", "dir", "getmembers"})
_CLOCKS = {"time", "datetime", "calendar"}
_CLOCK = ("now", "today", "utcnow", "localtime", "gmtime", "ctime", "asctime", "strftime")
_CONTAINERS = (
    tuple, list, dict, set, frozenset, collections.deque, types.MappingProxyType, bytearray, memoryview, array.array,
)  # fmt: skip
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


@functools.cache
def names_of(code: types.CodeType) -> frozenset[str]:
    """Every global, attribute and module name that code (and code nested in it) mentions."""
    return frozenset(n for part in _nested(code) for n in part.co_names)


@functools.cache
def imported(code: types.CodeType, package: str | None) -> tuple[str, ...]:
    """The modules that code imports inside, those of libraries left out."""
    found: dict[str, None] = {}
    for part in _nested(code):
        before: list[dis.Instruction] = []
        for instruction in dis.get_instructions(part):
            if instruction.opname == "IMPORT_NAME":
                level = next((b.argval for b in reversed(before[:-1]) if b.opname.startswith("LOAD_")), 0)
                name = "." * level + str(instruction.argval) if isinstance(level, int) else str(instruction.argval)
                found[importlib.util.resolve_name(name, package) if name.startswith(".") else name] = None
            before.append(instruction)
    return tuple(n for n in found if not is_library(n))


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
def snapshot(fn: Any, statics: Mapping[str, Any] | None = None) -> Any:
    """A hashable picture of everything that `fn` reads from outside, and of what is in the objects it is given
    (`statics`, by name). Cheap where that is little."""
    key = _key(fn)
    try:
        looked, names = _looked.get(key, frozenset()), set(_read.get(key, ()))
    except TypeError:  # a NumPy ufunc, say: it cannot be held weakly, and nothing of it was looked into
        looked, names = frozenset(), set()
    while True:
        known = len(names)
        picture = _Picture(looked, names)
        found = (picture.of(fn, "", 0), *(picture.of(v, name, 0) for name, v in (statics or {}).items()))
        if len(names) == known:  # else code was reached that may read more of what had been passed already
            break
    with contextlib.suppress(TypeError):
        _read[key] = frozenset(names)
    return *found, *surroundings(names, picture.clock)


def surroundings(names: Collection[str], clock: bool) -> Iterator[Any]:
    """What code with these names may read of the process itself. The time counts in seconds: a program that tells them
    apart is traced in each, and one that tells less apart is refused as impure."""
    if any(n in names for n in ("environ", "getenv", "environb")):
        yield tuple(os.environ.items())
    if "argv" in names:
        yield tuple(sys.argv)
    if "geterr" in names:
        yield tuple(np.geterr().items())
    if clock and any(n in names for n in _CLOCK):
        yield int(time.time())


class _Picture:
    """One walk. `looked` names arrays whose contents count; each function and object is visited once.

    `names` collects what code reached so far refers to: of a class or module, only attributes of such names count.
    """

    def __init__(self, looked: frozenset[str], names: set[str]) -> None:
        self.looked, self.names = looked, names
        self.clock = False  # whether code reaches Python's clocks
        self.contents = False  # inside an object that is not rebound: the elements of its arrays count
        self.seen: dict[int, int] = {}
        self.items = 0

    def of(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return (kind, value)
        if kind is float or kind is complex:
            return (kind, literal_text(value.real), literal_text(value.imag))
        if isinstance(value, types.ModuleType):
            return self._module(value, path, depth)
        if isinstance(value, np.generic):
            return (value.dtype.str, value.tobytes())
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        return self._compound(value, kind, path, depth)

    def _array(self, value: np.ndarray[Any, Any], path: str) -> Any:
        content = value.tobytes() if path in self.looked or self.contents or not value.ndim else None
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
        if isinstance(value, type):
            return Same(value) if is_library(value.__module__) else self._class(value, depth)
        if isinstance(value, _CONTAINERS):
            return self._container(value, kind, path, depth)
        parts = self._parts_of_function(value)
        if parts is not None:
            return (kind, *(self.of(p, "self" if name == "self" else f"{path}{name}", depth + 1) for name, p in parts))
        if isinstance(value, types.FunctionType):
            return self._function(value, path, depth) if is_users_function(value) else Same(value)
        return self._object(value, path, depth)

    def _parts_of_function(self, value: Any) -> Sequence[tuple[str, Any]] | None:
        """What a callable or descriptor is around: (end of the path, value); None for anything else."""
        if isinstance(value, types.MethodType):
            return (("", value.__func__), ("self", value.__self__))
        if isinstance(value, functools.partial):
            return ((".0", value.func), (".1", value.args), (".2", value.keywords))
        if isinstance(value, (staticmethod, classmethod)) or type(value).__name__ == "_lru_cache_wrapper":
            return (("", value.__wrapped__),)
        if isinstance(value, property):
            return (("", value.fget), ("", value.fset))
        if isinstance(value, functools.cached_property):
            return (("", value.func),)
        return (("", value.get(None)),) if isinstance(value, contextvars.ContextVar) else None

    def _container(self, value: Any, kind: type, path: str, depth: int) -> Any:
        if isinstance(value, (set, frozenset)):
            return (kind, frozenset(self.of(v, path, depth + 1) for v in value))
        if isinstance(value, (bytearray, memoryview, array.array)):
            return (kind, bytes(value))
        if isinstance(value, (dict, types.MappingProxyType)):
            keys = (k if isinstance(k, str) else Same(k) for k in value)
            pairs = zip(keys, value.items(), strict=True)
            return (kind, *((k, self.of(v, f"{path}.{name}", depth + 1)) for k, (name, v) in pairs))
        return (kind, *(self.of(v, f"{path}.{k}", depth + 1) for k, v in enumerate(value)))

    def _object(self, value: Any, path: str, depth: int) -> Any:
        module = type(value).__module__.partition(".")[0]
        if is_library(module) and module not in _HOLDERS:
            return Same(value)
        before, self.contents = self.contents, self.contents or module == "numpy"
        parts = self._parts(value, path, depth)
        self.contents = before
        return tuple(parts) if len(parts) > 1 else Same(value)

    def _parts(self, value: Any, path: str, depth: int) -> list[Any]:
        """Attributes of an object, and what its class has."""
        parts: list[Any] = [self.of(type(value), type(value).__name__, depth + 1)]
        for name, item in getattr(value, "__dict__", {}).items():
            parts.append((name, self.of(item, f"{path}.{name}", depth + 1)))
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name):
                parts.append((name, self.of(getattr(value, name), f"{path}.{name}", depth + 1)))
        return [Same(value), *parts] if len(parts) == 1 else parts

    def _reads(self, name: str) -> bool:
        return name in self.names or not _DYNAMIC.isdisjoint(self.names)

    def _module(self, module: types.ModuleType, path: str, depth: int) -> Any:
        """A module of the user's by what the code may read of it; a library's by itself."""
        if is_library(module.__name__):
            self.clock = self.clock or module.__name__ in _CLOCKS
            return Same(module)
        if id(module) in self.seen:
            return ("seen", self.seen[id(module)])
        self.seen[id(module)] = len(self.seen)
        found = {k: v for k, v in vars(module).items() if self._reads(k) and not k.startswith("__")}
        return (Same(module), *((k, self.of(v, f"{path}.{k}", depth + 1)) for k, v in found.items()))

    def _class(self, cls: type, depth: int) -> Any:
        """A class by the attributes and methods of itself and its bases that the code may read."""
        parts: list[Any] = [Same(cls)]
        for base in cls.__mro__:
            if is_library(base.__module__):
                continue
            for name, item in vars(base).items():
                special = name.startswith("__") and name.endswith("__")
                if is_users_function(item) if special else self._reads(name):
                    parts.append((name, self.of(item, f"{base.__name__}.{name}", depth + 1)))
        return tuple(parts)

    def _function(self, f: types.FunctionType, path: str, depth: int) -> Any:
        parts: list[Any] = [Same(f), Same(f.__code__)]
        self.names |= names_of(f.__code__)
        for name in imported(f.__code__, f.__globals__.get("__package__")):
            if name in sys.modules:
                parts.append(self.of(sys.modules[name], name, depth + 1))
        for name, chain in global_names(f.__code__):
            if name in f.__globals__:
                where, value = resolve(f.__globals__[name], name, chain)
                self.clock = self.clock or getattr(value, "__module__", None) in _CLOCKS
                parts.append(self.of(value, where, depth + 1))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            parts.append(self.of(cell_value(cell), name, depth + 1))
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            parts.append(self.of(value, "default", depth + 1))
        for name, value in f.__dict__.items():
            parts.append((name, self.of(value, f"{path}.{name}", depth + 1)))
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
_read: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()  # names of all code that a function reaches


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
