"""The function that is really called while tracing: the user's code over globals and cells that trace.

In: a Python function (method, partial, callable object). Out: the same code with captured arrays as hidden inputs,
NumPy's creation functions replaced, and the user's own helper functions rebound alike. The user's module is never
touched: every rebound function has a globals dict of its own.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fuser.errors import TraceError
from fuser.frontend import capture, classes, shims
from fuser.frontend.context import Captured, Context
from fuser.frontend.storage import Storage
from fuser.frontend.tracer import TracedArray
from fuser.runtime import arrays

Get = Callable[[], Any]


class Rebinder:
    """One trace's stand-ins, by the id of what they stand for."""

    def __init__(self, ctx: Context, fn: Any) -> None:
        self.ctx, self.fn = ctx, fn
        self.storages: dict[int, Storage] = {}
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []  # originals, so that their ids stay taken
        self._globals: dict[int, dict[str, Any]] = {}
        self._filled: dict[int, dict[str, Any]] = {}
        self._watched: list[tuple[dict[str, Any], dict[str, Any], str]] = []  # (namespace, as it was, path)
        self._cells: list[tuple[Any, Any, str]] = []
        self._containers: list[tuple[Any, Any, str]] = []
        self._classes: dict[type, tuple[type, dict[str, Any]]] = {}  # stand-in -> (original, attributes as they were)
        self._originals: dict[int, Any] = {}  # id of a clone -> the object

    def callable(self, fn: Any) -> Any:
        """The function to call, whatever kind of callable it is."""
        if isinstance(fn, (types.FunctionType, types.MethodType, functools.partial)):
            return self.value(fn, getattr(fn, "__name__", "f"), lambda: fn, 0)
        call = type(fn).__call__
        if isinstance(call, types.FunctionType):
            return types.MethodType(self.function(call), self.value(fn, "self", lambda: fn, 0))
        return fn

    def value(self, value: Any, path: str, get: Get, depth: int) -> Any:
        """What stands for a value that the program refers to by `path`; most values stand for themselves."""
        if type(value) in (int, float, str, bool, type(None)) or depth > capture.DEPTH:
            return value
        found = self._made.get(id(value))
        if found is None:
            found = self._translate(value, path, get, depth)
            self._made[id(value)] = found
            self._kept.append(value)
        return found

    def _translate(self, value: Any, path: str, get: Get, depth: int) -> Any:
        if isinstance(value, np.ndarray) and type(value) is np.ndarray:
            return self._array(value, path, get)
        if arrays.family_of(value) in ("torch", "cupy"):
            return self._elsewhere(value, path, get)
        if isinstance(value, types.ModuleType):
            return self._module(value, path)
        inner = capture.inner_function(value)
        if inner is not None:
            return self.value(inner, path, lambda: capture.inner_function(get()), depth)
        if shims.is_random(value):
            return shims.random_shim(self.ctx, path)
        stand_in = shims.library_function(self.ctx, value)
        if stand_in is not None:
            return stand_in
        if isinstance(value, types.FunctionType):
            return value if capture.is_library(value.__module__) else self.function(value)
        if isinstance(value, types.MethodType) and capture.is_users_function(value.__func__):
            owner = self.value(value.__self__, "self", lambda: get().__self__, depth + 1)
            return types.MethodType(self.function(value.__func__), owner)
        if isinstance(value, functools.partial):
            return self._partial(value, path, get, depth)
        if isinstance(value, type):
            return self._class(value) if classes.eligible(value) else value
        if type(value) in (list, tuple, dict, OrderedDict):
            return self._container(value, path, get, depth)
        return self._object(value, path, get, depth)

    # -- arrays --------------------------------------------------------------------------------------
    def _array(self, value: np.ndarray[Any, Any], path: str, get: Get) -> TracedArray | Any:
        if not value.ndim:
            return value
        ctx, fn = self.ctx, self.fn
        ctx.known[id(value)] = Captured(path, get)
        storage = Storage(None, make=lambda: ctx.outside(value), constant=lambda: capture.look_at(fn, path, value))
        self.storages[id(value)] = storage
        return TracedArray(ctx, storage)

    def _elsewhere(self, value: Any, path: str, get: Get) -> TracedArray:
        """A captured array of CuPy or torch: a hidden input, of which Python may not see the elements while tracing."""
        ctx = self.ctx
        ctx.known[id(value)] = Captured(path, get)
        storage = self.storages[id(value)] = Storage(None, make=lambda: ctx.outside(value))
        return TracedArray(ctx, storage)

    # -- modules and functions -----------------------------------------------------------------------
    def _module(self, module: types.ModuleType, path: str) -> Any:
        stand_in = shims.library(self.ctx, module)
        if stand_in is not None:
            return stand_in
        if capture.is_library(module.__name__):
            return module
        return _UserModule(module, self, path)

    def function(self, f: types.FunctionType) -> Any:
        """The same code over rebound globals, cells and defaults."""
        made = self._made.get(id(f))
        if made is not None:
            return made
        cells = tuple(types.CellType() for _ in f.__closure__ or ())
        new = types.FunctionType(f.__code__, self._namespace(f), f.__name__, f.__defaults__, cells or None)
        new.__kwdefaults__, new.__qualname__, new.__doc__ = f.__kwdefaults__, f.__qualname__, f.__doc__
        self._made[id(f)] = new  # before what it refers to: functions may call each other
        self._kept.append(f)
        self._fill_globals(f, new.__globals__)
        for name, value in f.__dict__.items():
            new.__dict__[name] = self.value(value, f"{f.__name__}.{name}", _attribute(_constant(f), name), 1)
        self._watched.append((new.__dict__, dict(new.__dict__), f.__name__))
        for name, old, cell in zip(f.__code__.co_freevars, f.__closure__ or (), cells, strict=True):
            try:
                cell.cell_contents = self.value(old.cell_contents, name, _attribute(_constant(old), "cell_contents"), 0)
                self._cells.append((cell, cell.cell_contents, name))
            except ValueError:
                continue  # still empty, as in the original
        return new

    def _namespace(self, f: types.FunctionType) -> dict[str, Any]:
        found = self._globals.get(id(f.__globals__))
        if found is None:
            own = {**getattr(f, "__builtins__", vars(builtins)), "__import__": functools.partial(self._import, f)}
            found = {"__name__": f.__module__, "__builtins__": own}
            self._globals[id(f.__globals__)] = found
            self._filled[id(f.__globals__)] = dict(found)
        return found

    def _import(
        self, f: types.FunctionType, name: str, space: Any = None, names: Any = None, given: Any = (), level: int = 0
    ) -> Any:
        """`import` inside the function: the module's stand-in."""
        module = builtins.__import__(name, f.__globals__, names, given or (), level)
        return self.value(module, name, _constant(module), 0)

    def _fill_globals(self, f: types.FunctionType, into: dict[str, Any]) -> None:
        outer = f.__globals__
        for name, _ in capture.global_names(f.__code__):
            if name in into:
                continue
            if name in outer:
                into[name] = self.value(outer[name], name, _item(_constant(outer), name), 0)
            elif name in shims.BUILTINS:
                into[name] = shims.BUILTINS[name]
        self._filled[id(outer)] = dict(into)

    def _partial(self, value: Any, path: str, get: Get, depth: int) -> Any:
        func = self.value(value.func, path, lambda: get().func, depth + 1)
        given, options = _attribute(get, "args"), _attribute(get, "keywords")
        args = [self.value(a, f"{path}.1.{k}", _item(given, k), depth + 1) for k, a in enumerate(value.args)]
        named = {k: self.value(a, f"{path}.2.{k}", _item(options, k), depth + 1) for k, a in value.keywords.items()}
        return functools.partial(func, *args, **named)

    # -- containers and objects ------------------------------------------------------------------------
    def _container(self, value: Any, path: str, get: Get, depth: int) -> Any:
        """A copy with stand-ins where something inside has one; the original otherwise."""
        if len(value) > capture.ITEMS:
            return value
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        items = {k: self.value(v, f"{path}.{k}", _item(get, k), depth + 1) for k, v in pairs}
        originals = value if isinstance(value, dict) else dict(enumerate(value))
        if all(items[k] is originals[k] for k in items):
            return value
        made: Any = type(value)(items) if isinstance(value, dict) else type(value)(items.values())
        if not isinstance(made, tuple):
            self._containers.append((made, type(made)(made), path))
        return made

    def _object(self, value: Any, path: str, get: Get, depth: int) -> Any:
        """A clone of an object whose attributes have stand-ins (`self.w` of a model)."""
        attributes = getattr(value, "__dict__", None)
        own = type(value)
        if not isinstance(attributes, dict) or capture.is_library(own.__module__):
            return value
        kind = self.value(own, own.__name__, _constant(own), 0)
        try:
            clone = object.__new__(kind)
        except TypeError:
            return value
        self._originals[id(clone)] = value
        self._made[id(value)] = clone  # before its attributes, which may refer back to it
        self._kept.append(value)
        items = {k: self.value(v, f"{path}.{k}", _attribute(get, k), depth + 1) for k, v in attributes.items()}
        if kind is own and all(items[k] is attributes[k] for k in items):
            self._watched.append((attributes, items, path))
            return value
        clone.__dict__.update(items)
        self._watched.append((clone.__dict__, items, path))
        for name in classes.cached(kind):  # what an instance stores by itself is no change of the program's
            items.setdefault(name, _ANYTHING)
        return clone

    def _class(self, cls: type) -> type:
        """The stand-in of one of the user's classes."""
        kept: list[type] = []

        def made(new: type) -> None:
            self._made[id(cls)] = new
            kept.append(new)

        try:
            new = classes.stand_in(self, cls, made)
        except TypeError:  # a layout or base that cannot be subclassed anew
            new = cls
        if new is not cls:
            self._classes[new] = (cls, classes.attributes(new))
        return new

    def original(self, value: Any) -> Any:
        """What the caller knows an object of the trace as; of one made in the trace, its own class."""
        known = self._originals.get(id(value))
        if known is not None:
            return known
        if isinstance(value, type):
            return self._classes.get(value, (value, {}))[0]
        if type(value) in self._classes:
            value.__class__ = self._classes[type(value)][0]
        return value

    # -- afterwards --------------------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse a program that stored into objects or containers of the outside: a call would not do that again."""
        for namespace, before, path in self._watched:
            changed = [
                k for k, v in namespace.items() if before.get(k, _MISSING) is not v and before.get(k) is not _ANYTHING
            ]
            if changed:
                namespace.clear()  # where it is a real object's, nothing traced may stay in it
                namespace.update({k: v for k, v in before.items() if v is not _ANYTHING})
                raise _outside(f"{path}.{changed[0]}")
        self._check_classes()
        for cell, content, path in self._cells:
            if cell.cell_contents is not content:
                raise _outside(path)
        for namespace, filled in zip(self._globals.values(), self._filled.values(), strict=True):
            for name in namespace:
                if name not in filled or namespace[name] is not filled[name]:
                    raise _outside(name)
        for made, before, path in self._containers:
            same = len(made) == len(before) and all(a is b for a, b in zip(_items(made), _items(before), strict=True))
            if not same:
                raise _outside(path)

    def _check_classes(self) -> None:
        for new, (cls, before) in self._classes.items():
            now = classes.attributes(new)
            for name in now:
                if now[name] is not before.get(name, _MISSING):
                    raise _outside(f"{cls.__name__}.{name}")


_ANYTHING, _MISSING = object(), object()


def _constant(value: Any) -> Get:
    return lambda: value


def _item(get: Get, key: Any) -> Get:
    return lambda: get()[key]


def _attribute(get: Get, name: str) -> Get:
    return lambda: getattr(get(), name)


def _items(container: Any) -> list[Any]:
    return list(container.values()) if isinstance(container, Mapping) else list(container)


def _outside(path: str) -> TraceError:
    message = f"`{path}` is changed inside the traced function; a compiled call would not change it"
    return TraceError(message, "outside-state", notes=("return the new value instead",))


class _UserModule(types.ModuleType):
    """A user's module whose functions and arrays are rebound as they are reached."""

    def __init__(self, module: types.ModuleType, rebinder: Rebinder, path: str) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"], self.__dict__["_rebinder"], self.__dict__["_path"] = module, rebinder, path

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_module"]
        path = f"{self.__dict__['_path']}.{name}"
        value = getattr(module, name)
        return self.__dict__["_rebinder"].value(value, path, lambda: getattr(module, name), 0)
