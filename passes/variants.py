"""Cheaper operators where their error cannot show: chosen by a budget of relative error, as part of the graph.

In: a widened graph. Out: the same program in which operators that feed only roundings to a half type are named variants
of their rows (`exp.fast`), products that feed sums are `fma`, and 1 + tanh(x), 1 + erf(x) are functions of their own.
The errors of all variants before a rounding stay together below 1/16 unit in the last place of its half type, by the
worst condition numbers of the operators between (`passes.conditioning`): where a sum may cancel, nothing before it is
touched. Under `fast_math` every f32 operator that has a variant takes it, and every product that it can fuses.
before: cast(divide(exp(x), s), bf16)    after: cast(divide.fast(exp.fast(x), s), bf16)

Rows say what a variant costs and errs; schedules and devices have no say, so a program has one meaning on a device
whatever its kernels are. CPUs compute every variant as its plain row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from fuser.dtypes import BF16, F16, F32
from fuser.graph import Graph, Node, RoundAttrs, ViewAttrs
from fuser.hostexpr import lit
from fuser.optable import table
from fuser.optable.base import ScalarOp
from fuser.passes.base import CountingRewriter, Pass, finish
from fuser.passes.conditioning import INF, Conditioning
from fuser.passes.simplify import behind_views, is_exact, literal_of
from fuser.record import dataclass

# 1/16 of the last place of a half type, relative to the largest value that has such a place: 2^-8 and 2^-11 before it.
TOLERANCE = {BF16: 2.0**-12, F16: 2.0**-15}
KEY = "fast"
ONE_PLUS = {"tanh": "one_plus_tanh", "erf": "one_plus_erf"}
RECIPROCAL_ERROR = 2.0**-23  # of c rounded, 1/c rounded and the product: 1.5 units
Multiplied = tuple[Node, Node, Node, bool, bool]  # (a, b, c, negate a, negate c) of +-a*b + +-c


@dataclass(frozen=True)
class Variants(Pass):
    """Choose variants. fast_math: everywhere, not only under a budget."""

    name: ClassVar[str] = "variants"
    fast_math: bool = False

    def run(self, graph: Graph) -> Graph:
        plan = _planned(graph, self.fast_math)
        return finish(graph, _Choosing(graph, plan, self.limit)) if plan.rewrites else graph


@dataclass(frozen=True)
class Candidate:
    """What a node may become: the row `op` of `operands`; `growth` of their errors and its own error."""

    op: str
    operands: tuple[Node, ...]
    growth: tuple[float, ...]
    error: float


@dataclass
class Plan:
    """By node: the variant that replaces it, or the multiply-add that it and its product become."""

    variants: dict[Node, Candidate] = field(default_factory=dict)
    fused: dict[Node, Multiplied] = field(default_factory=dict)

    @property
    def rewrites(self) -> bool:
        return bool(self.variants or self.fused)


def _planned(graph: Graph, fast_math: bool) -> Plan:
    if not fast_math and not any(_tolerance(n) for n in graph.nodes):
        return Plan()
    chooser = _Chooser(graph, fast_math)
    return Plan(chooser.variants(), chooser.multiply_adds())


def _tolerance(node: Node) -> float | None:
    """The relative error that a node's operand may have, where the node rounds it to a half type."""
    to = node.attrs.to if isinstance(node.attrs, RoundAttrs) else node.dtype if node.op == "cast" else F32
    return TOLERANCE.get(to) if node.inputs and node.inputs[0].dtype == F32 else None


