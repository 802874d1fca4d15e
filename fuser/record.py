"""`dataclass` for records: what `dataclasses.dataclass` makes, at a thirtieth of the time an import waits for it.

In: a class with annotated fields. Out: the same class with the methods of a dataclass; `fields`, `replace` and `asdict`
of `dataclasses` work on it. Its own file because it is about the time to the first answer: fuser defines some three
hundred records, and the standard decorator compiles six functions of source text for each, more than a hundred
milliseconds in all. Here all records have the same methods, which look up what they need of a class (`__record__` and
`__compared__`, `__hashed__` beside it): the fewer objects there are, the less a garbage collection has to walk, and one
that walks them all waits at the end of every process. The constructor, which needs source text, is compiled once a
process has made several instances; most records never get there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

MANY = 32  # instances made without a compiled constructor: compiling one (90 us) takes as long as some 50 calls of it

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, **options):
        """`dataclasses.dataclass` with the options frozen, eq, kw_only and slots."""
        return _record(cls, **options) if cls is not None else lambda c: _record(c, **options)


class _Facts:
    """What the common methods need to know of a class. left: simple instances until its constructor is compiled."""

    __slots__ = ("cls", "fields", "frozen", "left", "shown")

    def __init__(self, cls: type, fields: Mapping[str, Any], frozen: bool) -> None:
        self.cls, self.fields, self.frozen = cls, fields, frozen
        self.shown = tuple(f.name for f in fields.values() if f.repr)
        simple = all(f.init and not f.kw_only for f in fields.values()) and not hasattr(cls, "__post_init__")
        self.left = MANY if simple else 0


def _record(cls: type, *, frozen: bool = False, eq: bool = True, kw_only: bool = False, slots: bool = False) -> type:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # or the standard library works out a signature for it
    if slots or not _quick_fields(cls, kw_only):
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    own, fields = cls.__dict__, {f.name: f for f in dataclasses.fields(cls)}
    methods: dict[str, Any] = {"__init__": _first_init, "__repr__": _show}
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        if slots:
            methods |= {"__getstate__": _slot_values, "__setstate__": _fill_slots}
    if eq:
        cls.__compared__ = _values([f.name for f in fields.values() if f.compare])  # type: ignore[attr-defined]
        if own.get("__hash__") is None:
            hashed = [f.name for f in fields.values() if (f.compare if f.hash is None else f.hash)]
            cls.__hashed__ = _values(hashed)  # type: ignore[attr-defined]
            cls.__hash__ = _hash if frozen else None  # type: ignore[assignment]
        methods["__eq__"] = _equal
    for name, method in methods.items():
        if name not in own:  # the class may have written its own
            setattr(cls, name, method)
    cls.__record__ = _Facts(cls, fields, frozen)  # type: ignore[attr-defined]
    return cls


# -- fields --------------------------------------------------------------------------------------------
@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Sample:
    """What the standard decorator leaves on a class, to be left on others."""

    field: int


_KIND = _Sample.__dataclass_fields__["field"]._field_type  # type: ignore[attr-defined]
_UNUSUAL = ("ClassVar", "InitVar", "KW_ONLY")  # annotations that are no fields, or mean something for those that follow


def _quick_fields(cls: type, kw_only: bool) -> bool:
    """Note the fields of a class, as the standard decorator does; False for a class that is left to that.

    (Three quarters of what that takes goes into looking for what is not there.)
    """
    fields: dict[str, Any] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields.update(base.__dict__.get("__dataclass_fields__", ()))
    annotations = cls.__annotations__ if "__annotations__" in cls.__dict__ else {}
    if not all(isinstance(a, str) and not any(word in a for word in _UNUSUAL) for a in annotations.values()):
        return False
    for name, annotation in annotations.items():
        given = cls.__dict__.get(name, dataclasses.MISSING)
        f: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        f.name, f.type, f._field_type = name, annotation, _KIND
        f.kw_only = kw_only if f.kw_only is dataclasses.MISSING else f.kw_only
        if f is given and f.default is dataclasses.MISSING:
            delattr(cls, name)
        elif f is given:
            setattr(cls, name, f.default)
        fields[name] = f
    cls.__dataclass_fields__ = fields  # type: ignore[attr-defined]
    cls.__dataclass_params__ = _Sample.__dataclass_params__  # type: ignore[attr-defined]
    setattr(cls, "__match_args__", tuple(f.name for f in fields.values() if f.init and not f.kw_only))  # noqa: B010
    return True


def _values(names: Sequence[str]) -> Any:
    """Reads the named attributes of a record; to be kept on its class."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return staticmethod(_nothing)
    get = attrgetter(*names)
    return staticmethod(lambda record: (get(record),))


def _nothing(record: Any) -> tuple[Any, ...]:
    return ()


# -- methods -------------------------------------------------------------------------------------------
def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__compared__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__hashed__(self))


@recursive_repr()
def _show(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__record__.shown)})"


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    _refuse(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    object.__delattr__(self, name)


def _refuse(self: Any, name: str, what: str) -> None:
    """FrozenInstanceError for what a frozen record may not do; a subclass may have attributes of its own."""
    if type(self) is self.__record__.cls or name in self.__record__.fields:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _slot_values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__record__.fields]


def _fill_slots(self: Any, state: Sequence[Any]) -> None:
    """`__setstate__` of a frozen record that has slots: the default would assign to its fields."""
    for name, value in zip(self.__record__.fields, state, strict=True):
        object.__setattr__(self, name, value)


# -- the constructor -----------------------------------------------------------------------------------
def _first_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """`__init__` of the first instances. It binds simple calls by itself, and gives way to the compiled constructor
    where instances are many or a call is not simple. Threads that meet here replace it by equal functions."""
    facts = self.__record__
    facts.left -= 1
    values = _bind(facts.fields, args, kwargs) if facts.left >= 0 else None
    if values is None:
        made = _constructor(facts.cls, facts.frozen)
        facts.cls.__init__ = made
        made(self, *args, **kwargs)
        return
    set_field = object.__setattr__ if facts.frozen else setattr
    for name in facts.fields:
        set_field(self, name, values[name])


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
