"""`Poison`: the result of a call that has no operator, while the trace goes on to find the others.

In: anything a program does with such a result. Out: more poison. A trace that made any ends in one error
that lists every refused call, so what poison stands for never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fuser.frontend.overrides import Overrides

if TYPE_CHECKING:
    from fuser.frontend.context import Context


class Poison(Overrides):
    """Stands for any array; absorbs every operation, and answers questions so that most of the program still runs."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def _absorb(self, *_: Any, **__: Any) -> Any:
        return self

    def _stop(self, *_: Any, **__: Any) -> Any:
        raise StopTrace

    def _one(self, *_: Any) -> int:
        return 1

    def __bool__(self) -> bool:
        """True at the first time that a place asks, then False: an `if` is entered, a `while` left."""
        frame = self._ctx.enter()
        place = (frame.f_code, frame.f_lasti) if frame is not None else None
        first = place not in self._ctx.asked
        self._ctx.asked.add(place)
        return first

    def __float__(self) -> float:
        return 1.0

    def __complex__(self) -> complex:
        return 1.0 + 0j

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        from fuser.frontend import locations

        frame = self._ctx.enter()
        count = locations.unpacked_count(frame) if frame is not None else None
        return iter([self] * (1 if count is None else count))

    __array_priority__ = 3000
    __hash__ = None  # type: ignore[assignment]


class StopTrace(BaseException):
    """The trace cannot go on with poison: the refused calls found so far are reported."""


def _fill() -> None:
    absorbed = ["add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"]
    absorbed += ["and", "or", "xor", "lshift", "rshift"]
    names = [f"__{prefix}{name}__" for name in absorbed for prefix in ("", "r", "i")]
    names += [f"__{name}__" for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert")]
    absorb: Callable[..., Any] = Poison._absorb
    for name in names:
        setattr(Poison, name, absorb)
    for name in ("int", "index", "len"):
        setattr(Poison, f"__{name}__", Poison._one)
    Poison.__array__ = Poison._stop  # type: ignore[attr-defined]


_fill()
