"""Complex numbers are storage: arithmetic on them becomes arithmetic on pairs of reals.

In: a graph without composites, complex values anywhere. Out: complex types only on inputs and views of them, on the
operands of `real` and `imag`, and on `complex` nodes at results, effects and products; everything between is real.
Values that stay in memory between kernels are two real arrays, one a part. So no later pass and no schedule knows
complex arithmetic, and a kernel loads and stores both parts of an element as one.
before: multiply(z: c64, w: c64)    after: complex(subtract(multiply(real(z), real(w)), ...), add(...))
"""

from __future__ import annotations

from typing import ClassVar

from fuser.construct import elementwise as ew
from fuser.construct import reduction, views
from fuser.construct.formula import handle, node_of
from fuser.dtypes import BOOL, complex_of
from fuser.errors import InternalError
from fuser.graph import Graph, Node, ReduceAttrs, Rewriter, ScanAttrs
from fuser.loopbody import LoopAttrs, body_graph, with_body
from fuser.optable import table
from fuser.optable.base import S, ScalarOp
from fuser.optable.complexes import Z
from fuser.passes.base import Pass
from fuser.record import dataclass

STORED = frozenset({"input", "complex", "real", "imag"})  # what may give or take a complex value as it is


@dataclass(frozen=True)
class Split(Pass):
    """Rewrite complex arithmetic on pairs of reals."""

    name: ClassVar[str] = "split"

    def run(self, graph: Graph) -> Graph:
        if all(_settled(n, n.inputs) for n in graph.nodes):
            return graph
        return _Splitting(graph).run().with_(whole=graph)


def _settled(node: Node, inputs: tuple[Node, ...]) -> bool:
    """Whether a node stays as it is over these inputs: nothing complex, or in memory."""
    if isinstance(node.attrs, LoopAttrs) and _has_complex(node.attrs):
        return False
    if node.op in STORED or not any(n.dtype.is_complex for n in (node, *inputs)):
        return True
    return node.op == "complex_prod" or (node.op == "view" and inputs[0].op in ("input", "view"))


def _has_complex(loop: LoopAttrs) -> bool:
    """Whether a round, whose states are reals, computes with complex numbers in between."""
    return any(s.dtype.is_complex or (isinstance(s.attrs, LoopAttrs) and _has_complex(s.attrs)) for s in loop.steps)


class _Splitting(Rewriter):
    """A complex value is a `complex` node, whose operands are its parts; or something in memory, read by part."""

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op in ("real", "imag") and inputs[0].op == "complex":
            return inputs[0].inputs[node.op == "imag"]
        if isinstance(node.attrs, LoopAttrs) and _has_complex(node.attrs):
            body = Split().run(body_graph(node.attrs, [n.dtype for n in node.inputs]))
            return self.builder.make(node.op, inputs, with_body(node.attrs, body), node.dtype, node.shape)
        if _settled(node, inputs):
            return self.builder.make(node.op, inputs, node.attrs, node.dtype, node.shape)
        before = len(self.builder.nodes)
        made = self._split(node, inputs)
        for new in self.builder.nodes[before:]:  # the parts are shown by the user's names
            if node in self.graph.names and new in made.inputs:
                part = "real" if new is made.inputs[0] else "imag"
                self.builder.label(new, f"{self.graph.names[node][-1]}.{part}")
        return made

    def _split(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op == "cast":
            return self._cast(node, inputs[0])
        if node.op in ("view", "piecewise"):
            return self._moved(node, inputs)
        if isinstance(node.attrs, ReduceAttrs):
            return self._reduced(node, node.attrs, inputs[0])
        if isinstance(node.attrs, ScanAttrs) and node.op == "cumsum":
            return self._both(node, inputs[0])
        row = table().known.get(node.op)
        if isinstance(row, ScalarOp) and row.pairs is not None:
            result = row.pairs.form(*map(self._operand, inputs))
            return self._join(result) if isinstance(result, Z) else node_of(self.builder, result)
        raise InternalError(f"`{node.op}` has no complex form", "complex-form")

    # -- parts -------------------------------------------------------------------------------------
    def _part(self, x: Node, name: str) -> Node:
        """`real` or `imag` of a complex value; a real's own value, or a zero."""
        if not x.dtype.is_complex:
            return x if name == "real" else views.broadcast_to(self.builder, self._zero(x), x.shape)
        if x.op == "complex":
            return x.inputs[name == "imag"]
        part = self.builder.make(name, (x,), None, x.dtype.component, x.shape)
        for label in self.builder.names.get(x, ()):
            self.builder.label(part, f"{label}.{name}")
        return part

    def _zero(self, x: Node) -> Node:
        return ew.as_node(self.builder, 0.0, x.dtype)

    def _operand(self, x: Node) -> Z | S:
        if not x.dtype.is_complex:
            return handle(self.builder, x)
        return Z(*(handle(self.builder, self._part(x, name)) for name in ("real", "imag")))

    def _join(self, z: Z) -> Node:
        return self._complex(*(node_of(self.builder, part) for part in (z.re, z.im)))

    def _complex(self, re: Node, im: Node) -> Node:
        return ew.combine(self.builder, "complex", [re, im], complex_of(re.dtype))

    # -- kinds of nodes ------------------------------------------------------------------------------
    def _cast(self, node: Node, x: Node) -> Node:
        if node.dtype == BOOL:
            parts = [ew.cast(self.builder, self._part(x, name), BOOL) for name in ("real", "imag")]
            return ew.combine(self.builder, "bitwise_or", parts, BOOL)
        part = node.dtype.component
        if x.dtype.is_complex:
            return self._complex(*(ew.cast(self.builder, self._part(x, name), part) for name in ("real", "imag")))
        re = ew.cast(self.builder, x, part)
        return self._complex(re, self._part(re, "imag"))

    def _moved(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """A view or pieces of both parts; index operands serve both."""
        part = node.dtype.component
        count = 1 if node.op == "view" else len(inputs)
        halves = ((*(self._part(x, name) for x in inputs[:count]), *inputs[count:]) for name in ("real", "imag"))
        return self._complex(*(self.builder.make(node.op, h, node.attrs, part, node.shape) for h in halves))

    def _both(self, node: Node, x: Node) -> Node:
        parts = (self._part(x, name) for name in ("real", "imag"))
        return self._complex(*(self.builder.make(node.op, (p,), node.attrs, p.dtype, node.shape) for p in parts))

    def _reduced(self, node: Node, attrs: ReduceAttrs, x: Node) -> Node:
        if node.op == "sum":
            return self._both(node, x)
        if node.op == "prod":
            product = reduction.raw(self.builder, "complex_prod", x, attrs.axes)
            return self._complex(product, reduction.item(self.builder, product, 1))
        raise InternalError(f"`{node.op}` has no complex form", "complex-form")
