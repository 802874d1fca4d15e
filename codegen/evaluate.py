"""Lazy evaluation: what must be computed to have graph values at given indices, and its emission.

In: a group, values wanted at index expressions over its loop variables. Out: a `Program`, the steps of
one lane in depth-first order (the emission order that keeps few values alive), and, through
`Lane.run`, kernel-language operands. Views become composed indices, piecewise values become masked loads and
selects. Its own file because all schedules of both targets read values only this way.

Each distinct (node, index, mask) is one step, so shared subexpressions are computed once a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fuser.codegen.indices import IndexEmitter
from fuser.codegen.loops import Var
from fuser.codegen.loopwriter import write_loop
from fuser.codegen.program import Apply, Constant, Fetch, Position, Program, Result, Select, Step
from fuser.dtypes import BOOL, DType
from fuser.errors import InternalError
from fuser.graph import (
    Graph,
    IotaAttrs,
    ItemAttrs,
    Node,
    PieceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ViewAttrs,
)
from fuser.group import Group
from fuser.indexmap import Index
from fuser.loopbody import LoopAttrs
from fuser.masks import Condition, Mask, Masks
from fuser.proofs import GATHERED, Ranges, gathered
from fuser.record import dataclass
from fuser.settings import settings

if TYPE_CHECKING:
    from fuser.codegen.builder import KernelBuilder
    from fuser.codegen.loops import Operand

Key = tuple[int, Index, Mask]  # a value: node id, index, where it is needed


class Tracer:
    """Finds the steps for values of a group. `want` may be called for several values; `program` closes it."""

    def __init__(self, graph: Graph, group: Group, ranges: Ranges) -> None:
        self.graph, self.masks = graph, Masks(graph, ranges)
        self.inputs = frozenset(group.inputs)
        self.finished = frozenset(group.reductions) | ({group.scan.node} if group.scan is not None else frozenset())
        self.steps: list[Step] = []
        self._numbers: dict[Step, int] = {}
        self._memo: dict[Key, int] = {}
        self._taken: dict[Key, list[tuple[Condition | None, Key]]] = {}  # pieces of values that wait for theirs
        self._roots: list[int] = []

    def want(self, node: int, index: Index, stored: bool = False) -> int:
        """The step of a node at an index. stored: in its storage dtype (halves stay narrow)."""
        root: Key = (node, self.masks.normal(index, self.graph.by_id[node]), ())
        step = self._evaluate(root)
        target = self.graph.by_id[node].storage
        if stored and self._dtype(step) != target:
            step = self._narrow(step, target)
        self._roots.append(step)
        return step

    def program(self) -> Program:
        return Program(tuple(self.steps), tuple(self._roots))

    def _narrow(self, step: int, target: DType) -> int:
        """The value in its storage dtype; a `round` step already has it as its operand."""
        s = self.steps[step]
        if isinstance(s, Apply) and s.op == "cast" and self._dtype(s.args[0]) == target:
            return s.args[0]
        return self._add(Apply("cast", (step,), target))

    def _evaluate(self, root: Key) -> int:
        """Depth first with an explicit stack: a key is made once all it needs is made."""
        stack = [root]
        while stack:
            key = stack[-1]
            if key not in self._memo:
                missing = [k for k in self._needs(key) if k not in self._memo]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                self._memo[key] = self._make(key)
            stack.pop()
        return self._memo[root]

    # -- what a value needs ------------------------------------------------------------------------
    def _needs(self, key: Key) -> list[Key]:
        node, index, mask = self.graph.by_id[key[0]], key[1], key[2]
        if self._is_leaf(node):
            return []
        if isinstance(node.attrs, ViewAttrs):
            positions: list[Key] = [(n.id, index, mask) for n in node.inputs[1:]]
            if any(k not in self._memo for k in positions):
                return positions
            return [self._source(key)]
        if key in self._taken:
            return [k for _, k in self._taken[key]]
        if isinstance(node.attrs, PieceAttrs):
            found = self._taken[key] = self._pieces(key)
            return [k for _, k in found]
        return [(n.id, index, mask) for n in node.inputs]

    def _is_leaf(self, node: Node) -> bool:
        if node.id in self.inputs or node.id in self.finished:
            return True
        return isinstance(node.attrs, (ScalarAttrs, IotaAttrs, ItemAttrs))

    def _source(self, key: Key) -> Key:
        """What a view reads, its index operands being evaluated."""
        node, index, mask = self.graph.by_id[key[0]], key[1], key[2]
        assert isinstance(node.attrs, ViewAttrs)
        found = {f"@{k}": gathered(self._memo[n.id, index, mask]) for k, n in enumerate(node.inputs[1:])}
        source = node.inputs[0]
        return source.id, self.masks.normal(node.attrs.map.apply(index, found), source), mask

    def _pieces(self, key: Key) -> list[tuple[Condition | None, Key]]:
        """The pieces that can be taken: (domain, or None for the last, value)."""
        node, index, mask = self.graph.by_id[key[0]], key[1], key[2]
        return [(t.condition, (node.inputs[t.piece].id, t.index, t.mask)) for t in self.masks.taken(node, index, mask)]

    # -- steps -------------------------------------------------------------------------------------
    def _add(self, step: Step) -> int:
        number = self._numbers.get(step)
        if number is None:
            number = self._numbers[step] = len(self.steps)
            self.steps.append(step)
        return number

    def _dtype(self, step: int) -> DType:
        return self.steps[step].dtype

    def _make(self, key: Key) -> int:
        node, index, mask = self.graph.by_id[key[0]], key[1], key[2]
        attrs = node.attrs
        if node.id in self.inputs:
            loaded = self._add(Fetch(node.id, index, mask, node.storage))
            return loaded if node.dtype == node.storage else self._add(Apply("cast", (loaded,), node.dtype))
        if node.id in self.finished:
            return self._add(Result(node.id, 0, node.dtype))
        if isinstance(attrs, ItemAttrs):
            return self._add(Result(node.inputs[0].id, attrs.k, node.dtype))
        if isinstance(attrs, ScalarAttrs):
            return self._add(Constant(attrs.expr, node.dtype))
        if isinstance(attrs, IotaAttrs):
            return self._add(Position(index[attrs.axis], node.dtype))
        if isinstance(attrs, ViewAttrs):
            return self._memo[self._source(key)]
        if isinstance(attrs, PieceAttrs):
            return self._select(key, node.dtype)
        return self._operator(node, tuple(self._memo[n.id, index, mask] for n in node.inputs))

    def _select(self, key: Key, dtype: DType) -> int:
        pieces = self._taken.pop(key)
        out = self._memo[pieces[-1][1]]
        for condition, value in reversed(pieces[:-1]):
            assert condition is not None
            out = self._add(Select(condition, self._memo[value], out, dtype))
        return out

    def _operator(self, node: Node, args: tuple[int, ...]) -> int:
        if isinstance(node.attrs, RoundAttrs):
            narrow = self._add(Apply("cast", args, node.attrs.to, place=self._place(node)))
            return self._add(Apply("cast", (narrow,), node.dtype, place=self._place(node)))
        if isinstance(node.attrs, LoopAttrs):
            return self._add(Apply(node.op, args, node.dtype, node.attrs))
        if node.attrs is not None:
            raise InternalError(f"{node!r} is neither an input of the group nor finished in it", "group-evaluation")
        if node.op == "cast" and self._dtype(args[0]) == node.dtype:
            return args[0]
        return self._add(Apply(node.op, args, node.dtype, place=self._place(node)))

    def _place(self, node: Node) -> tuple[str, int] | None:
        """Where the program computes a node, for profilers that were promised lines."""
        spans = self.graph.spans.get(node, ()) if settings().line_info else ()
        return (spans[0].filename, spans[0].line) if spans else None


# -- emission --------------------------------------------------------------------------------------
Loader = Callable[[int, IndexEmitter, "Operand | None"], "Operand"]  # (step, indices, mask) -> loaded element
Results = Mapping[tuple[int, int], "Operand"]  # finished reductions by (node, result number)


@dataclass(frozen=True)
class Lane:
    """Emits a program for one lane after another. `load` emits the load of a `Fetch` step."""

    program: Program
    builder: KernelBuilder
    load: Loader

    def run(
        self,
        indices: IndexEmitter,
        results: Results,
        known: Mapping[int, Operand] | None = None,
        only: Sequence[bool] | None = None,
    ) -> dict[int, Operand]:
        """Emits the steps in order and gives the operand of each.

        indices: loop variables bound for this lane (gathered values get bound in it). known: steps that have
        their operand already (hoisted loads, values constant over the loop). only: emit just the steps marked true.
        """
        values: dict[int, Operand] = {}
        for k, step in enumerate(self.program.steps):
            if known is not None and k in known:
                values[k] = known[k]
            elif only is None or only[k]:
                values[k] = self._emit(k, step, indices, results, values)
            else:
                continue
            if k in self.program.gathered:
                indices.bind(f"{GATHERED}{k}", values[k])
        return values

    def _emit(
        self, number: int, step: Step, indices: IndexEmitter, results: Results, values: Mapping[int, Operand]
    ) -> Operand:
        b = self.builder
        if isinstance(step, Apply):
            args = [values[a] for a in step.args]
            if step.loop is not None:
                return write_loop(b, step.loop, args)
            value = b.apply(step.op, args, step.dtype)
            if step.place is not None and isinstance(value, Var):
                b.places.setdefault(value.name, step.place)
            return value
        if isinstance(step, Fetch):
            return self.load(number, indices, mask_operand(b, indices, step.mask))
        if isinstance(step, Constant):
            return b.scalar(step.expr, step.dtype)
        if isinstance(step, Position):
            value = indices.value(step.expr)
            return value if value.dtype == step.dtype else b.apply("cast", (value,), step.dtype)
        if isinstance(step, Result):
            return results[step.node, step.k]
        holds = _condition_operand(b, indices, step.condition)
        return b.apply("where", (holds, values[step.yes], values[step.no]), step.dtype)


def mask_operand(builder: KernelBuilder, indices: IndexEmitter, mask: Mask) -> Operand | None:
    """The conjunction as a bool operand; None where it is empty."""
    if not mask:
        return None
    out: Operand = builder.literal(True, BOOL)
    for c in mask:
        out = builder.apply("logical_and", (out, _condition_operand(builder, indices, c)), BOOL)
    return out


def _condition_operand(builder: KernelBuilder, indices: IndexEmitter, c: Condition) -> Operand:
    holds = indices.condition(c.domain)
    return holds if c.holds else builder.apply("logical_not", (holds,), BOOL)
