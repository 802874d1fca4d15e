"""The graph: what a program computes, as immutable nodes in program order.

In: calls to `Builder.make` from front ends and passes. Out: a `Graph` that owns nodes, arguments,
outputs, effects, guards and (beside the nodes) source spans and variable names. It is the only
truth about a program; `Graph.networkx()` is a cached view for algorithms networkx is good at.

Node kinds (`Node.op`):
    input      attrs InputAttrs       an array argument
    scalar     attrs ScalarAttrs      a 0-d value computed on the host per call (literals too)
    iota       attrs IotaAttrs        the index along one axis
    view       attrs ViewAttrs        inputs[0] read through an index map; inputs[1:] are `@k` operands
    piecewise  attrs PieceAttrs       the first piece whose domain holds (the last has none); one input a piece
    <reduction row>  attrs ReduceAttrs  reduced axes vanish; results beyond the first through `item`
    item       attrs ItemAttrs        result k of a reduction with several
    <scan row> attrs ScanAttrs
    loop       attrs LoopAttrs        a state of a loop that each element runs by itself (`fuser.loopbody`)
    round      attrs RoundAttrs       an f32 value rounded through a half type (still f32)
    cast                              conversion to `Node.dtype`
    <opaque row> attrs OpaqueAttrs    a library call (matmul)
    <composite row> attrs CompositeAttrs  lowered by the pass `lower`
    every other name is a scalar operator of the table; its inputs all have the node's own shape.
Broadcasting is always an explicit view, so elementwise inputs and output share one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

from fuser.dtypes import DType
from fuser.errors import Span, TraceError
from fuser.hostexpr import HostExpr
from fuser.indexmap import IndexMap, Piece
from fuser.record import dataclass
from fuser.shapes import Guard, Shape, ShapeEnv, text_of

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Attrs:
    """Base of the typed attributes of a node."""


@dataclass(frozen=True)
class InputAttrs(Attrs):
    """Array argument number `position` (in `Graph.arguments`)."""

    position: int


@dataclass(frozen=True)
class ScalarAttrs(Attrs):
    """A host expression, converted to the node's dtype at the call (OverflowError as NumPy for ints)."""

    expr: HostExpr


@dataclass(frozen=True)
class IotaAttrs(Attrs):
    axis: int


@dataclass(frozen=True)
class ViewAttrs(Attrs):
    """Where each element of a view is read: operand 0 by `map`, whose `@k` is the value of operand k + 1."""

    map: IndexMap


@dataclass(frozen=True)
class PieceAttrs(Attrs):
    """One piece an operand: an element is that of the first piece whose domain holds (the last has none)."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ReduceAttrs(Attrs):
    """Axes reduced, ascending. The reduced index is row-major over them."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class ItemAttrs(Attrs):
    """Result `k` of a reduction with several; result 0 is the reduction's own node."""

    k: int


@dataclass(frozen=True)
class ScanAttrs(Attrs):
    """Inclusive prefix fold along `axis` (exclusive: shifted by one, starting with the identity)."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


@dataclass(frozen=True)
class RoundAttrs(Attrs):
    """An f32 value rounded to the nearest value of a half type, and kept in f32."""

    to: DType


@dataclass(frozen=True)
class OpaqueAttrs(Attrs):
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class CompositeAttrs(Attrs):
    """Static keyword parameters of a composite, sorted by name, all hashable."""

    params: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.params)[name]


def attr_expressions(attrs: Attrs | None) -> Iterator[HostExpr]:
    """Every host expression in a node's attributes; those of maps hold axis variables `$k` and `@k` too."""
    if isinstance(attrs, ScalarAttrs):
        yield attrs.expr
    elif isinstance(attrs, ViewAttrs):
        yield from attrs.map.exprs
    elif isinstance(attrs, PieceAttrs):
        for p in attrs.pieces:
            yield from (*p.domain, *p.map.exprs)
    elif isinstance(attrs, CompositeAttrs | OpaqueAttrs):
        queue: list[Any] = [v for _, v in attrs.params]
        while queue:
            value = queue.pop()
            if isinstance(value, HostExpr):
                yield value
            elif isinstance(value, tuple):
                queue.extend(value)


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One value. Interned per builder, so identity is equality; `id` is its place in program order."""

    id: int
    op: str
    inputs: tuple[Node, ...]
    attrs: Attrs | None
    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def storage(self) -> DType:
        """The dtype of this value when it is kept in memory: a `round` node keeps its half type."""
        return self.attrs.to if isinstance(self.attrs, RoundAttrs) else self.dtype

    def __repr__(self) -> str:
        ins = ", ".join(f"%{n.id}" for n in self.inputs)
        return f"<%{self.id} = {self.op}({ins}) {self.dtype}{text_of(self.shape)}>"


@dataclass(frozen=True)
class Argument:
    """An array argument: name, dtype, dims (symbols, or ints where static). `captured` arrays are hidden inputs."""

    name: str
    dtype: DType
    shape: Shape
    captured: bool = False


@dataclass(frozen=True)
class Effect:
    """At the end of the program the whole argument number `argument` holds `node`'s value."""

    argument: int
    node: Node


