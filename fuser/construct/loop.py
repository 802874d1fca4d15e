"""Loops whose count is known only at run time, or whose elements stop one by one.

In: a count, states, and Python functions that build one round (`body`) and the test before it (`until`). Out: the last
states: `loop` nodes where a round computes every element from its own states alone; otherwise a number of rounds known
while tracing is written out, and any other is refused with all that stands in the way.

The functions are called with stand-ins (`loop_value` nodes) for the states and a host symbol for the round; whatever
they compute without those is computed once, outside the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.construct import elementwise, views
from fuser.construct.body import Body, Offence, extract
from fuser.construct.common import Value, describe, fail, is_complex_host, is_host, operand_of
from fuser.dtypes import BOOL, F32, I64, DType, promote
from fuser.errors import ArgumentError, DTypeError, ShapeError, Span, TraceError
from fuser.graph import Builder, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr, lit, sym, wrap
from fuser.loopbody import LoopAttrs, LoopValueAttrs
from fuser.record import dataclass
from fuser.shapes import Shape, text_of

UNKNOWN = 1 << 64  # stands for a count that only the call knows
UNROLLED = 64  # rounds that are written out where a body is not one of each element by itself
ROUND = "=round "  # symbol of a loop's round, followed by the loop's number in the trace

Round = Callable[..., Any]  # (i, *states) -> the new states, one value or a sequence
Test = Callable[..., Any]  # (*states) -> bool


@dataclass(frozen=True)
class Loop:
    """What the user wrote. names: of the states, for messages."""

    count: Value
    body: Round
    states: tuple[Value, ...]
    until: Test | None
    names: tuple[str, ...]


def is_round(name: str) -> bool:
    """Whether a symbol is the round of a loop that is being traced."""
    return name.startswith(ROUND)


def loop(
    b: Builder, n: Value, body: Round, *states: Value, until: Test | None = None, names: Sequence[str] = ()
) -> tuple[Node, ...]:
    """The states after `n` rounds: `states = body(i, *states)` for i = 0, 1, ..., n - 1, element by element.

    An element for which `until(*states)` holds before a round keeps its states from then on. n: an integer, or an
    integer array, one count an element; below 1 means no round. States take the common shape of the states, of n and
    of what a round gives them; their dtypes may not change (numbers take the dtype that a round gives them).
    """
    if not states:
        fail(b, ArgumentError, "a loop has at least one state", "loop-state", "loop(n, body, x)")
    shown = tuple(names) + tuple(f"state {k}" for k in range(len(names), len(states)))
    return _Loops(b, Loop(_count(b, n), body, states, until, shown)).run()


def _count(b: Builder, n: Value) -> Value:
    kind = operand_of(b, n)
    if kind == "int" or (isinstance(kind, DType) and kind.is_integer):
        return n
    note = "convert it: int(n), or n.astype(np.int64)"
    fail(b, DTypeError, f"a loop's count is an integer, not {describe(b, n)}", "loop-count", note)


class _Loops:
    """Traces one loop, again where dtypes or the shape turn out to be others."""

    def __init__(self, b: Builder, given: Loop) -> None:
        self.b, self.given = b, given
        self.count = elementwise.as_node(b, given.count, I64)
        nodes = [v for v in given.states if isinstance(v, Node)]
        self.shape: Shape = views.broadcast_shape(b, [*nodes, self.count])

    def run(self) -> tuple[Node, ...]:
        dtypes = self._dtypes()
        traced = self._traced(dtypes)
        while traced.shape != self.shape:  # a round's results are larger: so are the states
            self.shape = traced.shape
            traced = self._traced(dtypes)
        initial = [self._spread(self._converted(v, t)) for v, t in zip(self.given.states, dtypes, strict=True)]
        found = extract(self.b, traced)
        if found.offences:
            return self._written_out(found.offences, initial)
        first = self._parts(initial)
        captured = [self._spread(c) for c in found.captured]
        inputs = (self._spread(self.count), *first, *captured)
        made = []
        for k, x in enumerate(first):
            attrs = LoopAttrs(k, len(first), len(captured), found.steps, found.results, found.stop, not self.count.rank)
            made.append(self.b.make("loop", inputs, attrs, x.dtype, self.shape))
        return self._joined(made, dtypes)

    # -- complex states are two real ones ----------------------------------------------------------
    def _parts(self, nodes: Sequence[Node]) -> list[Node]:
        """Real values as they are, complex ones as their parts."""
        out: list[Node] = []
        for n in nodes:
            names = ("real", "imag") if n.dtype.is_complex else ()
            out += [elementwise.node(self.b, name, n) for name in names] or [n]
        return out

    def _joined(self, parts: Sequence[Node], dtypes: Sequence[DType]) -> tuple[Node, ...]:
        """The inverse, for values of these dtypes."""
        left = iter(parts)
        return tuple(
            elementwise.combine(self.b, "complex", [next(left), next(left)], t) if t.is_complex else next(left)
            for t in dtypes
        )

    def _stand_ins(self, number: int, dtypes: Sequence[DType]) -> tuple[Node, ...]:
        real = [p for t in dtypes for p in ((t.component, t.component) if t.is_complex else (t,))]
        return tuple(
            self.b.make("loop_value", (), LoopValueAttrs(number, k), t, self.shape) for k, t in enumerate(real, 1)
        )

    def _spread(self, x: Node) -> Node:
        return views.broadcast_to(self.b, x, self.shape)

    def _converted(self, value: Value, dtype: DType) -> Node:
        """A state's first value: numbers in the dtype that a round gives them."""
        return elementwise.as_node(self.b, value, dtype if _is_number(value) else None)

    # -- one trace ---------------------------------------------------------------------------------
    def _dtypes(self) -> list[DType]:
        """The dtypes of the states; a number has the one that a round makes of it."""
        seen = [operand_of(self.b, v) for v in self.given.states]
        if all(isinstance(s, DType) for s in seen):
            return [s for s in seen if isinstance(s, DType)]
        number = len(self.b.nodes)
        strong = [s for s in seen if isinstance(s, DType)]
        arrays = iter(self._joined(self._stand_ins(number, strong), strong))
        stand_ins = [next(arrays) if isinstance(s, DType) else _weak(f"{ROUND}{number} state {k}", s)
                     for k, s in enumerate(seen)]  # fmt: skip
        results = self._results(self.given.body(sym(f"{ROUND}{number}"), *stand_ins))
        dtypes = []
        for s, r in zip(seen, results, strict=True):
            dtypes.append(s if isinstance(s, DType) else promote([s, operand_of(self.b, r)]))
        return dtypes

    def _traced(self, dtypes: Sequence[DType]) -> Body:
        b, number = self.b, len(self.b.nodes)
        real = self._stand_ins(number, dtypes)
        stand_ins = self._joined(real, dtypes)
        index = sym(f"{ROUND}{number}")
        results = self._results(self.given.body(index, *stand_ins))
        nodes = [self._next(r, t, k) for k, (r, t) in enumerate(zip(results, dtypes, strict=True))]
        stop = None if self.given.until is None else self._test(self.given.until(*stand_ins))
        nodes = self._parts(nodes)
        roots = [*nodes, *([stop] if stop is not None else [])]
        shape = views.broadcast_shape(b, [*real, *roots])
        return Body(number, index, real, tuple(nodes), stop, shape)

    def _results(self, given: Any) -> list[Value]:
        found = list(given) if isinstance(given, tuple | list) else [given]
        wanted = len(self.given.states)
        if len(found) != wanted:
            message = f"a round gives {len(found)} values; the loop has {wanted} {'state' if wanted == 1 else 'states'}"
            fail(self.b, ArgumentError, message, "loop-state", "return one value a state, in their order")
        return found

    def _next(self, value: Value, dtype: DType, k: int) -> Node:
        """The value that a round gives state `k`, which must have its dtype."""
        b, name = self.b, self.given.names[k]
        seen = operand_of(b, value)
        if seen == dtype or (_is_number(value) and promote([dtype, seen]) == dtype):
            return elementwise.as_node(b, value, dtype)
        shown = seen if isinstance(seen, DType) else f"a Python {seen}"
        message = f"`{name}` is {dtype} before a round and {shown} after it"
        notes = [f"start it as {seen}: `{name}.astype({seen})`"] if isinstance(seen, DType) else []
        fail(b, DTypeError, message, "loop-dtype", *notes, f"or convert what a round gives it: `.astype({dtype})`")

    def _test(self, value: Value) -> Node:
        seen = operand_of(self.b, value)
        if seen in ("bool", BOOL):
            return elementwise.as_node(self.b, value, BOOL)
        message = f"`until` gives {describe(self.b, value)}, not truths"
        fail(self.b, DTypeError, message, "loop-until", "compare: `abs(x) > 2`")

    # -- written out -------------------------------------------------------------------------------
    def _written_out(self, offences: Sequence[Offence], states: list[Node]) -> tuple[Node, ...]:
        """All rounds one after another, where their number is known and small."""
        count = wrap(self.given.count) if is_host(self.given.count) else None  # type: ignore[arg-type]
        if isinstance(self.given.count, np.integer):
            count = lit(int(self.given.count))
        known = int(count.value) if count is not None and count.is_literal else UNKNOWN
        if known > UNROLLED:
            raise self._refusal(offences, known)
        for i in range(known):
            results = self._results(self.given.body(lit(i), *states))
            new = [
                self._same(self._next(r, s.dtype, k), k) for k, (r, s) in enumerate(zip(results, states, strict=True))
            ]
            if self.given.until is not None:
                done = self._spread(self._test(self.given.until(*states)))
                new = [elementwise.where(self.b, done, s, x) for s, x in zip(states, new, strict=True)]
            states = [self._rounded(x) for x in new]
        return tuple(states)

    def _rounded(self, x: Node) -> Node:
        """A half state as a value of its type after every round, as in a kernel (see the pass `widen`)."""
        return elementwise.cast(self.b, elementwise.cast(self.b, x, F32), x.dtype) if x.dtype.is_half else x

    def _same(self, x: Node, k: int) -> Node:
        if x.rank > len(self.shape):
            message = f"`{self.given.names[k]}` is {text_of(self.shape)} before a round, {text_of(x.shape)} after it"
            fail(self.b, ShapeError, message, "loop-shape")
        return self._spread(x)

    def _refusal(self, offences: Sequence[Offence], known: int) -> TraceError:
        """The error with everything that keeps the loop out of a kernel."""
        spans = tuple(dict.fromkeys(o.span for o in offences if o.span is not None))
        why = "its count is known at the call" if known == UNKNOWN else f"{known} rounds are more than {UNROLLED}"
        message = f"this loop cannot run inside a kernel, and {why}: it cannot be written out"
        lines = [f"{o.span.where + '  ' if o.span else ''}{o.what}" for o in offences]
        out = f"option: a count known while tracing, at most {UNROLLED}; or a Python loop around a compiled round"
        return TraceError(message, "loop-body", spans, (*dict.fromkeys(lines), out))


def _is_number(value: Value) -> bool:
    """A number that takes the dtype of what it meets."""
    return is_host(value) or is_complex_host(value)


def _weak(name: str, kind: str) -> HostExpr | HostComplex:
    """A symbol for a number."""
    if kind == "complex":
        return HostComplex(sym(f"{name} real", "float"), sym(f"{name} imag", "float"))
    return sym(name, kind)  # type: ignore[arg-type]


def round_needed(what: str, span: Span | None) -> TraceError:
    """The error for Python asking for the number of the round."""
    message = f"{what} needs a number now; the round of a loop is counted inside the kernel"
    notes = (
        "compute with it: `x * i`, `2.0 ** i`, `np.where(i > 3, a, b)`",
        "option: a Python loop, range(4)",
    )
    return TraceError(message, "loop-round", (span,) if span else (), notes)


def known_round(value: HostExpr) -> bool:
    """Whether a host value depends on the round of a loop that is being traced."""
    return any(is_round(s) for s in value.symbols)