class _Chooser:
    """`weights[n]`: errors of n times this, summed over all n before a rounding, are at most 1 where all is well."""

    def __init__(self, graph: Graph, fast_math: bool) -> None:
        self.graph, self.fast_math = graph, fast_math
        self.conditions = Conditioning(graph)
        self.results = frozenset(graph.results)
        self.candidates = {n: c for n in graph.nodes if (c := self._candidate(n)) is not None}
        self.weights = {} if fast_math else self._weights()

    # -- what there is to choose -------------------------------------------------------------------
    def _candidate(self, node: Node) -> Candidate | None:
        if node.dtype != F32:
            return None
        if node.op == "add" and (found := self._one_plus(node)) is not None:
            return found
        if node.op == "divide" and _reciprocal(node) is not None:
            return Candidate("multiply", node.inputs, (1.0, 1.0), RECIPROCAL_ERROR)
        row = table().known.get(node.op)
        variant = row.variants.get(KEY) if isinstance(row, ScalarOp) else None
        if variant is None or not (self.fast_math or variant.budget):
            return None
        return Candidate(f"{node.op}.{KEY}", node.inputs, self.conditions.growth(node), variant.error)

    def _one_plus(self, node: Node) -> Candidate | None:
        """1 + f(x), f(x) being of use to nothing else."""
        for one, other in (node.inputs, node.inputs[::-1]):
            if literal_of(one) == 1 and other.op in ONE_PLUS and self._single(other):
                row = table().scalar(ONE_PLUS[other.op])
                assert row.growth is not None
                return Candidate(f"{row.name}.{KEY}", other.inputs, row.growth, row.variants[KEY].error)
        return None

    def _single(self, node: Node) -> bool:
        return len(self.graph.users[node]) == 1 and node not in self.results

    def _flow(self, node: Node) -> tuple[tuple[Node, float], ...]:
        """The operands whose errors reach a node, and by which factor."""
        found = self.candidates.get(node)
        if found is not None and found.op.startswith("one_plus"):
            return tuple(zip(found.operands, found.growth, strict=True))
        return tuple((i, g) for i, g in zip(node.inputs, self.conditions.growth(node), strict=True) if i.dtype == F32)

    # -- budget ------------------------------------------------------------------------------------
    def _weights(self) -> dict[Node, float]:
        """Backwards from the roundings: how much of the budget a relative error of each node takes; infinite where it
        may take all."""
        weights = dict.fromkeys(self.graph.nodes, 0.0)
        for node in reversed(self.graph.nodes):
            if node in self.results and node.dtype == F32:
                weights[node] = INF
            tolerance = _tolerance(node)
            if tolerance is not None:
                weights[node.inputs[0]] += 1 / tolerance
                continue
            own = weights[node] if node.dtype == F32 else INF  # a truth or an index jumps, and f64 shows every error
            for operand, growth in self._flow(node):
                weights[operand] += own * growth if growth else 0.0
        return weights

    def variants(self) -> dict[Node, Candidate]:
        """The candidates to take. Each is admitted if it alone, with what is before it, keeps to the budget; should
        several together break one, all those before that rounding are given up."""
        if self.fast_math:
            return self.candidates
        chosen = {n: c for n, c in self.candidates.items() if self.weights[n] < INF}
        errors = self._errors(chosen, admit=True)
        broken = [n for n in self.graph.nodes if (t := _tolerance(n)) is not None and errors[n.inputs[0]] > t]
        self._give_up(broken, chosen)
        return chosen

    def _errors(self, chosen: dict[Node, Candidate], admit: bool) -> dict[Node, float]:
        """The relative error of every node under the chosen variants; inadmissible ones are taken out of them."""
        errors = dict.fromkeys(self.graph.nodes, 0.0)
        for node in self.graph.nodes:
            carried = sum(errors[i] * g for i, g in self._flow(node) if errors[i])
            found = chosen.get(node)
            if found is not None and admit and (carried + found.error) * self.weights[node] > 1:
                del chosen[node]
                found = None
            if _tolerance(node) is None:
                errors[node] = carried + (found.error if found else 0.0)
        return errors

    def _give_up(self, roundings: Sequence[Node], chosen: dict[Node, Candidate]) -> None:
        stack = [n.inputs[0] for n in roundings]
        seen = set(stack)
        while stack:
            node = stack.pop()
            chosen.pop(node, None)
            fresh = [i for i, _ in self._flow(node) if i not in seen]
            seen.update(fresh)
            stack += fresh

    # -- multiply-adds -----------------------------------------------------------------------------
    def multiply_adds(self) -> dict[Node, Multiplied]:
        """Sums with a product that nothing else needs.

        Under a budget: where no digits cancel (one rounding less is no further from the truth), where the product is
        exact anyway, or where all three operands are values of the caller's.
        """
        out: dict[Node, Multiplied] = {}
        for node in self.graph.nodes:
            if node.op not in ("add", "subtract") or not node.dtype.is_float or node in self.candidates:
                continue
            if not self.fast_math and (node.dtype != F32 or self.weights[node] == INF):
                continue
            left, right = node.inputs
            for product, other in ((left, right), (right, left)):
                if self._fuses(node, product, other):
                    minus = node.op == "subtract"
                    a, b = product.inputs
                    out[node] = (a, b, other, minus and product is right, minus and product is left)
                    break
        return out

    def _fuses(self, node: Node, product: Node, other: Node) -> bool:
        if product.op != "multiply" or product is other or not self._single(product):
            return False
        if self.fast_math or self.conditions.adds(node):
            return True
        return all(map(_half_valued, product.inputs)) or all(map(_given, (*product.inputs, other)))


