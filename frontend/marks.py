"""`fuser.must_fuse` and `fuser.no_fuse` in a Python function.

In: values of a program. Out: marks on the graph being traced; nothing where no trace runs, so that the function is
still plain NumPy.
"""

from __future__ import annotations

from typing import Any

from fuser.errors import TraceTypeError
from fuser.frontend import context
from fuser.frontend.tracer import TracedArray


def mark(together: bool, values: tuple[Any, ...]) -> None:
    """Mark values of the running trace. TraceTypeError [operand] for what is no array."""
    ctx = context.current()
    if ctx is None:
        return
    ctx.enter()
    for value in values:
        if type(value) is not TracedArray:
            place = () if ctx.b.span is None else (ctx.b.span,)
            name = "must_fuse" if together else "no_fuse"
            raise TraceTypeError(f"`{name}` takes arrays, not a {type(value).__name__}", "operand", place)
    ctx.b.mark(together, [value.node for value in values])
