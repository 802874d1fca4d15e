"""What is compiled, and how: the two things a `Compiled` is made of.

Out: `Source`, which `api` implements for Python functions and for functions of `.fuse` programs; `Options`, checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fuser import device as devices
from fuser.errors import ArgumentError
from fuser.graph import Graph
from fuser.quick import Always, Watch
from fuser.record import dataclass
from fuser.specs import Spec


class Source(Protocol):
    """What is compiled: a Python function or a function of a `.fuse` program."""

    name: str

    @property
    def signature(self) -> inspect.Signature: ...
    def trace(self, names: Sequence[str], specs: Sequence[Spec], tree: Any, env: Mapping[str, Any]) -> Graph: ...
    def captured(self, graph: Graph) -> Sequence[Any]: ...
    def state(self, statics: Mapping[str, Any] | None = None) -> Any: ...
    def watch(self) -> Watch | None: ...
    def reference(self) -> Callable[..., Any]: ...
    def dim_names(self, leaf: str, rank: int) -> Sequence[str | None]: ...
    def bound_to(self, owner: Any) -> Source: ...
    def pickled(self) -> tuple[Callable[..., Any], tuple[Any, ...]]: ...


class Text:
    """The part of a `Source` that is the same for all that is written down whole: nothing outside it is read."""

    def captured(self, graph: Graph) -> Sequence[Any]:
        return ()

    def state(self, statics: Mapping[str, Any] | None = None) -> Any:
        return None

    def watch(self) -> Watch | None:
        return Always()

    def bound_to(self, owner: Any) -> Any:
        return self


@dataclass(frozen=True)
class Options:
    """The keyword options of `fuser.compile`."""

    device: str | None = None
    fast_math: bool = False
    rounding: str = "graph"
    static_argnames: str | tuple[str, ...] = ()  # a tuple once `checked`
    expect_kernels: int | None = None
    tune: bool = False
    cuda_graph: bool = False


def checked(options: Options, signature: inspect.Signature) -> Options:
    """The options, if a function with this signature takes them; else ArgumentError [bad-option] or DeviceError."""
    names = (options.static_argnames,) if isinstance(options.static_argnames, str) else options.static_argnames
    if options.rounding not in ("graph", "each-op"):
        raise _bad(f"rounding={options.rounding!r}", 'it is "graph" or "each-op"')
    if options.expect_kernels is not None and type(options.expect_kernels) is not int:
        raise _bad(f"expect_kernels={options.expect_kernels!r}", "it is a number of kernels")
    if options.device is not None:
        devices.find(options.device)
    parameters = signature.parameters
    unknown = [n for n in names if n not in parameters]
    if unknown and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        raise _bad(f"static_argnames: there is no parameter {unknown[0]!r}", f"there are {', '.join(parameters)}")
    return replace(options, static_argnames=tuple(names))


def _bad(message: str, hint: str) -> ArgumentError:
    return ArgumentError(message, "bad-option", notes=[hint])
