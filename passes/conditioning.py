"""How a small relative error of an operand shows in a result, and which sums cannot cancel.

In: a graph. Out: a `Sign` for every float node, and `growth`: the factor by which a relative error of each operand
appears in the result, infinite where no factor bounds it (a difference near 0, a jump). Its own file because it is
analysis of real functions alone: it knows no variant and no half type.

A sign is a constant sign times the unknown signs of some nodes: v*v*v and v have one sign, whatever v is, so that
v + 0.04*v*v*v adds magnitudes and loses no digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fuser.dtypes import F32
from fuser.graph import Graph, Node, PieceAttrs, ReduceAttrs, RoundAttrs, ScanAttrs, ViewAttrs
from fuser.hostexpr import sym
from fuser.indexmap import Index
from fuser.optable import table
from fuser.optable.base import Reduction, ScalarOp, Scan, SignRule
from fuser.passes.simplify import behind_views, literal_of
from fuser.record import dataclass

INF = math.inf
FACTORS = 8  # unknown signs in a product that are tracked; a longer product is an unknown sign of its own


@dataclass(frozen=True)
class Sign:
    """Negative or not, times the signs of the nodes whose ids are in `factors`; zeros have every sign."""

    negative: bool = False
    factors: frozenset[int] = frozenset()

    def times(self, other: Sign) -> Sign:
        return Sign(self.negative != other.negative, self.factors ^ other.factors)

    def flipped(self) -> Sign:
        return Sign(not self.negative, self.factors)

    @property
    def known(self) -> bool:
        return not self.factors


POSITIVE_SIGN = Sign()


class Conditioning:
    """Signs of all nodes of a graph, and the growth of errors through its operators."""

    def __init__(self, graph: Graph) -> None:
        self.signs: dict[Node, Sign] = {}
        for node in graph.nodes:
            found = self._sign(node)
            small = found is not None and len(found.factors) <= FACTORS
            self.signs[node] = found if found is not None and small else Sign(factors=frozenset({node.id}))

    # -- signs -------------------------------------------------------------------------------------
    def _sign(self, node: Node) -> Sign | None:
        """The sign as far as operands tell; None for an unknown one."""
        if node.dtype.kind in "bu" or is_log_sumexp(node):
            return POSITIVE_SIGN
        if node.op == "subtract" and _below_maximum(node, replaced=False) is not None:
            return Sign(negative=True)
        value = literal_of(node)
        if value is not None:
            return Sign(negative=value < 0)
        signs = [self.signs[i] for i in node.inputs]
        if isinstance(node.attrs, RoundAttrs):
            return signs[0]
        if isinstance(node.attrs, (ViewAttrs, ReduceAttrs, ScanAttrs)):  # of other elements: only a known sign passes
            passes = isinstance(node.attrs, ViewAttrs) or _folded(node).keeps_sign
            return signs[0] if passes and signs[0].known else None
        if isinstance(node.attrs, PieceAttrs):
            return _common(signs) if all(s.known for s in signs) else None
        row = table().known.get(node.op)
        return _SIGN_RULES[row.sign](signs) if isinstance(row, ScalarOp) and row.sign else None

    # -- errors ------------------------------------------------------------------------------------
    def growth(self, node: Node) -> tuple[float, ...]:
        """What a relative error of each operand is multiplied by in the result."""
        if node.dtype != F32:
            return (INF,) * len(node.inputs)
        if isinstance(node.attrs, ViewAttrs):
            return (1.0,) + (INF,) * (len(node.inputs) - 1)
        if isinstance(node.attrs, PieceAttrs):
            return (1.0,) * len(node.inputs)
        if node.op in ("add", "subtract"):
            return (1.0, 1.0) if self.adds(node) else (INF, INF)
        if node.op == "log":
            return (1.0,) if is_log_sumexp(node) else (INF,)
        if node.op in ("sum", "cumsum"):
            return (1.0,) if self.signs[node.inputs[0]].known else (INF,)
        if isinstance(node.attrs, ReduceAttrs):
            return (1.0,) if _folded(node).exact else (INF,)
        row = table().known.get(node.op)
        return (isinstance(row, ScalarOp) and row.growth) or (INF,) * len(node.inputs)

    def adds(self, node: Node) -> bool:
        """Whether an addition or subtraction is one of magnitudes: its operands have one sign (or opposite ones)."""
        a, b = (self.signs[i] for i in node.inputs)
        return a == (b if node.op == "add" else b.flipped())


# -- a row against its maximum ---------------------------------------------------------------------
def is_log_sumexp(node: Node) -> bool:
    """Whether a node is log(S), S = sum of exp(x - max x), the maximum perhaps 0 in place of an infinite one.

    One element gives exp(0) = 1 without error. So an error e of the others is one of e*(S - 1) in S, and of e*(S - 1)/S
    in log(S), which is less than e*log(S).
    """
    total = behind_views(node.inputs[0]) if node.op == "log" else node
    if total.op != "sum" or total.inputs[0].op != "exp":
        return False
    shifted = total.inputs[0].inputs[0]
    found = _below_maximum(shifted, replaced=True)
    return found is not None and found.attrs == total.attrs


def _below_maximum(node: Node, replaced: bool) -> Node | None:
    """The `max` node that a difference x - max(x) takes along its axes; replaced: it may be 0 where it is infinite."""
    if node.op != "subtract":
        return None
    x, top = node.inputs
    index: Index = tuple(sym(f"${k}") for k in range(node.rank))
    while top.op != "max":
        if isinstance(top.attrs, ViewAttrs) and len(top.inputs) == 1:
            index, top = top.attrs.map.apply(index), top.inputs[0]
        elif replaced and top.op == "where" and _is_finite_test(top):
            top = top.inputs[1]
        else:
            return None
    if not isinstance(top.attrs, ReduceAttrs) or top.inputs[0] is not x:
        return None
    own = tuple(sym(f"${k}") for k in range(node.rank) if k not in top.attrs.axes)
    return top if tuple(index) == own else None


def _is_finite_test(node: Node) -> bool:
    """where(isfinite(m), m, 0)."""
    test, value, other = node.inputs
    return test.op == "isfinite" and test.inputs[0] is value and literal_of(other) == 0


def _folded(node: Node) -> Reduction:
    """The row by which a reduction or scan combines elements."""
    row = table().known[node.op]
    return table().reduction(row.reduction if isinstance(row, Scan) else node.op)


def _common(signs: Sequence[Sign]) -> Sign | None:
    return signs[0] if all(s == signs[0] for s in signs) else None


_SIGN_RULES: dict[SignRule, Callable[[Sequence[Sign]], Sign | None]] = {
    "never-below": lambda s: POSITIVE_SIGN,
    "operand": lambda s: s[0],
    "opposite": lambda s: s[0].flipped(),
    "product": lambda s: s[0].times(s[1]),
    "common": _common,
    "difference": lambda s: _common((s[0], s[1].flipped())),
    "chosen": lambda s: _common(s[1:]),
    "largest": lambda s: POSITIVE_SIGN if POSITIVE_SIGN in s else _common(s),
}
