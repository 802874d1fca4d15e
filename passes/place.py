"""Where a value lives in a group's index space: the index over `p` and `r` at which every element is computed once.

In: a space, what has been placed so far (a walk), a node to store. Out: a `Spot`, or None if no index covers the array
exactly once. Candidates, in order: where the value is already computed; the index that makes it read data where others
read it, reductions' results first; the index of an operand of the same shape; a reshape of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fuser.graph import Node, ReduceAttrs, ScanAttrs
from fuser.group import Space
from fuser.hostexpr import HostExpr, sym, wrap
from fuser.indexmap import Index, axes, coefficient, linear, reshape
from fuser.passes.facts import Facts, base_of, is_reduction
from fuser.passes.walk import Walk, Walker
from fuser.ranges import ONE, ZERO, simplify, simplify_index
from fuser.record import dataclass
from fuser.shapes import Shape, numel

TRIES = 8  # shared values that are tried for aligning a store before its own shape decides


@dataclass(frozen=True)
class Spot:
    """index: over p and r, or p alone when the value is one a row (r alone: one a column)."""

    index: Index
    per_row: bool
    per_column: bool = False


def full_shape(shape: Shape) -> Shape:
    """A shape without its axes of size 1."""
    return tuple(d for d in shape if not (isinstance(d, int) and d == 1))


def split_axes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kept and folded axes of a reduction's or scan's operand."""
    rank = node.inputs[0].rank
    folded = node.attrs.axes if isinstance(node.attrs, ReduceAttrs) else ()
    if isinstance(node.attrs, ScanAttrs):
        folded = (node.attrs.axis,)
    return tuple(k for k in range(rank) if k not in folded), tuple(folded)


def space_of(nodes: Sequence[Node]) -> Space | None:
    """The space that all reductions (or the scan) fold over, None when they disagree.

    Axes of size 1 are dropped. Products must agree, factors need not: the finest factors are taken.
    """
    spaces = [own_space(n) for n in nodes]
    best = max(spaces, key=lambda s: (len(s.parallel) + len(s.reduced), len(s.parallel)))
    for s in spaces:
        if s.inner != best.inner or s.rows != best.rows or s.length != best.length:
            return None
    return best


def own_space(node: Node) -> Space:
    """The space of one reduction (or scan)."""
    kept, folded = split_axes(node)
    shape = node.inputs[0].shape
    reduced = full_shape(tuple(shape[k] for k in folded)) or (1,)
    inner = bool(folded) and folded[-1] == len(shape) - 1
    return Space(full_shape(tuple(shape[k] for k in kept)), reduced, inner)


