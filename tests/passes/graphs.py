"""Small graphs for the tests of passes: short constructors, and random graphs.

In: a builder. Out: nodes, without the promotion and broadcasting that `fuser.construct` does; what a test builds is
exactly what the pass sees.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuser import indexmap
from fuser.dtypes import BOOL, F32, F64, DType
from fuser.graph import Builder, Graph, Node, PieceAttrs, ReduceAttrs, ViewAttrs
from fuser.hostexpr import Dim, HostExpr, lit, wrap
from fuser.indexmap import IndexMap, Piece, axis
from fuser.shapes import Shape, numel


def op(b: Builder, name: str, *inputs: Node, dtype: DType | None = None) -> Node:
    """An elementwise operator."""
    return b.make(name, inputs, None, dtype or inputs[0].dtype, inputs[0].shape)


def view(b: Builder, x: Node, m: IndexMap, shape: Shape) -> Node:
    return b.make("view", (x,), ViewAttrs(m), x.dtype, shape)


def spread(b: Builder, x: Node, shape: Shape) -> Node:
    """Broadcast."""
    return x if x.shape == shape else view(b, x, indexmap.broadcast(x.shape, shape), shape)


def fold(b: Builder, name: str, x: Node, axes: Sequence[int], keep: bool = True, dtype: DType | None = None) -> Node:
    """A reduction, its axes kept as size 1 unless `keep` is false."""
    folded = tuple(sorted(a % x.rank for a in axes))
    kept = [k for k in range(x.rank) if k not in folded]
    result = b.make(name, (x,), ReduceAttrs(folded), dtype or x.dtype, tuple(x.shape[k] for k in kept))
    if not keep:
        return result
    wide = tuple(1 if k in folded else d for k, d in enumerate(x.shape))
    return view(b, result, IndexMap(tuple(axis(k) for k in kept)), wide)


def reshape(b: Builder, x: Node, shape: Shape) -> Node:
    return view(b, x, indexmap.reshape(x.shape, shape), shape)


def transpose(b: Builder, x: Node, perm: Sequence[int]) -> Node:
    return view(b, x, indexmap.transpose(perm), tuple(x.shape[p] for p in perm))


def literal(b: Builder, value: float, like: Node) -> Node:
    """A literal of a node's dtype and shape."""
    return spread(b, b.scalar(lit(value), like.dtype), like.shape)


def row_softmax(b: Builder, x: Node, along: int) -> Node:
    """Softmax as users write it: max, subtract, exp, sum, divide."""
    e = op(b, "exp", op(b, "subtract", x, spread(b, fold(b, "max", x, [along]), x.shape)))
    return op(b, "divide", e, spread(b, fold(b, "sum", e, [along]), x.shape))


def mean(b: Builder, x: Node, axes: Sequence[int]) -> Node:
    """Sum over the number of elements, axes kept."""
    total = fold(b, "sum", x, axes)
    count = wrap(numel(x.shape[a % x.rank] for a in axes))
    return op(b, "divide", total, spread(b, b.scalar(count, x.dtype), total.shape))


def variance(b: Builder, x: Node, axes: Sequence[int]) -> tuple[Node, Node]:
    """(x - mean, variance): two centred passes, as NumPy computes it."""
    centred = op(b, "subtract", x, spread(b, mean(b, x, axes), x.shape))
    return centred, mean(b, op(b, "multiply", centred, centred), axes)


# -- random graphs ---------------------------------------------------------------------------------
UNARY = ("negative", "absolute", "sqrt", "exp", "sin")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
FOLDS = ("sum", "max", "min")


