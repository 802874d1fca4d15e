"""NVTX ranges: calls of compiled functions by name on a profiler's time line (`FUSER_NVTX=1`).

In: a compiled function. Out: the same, with each call a range. NVTX is CuPy's; without it calls are as ever. Its own
file because nothing here costs a call anything unless the setting asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.settings import settings


def show(compiled: Any) -> None:
    """Let profilers see the calls of a `Compiled`, if the setting asks."""
    if settings().nvtx:
        from fuser.runtime import cuda

        if (found := cuda.nvtx()) is not None:
            compiled.__class__ = _ranged(type(compiled), *found)


def _ranged(kind: Any, push: Callable[[str], Any], pop: Callable[[], Any]) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        push(f"fuser {self.__name__}")
        try:
            return kind.__call__(self, *args, **kwargs)
        finally:
            pop()

    return type(kind.__name__, (kind,), {"__call__": call, "__doc__": kind.__doc__, "__module__": kind.__module__})
