"""Loops inside a kernel: the function that users call. The `loop` node that it makes is `fuser.loopbody`'s.

In: nothing. Out: the row `loop`, in no array library's namespace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fuser.construct import creation
from fuser.construct.common import fail, is_complex_host, is_host
from fuser.construct.loop import loop
from fuser.errors import ArgumentError
from fuser.graph import Builder
from fuser.optable.adapt import function
from fuser.optable.base import Table

NOTES = (
    "loop(n, body, *states, until=None): n rounds of `states = body(i, *states)`, each element by itself in a kernel; "
    "an element for which `until(*states)` holds keeps its states"
)


def build(b: Builder, n: Any, body: Any, *states: Any, until: Callable[..., Any] | None = None) -> Any:
    """`fuser.ops.loop`; `body` and `until` take and give what the builder does."""
    for what, given in (("body", body), ("until", until)):
        if not callable(given) and not (what == "until" and given is None):
            message = f"`{what}` of a loop is a function, not {type(given).__name__}"
            fail(b, ArgumentError, message, "loop-function", "fuser.ops.loop(n, lambda i, x: x * x, x)")
    values = [v if is_host(v) or is_complex_host(v) else creation.array(b, v) for v in states]
    names = _names(body)[1:]
    found = loop(b, n, body, *values, until=until, names=names)
    for node, name in zip(found, names, strict=False):
        b.label(node, name)
    return found[0] if len(states) == 1 else found


def _names(body: Callable[..., Any]) -> tuple[str, ...]:
    """Names of positional parameters, as far as Python knows them."""
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def register(table: Table) -> None:
    """Add this module's rows."""
    table.register(function("loop", build, NOTES))
