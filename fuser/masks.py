"""Which pieces of a piecewise value are read, and where.

In: a `pieces` node, the index at which it is wanted, the mask under which it is, what is certain of indices. Out: the
pieces that can be taken, each with its condition and the mask of its own value. Its own file because code
generation emits a value once for each mask under which it is needed, and the planner must count the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.graph import Graph, Node, PieceAttrs
from fuser.hostexpr import lit, wrap
from fuser.indexmap import Index, Piece
from fuser.proofs import Ranges
from fuser.record import dataclass


@dataclass(frozen=True)
class Condition:
    """A domain (all expressions >= 0) that holds, or does not."""

    domain: Index
    holds: bool = True


Mask = tuple[Condition, ...]  # a conjunction


@dataclass(frozen=True)
class Taken:
    """A piece that can be taken: its number, its condition (None for the last), its value's index and mask."""

    piece: int
    condition: Condition | None
    index: Index
    mask: Mask


@dataclass(frozen=True)
class _Piece:
    """What is known of a piece at an index, whatever the mask. same: its value is at that very index. free: it needs no
    mask. pins: its condition holds at one place of some axis only."""

    piece: int
    condition: Condition
    index: Index
    same: bool
    free: bool
    pins: bool


class Masks:
    """Masks within one space of loop variables. What was worked out is kept: values are wanted under many masks."""

    def __init__(self, graph: Graph, ranges: Ranges) -> None:
        self.graph, self.ranges = graph, ranges
        self._known: dict[tuple[int, Index], tuple[_Piece, ...]] = {}
        self._implied: dict[tuple[Condition, Condition], bool] = {}

    def normal(self, index: Index, node: Node) -> Index:
        """An index in simplest form, axes of size 1 at 0."""
        return tuple(lit(0) if d == 1 else self.ranges.simplify(e) for e, d in zip(index, node.shape, strict=True))

    def taken(self, node: Node, index: Index, mask: Mask) -> Iterator[Taken]:
        """The pieces that can be taken, in order.

        A value is masked where it is read only if it must be, or if the mask spares much: one without a place of its
        own, and an array at the very index that is written but for single elements, are as they are anywhere. So a
        chain of updates of single elements has each of its values once.
        """
        wide = mask  # without what excludes single elements
        for p in self._pieces(node, index):
            at = wide if p.same else mask
            if not p.condition.domain or p.condition in mask:
                yield Taken(p.piece, None, p.index, () if p.free else at)
                return
            otherwise = Condition(p.condition.domain, False)
            if otherwise in mask:
                continue
            yield Taken(p.piece, p.condition, p.index, () if p.free else self._and(at, p.condition))
            mask = self._and(mask, otherwise)
            if not p.pins:
                wide = self._and(wide, otherwise)

    def _pieces(self, node: Node, index: Index) -> tuple[_Piece, ...]:
        """The pieces that some element at this index may have."""
        known = self._known.get((node.id, index))
        if known is None:
            assert isinstance(node.attrs, PieceAttrs)
            numbered = enumerate(zip(node.attrs.pieces, node.inputs, strict=True))
            found = (self._piece(k, piece, source, node, index) for k, (piece, source) in numbered)
            known = self._known[node.id, index] = tuple(p for p in found if p is not None)
        return known

    def _piece(self, number: int, piece: Piece, source: Node, node: Node, index: Index) -> _Piece | None:
        binding = {f"${axis}": e for axis, e in enumerate(index)}
        domain = [self.ranges.simplify(e.substitute(binding)) for e in piece.domain]
        domain = [e for e in domain if not self.ranges.nonnegative(e)]
        if any(self.ranges.negative(e) for e in domain):
            return None
        at = self.normal(piece.map.apply(index), source)
        same = at == index and source.shape == node.shape
        pins = any(-e in domain or self.ranges.nonnegative(-e) for e in domain)
        return _Piece(number, Condition(tuple(domain)), at, same, self._free(source, at), pins)

    def _free(self, source: Node, at: Index) -> bool:
        """Whether a value needs no mask: the index is one of its elements for certain, and it is one element for all,
        or a value that others need too (masked, it would be another one, with all that it is made of)."""
        shared = source.op not in ("input", "view") and len(self.graph.users[source]) > 1
        if not shared and not all(e.is_literal for e in at):
            return False
        return all(self.ranges.below(e, wrap(d)) for e, d in zip(at, source.shape, strict=True))

    def _and(self, mask: Mask, c: Condition) -> Mask:
        """`mask and c` without the conditions that `c` implies (pieces of a concatenation stay short)."""
        return (*(m for m in mask if not self._implies(c, m)), c)

    def _implies(self, c: Condition, m: Condition) -> bool:
        if c.holds != m.holds or len(c.domain) != 1 or len(m.domain) != 1:
            return False
        known = self._implied.get((c, m))
        if known is None:
            difference = m.domain[0] - c.domain[0]
            known = self._implied[c, m] = self.ranges.nonnegative(difference if c.holds else -difference)
        return known
