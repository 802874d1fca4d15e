"""What is compiled, and how: the two things a `Compiled` is made of.

Out: `Source`, which `api` implements for Python functions and for functions of `.fuse` programs; `Options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

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
    static_argnames: tuple[str, ...] = ()
    expect_kernels: int | None = None
    tune: bool = False
    cuda_graph: bool = False
