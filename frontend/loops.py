"""Loops of a program that run inside a kernel: `for i in range(n):` with `n` known at the call, and `break`.

In: a `for` statement and the machine that runs its body. Out: variables bound to the last states of
`fuser.construct.loop`. States are the variables that have a value before the loop and get another one in it. What
cannot run inside a kernel is unrolled, `n` being made static for it; with a `break` it is refused.

    for i in range(n):
        if zr * zr + zi * zi > 4.0: break        # each element by itself: it keeps its values from then on
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser.construct import elementwise
from fuser.construct.common import NeedsStatic
from fuser.construct.loop import known_round, loop
from fuser.errors import FuserError, TraceError
from fuser.frontend import ast
from fuser.frontend.values import Array, Value, describe, fresh, is_host, settled
from fuser.graph import Node
from fuser.hostexpr import HostExpr
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.frontend.build import Runner
    from fuser.frontend.machine import Frame


@dataclass(frozen=True)
class RunRange:
    """`range(start, stop)` whose length is known at the call."""

    start: Value
    stop: Value

    @property
    def unknown(self) -> HostExpr | None:
        """What would have to be static for the loop to be unrolled; None where that is of no use."""
        return next((v for v in (self.stop, self.start) if isinstance(v, HostExpr)), None)


class Unsuited(Exception):
    """Why a body is none of a loop inside a kernel."""


def breaks(body: Sequence[ast.Statement]) -> bool:
    """Whether a loop's own body has a `break`, wherever."""
    stack = list(body)
    while stack:
        s = stack.pop()
        if isinstance(s, ast.Break):
            return True
        stack += (*s.body, *s.otherwise) if isinstance(s, ast.If) else ()
    return False


def run(m: Runner, frame: Frame, s: ast.For, over: RunRange | range | Any) -> None:
    """Run a loop inside a kernel. NeedsStatic where it can only be unrolled; TraceError where it can be neither."""
    if isinstance(over, range) and over.step == 1:
        over = RunRange(over.start, over.stop)
    if not isinstance(over, RunRange):
        message = "a loop with a `break` runs over `range(n)` or `range(a, b)`"
        m.fail(TraceError, message, "loop-break", s.iterable.place)
    unroll = over.unknown if not breaks(s.body) else None
    try:
        _Loop(m, frame, s, over).run()
    except Unsuited as why:
        if unroll is None:
            m.fail(TraceError, f"this loop cannot run inside a kernel: {why}", "loop-body", s.place)
        raise m.needs_static("the length of a loop", unroll, s.iterable.place) from None
    except NeedsStatic as need:
        if unroll is None or not known_round(need.expr):
            raise
        raise m.needs_static("the length of a loop", unroll, s.iterable.place) from None
    except FuserError as error:
        if unroll is None or not error.slug.startswith("loop-"):
            raise
        raise m.needs_static("the length of a loop", unroll, s.iterable.place) from error