class Placement:
    """A space and everything placed in it so far. across: reductions over the parallel axes, not the reduced ones."""

    def __init__(
        self, facts: Facts, space: Space, walker: Walker, walk: Walk, across: frozenset[int] = frozenset()
    ) -> None:
        self.facts, self.space, self.walker, self.walk, self.across = facts, space, walker, walk, across
        self.frames: dict[Shape, Index] = {}  # shapes with a natural index, in the order found
        self.alone: dict[int, Walk] = {}  # what a node to be stored needs, over its own axes
        if not space.reduced:
            self.frames[space.parallel] = space.parallel_index
        self.per_row = {f"p{k}" for k, d in enumerate(space.parallel) if d != 1}
        self.per_column = {f"r{k}" for k, d in enumerate(space.reduced) if d != 1}
        self.everywhere = self.per_row | self.per_column

    # -- reductions --------------------------------------------------------------------------------
    def operand_index(self, node: Node) -> Index:
        """Index of a reduction's (or scan's) operand for a point of the space."""
        kept, folded = split_axes(node)
        shape = node.inputs[0].shape
        index: list[HostExpr] = [ZERO] * len(shape)
        here, there = self._kept(node), self._folded(node)
        p = spread(*here, tuple(shape[k] for k in kept))
        r = spread(*there, tuple(shape[k] for k in folded))
        for k, e in zip((*kept, *folded), (*p, *r), strict=True):
            index[k] = e
        placed = simplify_index(tuple(index), self.walker.extents)
        self.frames.setdefault(shape, placed)
        return placed

    def result_index(self, node: Node) -> Index:
        """Index of a reduction's result in its own row."""
        kept, _ = split_axes(node)
        shape = node.inputs[0].shape
        index = spread(*self._kept(node), tuple(shape[k] for k in kept))
        return simplify_index(index, self.walker.extents)

    def _kept(self, node: Node) -> tuple[Shape, Index]:
        """The axes of the space that a reduction keeps, and their variables."""
        rows = node.id not in self.across
        s = self.space
        return (s.parallel, s.parallel_index) if rows else (s.reduced, s.reduced_index)

    def _folded(self, node: Node) -> tuple[Shape, Index]:
        rows = node.id not in self.across
        s = self.space
        return (s.reduced, s.reduced_index) if rows else (s.parallel, s.parallel_index)

    def flat(self, index: Index, shape: Shape) -> HostExpr:
        """The row-major position of an index, simplified: equal positions are equal expressions."""
        return simplify(linear(index, shape), self.walker.extents)

    def over_own_axes(self, node: Node) -> Walk:
        """What a node needs, at indices over its own axes `$0, $1, ...`."""
        if node.id not in self.alone:
            extents = {f"${k}": d for k, d in enumerate(node.shape)}
            walker = Walker(self.facts, self.walker.members, extents, self.walker.budget)
            self.alone[node.id] = Walk()
            walker.walk([(node, axes(node.rank))], self.alone[node.id])
        return self.alone[node.id]

    def spot(self, index: Index, shape: Shape) -> Spot | None:
        """The spot for an index if it covers the array exactly once as the space is walked."""
        used = {s for e in index for s in e.symbols if s in self.everywhere}
        if used == self.per_row and self._covers(index, shape, self.space.rows):
            return Spot(index, bool(self.space.reduced))
        whole = self.space.rows * self.space.length
        if used == self.everywhere and self._covers(index, shape, whole):
            return Spot(index, False)
        if self.across and used == self.per_column and self._covers(index, shape, self.space.length):
            return Spot(index, False, True)
        return None

    def settle(self, node: Node, index: Index) -> Spot | None:
        """Place a node to be stored at an index, if that covers its array; what it needs joins the walk."""
        spot = self.spot(index, node.shape)
        if spot is not None:
            self.walker.walk([(node, index)], self.walk)
            if not (spot.per_row or spot.per_column):
                self.frames.setdefault(node.shape, index)
        return spot

    def _covers(self, index: Index, shape: Shape, points: HostExpr) -> bool:
        """Whether an index using exactly the right variables is a bijection onto the array."""
        if any(d == 1 and e != ZERO for e, d in zip(index, shape, strict=True)):
            return False
        plain = [e.value for e, d in zip(index, shape, strict=True) if d != 1 and e.op == "sym"]
        wide = [d for d in shape if d != 1]
        if len(plain) == len(wide) and len(set(plain)) == len(plain):
            extents = self.walker.extents
            return all(v in extents and wrap(extents[v]) == wrap(d) for v, d in zip(plain, wide, strict=True))
        return wrap(numel(shape)) == points and self._mixed_radix(self.flat(index, shape), points)

    def _mixed_radix(self, position: HostExpr, points: HostExpr) -> bool:
        """Whether a position is a sum of variables whose factors nest: 1, then extent by extent, up to `points`."""
        left = {v: coefficient(position, v) for v in position.symbols if v in self.everywhere}
        rest = position
        for v, c in left.items():
            if c is None:
                return False
            rest = rest - c * sym(v)
        step = ONE
        while left:
            hit = next((v for v, c in left.items() if c == step), None)
            if hit is None:
                return False
            del left[hit]
            step = step * self.walker.extents[hit]
        return rest == ZERO and step == points


def spread(outer: Shape, index: Index, inner: Shape) -> Index:
    """The index into `inner` for an index into `outer`, arrays of as many elements in the same C order."""
    slim = full_shape(inner)
    if slim == full_shape(outer):
        values = iter([e for e, d in zip(index, outer, strict=True) if d != 1])
        return tuple(ZERO if d == 1 else next(values) for d in inner)
    return reshape(inner, outer).apply(index)


def known_spot(placement: Placement, node: Node) -> Spot | None:
    """Where a node is computed already, or plainly belongs: a reduction's row, the group's own shape, a
    scan's operand.
    """
    base = base_of(node)
    if is_reduction(base):
        return placement.spot(placement.result_index(base), node.shape)
    for index in placement.walk.inside.get(node.id, ()):
        spot = placement.spot(index, node.shape)
        if spot is not None:
            if not (spot.per_row or spot.per_column):
                placement.frames.setdefault(node.shape, index)
            return spot
    if isinstance(node.attrs, ScanAttrs):
        return placement.settle(node, placement.operand_index(node))
    if not placement.space.reduced and full_shape(node.shape) == full_shape(placement.space.parallel):
        return placement.settle(node, spread(placement.space.parallel, placement.space.parallel_index, node.shape))
    return None


def aligned_spot(placement: Placement, node: Node) -> Spot | None:
    """An index at which the node reads shared data where others read it, with every reduction in its own row."""
    found = _Alignment(placement, node)
    if found.fixed is None:
        return None
    for binding in found.bindings():
        index = _filled(placement, node, binding)
        spot = index and placement.settle(node, index)
        if spot:
            return spot
    return None


