"""The three keys under which work is remembered.

In: the arguments of a call. Out: `TraceKey` (-> Graph and guards), `SizeClass` (-> Plan and kernels),
`LaunchKey` (-> bound launch). A plan sees bucket representatives only, so it cannot depend on the sizes
of the call that happened to come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fuser.hostexpr import HostExpr
from fuser.order import bucket

DimClass = Literal["n", "1", "0"]
Layout = Literal["c", "s"]  # C-contiguous, or strided (strides are launch-time symbols `#position.axis`)


@dataclass(frozen=True)
class TraceKey:
    """What a trace depends on: the tree of arguments, each array's dtype and rank with dims that are 1 or 0 told
    apart, weak kinds of scalars, values of static arguments, and dims asked to be static."""

    structure: Any
    arrays: tuple[tuple[str, tuple[DimClass, ...]], ...]
    scalars: tuple[str, ...]
    statics: tuple[Any, ...]
    device: str


@dataclass(frozen=True)
class SizeClass:
    """What a plan and its kernels depend on beyond the graph: power-of-two buckets of dims and of reduced lengths,
    layout of each argument, alignment, index width.

    aligned: every C-contiguous argument starts 16-byte aligned. multiples: the dims that are multiples of 16; together
    they prove which accesses may be whole vectors.
    """

    dims: tuple[tuple[str, int], ...]
    lengths: tuple[int, ...]
    layouts: tuple[Layout, ...]
    aligned: bool
    index_bits: int
    multiples: tuple[str, ...] = ()
    overlap: bool = False  # the program writes arguments and some of the call's arrays share memory

    @property
    def representative(self) -> dict[str, int]:
        """The dims that the planner sees."""
        return dict(self.dims)


@dataclass(frozen=True)
class LaunchKey:
    """Exact shapes, strides, alignment and device of a call."""

    arrays: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]
    device: Any


def stride_symbol(position: int, axis: int) -> str:
    """Name of the symbol for argument `position`'s stride along `axis`, in elements."""
    return f"#{position}.{axis}"


def dim_buckets(env: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Bucket of every integer dim symbol in a call's environment, sorted by name."""
    return tuple(sorted((k, bucket(v)) for k, v in env.items() if not k.startswith(("=", "#"))))


def dim_multiples(env: Mapping[str, Any]) -> tuple[str, ...]:
    """Integer dim symbols of a call's environment whose values are multiples of 16, sorted."""
    return tuple(sorted(k for k, v in env.items() if not k.startswith(("=", "#")) and v % 16 == 0))


def length_bucket(length: HostExpr, env: Mapping[str, Any]) -> int:
    """Bucket of a reduced length: of the product itself, so that the reduction order is a function of the length."""
    return bucket(int(length.evaluate(env)))
