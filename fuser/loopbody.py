"""Loops inside a kernel: an operator whose attributes hold the operators of one round.

In: steps, numbered values. Out: `LoopAttrs`, the attributes of `loop` nodes, and what a loop means: `evaluate_loop`.
Its own file because a body is a small program of its own beside the graph; passes see it through `body_graph`.

A `loop` node has the operands (count, state 0, state 1, ..., captured 0, ...), all of the node's shape, and is the
value that state `k` ends with; a loop of several states is several nodes that differ in `k` alone. Values of a body are
numbered: 0 is the round (i64, from 0 on), then the states, then what is captured, then the steps.

For each element by itself:  for i in range(count): if stop(states): break; states = results(i, states)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.dtypes import BOOL, I64, DType
from fuser.graph import Attrs, Builder, Graph, InputAttrs, Node, ScalarAttrs
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.optable.base import Cost

# Rounds that a loop is taken to run where its count is not a literal, or where elements stop by themselves.
EXPECTED_ROUNDS = 64


@dataclass(frozen=True)
class BodyStep:
    """One operator of a body. attrs: of a literal (`scalar`), of a `round`, of a loop in the loop; None elsewhere."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    attrs: Attrs | None = None


@dataclass(frozen=True)
class LoopAttrs(Attrs):
    """State `k` of a loop of `states` states, `captured` more operands. results: the value that each state gets.

    stop: the bool at which an element keeps its states from then on, read before each round; None: never.
    uniform: all elements have one count.
    """

    k: int
    states: int
    captured: int
    steps: tuple[BodyStep, ...]
    results: tuple[int, ...]
    stop: int | None
    uniform: bool = True

    @property
    def parameters(self) -> int:
        """How many values come before the steps."""
        return 1 + self.states + self.captured

    @property
    def whole(self) -> LoopAttrs:
        """The same for every state of one loop."""
        return replace(self, k=0)

    def needed(self, wanted: Sequence[int]) -> frozenset[int]:
        """Numbers of the values that the wanted ones are computed from, themselves included."""
        seen: set[int] = set()
        stack = list(wanted)
        while stack:
            v = stack.pop()
            if v not in seen:
                seen.add(v)
                stack += self.steps[v - self.parameters].args if v >= self.parameters else ()
        return frozenset(seen)

    @property
    def roots(self) -> tuple[int, ...]:
        """Values that a round needs."""
        return self.results if self.stop is None else (*self.results, self.stop)


@dataclass(frozen=True)
class LoopValueAttrs(Attrs):
    """A value of a body while it is traced (`loop_value` nodes): `value` as numbered, of the loop `loop` of the trace.

    Nodes of this kind are in no finished graph.
    """

    loop: int
    value: int


# -- meaning ---------------------------------------------------------------------------------------
Apply = Callable[[BodyStep, Sequence[Any]], Any]


def evaluate_steps(attrs: LoopAttrs, parameters: Sequence[Any], apply: Apply) -> list[Any]:
    """Every value of one round, in order, `apply` computing the steps."""
    values = list(parameters)
    for step in attrs.steps:
        values.append(apply(step, [values[a] for a in step.args]))
    return values


def evaluate_loop(attrs: LoopAttrs, inputs: Sequence[np.ndarray[Any, Any]], apply: Apply) -> list[np.ndarray[Any, Any]]:
    """The last states of a loop on NumPy arrays of one shape."""
    count, states = np.asarray(inputs[0]), [np.asarray(x) for x in inputs[1 : 1 + attrs.states]]
    captured = inputs[1 + attrs.states :]
    going = np.ones(count.shape, np.bool_)
    number = 0
    while True:
        going = going & (number < count)
        if not going.any():
            return states
        values = evaluate_steps(attrs, [np.asarray(number, np.int64), *states, *captured], apply)
        if attrs.stop is not None:
            going = going & ~values[attrs.stop]
        states = [np.where(going, values[r], old) for r, old in zip(attrs.results, states, strict=True)]
        number += 1


# -- bodies as graphs ------------------------------------------------------------------------------
def body_graph(attrs: LoopAttrs, dtypes: Sequence[DType]) -> Graph:
    """The body as a graph of 0-d values, for passes. dtypes: of the node's inputs. Outputs: results, then the stop."""
    b = Builder("body")
    values = [b.argument("i", I64, ())]
    values += [b.argument(f"x{k}", t, ()) for k, t in enumerate(dtypes[1:], 1)]
    for s in attrs.steps:
        values.append(b.make(s.op, [values[a] for a in s.args], s.attrs, s.dtype, ()))
    return b.close([values[r] for r in attrs.roots])


def with_body(attrs: LoopAttrs, graph: Graph) -> LoopAttrs:
    """The attributes with the body that a pass made of `body_graph`."""
    numbers: dict[Node, int] = {}
    steps: list[BodyStep] = []
    for n in graph.nodes:
        if isinstance(n.attrs, InputAttrs):
            numbers[n] = n.attrs.position
            continue
        numbers[n] = attrs.parameters + len(steps)
        steps.append(BodyStep(n.op, tuple(numbers[i] for i in n.inputs), n.dtype, n.attrs))
    roots = [numbers[n] for n in graph.outputs]
    stop = roots.pop() if attrs.stop is not None else None
    return replace(attrs, steps=tuple(steps), results=tuple(roots), stop=stop)


