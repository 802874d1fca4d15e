"""Stand-ins of the user's classes while a function is traced: the same methods over globals and cells that trace.

In: a class. Out: a class of the same name whose methods, properties and attributes have been rebound, each method when
it is first asked for (a class may have many, and these may reach far). Bases that are the user's have stand-ins too, so
`super()` finds rebound methods; those of a library are its own. Its own file because `rebind` is about values, and
classes have descriptors.
"""

from __future__ import annotations

import abc
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuser.frontend import capture

if TYPE_CHECKING:
    from fuser.frontend.rebind import Rebinder


def eligible(cls: type) -> bool:
    """Whether a class can have a stand-in: a plain class of the user's, without slots, hooks or a metaclass of its own.

    Exceptions stay what they are, so that the caller can catch them.
    """
    if capture.is_library(cls.__module__) or type(cls) not in (type, abc.ABCMeta):
        return False
    if issubclass(cls, (BaseException, tuple, type)):
        return False
    own = [c for c in cls.__mro__ if not capture.is_library(c.__module__)]
    return not any("__slots__" in vars(c) or "__init_subclass__" in vars(c) for c in own)


def stand_in(rebinder: Rebinder, cls: type, made: Callable[[Any], None]) -> type:
    """The class to use in place of `cls`; `made` is told of it before its attributes, which may refer to it."""
    path = cls.__name__
    bases = tuple(rebinder.value(b, b.__name__, functools.partial(lambda b: b, b), 0) for b in cls.__bases__)
    space: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, attribute in vars(cls).items():
        if name in ("__dict__", "__weakref__"):
            continue
        wrapped = _descriptor(rebinder, attribute)
        if wrapped is not None:
            space[name] = wrapped
        elif name.startswith("__") and name.endswith("__"):
            space[name] = attribute
        else:
            plain[name] = attribute
    new = type(cls)(cls.__name__, bases, space)
    made(new)
    for name, attribute in plain.items():
        get = functools.partial(lambda owner, name: vars(owner)[name], cls, name)
        setattr(new, name, rebinder.value(attribute, f"{path}.{name}", get, 1))
    return new


def attributes(cls: type) -> dict[str, Any]:
    """What is in a class but descriptors and special names: what a program may not change."""
    return {k: v for k, v in vars(cls).items() if not (k.startswith("__") or isinstance(v, _Lazy | property))}


def cached(cls: type) -> frozenset[str]:
    """Names of cached properties: an instance stores these by itself."""
    found = (k for c in cls.__mro__ for k, v in vars(c).items() if isinstance(v, functools.cached_property))
    return frozenset(found)


class _Lazy:
    """A method, static method or class method that is rebound when it is first asked for."""

    def __init__(self, rebinder: Rebinder, function: types.FunctionType, kind: type) -> None:
        self._rebinder, self._function, self._kind = rebinder, function, kind

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        function = self._rebinder.function(self._function)
        if self._kind is classmethod:
            return types.MethodType(function, cls if cls is not None else type(owner))
        if owner is None or self._kind is staticmethod:
            return function
        return types.MethodType(function, owner)


def _descriptor(rebinder: Rebinder, attribute: Any) -> Any:
    """The stand-in of a method or property; None for anything else."""
    if capture.is_users_function(attribute):
        return _Lazy(rebinder, attribute, types.FunctionType)
    if isinstance(attribute, (staticmethod, classmethod)) and capture.is_users_function(attribute.__func__):
        return _Lazy(rebinder, attribute.__func__, type(attribute))
    if isinstance(attribute, functools.cached_property):
        return functools.cached_property(_late(rebinder, attribute.func))
    if type(attribute) is property:
        get, put, drop = (f and _late(rebinder, f) for f in (attribute.fget, attribute.fset, attribute.fdel))
        return property(get, put, drop)
    return None


def _late(rebinder: Rebinder, function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        rebound = rebinder.function(function) if capture.is_users_function(function) else function
        return rebound(*args)

    return call