class RandomGraph:
    """A random program over [a, b] and [a, b, c] arrays: operators, folds, broadcasts, views, pieces,
    several results.
    """

    def __init__(self, seed: int, dims: Sequence[Dim], dtype: DType = F64) -> None:
        self.random = random.Random(seed)
        self.b = Builder(f"random{seed}")
        self.dtype = dtype
        rank = self.random.choice((1, 2, 2, 3))
        self.shape: Shape = tuple(self.random.choice(dims) for _ in range(rank))
        self.pool = [self.b.argument(f"x{k}", dtype, self.shape) for k in range(self.random.randint(1, 3))]

    def pick(self) -> Node:
        recent = self.random.random() < 0.7
        return self.random.choice(self.pool[-6:] if recent else self.pool)

    def build(self, size: int) -> Graph:
        for _ in range(size):
            made = self.random.choices(
                (self._unary, self._binary, self._fold, self._transpose, self._flip, self._shift, self._reshape),
                (3, 5, 3, 1, 1, 1, 1),
            )[0]()
            if made is not None and made.rank <= 4:
                self.pool.append(made)
        made = [n for n in self.pool if n.op != "input"] or [op(self.b, "negative", self.pool[0])]
        results = self.random.sample(made, min(len(made), self.random.randint(1, 4)))
        return self.b.close(list(dict.fromkeys([*results, made[-1]])))

    def _unary(self) -> Node:
        return op(self.b, self.random.choice(UNARY), self.pick())

    def _binary(self) -> Node | None:
        x, y = self.pick(), self.pick()
        if x.rank < y.rank:
            x, y = y, x
        shift = x.rank - y.rank
        fits = all(d in (1, x.shape[k + shift]) for k, d in enumerate(y.shape))
        return op(self.b, self.random.choice(BINARY), x, spread(self.b, y, x.shape)) if fits else None

    def _fold(self) -> Node | None:
        x = self.pick()
        if x.rank == 0:
            return None
        axes = self.random.sample(range(x.rank), self.random.randint(1, x.rank))
        return fold(self.b, self.random.choice(FOLDS), x, axes, self.random.random() < 0.7)

    def _transpose(self) -> Node:
        x = self.pick()
        perm = list(range(x.rank))
        self.random.shuffle(perm)
        return transpose(self.b, x, perm)

    def _flip(self) -> Node | None:
        x = self.pick()
        if x.rank == 0:
            return None
        k = self.random.randrange(x.rank)
        exprs = [axis(j) if j != k else wrap(x.shape[k]) - 1 - axis(k) for j in range(x.rank)]
        return view(self.b, x, IndexMap(tuple(exprs)), x.shape)

    def _shift(self) -> Node | None:
        """x[i - 1] along an axis, 0 at the edge: two pieces."""
        x = self.pick()
        if x.rank == 0:
            return None
        k = self.random.randrange(x.rank)
        moved = IndexMap(tuple(axis(j) - 1 if j == k else axis(j) for j in range(x.rank)))
        zero = self.b.scalar(lit(0.0), x.dtype)
        pieces = (Piece((axis(k) - 1,), moved), Piece((), IndexMap(())))
        return self.b.make("piecewise", (x, zero), PieceAttrs(pieces), x.dtype, x.shape)

    def _reshape(self) -> Node:
        x = self.pick()
        if x.rank >= 2 and self.random.random() < 0.5:
            return reshape(self.b, x, (numel(x.shape[:2]), *x.shape[2:]))
        return reshape(self.b, x, (1, *x.shape))


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with its nodes made in another (topological) order."""
    rng = random.Random(seed)
    b = Builder(graph.name)
    b.arguments = list(graph.arguments)
    missing = {n: len(set(n.inputs)) for n in graph.nodes}
    ready = [n for n in graph.nodes if not missing[n]]
    mapped: dict[Node, Node] = {}
    while ready:
        n = ready.pop(rng.randrange(len(ready)))
        mapped[n] = b.make(n.op, [mapped[i] for i in n.inputs], n.attrs, n.dtype, n.shape)
        for u in dict.fromkeys(graph.users[n]):
            missing[u] -= 1
            if not missing[u]:
                ready.append(u)
    return b.close([mapped[n] for n in graph.outputs])


__all__ = [
    "BOOL", "F32", "F64", "Graph", "HostExpr", "RandomGraph", "fold", "literal", "mean", "op", "reshape", "row_softmax",
    "shuffled", "spread", "transpose", "variance", "view",
]  # fmt: skip
