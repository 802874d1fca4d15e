"""A program over arrays that are cut into blocks, as programs over one block each.

In: a prepared graph with all dims static, and how its arguments are cut. Out: `Split`: which dims of every value are
cut and how, where a reduction runs over a cut axis, and `Split.program`, which gives the part of the graph between
such reductions as a graph of its own, over the sizes of one block. What cannot be done block by block raises
UnsupportedError [blocks] with the line, the axis and the way out. Nothing here knows whose blocks these are.

A dim belongs to a class with all dims that run along with it (through elementwise operators and plain views). A class
is cut as the arguments in it are, unless one of its values needs the whole axis: then no argument in it may be cut.
A part of the graph is made top down from its results: each value is asked for at `letters`, one a dim: the block index
that it is cut by, or None. So x + x.T reads two blocks of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuser.errors import UnsupportedError
from fuser.graph import (
    Attrs,
    Builder,
    Graph,
    InputAttrs,
    IotaAttrs,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
)  # fmt: skip
from fuser.hostexpr import HostExpr, lit, sym
from fuser.indexmap import IndexMap
from fuser.record import dataclass

Chunks = tuple[int, ...]  # sizes of the blocks along an axis
Letters = tuple[str | None, ...]
Place = tuple[int, int]  # (node id, axis)
COMBINED = ("sum", "prod", "max", "min", "any", "all")  # reductions whose partial results are reduced the same way


@dataclass(frozen=True)
class Operand:
    """What a part reads: an argument or the value of a reduction (`node`), cut by `letters`; along `picks` (axis,
    index) only that one element, an axis of length 1."""

    node: Node
    letters: Letters
    picks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Part:
    """A graph over one block: its operands in the order of its arguments, its letters."""

    graph: Graph
    operands: tuple[Operand, ...]


class Split:
    """See the module's docstring. cut: argument position -> chunks of each axis, None where in one block."""

    def __init__(self, graph: Graph, cut: Mapping[int, Sequence[Chunks | None]]) -> None:
        self.graph = graph
        self._parent: dict[Place, Place] = {}
        self._whole: dict[Place, tuple[Node, str]] = {}
        self._given: dict[Place, Chunks] = {}
        for n in graph.nodes:
            self._link(n)
        for position, node in graph.inputs.items():
            for axis, chunks in enumerate(cut.get(position, ())):
                if chunks is not None:
                    self._cut(node, axis, chunks)

    # -- classes of dims ---------------------------------------------------------------------------
    def _find(self, place: Place) -> Place:
        root = place
        while (up := self._parent.get(root, root)) != root:
            root = up
        while place != root:
            self._parent[place], place = root, self._parent.get(place, place)
        return root

    def _join(self, a: Place, b: Place) -> None:
        one, other = self._find(a), self._find(b)
        if one != other:
            self._parent[other] = one
            if other in self._whole:
                self._whole.setdefault(one, self._whole.pop(other))

    def _need_whole(self, n: Node, axis: int, user: Node, why: str) -> None:
        self._whole.setdefault(self._find((n.id, axis)), (user, why))

    def _link(self, n: Node) -> None:
        """Join the dims of a node with those of its inputs, and note the axes that it needs whole."""
        if n.op in ("input", "scalar"):
            return
        if isinstance(n.attrs, IotaAttrs):
            self._need_whole(n, n.attrs.axis, n, "its elements are places along the axis")
        elif isinstance(n.attrs, ViewAttrs):
            self._link_map(n, n.inputs[0], n.attrs.map, picks=True)
            self._link_same(n, n.inputs[1:])
        elif isinstance(n.attrs, PieceAttrs):
            self._link_pieces(n, n.attrs)
        elif isinstance(n.attrs, ReduceAttrs):
            kept = [a for a in range(n.inputs[0].rank) if a not in n.attrs.axes]
            for axis, before in enumerate(kept):
                self._join((n.inputs[0].id, before), (n.id, axis))
        elif n.op == "matmul" and all(i.rank == 2 for i in n.inputs) and not _params(n.attrs):
            self._link_product(n, *n.inputs)
        elif any(i.shape != n.shape for i in n.inputs) or isinstance(n.attrs, OpaqueAttrs):
            for m in (n, *n.inputs):
                for axis in range(m.rank):
                    self._need_whole(m, axis, n, f"`{n.op}` is not done in blocks")
        else:
            self._link_same(n, n.inputs)
            if isinstance(n.attrs, ScanAttrs):
                self._need_whole(n, n.attrs.axis, n, "it accumulates along the axis")

    def _link_pieces(self, n: Node, attrs: PieceAttrs) -> None:
        for piece, source in zip(attrs.pieces, n.inputs, strict=True):
            self._link_map(n, source, piece.map, picks=False)
            for axis in {a for e in piece.domain for a in _axes_of(e)}:
                self._need_whole(n, axis, n, "it is put together from pieces along the axis")

    def _link_product(self, n: Node, left: Node, right: Node) -> None:
        self._join((left.id, 0), (n.id, 0))
        self._join((right.id, 1), (n.id, 1))
        self._need_whole(left, 1, n, "the product runs along the axis")
        self._need_whole(right, 0, n, "the product runs along the axis")

    def _link_same(self, n: Node, inputs: Sequence[Node]) -> None:
        for source in inputs:
            for axis in range(n.rank):
                self._join((source.id, axis), (n.id, axis))

    def _link_map(self, n: Node, source: Node, m: IndexMap, picks: bool) -> None:
        used: set[int] = set()
        for axis, e in enumerate(m.exprs):
            k = _plain_axis(e)
            if k is not None and k not in used and source.shape[axis] == n.shape[k]:
                self._join((source.id, axis), (n.id, k))
                used.add(k)
            elif source.shape[axis] != 1 and not (picks and e.is_literal and source.op == "input"):
                self._need_whole(source, axis, n, "it is read at other places than its own along the axis")
                for other in _axes_of(e):
                    self._need_whole(n, other, n, "it is read at other places than its own along the axis")

    def _cut(self, node: Node, axis: int, chunks: Chunks) -> None:
        root = self._find((node.id, axis))
        if root in self._whole:
            user, why = self._whole[root]
            raise self._refusal(
                user, f"axis {axis} of `{self._name(node)}` is in {len(chunks)} blocks, and {why}", axis
            )
        known = self._given.get(root)
        if known is None or len(chunks) > len(known):
            self._given[root] = chunks

    def chunks(self, n: Node, axis: int) -> Chunks | None:
        """How a dim is cut; None where it is whole."""
        return self._given.get(self._find((n.id, axis)))

    def class_of(self, n: Node, axis: int) -> Place | None:
        """What the class of a cut dim is known by; None for a whole one."""
        root = self._find((n.id, axis))
        return root if root in self._given else None

    # -- reductions over cut axes ------------------------------------------------------------------
    def crosses(self, n: Node) -> bool:
        """Whether a node reduces over a cut axis."""
        return isinstance(n.attrs, ReduceAttrs) and any(self.chunks(n.inputs[0], a) for a in n.attrs.axes)

    def reductions(self) -> list[list[Node]]:
        """The reductions over cut axes, in rounds: those of a round need only values of earlier ones."""
        depth: dict[int, int] = {}
        rounds: list[list[Node]] = []
        for n in self.graph.nodes:
            depth[n.id] = max((depth[i.id] for i in n.inputs), default=0)
            if self.crosses(n):
                if n.op not in COMBINED:
                    raise self._refusal(n, f"`{n.op}` over an axis in several blocks", n.attrs.axes[0])  # type: ignore[union-attr]
                if depth[n.id] == len(rounds):
                    rounds.append([])
                rounds[depth[n.id]].append(n)
                depth[n.id] += 1
        return rounds

    def _refusal(self, n: Node, what: str, axis: int) -> UnsupportedError:
        spans = tuple(self.graph.spans.get(n, ()))[:1]
        return UnsupportedError(what, "blocks", spans, (f"make it one block: x.rechunk({{{axis}: -1}})",))

    def _name(self, n: Node) -> str:
        assert isinstance(n.attrs, InputAttrs)
        return self.graph.arguments[n.attrs.position].name

    # -- parts -------------------------------------------------------------------------------------
    def letters(self, n: Node) -> Letters:
        """A letter for each cut dim of a value that a part is made for: `b0`, `b1`, ... in the order of its axes."""
        number = iter(range(n.rank))
        return tuple(f"b{next(number)}" if self.class_of(n, a) else None for a in range(n.rank))

    def reduced_letters(self, n: Node) -> Letters:
        """The same for a reduction over cut axes: those of its operand without the reduced axes."""
        assert isinstance(n.attrs, ReduceAttrs)
        return tuple(x for a, x in enumerate(self.letters(n.inputs[0])) if a not in n.attrs.axes)

    def classes(self, n: Node) -> tuple[Place | None, ...]:
        """The classes of a value's cut dims: values of the same ones can be of one part."""
        return tuple(c for a in range(n.rank) if (c := self.class_of(n, a)) is not None)

    def program(self, roots: Sequence[tuple[Node, Letters]]) -> Part:
        """The part of the graph that computes values at letters, down to arguments and reductions over cut axes (a
        root of that kind is reduced within the block)."""
        return _PartMaker(self, roots).part()