@dataclass(frozen=True, eq=False)
class Mark:
    """A contract of the user's about two computed values: `together` in one kernel, or never in one."""

    together: bool
    a: Node
    b: Node
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class Graph:
    """A closed program: `nodes` in topological (id) order, reachable from outputs and effects only.

    `outputs` is flat; `output_tree` (opaque to passes) says how results are nested. `names` maps a node
    to the user's variable names (latest last); `spans` to source places. Neither affects meaning. `whole` is the graph
    whose complex operators were split into this one's real ones. `marks`: what must or must not share a kernel.
    """

    name: str
    nodes: tuple[Node, ...]
    arguments: tuple[Argument, ...]
    outputs: tuple[Node, ...]
    effects: tuple[Effect, ...] = ()
    guards: tuple[Guard, ...] = ()
    spans: Mapping[Node, tuple[Span, ...]] = field(default_factory=dict)
    names: Mapping[Node, tuple[str, ...]] = field(default_factory=dict)
    output_tree: Any = None
    source: str = ""
    whole: Graph | None = None
    marks: tuple[Mark, ...] = ()

    @cached_property
    def users(self) -> Mapping[Node, tuple[Node, ...]]:
        """Readers of each node, in id order, one entry an operand (x*x lists its reader twice)."""
        found: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for n in self.nodes:
            for i in n.inputs:
                found[i].append(n)
        return {n: tuple(u) for n, u in found.items()}

    @cached_property
    def by_id(self) -> Mapping[int, Node]:
        return {n.id: n for n in self.nodes}

    @property
    def results(self) -> tuple[Node, ...]:
        """Every node the caller sees: outputs, then values written back to arguments."""
        return (*self.outputs, *(e.node for e in self.effects))

    @cached_property
    def inputs(self) -> Mapping[int, Node]:
        """Argument position -> its `input` node (absent when the program does not read it)."""
        return {n.attrs.position: n for n in self.nodes if isinstance(n.attrs, InputAttrs)}

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Every dim and scalar symbol that the program needs at a call."""
        found: set[str] = set()
        for n in self.nodes:
            found.update(*(d.symbols for d in n.shape if isinstance(d, HostExpr)))
            found.update(*(e.symbols for e in attr_expressions(n.attrs)))
        return frozenset(s for s in found if not s.startswith(("$", "@")))

    def networkx(self) -> networkx.MultiDiGraph[int]:
        """The graph as a networkx multigraph (one edge an operand, keyed by operand position), node ids as keys."""
        import networkx

        view: networkx.MultiDiGraph[int] = networkx.MultiDiGraph(name=self.name)
        view.add_nodes_from((n.id, {"node": n}) for n in self.nodes)
        for n in self.nodes:
            for k, i in enumerate(n.inputs):
                view.add_edge(i.id, n.id, key=k)
        return view

    def with_(self, **changes: Any) -> Graph:
        """A copy with some fields replaced."""
        return replace(self, **changes)


class Builder:
    """Makes interned nodes in program order, with the current source span and the dims' unions.

    The same (op, inputs, attrs, dtype, shape) gives the same node: common subexpressions are shared
    from the start. `close` prunes, renumbers nothing, and applies the dims' unions.
    """

    def __init__(self, name: str = "f") -> None:
        self.name = name
        self.shapes = ShapeEnv()
        self.nodes: list[Node] = []
        self.arguments: list[Argument] = []
        self.spans: dict[Node, dict[Span, None]] = {}
        self.names: dict[Node, dict[str, None]] = {}
        self.span: Span | None = None
        self.marks: list[Mark] = []
        self._interned: dict[tuple[Any, ...], Node] = {}

    def make(self, op: str, inputs: Sequence[Node], attrs: Attrs | None, dtype: DType, shape: Shape) -> Node:
        """The node for these parts, new or interned. Checks nothing: `fuser.construct` does, and `verify`."""
        key = (op, tuple(map(id, inputs)), attrs, dtype, shape)
        node = self._interned.get(key)
        if node is None:
            node = Node(len(self.nodes), op, tuple(inputs), attrs, dtype, shape)
            self._interned[key] = node
            self.nodes.append(node)
        if self.span is not None:
            self.spans.setdefault(node, {})[self.span] = None
        return node

    def argument(self, name: str, dtype: DType, shape: Shape, captured: bool = False) -> Node:
        """Declare the next array argument and return its `input` node."""
        self.arguments.append(Argument(name, dtype, shape, captured))
        node = self.make("input", (), InputAttrs(len(self.arguments) - 1), dtype, shape)
        self.label(node, name)
        return node

    def scalar(self, expr: HostExpr, dtype: DType) -> Node:
        """A 0-d node for a host expression."""
        return self.make("scalar", (), ScalarAttrs(expr), dtype, ())

    def label(self, node: Node, name: str) -> None:
        """Note a variable name of the user's for a node."""
        self.names.setdefault(node, {})[name] = None

    def mark(self, together: bool, values: Sequence[Node]) -> None:
        """Note that values share a kernel, or that no two of them do. TraceError [mark] for what no kernel computes."""
        for value in values:
            base = value
            while base.op == "view":
                base = base.inputs[0]
            if base.op in ("input", "scalar", "iota"):
                place = () if self.span is None else (self.span,)
                raise TraceError("only values that the program computes are marked", "mark", place)
        self.marks += [Mark(together, a, b, self.span) for a, b in combinations(values, 2)]

    def close(
        self,
        outputs: Sequence[Node],
        effects: Sequence[Effect] = (),
        output_tree: Any = None,
        source: str = "",
    ) -> Graph:
        """The finished graph, dead nodes dropped and every dim canonical."""
        nodes = reachable([*outputs, *(e.node for e in effects)])
        for n in nodes:
            if n.op == "loop_value":
                message = "a value of a loop's round is used outside the loop, or stored into an array of outside"
                raise TraceError(
                    message, "loop-escape", self._reader(n, nodes), ("return it from the round as a state",)
                )
        graph = Graph(
            self.name,
            nodes,
            tuple(self.arguments),
            tuple(outputs),
            tuple(effects),
            tuple(self.shapes.guards),
            {n: tuple(s) for n, s in self.spans.items()},
            {n: tuple(s) for n, s in self.names.items()},
            output_tree,
            source,
            marks=tuple(m for m in self.marks if {m.a, m.b} <= set(nodes)),
        )
        return rename_dims(graph, self.shapes.merged) if self.shapes.merged else graph

    def _reader(self, value: Node, nodes: Sequence[Node]) -> tuple[Span, ...]:
        """Where a value is used first."""
        return next((tuple(self.spans.get(n, ()))[:1] for n in nodes if value in n.inputs), ())