def without_unused(attrs: LoopAttrs, wanted: frozenset[int]) -> tuple[LoopAttrs, list[int]]:
    """The loop with the states that the wanted ones (and the stop) depend on, and the places of the operands kept.

    The result's `k` counts kept states; `attrs.k` must be wanted.
    """
    keep = set(wanted)
    while True:
        roots = [attrs.results[k] for k in keep] + ([attrs.stop] if attrs.stop is not None else [])
        used = attrs.needed(roots)
        more = {v - 1 for v in used if 1 <= v <= attrs.states} - keep
        if not more:
            break
        keep |= more
    kept = [v for v in range(1, attrs.parameters) if (v - 1 in keep if v <= attrs.states else v in used)]
    numbers = {0: 0, **{v: n for n, v in enumerate(kept, 1)}}
    steps: list[BodyStep] = []
    for v in sorted(u for u in used if u >= attrs.parameters):
        step = attrs.steps[v - attrs.parameters]
        numbers[v] = 1 + len(kept) + len(steps)
        steps.append(replace(step, args=tuple(numbers[a] for a in step.args)))
    states = sorted(keep)
    small = LoopAttrs(
        states.index(attrs.k), len(states), len(kept) - len(states), tuple(steps),
        tuple(numbers[attrs.results[s]] for s in states),
        None if attrs.stop is None else numbers[attrs.stop], attrs.uniform,
    )  # fmt: skip
    return small, [0, *kept]


# -- facts -----------------------------------------------------------------------------------------
def rounds(node: Node) -> int:
    """Rounds that a loop node is taken to run."""
    assert isinstance(node.attrs, LoopAttrs)
    count = node.inputs[0]
    while count.op in ("view", "cast"):
        count = count.inputs[0]
    literal = count.attrs.expr.value if isinstance(count.attrs, ScalarAttrs) and count.attrs.expr.is_literal else None
    if literal is None:
        return EXPECTED_ROUNDS
    return max(min(int(literal), EXPECTED_ROUNDS) if node.attrs.stop is not None else int(literal), 0)


def round_cost(attrs: LoopAttrs, rows: Mapping[str, Any]) -> Cost:
    """What one round issues, and the registers a loop holds beyond its operands: its states and a few values."""
    from fuser.optable.base import Cost

    instructions, sfu = 2.0, 0.0
    for s in attrs.steps:
        own = getattr(rows.get(s.op), "cost", None)
        if isinstance(s.attrs, LoopAttrs):
            inner = round_cost(s.attrs, rows)
            own = Cost(inner.instructions * EXPECTED_ROUNDS, inner.sfu * EXPECTED_ROUNDS)
        if own is not None and s.op != "scalar":
            instructions += own.instructions
            sfu += own.sfu
    return Cost(instructions, sfu, 2 * attrs.states + 2)


def cost(node: Node, rows: Mapping[str, Any]) -> Cost:
    """What evaluating a loop node once costs."""
    assert isinstance(node.attrs, LoopAttrs)
    one, times = round_cost(node.attrs, rows), rounds(node)
    return replace(one, instructions=one.instructions * times, sfu=one.sfu * times)


# -- checks ----------------------------------------------------------------------------------------
def findings(node: Node) -> list[str]:
    """What is wrong with a loop node (`fuser.verify`)."""
    attrs = node.attrs
    assert isinstance(attrs, LoopAttrs)
    if len(node.inputs) != attrs.parameters or len(attrs.results) != attrs.states or not 0 <= attrs.k < attrs.states:
        return [f"{len(node.inputs)} operands and {len(attrs.results)} results for {attrs.states} states"]
    found = [f"operand %{i.id} has another shape than the loop" for i in node.inputs if i.shape != node.shape]
    dtypes = [I64, *(i.dtype for i in node.inputs[1:])]
    if node.inputs[0].dtype != I64:
        found.append(f"a count is i64, not {node.inputs[0].dtype}")
    for s in attrs.steps:
        if any(not 0 <= a < len(dtypes) for a in s.args):
            return [*found, f"a step `{s.op}` reads a value that does not come before it"]
        dtypes.append(s.dtype)
    if any(not 0 <= r < len(dtypes) for r in attrs.roots):
        return [*found, "a result is no value of the body"]
    for k, r in enumerate(attrs.results):
        if dtypes[r] != node.inputs[1 + k].dtype:
            found.append(f"state {k} is {node.inputs[1 + k].dtype} and becomes {dtypes[r]}")
    if node.dtype != node.inputs[1 + attrs.k].dtype:
        found.append(f"{node.dtype} where state {attrs.k} is {node.inputs[1 + attrs.k].dtype}")
    if attrs.stop is not None and dtypes[attrs.stop] != BOOL:
        found.append(f"stops at {dtypes[attrs.stop]}, not bool")
    return found
