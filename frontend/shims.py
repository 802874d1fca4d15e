"""What a traced function sees in place of modules: NumPy whose creation functions trace, `math` on run-time scalars,
and random generators that refuse.

In: a module or one of its functions, as the program refers to it. Out: a stand-in for the length of the trace. Nothing
is patched: `rebind` puts the stand-ins into a copy of the function's globals.
"""

from __future__ import annotations

import functools
import math
import random
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fuser.construct.common import fail
from fuser.errors import TraceError
from fuser.frontend import creation, protocols
from fuser.frontend.context import Context
from fuser.frontend.scalar import Scalar, host
from fuser.frontend.tracer import TracedArray
from fuser.hostexpr import call
from fuser.hostfunctions import FUNCTIONS
from fuser.optable import table

# Creation functions that NumPy's protocol does not cover.
BY_ROW = (
    "zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri",
    "indices", "meshgrid",
)  # fmt: skip
OWN: dict[str, Callable[..., Any]] = {
    "array": creation.array, "asarray": creation.asarray, "asanyarray": creation.asarray,
    "ascontiguousarray": creation.ascontiguousarray, "require": creation.asarray, "from_dlpack": creation.asarray,
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
    readers = {name: _refused(f"np.{name}", _ONCE) for name in READERS}
    return Shim(np, {**replaced, **readers, "random": random_shim(ctx, "np.random")})


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


def library(ctx: Context, module: types.ModuleType) -> Any:
    """The stand-in of a library's module, None where the module itself will do."""
    if module is np:
        return numpy_shim(ctx)
    if module is math:
        return math_shim(ctx)
    if module.__name__ in ("random", "numpy.random", "cupy.random"):
        return random_shim(ctx, module.__name__.replace("numpy", "np"))
    if module.__name__ == "cupy":
        return cupy_shim(ctx, module)
    if module.__name__ == "torch":
        from fuser.frontend import torch_shim

        return Shim(module, torch_shim.replaced(ctx))
    return special_shim(ctx, module) if module.__name__ in ("scipy.special", "cupyx.scipy.special") else None


def library_function(ctx: Context, value: Any) -> Any:
    """The stand-in of a library's function that was imported by name; None where it will do itself."""
    if id(value) in CREATORS:
        return creator(ctx, value)
    if id(value) in MATH:
        return math_function(ctx, value)
    module = getattr(value, "__module__", None) or type(value).__module__
    name = getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if isinstance(value, types.FunctionType) and module.startswith("scipy.special"):
        return _by_column(ctx, "scipy", name)
    if module == "torch":
        from fuser.frontend import torch_shim

        if name in torch_shim.CREATORS or name in torch_shim.RANDOM:
            return torch_shim.replaced(ctx)[name]
    if module.partition(".")[0] == "cupy" and callable(value) and not isinstance(value, type):
        return getattr(numpy_shim(ctx), name, None)
    return None


# -- CuPy and SciPy ----------------------------------------------------------------------------------
def cupy_shim(ctx: Context, module: types.ModuleType) -> Shim:
    """`cupy` as a traced function sees it: NumPy's functions, because traced arrays are neither library's."""
    shim = numpy_shim(ctx)
    replaced = {name: getattr(np, name) for name in vars(np) if not name.startswith("_") and hasattr(module, name)}
    own = {"random": random_shim(ctx, "cupy.random"), "ndarray": np.ndarray}
    stand_in = Shim(module, {**replaced, **{n: getattr(shim, n) for n in (*BY_ROW, *OWN)}, **own})
    stand_in.__dict__["get_array_module"] = lambda *args: stand_in
    return stand_in


def special_shim(ctx: Context, module: types.ModuleType) -> Shim:
    """`scipy.special`: its ufuncs trace by themselves, its Python functions by their row."""
    found = {n: _by_column(ctx, "scipy", n) for n in dir(module) if isinstance(getattr(module, n), types.FunctionType)}
    if module.__name__.startswith("cupyx"):
        found = {n: _by_column(ctx, "scipy", n) for n in dir(module)}
    return Shim(module, {n: f for n, f in found.items() if f is not None})


def _by_column(ctx: Context, column: str, name: str) -> Callable[..., Any] | None:
    row = table().find(column, name)
    if row is None:
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        return protocols.call_row(ctx, row, args, kwargs, ctx.enter())

    return call


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
            fail(ctx.b, TraceError, message, "math-on-array", f"write np.{name}")
        return original(x, *rest)

    return apply


MATH: dict[int, str] = {id(getattr(math, name)): name for name in _MATH}


# -- builtins ----------------------------------------------------------------------------------------
def length(value: Any) -> Any:
    """`len`: the first dim, without fixing it."""
    if type(value) is TracedArray and value.node.rank:
        return value.shape[0]
    return len(value)


def _refused(name: str, why: str) -> Callable[..., NoReturn]:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        message = f"`{name}` inside a traced function {why}"
        raise TraceError(message, "outside-read", (), ("do it outside and pass the value as an argument",))

    return call


_ONCE = "would read once, while tracing, and give the same value at every call"
_NAMES = "reads names that a trace does not follow"
BUILTINS: dict[str, Any] = {
    "len": length, "open": _refused("open", _ONCE), "input": _refused("input", _ONCE),
    "eval": _refused("eval", _NAMES), "exec": _refused("exec", _NAMES), "globals": _refused("globals", _NAMES),
}  # fmt: skip
READERS = ("load", "loadtxt", "genfromtxt", "fromfile", "memmap", "fromregex")  # NumPy's, of files


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
        from fuser.frontend.advice import NUMPY_RANDOM

        self._ctx.enter()
        message = f"`{self._name}` would draw once, while tracing, and give the same numbers at every call"
        fail(self._ctx.b, TraceError, message, "random", NUMPY_RANDOM)


def random_shim(ctx: Context, name: str) -> Refused:
    """`np.random` and `random` as a traced function sees them."""
    return Refused(ctx, name)


@functools.cache
def _numpy_generators(module: Any) -> tuple[type, ...]:
    return (module.Generator, module.RandomState, module.BitGenerator)


def is_random(value: Any) -> bool:
    """A generator, or a function bound to one (`np.random.rand`, `random.random`)."""
    if type(value) in (TracedArray, Scalar):
        return False
    module = sys.modules.get("numpy.random")  # where nobody has imported it, there are none of its generators
    generators = (random.Random, *(_numpy_generators(module) if module else ()))
    owner = value if isinstance(value, generators) else getattr(value, "__self__", None)
    return isinstance(owner, generators) or (module is not None and value is module.default_rng)