def reachable(roots: Iterable[Node]) -> tuple[Node, ...]:
    """All nodes that `roots` need, in id order; iterative."""
    seen: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n.id not in seen:
            seen[n.id] = n
            stack.extend(n.inputs)
    return tuple(seen[k] for k in sorted(seen))


class Rewriter:
    """Copies a graph node by node into a new builder; a pass overrides what it changes.

    `mapped[old]` is the new node. `run` visits nodes in order, calls `rewrite(old, new_inputs)`, carries
    spans and names over, and closes the new graph with the same arguments, outputs and effects.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = Builder(graph.name)
        self.builder.arguments = list(graph.arguments)
        self.mapped: dict[Node, Node] = {}

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """The new node for `node`, given its already rewritten inputs."""
        return self.builder.make(node.op, inputs, node.attrs, node.dtype, node.shape)

    def run(self) -> Graph:
        g, b = self.graph, self.builder
        for node in g.nodes:
            before = len(b.nodes)
            new = self.rewrite(node, tuple(self.mapped[i] for i in node.inputs))
            self.mapped[node] = new
            for made in (*b.nodes[before:], new):
                for span in g.spans.get(node, ()):
                    b.spans.setdefault(made, {})[span] = None
            for name in g.names.get(node, ()):
                b.label(new, name)
        b.marks = [replace(m, a=self.mapped[m.a], b=self.mapped[m.b]) for m in g.marks]
        outputs = [self.output(n) for n in g.outputs]
        effects = [Effect(e.argument, self.output(e.node)) for e in g.effects]
        closed = b.close(outputs, effects, g.output_tree, g.source)
        guards = tuple(dict.fromkeys((*g.guards, *closed.guards)))
        return closed.with_(guards=guards, whole=g.whole)

    def output(self, node: Node) -> Node:
        """The new node for an output or effect value (a pass may wrap it)."""
        return self.mapped[node]


def rename_dims(graph: Graph, merged: Mapping[str, HostExpr]) -> Graph:
    """The graph with dim symbols replaced everywhere (a map is applied until nothing changes)."""
    from fuser.rename import apply_dims  # walks every attribute kind; apart to keep this file about structure

    return apply_dims(graph, merged)