def natural_spot(placement: Placement, node: Node) -> Spot | None:
    """An index by shape alone, for a node that shares no data with what is placed: rows, a like operand, a reshape."""
    found = _Alignment(placement, node)
    if found.fixed is None:
        return None
    guess = placement.space.reduced and not found.misaligned
    bound = _filled(placement, node, found.fixed) if guess else None
    for index in (*([bound] if bound else []), *_by_shape(placement, node, found)):
        spot = placement.settle(node, index)
        if spot:
            return spot
    return None


class _Alignment:
    """What a node that is not placed yet has in common with what is.

    fixed: axes bound so that each reduction is read in its own row (None: impossible). misaligned: large values are
    shared, but no index reads one of them where the others do.
    """

    def __init__(self, placement: Placement, node: Node) -> None:
        self.placement, facts = placement, placement.facts
        self.own = placement.over_own_axes(node)
        self.fixed = self._in_rows({f"${k}": ZERO for k, d in enumerate(node.shape) if d == 1})
        values = [k for k in self.own.inside if k in facts.core_set and not is_reduction(base_of(facts.nodes[k]))]
        shared = [k for k in (*values, *self.own.memory) if facts.nodes[k].shape and placement.walk.indices(k)]
        self.shared = sorted(shared, key=lambda k: (-facts.nbytes(k), facts.digests[k]))[:TRIES]
        self.misaligned = bool(self.fixed and self.shared and not self.bindings())

    def _in_rows(self, bound: dict[str, HostExpr] | None) -> dict[str, HostExpr] | None:
        for k, wanted in self.own.inside.items():
            node = self.placement.facts.nodes[k]
            for at in wanted if is_reduction(node) else ():
                bound = unify(at, self.placement.result_index(node), bound) if bound is not None else None
        return bound

    def bindings(self) -> list[dict[str, HostExpr]]:
        """Ways to read a shared value where it is read already, largest values first."""
        out = []
        for k in self.shared:
            for at in self.own.indices(k):
                for there in self.placement.walk.indices(k):
                    bound = unify(at, there, self.fixed or {})
                    if bound is not None:
                        out.append(bound)
        return out


def unify(own: Index, there: Index, fixed: Mapping[str, HostExpr]) -> dict[str, HostExpr] | None:
    """Bind the plain axis variables of `own` so that it equals `there`; None on a contradiction."""
    bound = dict(fixed)
    for mine, theirs in zip(own, there, strict=True):
        plain = mine.op == "sym" and mine.value.startswith("$")
        if plain and bound.setdefault(mine.value, theirs) != theirs:
            return None
    return bound


def _filled(placement: Placement, node: Node, binding: Mapping[str, HostExpr]) -> Index | None:
    """A full index: axes still open take the reduced axes in order, if their extents are those."""
    open_axes = [k for k in range(node.rank) if f"${k}" not in binding]
    index = [binding.get(f"${k}", ZERO) for k in range(node.rank)]
    if open_axes:
        open_shape = tuple(node.shape[k] for k in open_axes)
        space = placement.space
        used = {s for e in index for s in e.symbols}
        free = [(f"r{k}", d) for k, d in enumerate(space.reduced) if f"r{k}" not in used]
        free = free if free else [(f"p{k}", d) for k, d in enumerate(space.parallel) if f"p{k}" not in used]
        dims = tuple(d for _, d in free)
        if wrap(numel(dims)) != wrap(numel(open_shape)):
            return None
        variables = tuple(ZERO if d == 1 else sym(v) for v, d in free)
        for k, e in zip(open_axes, spread(dims, variables, open_shape), strict=True):
            index[k] = e
    return simplify_index(tuple(index), placement.walker.extents)


def _by_shape(placement: Placement, node: Node, found: _Alignment) -> Iterator[Index]:
    """One value a row, or the index of a placed array of as many elements, reshaped if need be; shared
    data's shapes first.
    """
    if found.misaligned and any(is_reduction(placement.facts.nodes[k]) for k in found.own.inside):
        return
    space = placement.space
    count = wrap(numel(node.shape))
    if count == space.rows:
        yield simplify_index(spread(space.parallel, space.parallel_index, node.shape), placement.walker.extents)
    like = {placement.facts.nodes[k].shape for k in found.shared}
    for shape, index in sorted(placement.frames.items(), key=lambda frame: frame[0] not in like):
        if wrap(numel(shape)) == count:
            yield simplify_index(spread(shape, index, node.shape), placement.walker.extents)
