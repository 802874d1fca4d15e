"""What a traced function sees in place of modules: NumPy whose creation functions trace, `math` on run-time scalars,
and random generators that refuse.

In: a module or one of its functions, as the program refers to it. Out: a stand-in for the length of the trace. Nothing
is patched: `rebind` puts the stand-ins into a copy of the function's globals.
"""

from __future__ import annotations

import functools
import math
import random
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fuser.errors import TraceError
from fuser.frontend import advice, creation
from fuser.frontend.context import Context
from fuser.frontend.scalar import Scalar, host
from fuser.frontend.tracer import TracedArray
from fuser.hostexpr import FUNCTIONS, call

# Creation functions that NumPy's protocol does not cover.
BY_ROW = (
    "zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri",
    "indices", "meshgrid",
)  # fmt: skip
OWN: dict[str, Callable[..., Any]] = {
    "array": creation.array, "asarray": creation.asarray, "asanyarray": creation.asarray,
    "ascontiguousarray": creation.ascontiguousarray, "require": creation.asarray,
}  # fmt: skip
_MATH = ("sqrt", "exp", "log", "sin", "cos", "tanh", "floor", "ceil")


class Shim(types.ModuleType):
    """A module in which some names are replaced; every other is the module's own."""

    def __init__(self, module: types.ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(replaced)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


def numpy_shim(ctx: Context) -> Shim:
    """`np` as a traced function sees it."""
    replaced = {name: creator(ctx, getattr(np, name)) for name in (*BY_ROW, *OWN)}
    return Shim(np, {**replaced, "random": random_shim(ctx, "np.random")})


def creator(ctx: Context, original: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in of one creation function."""
    name = original.__name__
    own = OWN.get(name)

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if own is not None:
            return own(ctx, *args, **kwargs)
        return creation.by_row(ctx, original, args, kwargs)

    return make


CREATORS: dict[int, str] = {id(getattr(np, name)): name for name in (*BY_ROW, *OWN)}


# -- math --------------------------------------------------------------------------------------------
def math_shim(ctx: Context) -> Shim:
    """`math` on run-time scalars gives run-time scalars."""
    return Shim(math, {name: math_function(ctx, getattr(math, name)) for name in _MATH})


def math_function(ctx: Context, original: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in of one function of `math`."""
    name = original.__name__

    @functools.wraps(original)
    def apply(x: Any, *rest: Any) -> Any:
        if type(x) is Scalar and not rest:
            assert name in FUNCTIONS
            return host(ctx, call(name, x.expr))
        if type(x) is TracedArray:
            ctx.enter()
            message = f"`math.{name}` takes a Python number; this is an array, known only at run time"
            raise TraceError(message, "math-on-array", (ctx.b.span,) if ctx.b.span else (), (f"write np.{name}",))
        return original(x, *rest)

    return apply


MATH: dict[int, str] = {id(getattr(math, name)): name for name in _MATH}


# -- builtins ----------------------------------------------------------------------------------------
def length(value: Any) -> Any:
    """`len`: the first dim, without fixing it."""
    if type(value) is TracedArray and value.node.rank:
        return value.shape[0]
    return len(value)


BUILTINS: dict[str, Any] = {"len": length}


# -- randomness --------------------------------------------------------------------------------------
class Refused:
    """A source of random numbers: any use would draw once, while tracing, and never again."""

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx, self._name = ctx, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Refused(self._ctx, f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._ctx.enter()
        span = self._ctx.b.span
        message = f"`{self._name}` would draw once, while tracing, and give the same numbers at every call"
        raise TraceError(message, "random", (span,) if span else (), (advice.NUMPY_RANDOM,))


def random_shim(ctx: Context, name: str) -> Refused:
    """`np.random` and `random` as a traced function sees them."""
    return Refused(ctx, name)


_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)


def is_random(value: Any) -> bool:
    """A generator, or a function bound to one (`np.random.rand`, `random.random`)."""
    if type(value) in (TracedArray, Scalar):
        return False
    owner = value if isinstance(value, _GENERATORS) else getattr(value, "__self__", None)
    return isinstance(owner, _GENERATORS) or value in (np.random.default_rng,)


