"""Arrays of libraries that fuser does not know by name, through the protocols they share.

In: anything with `__dlpack__` or `__cuda_array_interface__` (JAX, Numba, ...). Out: a NumPy or CuPy array over the
same memory, and results given back in kind. Nothing is copied where the library shares its memory; DLPack orders the
streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import trees
from fuser.errors import UnsupportedError

if TYPE_CHECKING:
    from fuser.quick import Roads

PREFIX = "foreign:"
IMMUTABLE = "foreign:jax"  # a library whose arrays never change; CuPy's views of them know nothing of that
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED = 1, 2, 3, 13
_KNOWN = ("numpy", "cupy", "torch")  # libraries with roads of their own


def family_of(value: object) -> str | None:
    """`foreign:` and the library's name; None for what follows no protocol."""
    kind = type(value)
    if isinstance(value, type) or not (hasattr(kind, "__dlpack__") or hasattr(value, "__cuda_array_interface__")):
        return None
    return PREFIX + _library(kind)


def _library(kind: type) -> str:
    return kind.__module__.partition(".")[0].removesuffix("lib")  # JAX's arrays are of `jaxlib`


@cache
def exports(kind: type) -> str | None:
    """The family of a type's arrays by the type alone; None for a type of no foreign library."""
    if not hasattr(kind, "__dlpack__") or any(_library(base) in _KNOWN for base in kind.__mro__):
        return None
    return PREFIX + _library(kind)


_PLAIN = (np.ndarray, float, int, bool, str, type(None))


def among(values: Iterable[Any]) -> str | None:
    """The one foreign family among plain values; None where there is none, or also other arrays than NumPy's, or
    anything that arrays may be in."""
    found = None
    for value in values:
        kind: Any = type(value)
        if kind in _PLAIN or issubclass(kind, np.generic):
            continue
        family = exports(kind)
        if family is None or (found is not None and family != found):
            return None
        found = family
    return found


def call(
    function: Callable[..., Any],
    roads: Roads,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    storing: bool = False,
) -> Any:
    """`function(*args, **kwargs)` on views of the arrays of one foreign family, its answer in kind: so arrays of any
    library take the roads of NumPy's and CuPy's. NotImplemented for other calls (see `among`), where some array
    cannot be viewed, and for a function that may store into arrays that must not change and whose views do not say so.
    roads: what the function has learned.
    """
    family = among((*args, *kwargs.values()))
    if family is None:
        return NotImplemented
    given: dict[int, Any] = {}  # id of a view -> (view, array)

    def seen(value: Any) -> Any:
        kind: Any = type(value)
        if exports(kind) is None:
            return value
        looked = view(value)
        given[id(looked)] = looked, value
        return looked

    try:
        views, named = [seen(value) for value in args], {name: seen(value) for name, value in kwargs.items()}
    except UnsupportedError:
        return NotImplemented  # the other road knows the argument's name
    on_device = any(not isinstance(looked, np.ndarray) for looked, _ in given.values())
    if id(None) in given or (on_device and storing and family == IMMUTABLE):
        return NotImplemented
    answer = function(*views, **named)
    if family == IMMUTABLE and not kwargs:
        from fuser.runtime import jaxroad

        jaxroad.learn(roads, args, views)
    if on_device:
        from fuser.runtime import cuda

        cuda.keep_until_done([array for _, array in given.values()])  # their library knows nothing of this stream
    if isinstance(answer, np.ndarray):
        return _back(answer, given, family)
    leaves, tree = trees.flatten(answer)
    return trees.unflatten(tree, [_back(leaf, given, family) for leaf in leaves])


def _back(leaf: Any, given: Mapping[int, Any], family: str) -> Any:
    """A leaf of an answer: an argument itself, a result in kind, or no array."""
    known = given.get(id(leaf))
    if known is not None:
        return known[1]
    if isinstance(leaf, np.generic):
        return give(np.asarray(leaf), family)
    kind = _library(type(leaf))
    return give(leaf, family) if kind in ("numpy", "cupy") and hasattr(leaf, "dtype") else leaf


def view(value: Any, name: str = "argument") -> Any:
    """A NumPy or CuPy array over the memory of a foreign array; UnsupportedError, by its name, for one without any."""
    if _library(type(value)) == "jax":
        from fuser.runtime import jaxarrays

        known = jaxarrays.view(value, name)
        if known is not None:
            return known
    if hasattr(value, "__dlpack_device__"):
        kind = int(value.__dlpack_device__()[0])
        if kind in (_DLPACK_CPU, _DLPACK_CUDA_HOST):
            return _host_view(value)
        if kind not in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
            return None
    return _device_view(value)


def _device_view(value: Any) -> Any:
    """Through DLPack where it can, which makes this stream wait for the memory; a `__cuda_array_interface__` of
    version 2, which is JAX's, says nothing of streams."""
    import cupy

    if hasattr(value, "__dlpack__"):
        try:
            return cupy.from_dlpack(value)
        except (BufferError, TypeError, RuntimeError):  # a dtype that DLPack lacks
            if not hasattr(value, "__cuda_array_interface__"):
                raise
            getattr(value, "block_until_ready", bool)()
    return cupy.asarray(value)


def _host_view(value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, RuntimeError):  # a dtype that NumPy's DLPack lacks, such as bfloat16
        return np.asarray(value)


def give(array: Any, family: str) -> Any:
    """A NumPy or CuPy array as one of the library that the call's arrays are from; as it is where that has no way
    in."""
    name = family.removeprefix(PREFIX)
    if name == "jax":
        from fuser.runtime import jaxarrays

        return jaxarrays.give(array)
    module = sys.modules.get({"numba": "numba.cuda"}.get(name, name))
    maker = getattr(module, "from_dlpack", None) or getattr(module, "as_cuda_array", None)
    if maker is None:
        return array
    try:
        return maker(array)
    except (BufferError, TypeError, RuntimeError, ValueError):  # again a dtype outside DLPack
        other = getattr(module, "asarray", None)
        return other(array) if other is not None else array