def _half_valued(node: Node) -> bool:
    """Whether a value has at most 11 significant bits: two of them multiply exactly."""
    node = behind_views(node)
    value = literal_of(node)
    if value is not None:
        return any(is_exact(value, t) for t in (BF16, F16))
    return isinstance(node.attrs, RoundAttrs) or (node.op == "cast" and node.inputs[0].dtype.is_half)


def _given(node: Node) -> bool:
    """Whether a value is the caller's, as it came."""
    node = behind_views(node)
    return node.op in ("input", "scalar") or _half_valued(node)


def _reciprocal(node: Node) -> float | None:
    """1/c of a division by a literal c, if both are normal f32 numbers."""
    divisor = node.inputs[1]
    if isinstance(divisor.attrs, ViewAttrs):
        divisor = divisor.inputs[0]
    value = literal_of(divisor) if divisor.op == "scalar" else None
    if value is None or not value or not math.isfinite(value):
        return None
    c = float(np.float32(value))
    normal = 2.0**-126 <= abs(c) <= 2.0**126
    return float(np.float32(1.0 / c)) if normal else None


class _Choosing(CountingRewriter):
    """Rewrites by plan."""

    def __init__(self, graph: Graph, plan: Plan, limit: int | None) -> None:
        super().__init__(graph, limit)
        self.plan = plan

    def rewrite(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        b = self.builder
        found = self.plan.variants.get(node)
        fused = self.plan.fused.get(node)
        if self.exhausted or (found is None and fused is None):
            return super().rewrite(node, inputs)
        self.count += 1
        if fused is not None:
            return self._multiply_add(node, fused)
        assert found is not None
        if found.op == "multiply":
            return b.make("multiply", (inputs[0], self._reciprocal(node)), None, node.dtype, node.shape)
        return b.make(found.op, [self.mapped[o] for o in found.operands], None, node.dtype, node.shape)

    def _multiply_add(self, node: Node, fused: Multiplied) -> Node:
        x, y, z = (self.mapped[o] for o in fused[:3])
        x, z = self._signed(x, fused[3]), self._signed(z, fused[4])
        return self.builder.make("fma", (x, y, z), None, node.dtype, node.shape)

    def _signed(self, x: Node, negate: bool) -> Node:
        return self.builder.make("negative", (x,), None, x.dtype, x.shape) if negate else x

    def _reciprocal(self, node: Node) -> Node:
        """The literal 1/c, as the divisor was seen."""
        value = _reciprocal(node)
        assert value is not None
        scalar, divisor = self.builder.scalar(lit(value), F32), node.inputs[1]
        if not isinstance(divisor.attrs, ViewAttrs):
            return scalar
        return self.builder.make("view", (scalar,), divisor.attrs, F32, divisor.shape)
