"""The bodies of loops, as programs of their own: the passes that make operators better, run on them.

In: a widened graph. Out: the same program in which the bodies of `loop` nodes are simplified, share equal values, use
operator variants where the graph around them may, and hold no state that nothing asks for.
before: loop(n, 0, x) {state 1 of 2; ...}, state 0 unused    after: loop(n, x) {state 0 of 1; ...}
"""

from __future__ import annotations

from typing import ClassVar

from fuser.dtypes import F32, DType
from fuser.graph import Builder, Graph, Node, RoundAttrs
from fuser.loopbody import LoopAttrs, body_graph, with_body, without_unused
from fuser.passes.base import CountingRewriter, Pass, finish
from fuser.passes.cse import Share
from fuser.passes.simplify import Simplify
from fuser.passes.variants import Variants
from fuser.record import dataclass


@dataclass(frozen=True)
class LoopBodies(Pass):
    """Improve the bodies of loops. variants: choose operator variants; fast_math: everywhere."""

    name: ClassVar[str] = "loop_bodies"
    variants: bool = True
    fast_math: bool = False

    def run(self, graph: Graph) -> Graph:
        if not any(isinstance(n.attrs, LoopAttrs) for n in graph.nodes):
            return graph
        return finish(graph, _Bodies(graph, self))


class _Bodies(CountingRewriter):
    def __init__(self, graph: Graph, options: LoopBodies) -> None:
        super().__init__(graph, options.limit)
        self.options = options
        self.wanted: dict[object, set[int]] = {}
        for n in graph.nodes:
            if isinstance(n.attrs, LoopAttrs):
                self.wanted.setdefault((n.inputs, n.attrs.whole), set()).add(n.attrs.k)

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if not isinstance(node.attrs, LoopAttrs) or self.exhausted:
            return super().rewrite(node, inputs)
        wanted = frozenset(self.wanted[node.inputs, node.attrs.whole])
        attrs, kept = without_unused(node.attrs, wanted)
        operands = [inputs[k] for k in kept]
        body = self.improved(body_graph(attrs, [n.dtype for n in operands]))
        attrs = with_body(attrs, body)
        self.count += attrs != node.attrs
        return self.builder.make(node.op, operands, attrs, node.dtype, node.shape)

    def improved(self, body: Graph) -> Graph:
        body = self.options.run(body)
        steps: list[Pass] = [Simplify(), Share(), Simplify()]
        steps += [Variants(fast_math=self.options.fast_math)] if self.options.variants else []
        for step in steps:
            body = step.run(body)
        return body


def widened(attrs: LoopAttrs, dtypes: list[DType], widen: Pass) -> LoopAttrs:
    """A body whose half values are f32 ones: parameters and results too, a half state being rounded in every round.

    dtypes: of the operands as they were. widen: the pass that does it, for a program with half arguments and results.
    """
    body = widen.run(body_graph(attrs, dtypes))
    b = Builder(body.name)
    wide = [b.argument(a.name, F32 if a.dtype.is_half else a.dtype, ()) for a in body.arguments]
    mapped: dict[Node, Node] = {n: wide[k] for k, n in body.inputs.items()}
    for n in body.nodes:
        if n.op == "input":
            continue
        operands = [_narrowed(b, mapped[i], i.dtype) if n.op != "cast" else mapped[i] for i in n.inputs]
        loaded = n.op == "cast" and n.inputs[0].op == "input" and n.dtype == mapped[n.inputs[0]].dtype
        mapped[n] = mapped[n.inputs[0]] if loaded else b.make(n.op, operands, n.attrs, n.dtype, ())
    outputs = []
    for n in body.outputs:
        value = mapped[n]
        if n.dtype.is_half and n.op != "input":
            value = b.make("round", (mapped[n.inputs[0]],), RoundAttrs(n.dtype), F32, ())
        outputs.append(value)
    return with_body(attrs, b.close(outputs))


def _narrowed(b: Builder, x: Node, dtype: DType) -> Node:
    """A value in the half type that an operator of the body wants."""
    return x if x.dtype == dtype else b.make("cast", (x,), None, dtype, ())
