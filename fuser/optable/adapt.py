"""Adapters between how users call a function and how `fuser.construct` is called.

In: a constructor `f(builder, x, ...)`. Out: the same with array-like leading arguments (numbers, nested lists,
small NumPy arrays) made nodes, and with keywords that mean nothing here (order=, subok=, ...) dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fuser.construct import creation
from fuser.construct.common import fail
from fuser.dtypes import F64
from fuser.errors import ArgumentError
from fuser.graph import Builder, Node
from fuser.optable.base import Function, Looks, Names

# Keywords of NumPy's and torch's signatures about memory, not values.
INERT = frozenset(
    {"subok", "like", "device", "casting", "copy", "order", "requires_grad", "layout", "pin_memory", "memory_format"}
)

Build = Callable[..., Any]


def named(numpy: str = "", torch: str = "", scipy: str = "", dsl: str = "", methods: str = "", cupy: str = "") -> Names:
    """`Names` from space-separated words."""
    return Names(*(tuple(c.split()) for c in (numpy, cupy, torch, scipy, dsl, methods)))


def function(name: str, build: Build, notes: str = "", looks: Looks | None = None, **columns: str) -> Function:
    """A `Function` row; columns as for `named`."""
    return Function(name=name, build=build, looks=looks, names=named(**columns), notes=notes)


def arrays(count: int, build: Build) -> Build:
    """The first `count` positional arguments (or their keywords) as nodes."""
    parameters = _parameters(build)
    names, taken = parameters[1 : count + 1], set(parameters)

    @wraps(build)
    def adapted(b: Builder, *args: Any, **kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k in taken or k not in INERT}
        given = [creation.array(b, a) if k < count and a is not None else a for k, a in enumerate(args)]
        for name in names:
            if kept.get(name) is not None:
                kept[name] = creation.array(b, kept[name])
        return build(b, *given, **kept)

    return adapted


def _parameters(build: Build) -> list[str]:
    """Names of a function's parameters; read off its code where it has one, which is twenty times faster."""
    code = getattr(build, "__code__", None)
    if code is None or hasattr(build, "__wrapped__"):
        return list(inspect.signature(build).parameters)
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return list(code.co_varnames[: count + bool(code.co_flags & inspect.CO_VARKEYWORDS)])


def listed(build: Build) -> Build:
    """The first argument is a sequence of arrays."""
    taken = set(_parameters(build))

    @wraps(build)
    def adapted(b: Builder, items: Any, *args: Any, **kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k in taken or k not in INERT}
        parts = [creation.array(b, a) for a in items] if isinstance(items, tuple | list) else _rows(b, items)
        return build(b, parts, *args, **kept)

    return adapted


def _rows(b: Builder, x: Node) -> list[Node]:
    """An array where a sequence is expected: its slices along the first axis."""
    from fuser.construct import indexing
    from fuser.construct.common import static_int

    count = static_int(b, b.shapes.canonical(x.shape[0]), "the length of a sequence of arrays")
    return [indexing.getitem(b, x, k) for k in range(count)]


def spread(build: Build, name: str) -> Build:
    """A function of (array, tuple) that also takes the tuple's items as separate arguments, as methods do."""
    taken = set(inspect.signature(build).parameters)

    @wraps(build)
    def adapted(b: Builder, x: Any, *items: Any, **kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k in taken or k not in INERT}
        array = creation.array(b, x)
        if not items:
            return build(b, array, **kept)
        if isinstance(items[0], tuple | list) or items[0] is None:
            return build(b, array, *items, **kept)
        extra = [i for i in items if isinstance(i, str)]  # np.reshape(x, 6, "C")
        kept[name] = tuple(i for i in items if not isinstance(i, str))
        if extra:
            kept["order"] = extra[0]
        return build(b, array, **kept)

    return adapted


def inert(build: Build) -> Build:
    """As it is, inert keywords dropped."""
    taken = set(inspect.signature(build).parameters)

    @wraps(build)
    def adapted(b: Builder, *args: Any, **kwargs: Any) -> Any:
        return build(b, *args, **{k: v for k, v in kwargs.items() if k in taken or k not in INERT})

    return adapted


def no_out(b: Builder, out: object) -> None:
    """Refuse `out=`, which front ends take before a row is asked."""
    if out is not None:
        fail(b, ArgumentError, "`out` is handled where the call is traced, not here", "out")


def as_float(b: Builder, x: Node) -> Node:
    """Floats and complex numbers as they are, integers and bools as f64."""
    from fuser.construct import elementwise

    return x if x.dtype.is_inexact else elementwise.cast(b, x, F64)
