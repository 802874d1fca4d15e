"""At which index is every value of a group needed? Walks from what a group must produce back to memory.

In: the cores of a group, roots (a node and the index it is wanted at), the extents of the index variables. Out: a
`Walk`: for each node inside the group, and each value read from memory, the set of indices. Views are applied by
substitution; a finished reduction is a leaf here, because its operand is a root of its own. A value that is needed
under several masks (`fuser.masks`) is evaluated once for each: that is what the budget counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field
from itertools import repeat

from fuser.graph import ItemAttrs, Node, PieceAttrs, ReduceAttrs, ViewAttrs
from fuser.hostexpr import HostExpr, sym, wrap
from fuser.indexmap import Index
from fuser.masks import Mask, Masks
from fuser.passes.facts import Facts
from fuser.proofs import Ranges
from fuser.ranges import ZERO, Extents, simplify_index
from fuser.record import dataclass

Root = tuple[Node, Index]
Place = tuple[Index, Mask]


class TooMany(Exception):
    """A value would be computed at more places than the budget allows."""


@dataclass
class Walk:
    """Indices by node id: `inside` for values the group computes, `memory` for what it reads. places: the indices of
    the former with the masks under which they are needed."""

    inside: dict[int, dict[Index, None]] = field(default_factory=dict)
    memory: dict[int, dict[Index, None]] = field(default_factory=dict)
    places: dict[int, set[Place]] = field(default_factory=dict)
    evaluations: int = 0

    def indices(self, node_id: int) -> dict[Index, None]:
        """Indices at which a node is needed, wherever it comes from."""
        return self.inside.get(node_id) or self.memory.get(node_id) or {}


class Walker:
    """Walks within one index space; results of view substitutions are remembered by the facts, for every walk in it."""

    def __init__(self, facts: Facts, members: Set[int], extents: Extents, budget: int) -> None:
        self.facts, self.members, self.extents, self.budget = facts, members, extents, budget
        self._mapped = facts.remembered("mapped", extents)
        self._taken = facts.remembered("taken", extents)
        kept = facts.remembered("masks", extents)
        if not kept:
            kept[""] = Masks(facts.graph, Ranges({name: wrap(d) for name, d in extents.items()}))
        self._masks: Masks = kept[""]

    def walk(self, roots: Iterable[Root], into: Walk) -> None:
        """Add everything that `roots` need to `into`; TooMany when that is more than the budget."""
        pending: dict[int, dict[Place, None]] = {}
        heap: list[int] = []
        rank, by_rank = self.facts.rank, self.facts.by_rank

        def want(node: Node, index: Index, mask: Mask = ()) -> None:
            place = (index, mask) if node.op != "scalar" else ((), ())
            known = pending.get(node.id)
            if known is None:
                pending[node.id] = {place: None}
                heapq.heappush(heap, -rank[node.id])
            else:
                known[place] = None

        for node, index in roots:
            want(node, index)
        while heap:
            node = by_rank[-heapq.heappop(heap)]
            fresh = self._enter(node, pending.pop(node.id), into)
            for index, mask in fresh:
                masks = self._masks_of(node, index, mask)
                for operand, at in self.operands(node, index):
                    want(operand, at, next(masks))

    def _enter(self, node: Node, wanted: Iterable[Place], into: Walk) -> list[Place]:
        """Record the places; those that are new and whose operands are needed in turn."""
        outside = node.op == "input" or (node.id in self.facts.core_set and node.id not in self.members)
        table = (into.memory if outside else into.inside).setdefault(node.id, {})
        table.update((index, None) for index, _ in wanted)
        if outside:
            return []
        seen = into.places.setdefault(node.id, set())
        fresh = [place for place in wanted if place not in seen]
        seen.update(fresh)
        into.evaluations += len(fresh)
        if into.evaluations > self.budget:
            raise TooMany
        if isinstance(node.attrs, ItemAttrs):
            into.inside.setdefault(node.inputs[0].id, {}).update((index, None) for index, _ in fresh)
            return []
        return [] if isinstance(node.attrs, ReduceAttrs) else fresh

    def _masks_of(self, node: Node, index: Index, mask: Mask) -> Iterator[Mask]:
        """The mask of each operand of a node that is evaluated at a place."""
        if not isinstance(node.attrs, PieceAttrs):
            return repeat(mask)
        key = (node.id, index, mask)
        found = self._taken.get(key)
        if found is None:
            taken = {t.piece: t.mask for t in self._masks.taken(node, index, mask)}
            found = self._taken[key] = tuple(taken.get(k, ()) for k in range(len(node.inputs)))
        return iter(found)

    def operands(self, node: Node, index: Index) -> list[Root]:
        """The operands of a node that is evaluated at `index`, with their indices."""
        if isinstance(node.attrs, ViewAttrs):
            found = [(o, index) for o in node.inputs[1:]]
            return [(node.inputs[0], self._apply(node, 0, index)), *found]
        if isinstance(node.attrs, PieceAttrs):
            return [(n, self._apply(node, k, index)) for k, n in enumerate(node.inputs)]
        return [(n, index) for n in node.inputs]

    def _apply(self, node: Node, piece: int, index: Index) -> Index:
        key = (node.id, piece, index)
        got = self._mapped.get(key)
        if got is None:
            if isinstance(node.attrs, PieceAttrs):
                got = node.attrs.pieces[piece].map.apply(index)
            else:
                assert isinstance(node.attrs, ViewAttrs)
                got = node.attrs.map.apply(index, gathered(node))
            got = simplify_index(got, self.extents)
            got = tuple(ZERO if d == 1 else e for e, d in zip(got, node.inputs[piece].shape, strict=True))
            self._mapped[key] = got
        return got


def gathered(node: Node) -> Mapping[str, HostExpr]:
    """A symbol for the value of each index operand of a view: unknown, but the same wherever the view is read."""
    return {f"@{k}": sym(f"@{node.id}.{k}") for k in range(len(node.inputs) - 1)}
