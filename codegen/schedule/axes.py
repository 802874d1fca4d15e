"""Iteration axes: merging those that every access walks as one.

In: the loop axes of a group and all index expressions over them. Out: fewer axes and the substitution
that expresses the old variables by the new ones. Its own file because both targets collapse first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.hostexpr import HostExpr, lit, sym
from fuser.indexmap import Index, unravel
from fuser.record import dataclass
from fuser.shapes import Shape


@dataclass(frozen=True)
class Axis:
    """A loop variable and the number of its values: `name` in [0, extent)."""

    name: str
    extent: HostExpr

    @property
    def variable(self) -> HostExpr:
        return sym(self.name)


def axes_of(prefix: str, shape: Shape) -> tuple[Axis, ...]:
    """The axes `prefix0, prefix1, ...` of a shape, without those of extent 1 (which are read at 0)."""
    return tuple(Axis(f"{prefix}{k}", lit(1) * d) for k, d in enumerate(shape) if d != 1)


def count(axes: Sequence[Axis]) -> HostExpr:
    """Number of points."""
    total = lit(1)
    for a in axes:
        total = total * a.extent
    return total


def collapse(axes: Sequence[Axis], expressions: Iterable[HostExpr]) -> tuple[tuple[Axis, ...], dict[str, HostExpr]]:
    """Merges each axis into its inner neighbour where every expression depends on `outer * extent + inner` only.

    before: axes (p0: n), (p1: m), expressions p0*m + p1; after: (p1: n*m), p1, with p0 -> 0.
    """
    used = list(dict.fromkeys(expressions))
    kept = list(axes)
    merged: dict[str, HostExpr] = {}
    k = len(kept) - 2
    while k >= 0:
        outer, inner = kept[k], kept[k + 1]
        if all(_walks_as_one(e, outer, inner) for e in used):
            merged[outer.name] = lit(0)
            kept[k : k + 2] = [Axis(inner.name, outer.extent * inner.extent)]
            used = [e.substitute({outer.name: lit(0)}) for e in used]
        k -= 1
    return tuple(kept), merged


def _walks_as_one(e: HostExpr, outer: Axis, inner: Axis) -> bool:
    if e.symbols.isdisjoint((outer.name, inner.name)):
        return True
    joint = outer.variable * inner.extent + inner.variable
    return e.substitute({outer.name: lit(0), inner.name: joint}) == e


def split(position: HostExpr, axes: Sequence[Axis]) -> Index:
    """The value of every axis at a row-major position."""
    return unravel(position, tuple(a.extent for a in axes))