class _Loop:
    """One `for` statement: its states, and its body as a function of them."""

    def __init__(self, m: Runner, frame: Frame, s: ast.For, over: RunRange) -> None:
        self.m, self.frame, self.s, self.over = m, frame, s, over
        self.variable = s.target.id if isinstance(s.target, ast.Name) else ""
        self.test, self.body = self._split()
        assigned = dict.fromkeys(_bound(self.body))
        self.updated = {name for t in ast.statements(self.body) if isinstance(t, ast.Update) for name in _bound((t,))}
        self.names = [n for n in assigned if n in frame.variables]
        self.local = [n for n in assigned if n not in frame.variables]
        self.outside = {id(a.storage) for v in frame.variables.values() for a in _arrays(v)}

    def run(self) -> None:
        if not self.variable:
            raise Unsuited("its variable is more than a name")
        self._check()
        held = [self.frame.variables[n] for n in self.names]
        m, place = self.m, self.s.iterable.place
        start, stop = (m.operand(v, "range", place) for v in (self.over.start, self.over.stop))
        m.at(place)
        count = settled(elementwise.apply(m.b, "subtract", stop, start)) if start != 0 else stop
        self.start = start
        until = self.until if self.test is not None else None
        m.outside.append(self.outside)
        first = [m.operand(v, "for", place) for v in held]
        found = loop(m.b, count, self.round, *first, until=until, names=self.names)
        m.outside.pop()
        for name in (*self.local, self.variable):
            self.frame.variables.pop(name, None)
        for name, old, new in zip(self.names, held, found, strict=True):
            self._bind(name, old, new)

    # -- the body as a function --------------------------------------------------------------------
    def round(self, i: HostExpr, *states: Any) -> list[Any]:
        """The values of the state variables after one round."""
        m, before = self.m, self._enter(states)
        number = elementwise.apply(m.b, "add", self.start, i) if self.start != 0 else i
        self.frame.variables[self.variable] = fresh(number) if isinstance(number, Node) else settled(number)
        if m.run(m.block(self.frame, self.body)) is not None:
            raise Unsuited("it returns from inside")
        after = [m.operand(self.frame.variables[n], "for", self.s.place) for n in self.names]
        self._leave(before)
        return after

    def until(self, *states: Any) -> Any:
        """The test of the `break`."""
        assert self.test is not None
        before = self._enter(states)
        self.frame.variables.pop(self.variable, None)
        value = self.m.run(self.m.expr(self.frame, self.test))
        self._leave(before)
        return self.m.operand(value, "if", self.test.place)

    def _enter(self, states: Sequence[Any]) -> dict[str, Value]:
        before = dict(self.frame.variables)
        for name, x in zip(self.names, states, strict=True):
            self.frame.variables[name] = fresh(x) if isinstance(x, Node) else settled(x)
        return before

    def _leave(self, before: dict[str, Value]) -> None:
        self.frame.variables.clear()
        self.frame.variables.update(before)

    # -- before and after --------------------------------------------------------------------------
    def _split(self) -> tuple[ast.Expr | None, tuple[ast.Statement, ...]]:
        """The test of a `break`, which stands first, and what follows it."""
        body = [t for t in self.s.body if not (isinstance(t, ast.Ignored) and isinstance(t.value, ast.Text))]
        first = body[0] if body else None
        if isinstance(first, ast.If) and len(first.body) == 1 and isinstance(first.body[0], ast.Break):
            if any(isinstance(e, ast.Name) and e.id == self.variable for e in ast.walk(first.test)):
                message = "a `break` depends on the variable of its loop: let the count say when to stop"
                self.m.fail(TraceError, message, "loop-break", first.test.place)
            return first.test, (*first.otherwise, *body[1:])
        return None, tuple(body)

    def _check(self) -> None:
        """States must be numbers and arrays; one that is stored into must be seen through its own name alone."""
        if any(isinstance(t, ast.Update) and isinstance(t.target, ast.Subscript) for t in ast.statements(self.body)):
            raise Unsuited("it stores into parts of an array")
        if any(isinstance(x, ast.Subscript) for t in ast.statements(self.body) for x in _targets(t)):
            raise Unsuited("it stores into parts of an array")
        read = {e.id for t in ast.statements(self.body) for x in ast.expressions(t) for e in _names(x)}
        for name in self.names:
            value = self.frame.variables[name]
            if not isinstance(value, Array) and not is_host(value):
                raise Unsuited(f"`{name}` is {describe(self.m.b, value)}")
            if name in self.updated and isinstance(value, Array) and value.node(self.m.b).rank:
                self._check_updated(name, value, read)
        if not self.names:
            raise Unsuited("no variable that has a value before it gets another")

    def _check_updated(self, name: str, value: Array, read: set[str]) -> None:
        if any(name in _bound((t,)) for t in ast.statements(self.body) if isinstance(t, ast.Assign)):
            raise Unsuited(f"`{name}` is stored into, and also given another value")
        for other, v in self.frame.variables.items():
            if other != name and other in read and any(a.storage is value.storage for a in _arrays(v)):
                raise Unsuited(f"`{other}` sees what is stored into `{name}`")

    def _bind(self, name: str, old: Value, new: Node) -> None:
        """The variable after the loop: a new value, or the same array with new elements."""
        m = self.m
        if name in self.updated and isinstance(old, Array) and old.node(m.b).rank:
            m.at(self.s.place)
            m.stored(old, old.store(m.b, (...,), new), ast.Name(self.s.place, name))
            return
        self.frame.variables[name] = fresh(new)
        m.label(self.frame.variables[name], name)


def _targets(s: ast.Statement) -> Iterator[ast.Expr | ast.Slice]:
    """Everything that a statement binds or stores into, in tuples too."""
    stack: list[ast.Expr | ast.Slice] = []
    if isinstance(s, ast.Assign):
        stack = list(s.targets)
    elif isinstance(s, ast.Update | ast.For):
        stack = [s.target]
    while stack:
        x = stack.pop()
        yield x
        stack += x.items if isinstance(x, ast.Items) else ()


def _bound(body: Sequence[ast.Statement]) -> Iterator[str]:
    """Names that statements bind, in the order of the text, a loop's own variable not among them."""
    for s in ast.statements(tuple(body)):
        yield from reversed([x.id for x in _targets(s) if isinstance(x, ast.Name)])


def _names(expr: ast.Expr) -> Iterator[ast.Name]:
    return (e for e in ast.walk(expr) if isinstance(e, ast.Name))


def _arrays(value: Any) -> Iterator[Array]:
    """The arrays in a value, in tuples too."""
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, Array):
            yield v
        elif isinstance(v, tuple | list):
            stack.extend(v)