class _PartMaker:
    """Asks for values from the results up, then makes them in program order."""

    def __init__(self, split: Split, roots: Sequence[tuple[Node, Letters]]) -> None:
        self.split, self.roots = split, roots
        self.builder = Builder(split.graph.name)
        self.made: dict[tuple[int, Letters], Node] = {}
        self.operands: dict[Operand, Node] = {}

    def part(self) -> Part:
        wanted: dict[int, dict[Letters, None]] = {}
        for n, letters in self.roots:
            wanted.setdefault(n.id, {})[letters] = None
        local = {n.id for n, _ in self.roots}
        for n in reversed(self.split.graph.nodes):
            for letters in tuple(wanted.get(n.id, ())):
                if not self._is_operand(n, local):
                    for source, at in self._sources(n, letters):
                        wanted.setdefault(source.id, {})[at] = None
        for n in self.split.graph.nodes:
            for letters in wanted.get(n.id, ()):
                self.made[n.id, letters] = self._make(n, letters, local)
        graph = self.builder.close([self.made[n.id, letters] for n, letters in self.roots])
        return Part(graph, tuple(self.operands))

    def _is_operand(self, n: Node, local: set[int]) -> bool:
        return n.op == "input" or (self.split.crosses(n) and n.id not in local)

    def _sources(self, n: Node, letters: Letters) -> list[tuple[Node, Letters]]:
        """The inputs of a value, each with the letters at which it is needed."""
        if isinstance(n.attrs, ViewAttrs):
            if self._picks(n):
                return [(i, letters) for i in n.inputs[1:]]
            return [(n.inputs[0], _mapped(n.attrs.map, letters)), *((i, letters) for i in n.inputs[1:])]
        if isinstance(n.attrs, PieceAttrs):
            return [(i, _mapped(p.map, letters)) for p, i in zip(n.attrs.pieces, n.inputs, strict=True)]
        if isinstance(n.attrs, ReduceAttrs):
            return [(n.inputs[0], self._before(n, letters))]
        if n.op == "matmul":
            return [(n.inputs[0], (letters[0], None)), (n.inputs[1], (None, letters[1]))] if len(letters) == 2 else []
        if any(i.rank != n.rank for i in n.inputs):
            return [(i, (None,) * i.rank) for i in n.inputs]
        return [(i, letters) for i in n.inputs]

    def _before(self, n: Node, letters: Letters) -> Letters:
        """Letters of a reduction's operand."""
        assert isinstance(n.attrs, ReduceAttrs)
        if self.split.crosses(n):  # a root
            return self.split.letters(n.inputs[0])
        rest = iter(letters)
        return tuple(None if a in n.attrs.axes else next(rest) for a in range(n.inputs[0].rank))

    def _picks(self, n: Node) -> tuple[tuple[int, int], ...]:
        """(axis, index) of single elements that a view takes from cut axes of an argument."""
        if not isinstance(n.attrs, ViewAttrs) or n.inputs[0].op != "input":
            return ()
        source = n.inputs[0]
        return tuple(
            (a, int(e.value))
            for a, e in enumerate(n.attrs.map.exprs)
            if e.is_literal and self.split.class_of(source, a) is not None
        )

    def _make(self, n: Node, letters: Letters, local: set[int]) -> Node:
        if self._is_operand(n, local):
            return self._operand(Operand(n, letters))
        picks = self._picks(n)
        if picks:
            assert isinstance(n.attrs, ViewAttrs)
            at = _mapped(n.attrs.map, letters)
            source = self._operand(Operand(n.inputs[0], at, picks))
            axes = {a for a, _ in picks}
            exprs = tuple(lit(0) if a in axes else e for a, e in enumerate(n.attrs.map.exprs))
            rest = [self.made[i.id, letters] for i in n.inputs[1:]]
            return self._node(n, [source, *rest], ViewAttrs(IndexMap(exprs)), letters)
        inputs = [self.made[i.id, at] for i, at in self._sources(n, letters)]
        return self._node(n, inputs, n.attrs, letters)

    def _node(self, n: Node, inputs: Sequence[Node], attrs: Attrs | None, letters: Letters) -> Node:
        return self.builder.make(n.op, inputs, attrs, n.dtype, _shape(n, letters, ()))

    def _operand(self, o: Operand) -> Node:
        if o not in self.operands:
            picked = tuple(a for a, _ in o.picks)
            shape = _shape(o.node, o.letters, picked)
            self.operands[o] = self.builder.argument(f"a{len(self.operands)}", o.node.dtype, shape)
        return self.operands[o]


