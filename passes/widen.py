"""Half precision is storage: arithmetic on f16 and bf16 becomes f32, and rounding is written down where it belongs.

In: a graph of rows with half values anywhere. Out: half types only on inputs, on casts to half at results, effects and
operands of library calls, and beside `round` nodes; everything between is f32. With rounding="graph" a value is rounded
where the user cast it, where it leaves the program, and before an operator that jumps (comparisons, floor,
argmax): never by where a kernel happens to end. With rounding="each-op" every operator rounds, which gives
NumPy's bits.
before: add(x: bf16, y: bf16)    after: cast(add(cast(x, f32), cast(y, f32)), bf16)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fuser.dtypes import BOOL, F32, F64, DType
from fuser.graph import (
    Graph,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    Rewriter,
    RoundAttrs,
    ScalarAttrs,
    ViewAttrs,
)
from fuser.hostexpr import lit
from fuser.loopbody import LoopAttrs
from fuser.optable import table
from fuser.optable.base import Reduction, ScalarOp, Scan
from fuser.passes.base import Pass
from fuser.passes.loops import widened
from fuser.passes.simplify import is_exact, literal_of
from fuser.record import dataclass

Rounding = Literal["graph", "each-op"]


@dataclass(frozen=True)
class Widen(Pass):
    """Rewrite half arithmetic. rounding: "graph", or "each-op" for NumPy's bits."""

    name: ClassVar[str] = "widen"
    rounding: Rounding = "graph"

    def run(self, graph: Graph) -> Graph:
        if all(_settled(n) for n in graph.nodes):
            return graph
        return _Widening(graph, self.rounding).run()


def _settled(node: Node) -> bool:
    """Whether a node needs no rewriting: nothing half but arguments, and those only cast."""
    if node.dtype.is_half:
        return node.op == "input"
    if isinstance(node.attrs, LoopAttrs) and any(s.dtype.is_half for s in node.attrs.steps):
        return False
    return node.op == "cast" or not any(i.dtype.is_half for i in node.inputs)


