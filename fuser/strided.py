"""Views that a library call takes as they are: memory that is there, a start, and a step along each axis.

In: a node that a library call reads. Out: `Strided`, or None where the value must be put into memory of its own first.
The rule is about what libraries are fast at: matrices with unit steps along one of the last two axes, and positive ones
along the other (BLAS: a transposition flag and a leading dimension), batches at any steps that do not go back. Its own
file because the planner asks it (is there a copy?) and the runtime (where are the elements?).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fuser.graph import Node, ViewAttrs
from fuser.hostexpr import HostExpr, is_scalar_symbol, lit, wrap
from fuser.indexmap import Index, coefficient, linear
from fuser.ranges import positive, simplify
from fuser.record import dataclass
from fuser.shapes import Shape


@dataclass(frozen=True)
class Strided:
    """A view of `source`. flat: its position in C order over the view's axes `$0, $1, ...`, affine in each. index: the
    same by source axis, each affine too; None where only C order makes it so (a reshape)."""

    source: Node
    rank: int
    flat: HostExpr
    index: Index | None

    def over_c_order(self, env: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
        """(start, step along each axis) in elements, where the source is in C order."""
        return _numbers(self.flat, self.rank, env)

    def by_axis(self, env: Mapping[str, Any]) -> tuple[tuple[int, tuple[int, ...]], ...] | None:
        """The same along each source axis, in its indices, whatever strides it has."""
        return None if self.index is None else tuple(_numbers(e, self.rank, env) for e in self.index)


def _numbers(e: HostExpr, rank: int, env: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
    zero = {f"${k}": 0 for k in range(rank)}
    start = int(e.evaluate({**env, **zero}))
    return start, tuple(int(e.evaluate({**env, **zero, f"${k}": 1})) - start for k in range(rank))


@lru_cache(maxsize=256)
def strided(node: Node) -> Strided | None:
    """How a library reads a view; None for what is no view, or one that would cost the library its fast path."""
    if not isinstance(node.attrs, ViewAttrs) or len(node.inputs) != 1 or node.rank < 2:
        return None
    source = node.inputs[0]
    if source.op in ("view", "scalar", "iota") or source.dtype != node.dtype:
        return None
    index = node.attrs.map.exprs
    flat = simplify(linear(index, source.shape), {f"${k}": wrap(d) for k, d in enumerate(node.shape)})
    if any(is_scalar_symbol(s) for s in flat.symbols):
        return None
    steps = [coefficient(flat, f"${k}") for k in range(node.rank)]
    if not _fast([s for s in steps if s is not None], node.shape):
        return None
    affine = all(coefficient(e, f"${k}") is not None for e in index for k in range(node.rank))
    return Strided(source, node.rank, flat, index if affine else None)


def _fast(steps: list[HostExpr], shape: Shape) -> bool:
    """Whether a library multiplies such matrices without copying them. Along an axis of length 1 any step will do."""
    if len(steps) != len(shape):
        return False
    *batch, rows, columns = zip(steps, shape, strict=True)
    return all(s == lit(0) or positive(s) for s, _ in batch) and any(
        (step == lit(1) or length == 1) and (positive(other) or across == 1)
        for (step, length), (other, across) in ((columns, rows), (rows, columns))
    )
