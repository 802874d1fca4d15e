"""The machine that runs a program's text on nodes: an explicit stack, places, budgets.

In: tasks, generators that yield the tasks whose values they need. Out: their results. Nothing here or in the
tasks recurses, so neither long chains nor deep calls meet Python's recursion limit. Apart from what the tasks do
(`expressions`, `build`), which is the language.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import field
from typing import Any, NoReturn

from fuser import hostcomplex
from fuser.construct import elementwise
from fuser.construct.common import NeedsStatic
from fuser.errors import DTypeError, FuserError, TraceError, UnsupportedError
from fuser.frontend import ast
from fuser.frontend.declared import Dims
from fuser.frontend.resolve import Names, Scope
from fuser.frontend.values import Array, Value, describe, fresh, is_number, settled
from fuser.graph import Builder, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr, call
from fuser.record import dataclass

Task = Generator[Any, Any, Any]

MAX_STEPS = 400_000  # statements and expressions evaluated in one build, loops unrolled and calls inlined
MAX_BITS = 4096  # of an integer known while compiling
MAX_TERMS = 50_000  # of a run-time number written out, shared parts counted again: its text must stay printable
MAX_ITEMS = 10_000  # of a tuple
MAX_NESTING = 50  # of tuples in tuples


@dataclass
class Frame:
    """One call of one function: its variables and dims."""

    function: ast.Function
    scope: Scope
    dims: Dims
    variables: dict[str, Value] = field(default_factory=dict)


class Machine:
    """Runs tasks; knows the place of the present operation and how much work is left."""

    def __init__(self, module: ast.Module, names: Names, constants: Mapping[str, Value], b: Builder) -> None:
        self.module, self.names, self.constants, self.b = module, names, constants, b
        self.calls: list[tuple[str, ast.Place]] = []  # functions being inlined, and where they were called
        self.stores = 0  # so that a store inside a conditional expression is noticed
        self.written: dict[int, None] = {}  # argument positions stored into, in order
        self._steps = 0
        self._sizes: dict[int, tuple[HostExpr, int]] = {}  # the expression is kept, so that its id stays its own

    def run(self, task: Task) -> Any:
        """The value of a task. An error gains the chain of calls that led to it."""
        stack, value = [task], None
        try:
            while stack:
                try:
                    request = stack[-1].send(value)
                except StopIteration as done:
                    stack.pop()
                    value = done.value
                    continue
                stack.append(request)
                value = None
        except FuserError as error:
            for name, place in reversed(self.calls):
                error.with_context(notes=(f"in `{name}`, called at {self.module.span(place).where}",))
            raise
        return value

    # -- places, budgets, errors -------------------------------------------------------------------
    def at(self, place: ast.Place) -> None:
        """What is built from here on belongs to this place."""
        self.b.span = self.module.span(place)

    def tick(self, place: ast.Place) -> None:
        """Count one step. Raises UnsupportedError [unroll]."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            message = f"the program takes more than {MAX_STEPS:,} steps to build"
            self.fail(UnsupportedError, message, "unroll", place, "loops are unrolled and calls inlined; use fewer")

    def fail(self, kind: type[FuserError], message: str, slug: str, place: ast.Place, *notes: str) -> NoReturn:
        raise kind(message, slug, (self.module.span(place),), notes)

    def truth(self, value: Value, what: str, place: ast.Place) -> bool:
        """The truth of a value that decides what is built. Raises TraceError, NeedsStatic."""
        if isinstance(value, Array):
            text = self.module.excerpt(place)
            shown = f"{describe(self.b, value)}, known only at run time"
            hint = f"per element: `where({text}, a, b)` or `a if {text} else b`"
            message = f"{what} needs one truth value; `{text}` is an array"
            self.fail(TraceError, message, "data-dependent-if", place, shown, hint)
        if isinstance(value, HostComplex):
            raise self.needs_static(what, value.re if value.im.is_literal else value.im, place)
        if isinstance(value, HostExpr):
            raise self.needs_static(what, value, place)
        return bool(value)

    def needs_static(self, what: str, value: HostExpr, place: ast.Place) -> NeedsStatic:
        """The request for a number that is known only at a call."""
        message = f"{what} must be known while compiling; `{value}` is known at the call"
        return NeedsStatic(message, "static", value, (self.module.span(place),))

    # -- arithmetic --------------------------------------------------------------------------------
    def operand(
        self, value: Value, op: str, place: ast.Place
    ) -> Node | HostExpr | HostComplex | bool | int | float | complex:
        """A value as `construct` takes it; DTypeError for what no operator takes."""
        if isinstance(value, Array):
            return value.node(self.b)
        if is_number(value) or isinstance(value, HostExpr | complex | HostComplex):
            return value  # type: ignore[return-value]
        shown = describe(self.b, value)
        self.fail(DTypeError, f"`{op}` takes arrays and numbers, not {shown}", "operand", place)

    def apply(self, name: str, op: str, values: tuple[Value, ...], place: ast.Place) -> Value:
        """A scalar operator on arrays and host values. `op` is how the user wrote it."""
        operands = [self.operand(v, op, place) for v in values]
        self.at(place)
        if not any(isinstance(o, Node) for o in operands):
            if name in hostcomplex.OPERATORS and any(isinstance(o, complex | HostComplex) for o in operands):
                return hostcomplex.settled(hostcomplex.OPERATORS[name](*map(hostcomplex.of, operands)))  # type: ignore[arg-type]
            operands = self._host_operands(name, operands, place)
        result = elementwise.apply(self.b, name, *operands)
        return fresh(result) if isinstance(result, Node) else self.host(result, place)

    def _host_operands(self, name: str, operands: list[Any], place: ast.Place) -> list[Any]:
        """Refuse powers and shifts of absurd size before they are computed; int ** -int is a float, as in Python."""
        if name not in ("power", "left_shift") or len(operands) != 2:
            return operands
        base, count = operands
        if isinstance(base, int) and isinstance(count, int) and count > 0:
            bits = base.bit_length() * count if name == "power" else base.bit_length() + count
            if bits > MAX_BITS and (abs(base) > 1 or (base and name == "left_shift")):
                self._too_long(place)
        if name == "power" and isinstance(base, HostExpr) and isinstance(count, int) and count < 0:
            return [call("float", base), count]
        return operands

    def host(self, value: Any, place: ast.Place) -> Value:
        """A host result, as a Python number when known; bounded in size."""
        number = settled(value)
        if isinstance(number, int) and number.bit_length() > MAX_BITS:
            self._too_long(place)
        if isinstance(number, HostExpr) and self._terms(number) > MAX_TERMS:
            message = f"this number would be computed from more than {MAX_TERMS:,} terms"
            self.fail(UnsupportedError, message, "number-size", place, "compute with arrays")
        return number  # type: ignore[no-any-return]

    def _terms(self, number: HostExpr) -> int:
        """Terms of a host expression as a tree; each part is counted once in a build."""
        stack = [number]
        while stack:
            e = stack[-1]
            missing = [a for a in e.args if id(a) not in self._sizes]
            if missing and id(e) not in self._sizes:
                stack.extend(missing)
                continue
            stack.pop()
            self._sizes[id(e)] = (e, 1 + sum(self._sizes[id(a)][1] for a in e.args))
        return self._sizes[id(number)][1]

    def _too_long(self, place: ast.Place) -> NoReturn:
        message = f"this integer would have more than {MAX_BITS} bits"
        self.fail(UnsupportedError, message, "number-size", place, "compute with floats")

    def label(self, value: Value, name: str) -> None:
        """Note the user's name for an array; and for the operator behind its views, which may fold away (keepdims)."""
        if not isinstance(value, Array):
            return
        node = value.node(self.b)
        self.b.label(node, name)
        while node.op == "view" and len(node.inputs) == 1:
            (node,) = node.inputs
        if node not in self.b.names and node.op != "scalar":
            self.b.label(node, name)