class _Widening(Rewriter):
    """`mapped` holds the f32 stand-in of every half node; `exact` tells which stand-ins are half values anyway."""

    def __init__(self, graph: Graph, rounding: Rounding) -> None:
        super().__init__(graph)
        self.rounding = rounding
        self.exact: dict[Node, DType] = {}

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        b = self.builder
        if isinstance(node.attrs, OpaqueAttrs):
            return self._loaded(b.make(node.op, self._narrowed(node, inputs), node.attrs, node.dtype, node.shape))
        if isinstance(node.attrs, ScalarAttrs):
            return self._scalar(node, node.attrs)
        if node.op == "input":
            return self._loaded(b.make(node.op, inputs, node.attrs, node.dtype, node.shape))
        if node.op == "cast":
            return self._cast(node, inputs[0])
        if isinstance(node.attrs, LoopAttrs):
            return self._loop(node, node.attrs, inputs)
        if node.op == "bitcast":
            return self._loaded(b.make(node.op, self._narrowed(node, inputs), None, node.dtype, node.shape))
        if jumps(node):
            inputs = tuple(self._rounded(new, old.dtype) for new, old in zip(inputs, node.inputs, strict=True))
        wide = F32 if node.dtype.is_half else node.dtype
        new = b.make(node.op, inputs, node.attrs, wide, node.shape)
        if node.dtype.is_half:
            self._note_exact(node, new, inputs)
            if self.rounding == "each-op" or node.op == "iota":
                return self._rounded(new, node.dtype)
        return new

    def _loaded(self, new: Node) -> Node:
        """The f32 value of a half node that is in memory, or of bits that are a half value."""
        if not new.dtype.is_half:
            return new
        wide = self.builder.make("cast", (new,), None, F32, new.shape)
        self.exact[wide] = new.dtype
        return wide

    def _rounded(self, new: Node, to: DType) -> Node:
        """`new` rounded to a half type, unless it is certain to be such a value."""
        if not to.is_half or self.exact.get(new) == to:
            return new
        value = literal_of(new)
        if value is not None and is_exact(value, to):
            return new
        done = self.builder.make("round", (new,), RoundAttrs(to), F32, new.shape)
        self.exact[done] = to
        return done

    def _narrowed(self, node: Node, inputs: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(self._half(new, old.dtype) for new, old in zip(inputs, node.inputs, strict=True))

    def _half(self, new: Node, dtype: DType) -> Node:
        """A half value in its own type, as memory and libraries take it."""
        if not dtype.is_half:
            return new
        views, base = [], new
        while base.op == "view" and len(base.inputs) == 1:
            views.append(base)
            base = base.inputs[0]
        if base.op != "cast" or base.inputs[0].dtype != dtype:
            return self.builder.make("cast", (new,), None, dtype, new.shape)
        base = base.inputs[0]
        for v in reversed(views):  # a view of what is in memory needs no copy
            base = self.builder.make("view", (base,), v.attrs, dtype, v.shape)
        return base

    def _scalar(self, node: Node, attrs: ScalarAttrs) -> Node:
        if not node.dtype.is_half:
            return self.builder.make(node.op, (), attrs, node.dtype, node.shape)
        if self.rounding == "graph":
            return self.builder.scalar(attrs.expr, F32)
        if attrs.expr.is_literal:
            value = float(np.asarray(attrs.expr.value).astype(node.dtype.numpy))
            new = self.builder.scalar(lit(value), F32)
            self.exact[new] = node.dtype
            return new
        return self._loaded(self.builder.make(node.op, (), attrs, node.dtype, node.shape))

    def _cast(self, node: Node, x: Node) -> Node:
        source, target = node.inputs[0].dtype, node.dtype
        if target.is_half:
            if source == F64:  # rounded once, from f64: the cast row's own business
                return self._loaded(self.builder.make("cast", (x,), None, target, node.shape))
            wide = x if x.dtype == F32 else self.builder.make("cast", (x,), None, F32, node.shape)
            return self._rounded(wide, target)
        if source.is_half and not target.is_float:  # truncation and `!= 0` jump
            x = self._rounded(x, source)
        return x if x.dtype == target else self.builder.make("cast", (x,), None, target, node.shape)

    def _loop(self, node: Node, attrs: LoopAttrs, inputs: tuple[Node, ...]) -> Node:
        """A half state is a half value before the first round and after each, whatever the rounds compute in."""
        operands = [self._rounded(new, old.dtype) for new, old in zip(inputs, node.inputs, strict=True)]
        body = widened(attrs, [i.dtype for i in node.inputs], Widen(rounding=self.rounding))
        new = self.builder.make(node.op, operands, body, F32 if node.dtype.is_half else node.dtype, node.shape)
        if node.dtype.is_half:
            self.exact[new] = node.dtype
        return new

    def _note_exact(self, node: Node, new: Node, inputs: tuple[Node, ...]) -> None:
        if not _closed(node):
            return
        values = inputs[:1] if node.op == "view" else tuple(i for i in inputs if i.dtype != BOOL)
        if values and all(self._is(v, node.dtype) for v in values):
            self.exact[new] = node.dtype

    def _is(self, value: Node, half: DType) -> bool:
        literal = literal_of(value)
        if literal is not None:
            return is_exact(literal, half) or literal != literal
        return self.exact.get(value) == half

    def output(self, node: Node) -> Node:
        return self._half(self.mapped[node], node.dtype)


def _closed(node: Node) -> bool:
    """Whether a node makes a half value of half values: rounding it again changes nothing."""
    if isinstance(node.attrs, (ViewAttrs, PieceAttrs)):
        return True
    row = table().known.get(node.op)
    if isinstance(row, Scan):
        row = table().reduction(row.reduction)
    return row.exact if isinstance(row, Reduction) else isinstance(row, ScalarOp) and row.closed


def jumps(node: Node) -> bool:
    """Whether a small change of an operand may change the result by much: rows that say so, positions, truths."""
    if isinstance(node.attrs, ReduceAttrs):
        return not node.dtype.is_float
    row = table().known.get(node.op)
    return isinstance(row, ScalarOp) and not row.continuous