def _shape(n: Node, letters: Letters, picked: Sequence[int]) -> tuple[int | HostExpr, ...]:
    """A value's shape in a block."""
    dims = zip(n.shape, letters, strict=True)
    return tuple(1 if a in picked else sym(at) if at else d for a, (d, at) in enumerate(dims))


def _mapped(m: IndexMap, letters: Letters) -> Letters:
    """Letters of a view's source."""
    plain = (_plain_axis(e) for e in m.exprs)
    return tuple(letters[k] if k is not None else None for k in plain)


def _plain_axis(e: HostExpr) -> int | None:
    """k where an index is `$k` itself."""
    return int(e.value[1:]) if e.op == "sym" and str(e.value).startswith("$") else None


def _axes_of(e: HostExpr) -> list[int]:
    return [int(s[1:]) for s in e.symbols if s.startswith("$")]


def _params(attrs: Attrs | None) -> Any:
    return getattr(attrs, "params", ())


def with_numbers(graph: Graph, env: Mapping[str, Any]) -> Graph:
    """The graph of one call: its run-time numbers in place of their symbols."""
    from fuser.graph import Rewriter

    class Numbers(Rewriter):
        def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
            attrs = node.attrs
            if isinstance(attrs, ScalarAttrs) and attrs.expr.symbols:
                attrs = ScalarAttrs(lit(attrs.expr.evaluate(env)))
            return self.builder.make(node.op, inputs, attrs, node.dtype, node.shape)

    return Numbers(graph).run()
