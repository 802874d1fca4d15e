"""The body of a loop, out of the nodes that tracing a round has made.

In: stand-ins for the states and the round, and the nodes that a round gives. Out: `Extracted`: steps on numbered
values, and the nodes from outside that they need; or `Offence`s, every operator that does not compute an element
from that element's own states. Its own file because it is a walk over a finished trace: nothing of the user's runs
here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from fuser.construct import elementwise, views
from fuser.construct.common import same_shape
from fuser.dtypes import BOOL, F64, I64, DType
from fuser.errors import Span
from fuser.graph import Attrs, Builder, CompositeAttrs, Node, ScalarAttrs, ViewAttrs, attr_expressions
from fuser.hostexpr import HostExpr, is_scalar_symbol
from fuser.loopbody import BodyStep, LoopAttrs, LoopValueAttrs
from fuser.optable import table
from fuser.optable.base import Composite, ScalarOp
from fuser.record import dataclass
from fuser.shapes import Shape, text_of

_KINDS: dict[str, DType] = {"int": I64, "float": F64, "bool": BOOL}
# Host functions of the round as rows; what is missing here is refused by name.
_ROWS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "remainder",
    "**": "power", "neg": "negative", "pos": "positive", "abs": "absolute", "min": "minimum", "max": "maximum",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal",
    "not": "logical_not", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "left_shift",
    ">>": "right_shift", "~": "invert", "where": "where", "sqrt": "sqrt", "exp": "exp", "log": "log", "sin": "sin",
    "cos": "cos", "tanh": "tanh",
}  # fmt: skip


@dataclass(frozen=True)
class Body:
    """One traced round: the stand-ins, what it gives, the test, and the shape that all of it has together."""

    number: int
    index: HostExpr
    states: tuple[Node, ...]
    results: tuple[Node, ...]
    stop: Node | None
    shape: Shape


@dataclass(frozen=True)
class Offence:
    """An operator that cannot be in a loop inside a kernel, and where it stands."""

    what: str
    span: Span | None


@dataclass
class Extracted:
    """Steps and results by value number; `captured`: the outside nodes, in the order of their numbers."""

    captured: list[Node] = field(default_factory=list)
    steps: tuple[BodyStep, ...] = ()
    results: tuple[int, ...] = ()
    stop: int | None = None
    offences: list[Offence] = field(default_factory=list)


def extract(b: Builder, body: Body) -> Extracted:
    """The steps of a round. Numbers of steps are final only with all captured nodes known, so they come last."""
    return _Extractor(b, body).run()


Reference = tuple[str, int]  # ("state", k), ("captured", k), ("step", k), ("round", 0)


class _Extractor:
    """Depth first from the results, with an explicit stack: a node is written once all it needs is."""

    def __init__(self, b: Builder, body: Body) -> None:
        self.b, self.body = b, body
        self.symbol = body.index.value
        self.out = Extracted()
        self.known: dict[Node, Reference] = {}
        self.steps: list[tuple[str, tuple[Reference, ...], DType, Attrs | None]] = []
        self.instead: dict[Node, Node] = {}  # composites, and numbers of the round, as what they are made of
        self.refused: set[Node] = set()
        self._moving: dict[Node, bool] = {}
        self.round = b.make("loop_value", (), LoopValueAttrs(body.number, 0), I64, ())

    def run(self) -> Extracted:
        roots = [*self.body.results, *([self.body.stop] if self.body.stop is not None else [])]
        found = [self.reference(r) for r in roots]
        if not self.out.offences:
            first = 1 + len(self.body.states)
            base = {"round": 0, "state": 1, "captured": first, "step": first + len(self.out.captured)}

            def number(r: Reference) -> int:
                return base[r[0]] + r[1]

            self.out.steps = tuple(BodyStep(op, tuple(map(number, args)), t, a) for op, args, t, a in self.steps)
            numbers = [number(r) for r in found]
            self.out.stop = numbers.pop() if self.body.stop is not None else None
            self.out.results = tuple(numbers)
        self.out.offences.sort(key=lambda o: (o.span.line, o.span.column) if o.span else (0, 0))
        return self.out

    # -- what changes from round to round ----------------------------------------------------------
    def moving(self, node: Node) -> bool:
        """Whether a node depends on the states or the round; iterative."""
        stack = [node]
        while stack:
            n = stack[-1]
            waiting = [i for i in n.inputs if i not in self._moving]
            if n not in self._moving and waiting:
                stack += waiting
                continue
            self._moving[n] = self._starts(n) or any(self._moving[i] for i in n.inputs)
            stack.pop()
        return self._moving[node]

    def _starts(self, n: Node) -> bool:
        if isinstance(n.attrs, LoopValueAttrs):
            return n.attrs.loop == self.body.number
        return any(self.symbol in e.symbols for e in attr_expressions(n.attrs))

    # -- references --------------------------------------------------------------------------------
    def reference(self, root: Node) -> Reference:
        stack = [root]
        while stack:
            n = stack[-1]
            if n in self.known:
                stack.pop()
                continue
            needed = self._needs(n)
            missing = [i for i in needed if i not in self.known]
            if missing:
                stack += reversed(missing)
                continue
            self.known[n] = self._make(n)
            stack.pop()
        return self.known[root]

    def _needs(self, n: Node) -> tuple[Node, ...]:
        if not self.moving(n) or isinstance(n.attrs, LoopValueAttrs):
            return ()
        other = self._instead(n)
        return (other,) if other is not None else n.inputs

    def _instead(self, n: Node) -> Node | None:
        """What stands for a node that is no operator of a kernel."""
        if n not in self.instead:
            if isinstance(n.attrs, CompositeAttrs):
                row = table().known[n.op]
                assert isinstance(row, Composite)
                self.instead[n] = row.lower(self.b, n.inputs, dict(n.attrs.params))
            elif isinstance(n.attrs, ScalarAttrs) and self.symbol in n.attrs.expr.symbols:
                made = self._number(n.attrs.expr, n)
                self.instead[n] = elementwise.cast(self.b, made, n.dtype)
            else:
                return None
        return self.instead[n]

    def _make(self, n: Node) -> Reference:
        if not self.moving(n):
            return self._outside(n)
        if isinstance(n.attrs, LoopValueAttrs):
            return ("state", n.attrs.value - 1) if n.attrs.value else ("round", 0)
        other = self._instead(n)
        if other is not None:
            return self.known[other]
        if isinstance(n.attrs, ViewAttrs) and self._only_spreads(n) and self.moving(n.inputs[0]):
            return self.known[n.inputs[0]]
        scalar = isinstance(table().known.get(n.op), ScalarOp)
        if not (scalar or isinstance(n.attrs, LoopAttrs)) or not (n.rank == 0 or self._whole(n.shape)):
            self._offend(n)
        return self._step(n.op, tuple(self.known[i] for i in n.inputs), n.dtype, n.attrs)

    def _step(self, op: str, args: tuple[Reference, ...], dtype: DType, attrs: Attrs | None) -> Reference:
        self.steps.append((op, args, dtype, attrs))
        return "step", len(self.steps) - 1

    def _whole(self, shape: Shape) -> bool:
        return same_shape(self.b, shape, self.body.shape)

    def _only_spreads(self, n: Node) -> bool:
        """A number of the round for all elements, or the elements as they are."""
        return len(n.inputs) == 1 and (n.inputs[0].rank == 0 or (isinstance(n.attrs, ViewAttrs)
            and self._whole(n.shape) and self._whole(n.inputs[0].shape) and n.attrs.map.is_identity))  # fmt: skip

    def _outside(self, n: Node) -> Reference:
        """A value from outside: literals go into the body, all else is an operand, of the loop's shape."""
        source = n
        while source.op == "view" and len(source.inputs) == 1:
            source = source.inputs[0]
        if isinstance(source.attrs, ScalarAttrs) and source.attrs.expr.is_literal:
            return self._step("scalar", (), n.dtype, source.attrs)
        if n.dtype.is_complex:  # two operands: a loop in a kernel knows reals
            parts = source.inputs if source.op == "complex" else ()
            pair = parts or tuple(elementwise.node(self.b, name, n) for name in ("real", "imag"))
            return self._step("complex", tuple(map(self._outside, pair)), n.dtype, None)
        self.out.captured.append(views.broadcast_to(self.b, n, self.body.shape))
        return "captured", len(self.out.captured) - 1

    # -- the round as a number ---------------------------------------------------------------------
    def _number(self, expr: HostExpr, at: Node) -> Node:
        """A host expression of the round as nodes: Python's integers in i64, its floats in f64."""
        made: dict[int, Node] = {}
        for e in expr.walk():
            if self.symbol not in e.symbols:
                made[id(e)] = self.b.scalar(e, _KINDS[e.kind])
            elif e.op == "sym":
                made[id(e)] = self.round
            else:
                made[id(e)] = self._applied(e, [made[id(a)] for a in e.args], at)
        return made[id(expr)]

    def _applied(self, e: HostExpr, args: list[Node], at: Node) -> Node:
        make = _CONVERSIONS.get(e.op)
        if make is not None:
            return make(self.b, args[0])
        if e.op not in _ROWS:
            span = next(iter(self.b.spans.get(at, ())), None)
            self.out.offences.append(Offence(f"`{e.op}` of the round: computed by the host only", span))
            return self.b.scalar(HostExpr("lit", (), 0, "int"), _KINDS[e.kind])
        value = args[0]
        for other in args[1:] if e.op in ("+", "*") else ():
            value = elementwise.node(self.b, _ROWS[e.op], value, other)
        if e.op not in ("+", "*"):
            value = elementwise.node(self.b, _ROWS[e.op], *args)
        return elementwise.cast(self.b, value, _KINDS[e.kind])

    # -- refusals ----------------------------------------------------------------------------------
    def _offend(self, n: Node) -> None:
        span = next(iter(self.b.spans.get(n, ())), None)
        offence = Offence(_reason(n), span)
        spreads = isinstance(n.attrs, ViewAttrs) and n.inputs[0] in self.refused  # said once, of what it spreads
        self.refused.add(n)
        if offence not in self.out.offences and not spreads:
            self.out.offences.append(offence)


_CONVERSIONS: dict[str, Callable[[Builder, Node], Node]] = {
    "float": lambda b, x: elementwise.cast(b, x, F64),
    "int": lambda b, x: elementwise.cast(b, x, I64),
    "bool": lambda b, x: elementwise.cast(b, x, BOOL),
    "floor": lambda b, x: elementwise.cast(b, elementwise.node(b, "floor", x), I64),
    "ceil": lambda b, x: elementwise.cast(b, elementwise.node(b, "ceil", x), I64),
}


def _reason(n: Node) -> str:
    """Why an operator on the states cannot be in the body."""
    if n.op in ("view", "piecewise"):
        if any(is_scalar_symbol(s) for e in attr_expressions(n.attrs) for s in e.symbols):
            return "an array is indexed with the round: nothing in a loop reads memory"
        if len(n.inputs) > 1 and n.op == "view":
            return "elements are picked at positions that change from round to round"
        return "elements are moved: a round may read only the element that it computes"
    if isinstance(table().known.get(n.op), ScalarOp):
        return f"`{n.op}` on {text_of(n.shape)}: other elements than the states have"
    return f"`{n.op}` combines elements"
