"""What a fused group is: which values one kernel computes, over which iteration space, in which stages.

In: nodes of a lowered graph (by id). Out: `Group`, a frozen record with no threads and no vector widths; a
`Schedule` (see `schedule.py`) adds those. Index expressions here are over the group's own variables:
`p0, p1, ...` for parallel axes and `r0, r1, ...` for reduced axes of its space.

Evaluation is lazy: a stage names reductions to finish and values to store; everything between them and the
group's inputs is computed where it is needed, at whatever index the views lead to. A reduction of an earlier
stage is read as the per-row result of that stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from fuser.hostexpr import HostExpr, lit, sym
from fuser.indexmap import Index
from fuser.record import dataclass
from fuser.shapes import Shape, numel

GroupKind = Literal["pointwise", "rows", "columns", "mixed", "full", "scan", "library", "empty", "batch"]


def parallel_axis(k: int) -> HostExpr:
    """Variable of parallel axis `k`."""
    return sym(f"p{k}")


def reduced_axis(k: int) -> HostExpr:
    """Variable of reduced axis `k`."""
    return sym(f"r{k}")


@dataclass(frozen=True)
class Space:
    """An iteration space: parallel axes (outermost first), then reduced axes in reduction order (row-major).

    `inner` tells whether the reduced axes include the last axis of the reduced values: the axis kind of `order`.
    """

    parallel: Shape
    reduced: Shape = ()
    inner: bool = True

    @property
    def rows(self) -> HostExpr:
        """Number of parallel points."""
        return lit(1) * numel(self.parallel)

    @property
    def length(self) -> HostExpr:
        """Reduced elements a parallel point (1 when nothing is reduced)."""
        return lit(1) * numel(self.reduced)

    @property
    def parallel_index(self) -> Index:
        return tuple(lit(0) if d == 1 else parallel_axis(k) for k, d in enumerate(self.parallel))

    @property
    def reduced_index(self) -> Index:
        return tuple(lit(0) if d == 1 else reduced_axis(k) for k, d in enumerate(self.reduced))


@dataclass(frozen=True)
class Reducer:
    """A reduction node finished by a stage: its operand is evaluated at `index` (over p and r) for every r."""

    node: int
    index: Index


@dataclass(frozen=True)
class Store:
    """A value written to memory: node `node` at `index` (over p, and r unless `per_row`), in its storage dtype.

    `per_row` stores happen once a parallel point, after the stage's loop over r; of a group's `column_stores`, once a
    point of r (their index is over r alone). Every element of the node is stored exactly once as p and r run over the
    space.
    """

    node: int
    index: Index
    per_row: bool = False


@dataclass(frozen=True)
class Stage:
    """One pass over the reduced axes of every row: reductions to finish, full-space values to store.

    In a space without reduced axes a group has one stage with stores only. across: reductions down the columns, over
    the parallel axes at every point of the reduced ones, whose operands this pass computes. They are finished once all
    rows are, so only `Group.column_stores` may need them.
    """

    reducers: tuple[Reducer, ...] = ()
    stores: tuple[Store, ...] = ()
    across: tuple[Reducer, ...] = ()


@dataclass(frozen=True)
class Group:
    """A kernel to be.

    members: ids of the nodes it computes, ascending. inputs: ids of nodes it reads from memory (graph inputs,
    results of earlier groups). stages: per space, in order (one tuple of stages for each entry of `spaces`).
    library: the opaque node it runs, if it is a library call. scan: the scan node it runs over its last (reduced) axes,
    and where the operand (and so the result) is at a point of the space: every other value is computed at that point.
    in_place: argument positions that this group's stores may write directly, by stored node id.
    parts: of a group of several spaces, the independent groups that share its launch, one a space (see `batch`).
    column_stores: of a group whose stages reduce `across` rows, what is stored once a column when that is done.
    """

    name: str
    members: tuple[int, ...]
    inputs: tuple[int, ...]
    spaces: tuple[Space, ...]
    stages: tuple[tuple[Stage, ...], ...]
    library: int | None = None
    scan: Reducer | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    parts: tuple[Group, ...] = ()
    column_stores: tuple[Store, ...] = ()

    @property
    def singles(self) -> tuple[Group, ...]:
        """The groups of one space that this one consists of: its parts, or itself."""
        return self.parts or (self,)

    @property
    def space(self) -> Space:
        """The only space of a group that has one."""
        (space,) = self.spaces
        return space

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        passes = (s for stages in self.stages for stage in stages for s in stage.stores)
        return (*passes, *self.column_stores)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Ids of stored nodes, in order of storing."""
        if self.library is not None:
            return (self.library,)
        return tuple(dict.fromkeys(s.node for s in self.stores))

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        """Ids of all finished reductions: along rows, then those across them."""
        rows = (r.node for stages in self.stages for stage in stages for r in stage.reducers)
        return (*rows, *self.across)

    @cached_property
    def across(self) -> tuple[int, ...]:
        """Ids of the reductions across rows."""
        return tuple(r.node for stages in self.stages for stage in stages for r in stage.across)

    @property
    def kind(self) -> GroupKind:
        """Derived: what a schedule distinguishes first."""
        if self.parts:
            return "batch"
        if self.library is not None:
            return "library"
        if self.scan is not None:
            return "scan"
        if not self.stores:
            return "empty"
        if self.across:
            return "mixed"
        space = self.spaces[0]
        if not space.reduced:
            return "pointwise"
        if not space.parallel or space.rows == lit(1):
            return "full"
        return "rows" if space.inner else "columns"


def batch(name: str, parts: Sequence[Group]) -> Group:
    """One group of several: their grids follow one another in one launch. Nothing may flow between the parts."""
    return Group(
        name,
        tuple(sorted({m for g in parts for m in g.members})),
        tuple(sorted({k for g in parts for k in g.inputs})),
        tuple(g.space for g in parts),
        tuple(stages for g in parts for stages in g.stages),
        in_place=tuple(pair for g in parts for pair in g.in_place),
        parts=tuple(parts),
    )
