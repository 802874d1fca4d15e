"""`dataclass` for records: what `dataclasses.dataclass` makes, at a twentieth of the time an import waits for it.

In: a class with annotated fields. Out: the same class with the methods of a dataclass; `fields`, `replace` and `asdict`
of `dataclasses` work on it. Its own file because it is about the time to the first answer: fuser defines some three
hundred records, and the standard decorator compiles six functions of source text for each, more than a hundred
milliseconds in all. Here methods that need no text close over the names of the fields, and the constructor, which
does, is compiled once a process has made several instances; most records never get there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

MANY = 8  # instances made without a compiled constructor: compiling one (90 us) takes as long as some 50 calls of it

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, **options):
        """`dataclasses.dataclass` with the options frozen, eq, kw_only and slots."""
        return _record(cls, **options) if cls is not None else lambda c: _record(c, **options)


def _record(cls: type, *, frozen: bool = False, eq: bool = True, kw_only: bool = False, slots: bool = False) -> type:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # or the standard library works out a signature for it
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    fields = dataclasses.fields(cls)
    _add(cls, "__init__", _first_calls(cls, frozen))
    _add(cls, "__repr__", _repr([f.name for f in fields if f.repr]))
    if frozen:
        names = frozenset(f.name for f in fields)
        _add(cls, "__setattr__", _refusal(cls, "__setattr__", "assign to", names))
        _add(cls, "__delattr__", _refusal(cls, "__delattr__", "delete", names))
        if slots:
            _add(cls, "__getstate__", lambda self: [getattr(self, f.name) for f in fields])
            _add(cls, "__setstate__", _fill([f.name for f in fields]))
    if eq:
        own_hash = cls.__dict__.get("__hash__") is not None
        _add(cls, "__eq__", _equal(_values([f.name for f in fields if f.compare])))
        if not own_hash:
            hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
            cls.__hash__ = _hash(_values(hashed)) if frozen else None  # type: ignore[assignment]
    return cls


def _add(cls: type, name: str, method: Callable[..., Any]) -> None:
    """A method, unless the class has written its own."""
    if name not in cls.__dict__:
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the named attributes of a record."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda record: ()
    get = attrgetter(*names)
    return lambda record: (get(record),)


def _equal(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _fill(names: Sequence[str]) -> Callable[[Any, Sequence[Any]], None]:
    """`__setstate__` of a frozen record that has slots: the default would assign to its fields."""

    def __setstate__(self: Any, state: Sequence[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    return __repr__


def _refusal(cls: type, method: str, what: str, names: frozenset[str]) -> Callable[..., None]:
    """`__setattr__` or `__delattr__` of a frozen record; a subclass may have attributes of its own."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse


def _first_calls(cls: type, frozen: bool) -> Callable[..., None]:
    """`__init__` of the first instances. It binds simple calls by itself, and gives way to the compiled constructor
    where instances are many or a call is not simple. Threads that meet here replace it by equal functions."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    simple = all(f.init and not f.kw_only for f in fields.values()) and not hasattr(cls, "__post_init__")
    left = MANY if simple else 0
    set_field: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= 1
        values = _bind(fields, args, kwargs) if left >= 0 else None
        if values is None:
            made = _constructor(cls, frozen)
            cls.__init__ = made  # type: ignore[misc]
            made(self, *args, **kwargs)
            return
        for name in fields:
            set_field(self, name, values[name])

    return __init__


def _bind(fields: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The value of each field that a constructor's call gives; None for a call that is wrong."""
    values = dict(zip(fields, args, strict=False))
    values.update(kwargs)
    if len(values) != len(args) + len(kwargs):
        return None
    for name, f in fields.items():
        if name in values:
            continue
        if f.default_factory is not dataclasses.MISSING:
            values[name] = f.default_factory()
        elif f.default is not dataclasses.MISSING:
            values[name] = f.default
        else:
            return None
    return values if len(values) == len(fields) else None


def _constructor(cls: type, frozen: bool) -> Callable[..., None]:
    """`__init__` with the fields as its parameters."""
    namespace: dict[str, Any] = {"set_field": object.__setattr__, "missing": dataclasses.MISSING}
    plain: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for f in dataclasses.fields(cls):
        made = f.default_factory is not dataclasses.MISSING
        value = f.name
        if made:
            namespace[f"make_{f.name}"] = f.default_factory
            value = f"make_{f.name}() if {f.name} is missing else {f.name}" if f.init else f"make_{f.name}()"
        if f.init:
            namespace[f"default_{f.name}"] = f.default
            default = "missing" if made else f"default_{f.name}"
            optional = made or f.default is not dataclasses.MISSING
            (keyword if f.kw_only else plain).append(f"{f.name}={default}" if optional else f.name)
        if f.init or made:
            body.append(f"set_field(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *keyword] if keyword else ())])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), namespace)
    method: Callable[..., None] = namespace["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method
