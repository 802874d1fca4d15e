"""The three keys under which work is remembered.

In: the arguments of a call. Out: `TraceKey` (-> Graph and guards), `SizeClass` (-> Plan and kernels),
`LaunchKey` (-> bound launch). A plan sees bucket representatives only, so it cannot depend on the sizes
of the call that happened to come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from fuser.graph import Graph
from fuser.hostexpr import HostExpr, wrap
from fuser.order import bucket
from fuser.record import dataclass
from fuser.shapes import Shape

DimClass = Literal["n", "1", "0"]
Layout = Literal["c", "s"]  # C-contiguous, or strided (strides are launch-time symbols `#position.axis`)


@dataclass(frozen=True)
class TraceKey:
    """What a trace depends on: the tree of arguments, each array's dtype and rank with dims that are 1 or 0 told
    apart (lone dims of 1 only where the trace of longer ones does not serve: `fuser.longer`), weak kinds of scalars,
    values of static arguments, and dims asked to be static."""

    structure: Any
    arrays: tuple[tuple[str, tuple[DimClass, ...]], ...]
    scalars: tuple[str, ...]
    statics: tuple[Any, ...]
    device: str


@dataclass(frozen=True)
class SizeClass:
    """What a plan and its kernels depend on beyond the graph: power-of-two buckets of dims and of reduced lengths,
    layout of each argument, alignment, index width.

    aligned: every C-contiguous argument starts 16-byte aligned. factors: (dim, power of two that divides it) where that
    helps (`dim_factors`). Together they prove which accesses may be whole vectors.
    """

    dims: tuple[tuple[str, int], ...]
    lengths: tuple[int, ...]
    layouts: tuple[Layout, ...]
    aligned: bool
    index_bits: int
    factors: tuple[tuple[str, int], ...] = ()
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


def vector_unit(graph: Graph) -> int:
    """Elements that rows must be multiples of to consist of whole vectors, whichever group reads them: 16 bytes of the
    narrowest argument or result, at least 4 (scans take 4 elements a thread). 16 elements where dims are divided, so
    that a half of a row consists of vectors too."""
    dtypes = {a.dtype for a in graph.arguments} | {n.storage for n in graph.results}
    divided = any(isinstance(d, HostExpr) and _divides(d) for shape in {n.shape for n in graph.nodes} for d in shape)
    return 16 if divided else max(16 // min((t.bytes for t in dtypes), default=1), 4)


def _divides(e: HostExpr) -> bool:
    return any(part.op in ("//", "%") for part in e.walk())


def dim_factors(unit: int, shapes: Iterable[Shape], env: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """(dim symbol, power of two that divides its value), sorted: `unit` for its multiples; and for the last two axes of
    arrays of rank 3 and more where only their product is one (images of 28 by 28), what divides each."""
    found = {k: unit for k, v in env.items() if not k.startswith(("=", "#")) and v % unit == 0}
    for shape in shapes:
        last = [wrap(d) for d in shape[-2:]]
        values = [int(d.evaluate(env)) for d in last]
        if len(shape) < 3 or values[1] % unit == 0 or values[0] * values[1] % unit != 0:
            continue
        for d, v in zip(last, values, strict=True):
            if d.op == "sym" and v % unit and v % 2 == 0:
                found[d.value] = v & -v
    return tuple(sorted(found.items()))


def length_bucket(length: HostExpr, env: Mapping[str, Any]) -> int:
    """Bucket of a reduced length: of the product itself, so that the reduction order is a function of the length."""
    return bucket(int(length.evaluate(env)))
