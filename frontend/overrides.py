"""What array libraries ask of an operand before they compute: here every call becomes an operator of the trace.

Out: `Overrides`, the base of all that stands for a value (arrays, numbers, what absorbs a failed trace), and `Number`
for those known at each call. Its own file because those classes stand in four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fuser.frontend.context import Context


class Overrides:
    """The override protocols of NumPy and torch, for a class that holds its trace in `_ctx`."""

    __slots__ = ()
    _ctx: Context

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from fuser.frontend import protocols

        return protocols.ufunc(self._ctx, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from fuser.frontend import protocols

        return protocols.function(self._ctx, func, args, kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from fuser.frontend import torch_calls

        return torch_calls.function(func, args, kwargs or {})


class Number(Overrides):
    """A number known at each call; what makes an array of it asks for the value."""

    __slots__ = ()
    __array_priority__ = 1000

    def _now(self, what: str) -> Any:
        """The value, if the trace has it; else a trace is asked for that does, for the sake of `what`."""
        raise NotImplementedError

    def __complex__(self) -> complex:
        return complex(self._now("complex()"))

    def __hash__(self) -> int:
        return hash(self._now("a key"))

    def __str__(self) -> str:
        return str(self._now("a text"))

    def __format__(self, spec: str) -> str:
        return format(self._now("a text"), spec)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._now("an array of constants"), dtype=dtype)
