"""Graphs from their text: the inverse of `fuser.text.print_graph`.

In: the text, line by line. Out: the graph, with the node ids, names and guards it says. Nothing is evaluated and
nesting is bounded, so text from a stranger is safe to parse. Whether the graph is sound is `fuser.verify`'s question.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from fuser.dtypes import DType, find
from fuser.errors import ParseError
from fuser.exprtext import Reader
from fuser.graph import (
    Argument,
    Attrs,
    CompositeAttrs,
    Effect,
    Graph,
    InputAttrs,
    IotaAttrs,
    ItemAttrs,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
)
from fuser.hostexpr import Dim, ExprKind, HostExpr, as_dim
from fuser.indexmap import IndexMap, Piece
from fuser.loopbody import BodyStep, LoopAttrs
from fuser.optable import table
from fuser.optable.base import Composite, OpaqueOp, Reduction, Scan
from fuser.shapes import Guard, Shape

_KINDS: tuple[ExprKind, ...] = ("int", "float", "bool")


class _Parser:
    """Reads lines in order; every line kind has a method."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.name = "f"
        self.kinds: dict[str, ExprKind] = {}
        self.lets: list[HostExpr] = []
        self.arguments: list[Argument] = []
        self.guards: list[Guard] = []
        self.nodes: dict[int, Node] = {}
        self.names: dict[Node, tuple[str, ...]] = {}
        self.outputs: tuple[Node, ...] | None = None
        self.effects: list[Effect] = []

    def line(self, text: str, number: int) -> None:
        r = Reader(text, number, self.lets, self.kinds, self.filename)
        if not r.tokens:
            return
        if r.kind == "node":
            self._node(r)
        else:
            word = r.next()
            handlers: dict[str, Callable[[Reader], None]] = {
                "graph": self._graph, "scalar": self._scalar, "let": self._let, "arg": self._arg,
                "guard": self._guard, "return": self._return, "effect": self._effect,
            }  # fmt: skip
            if word not in handlers:
                r.at -= 1
                r.fail(f"a line of a graph's text does not start with `{word}`")
            handlers[word](r)
        if r.peek:
            r.fail(f"`{r.peek}` is one thing too many on this line")

    def _graph(self, r: Reader) -> None:
        self.name = _word(r)

    def _scalar(self, r: Reader) -> None:
        symbol = _symbol_name(r)
        r.expect(":")
        kind = r.next()
        if kind not in _KINDS:
            r.fail(f"a scalar is int, float or bool, not `{kind}`")
        self.kinds[symbol] = next(k for k in _KINDS if k == kind)

    def _let(self, r: Reader) -> None:
        if r.next() != f"?{len(self.lets)}":
            r.fail(f"the next let is ?{len(self.lets)}")
        r.expect("=")
        self.lets.append(r.expression())

    def _arg(self, r: Reader) -> None:
        name = _word(r)
        r.expect(":")
        dtype, shape = _type(r)
        self.arguments.append(Argument(name, dtype, shape, r.accept("captured")))

    def _guard(self, r: Reader) -> None:
        left = r.chain()
        for relation in ("==", "!=", ">="):
            if r.accept(relation):
                self.guards.append(Guard(left, relation, r.chain()))
                return
        r.fail("a guard says ==, != or >=")

    def _return(self, r: Reader) -> None:
        self.outputs = tuple(self._operands(r)) if r.peek else ()

    def _effect(self, r: Reader) -> None:
        argument = _integer(r)
        r.expect("<-")
        self.effects.append(Effect(argument, self._operand(r)))

    def _operand(self, r: Reader) -> Node:
        if r.kind != "node":
            r.fail("expected a node such as %3")
        number = int(r.peek[1:])
        if number not in self.nodes:
            r.fail(f"%{number} is not defined above")
        r.next()
        return self.nodes[number]

    def _operands(self, r: Reader) -> Iterator[Node]:
        yield self._operand(r)
        while r.accept(","):
            yield self._operand(r)

    def _node(self, r: Reader) -> None:
        number = int(r.peek[1:])
        if self.nodes and number <= max(self.nodes):
            r.fail(f"%{number} comes after %{max(self.nodes)}")
        r.next()
        r.expect(":")
        dtype, shape = _type(r)
        r.expect("=")
        op = r.next()
        inputs: tuple[Node, ...] = ()
        if r.accept("("):
            inputs = tuple(self._operands(r))
            r.expect(")")
        attrs = _attrs(r, op)
        node = Node(number, op, inputs, attrs, dtype, shape)
        self.nodes[number] = node
        if r.accept(";"):
            names = [_word(r)]
            while r.accept(","):
                names.append(_word(r))
            self.names[node] = tuple(names)

    def graph(self) -> Graph:
        if self.outputs is None:
            raise ParseError("a graph's text ends with `return`", "graph-text")
        return Graph(
            self.name, tuple(self.nodes.values()), tuple(self.arguments), self.outputs, tuple(self.effects),
            tuple(self.guards), {}, self.names,
        )  # fmt: skip


def parse_graph(text: str, filename: str = "<graph>") -> Graph:
    """The graph of a text that `print_graph` made (or a person edited). ParseError names line and column."""
    parser = _Parser(filename)
    for number, line in enumerate(text.splitlines(), 1):
        parser.line(line, number)
    return parser.graph()


def _word(r: Reader) -> str:
    return str(json.loads(r.next())) if r.kind == "string" else r.next()


def _symbol_name(r: Reader) -> str:
    word = r.next()
    return str(json.loads(r.next())) if word == "sym" and r.kind == "string" else word


def _integer(r: Reader) -> int:
    if not r.peek.isdigit():
        r.fail("expected an integer")
    return int(r.next())


def _dtype(r: Reader) -> DType:
    dtype = find(r.peek)
    if dtype is None or r.kind != "name":
        r.fail(f"`{r.peek}` is no dtype")
    r.next()
    return dtype


def _type(r: Reader) -> tuple[DType, Shape]:
    dtype = _dtype(r)
    r.expect("[")
    dims: list[Dim] = []
    while not r.accept("]"):
        dims.append(as_dim(r.expression()))
        if r.peek != "]":
            r.expect(",")
    return dtype, tuple(dims)


def _attrs(r: Reader, op: str) -> Attrs | None:
    """The attributes in braces, of the class that the operator has."""
    row = table().rows.get(op)
    kind = next((k for cls, k in _ROW_ATTRS if isinstance(row, cls)), op)
    if row is None and op not in _ATTR_READERS:
        r.fail(f"no operator is called `{op}`")
    given = r.accept("{")
    if kind in ("params", "opaque") and not given:
        return CompositeAttrs() if kind == "params" else OpaqueAttrs()
    if kind not in _ATTR_READERS:
        if given:
            r.fail(f"`{op}` takes no attributes")
        return None
    if not given:
        r.fail(f"`{op}` needs attributes in braces")
    attrs = _ATTR_READERS[kind](r)
    r.expect("}")
    return attrs


def _exprs(r: Reader, close: str) -> tuple[HostExpr, ...]:
    found: list[HostExpr] = []
    while not r.accept(close):
        found.append(r.expression())
        if r.peek != close:
            r.expect(",")
    return tuple(found)


def _map(r: Reader) -> IndexMap:
    r.expect("(")
    return IndexMap(_exprs(r, ")"))


def _pieces(r: Reader) -> PieceAttrs:
    pieces: list[Piece] = []
    while True:
        r.expect("[")
        domain = _exprs(r, "]")
        r.expect("->")
        pieces.append(Piece(domain, _map(r)))
        if not r.accept(";"):
            return PieceAttrs(tuple(pieces))


def _reduce(r: Reader) -> ReduceAttrs:
    if r.accept("none"):
        return ReduceAttrs(())
    axes = [_integer(r)]
    while r.accept(","):
        axes.append(_integer(r))
    return ReduceAttrs(tuple(axes))


def _params(r: Reader) -> tuple[tuple[str, Any], ...]:
    found: list[tuple[str, Any]] = []
    while r.peek != "}":
        name = r.next()
        r.expect(":")
        found.append((name, _value(r)))
        if r.peek != "}":
            r.expect(",")
    return tuple(found)


def _loop(r: Reader) -> LoopAttrs:
    """The inverse of `fuser.text`'s printing of a loop."""
    r.expect("state")
    k = _integer(r)
    r.expect("of")
    states = _integer(r)
    r.expect(";")
    r.expect("captured")
    captured, uniform, stop = _integer(r), True, None
    steps: list[BodyStep] = []
    while True:
        r.expect(";")
        if r.accept("next"):
            results = _numbers(r)
            return LoopAttrs(k, states, captured, tuple(steps), results, stop, uniform)
        if r.accept("count"):
            r.expect("varies")
            uniform = False
        elif r.accept("until"):
            stop = _number(r)
        else:
            steps.append(_step(r, 1 + states + captured + len(steps)))


def _number(r: Reader) -> int:
    text = r.next()
    if not text[1:].isdigit() or text[0] != "#":
        r.at -= 1
        r.fail("expected a value of the loop such as #3")
    return int(text[1:])


def _numbers(r: Reader) -> tuple[int, ...]:
    found = [_number(r)]
    while r.accept(","):
        found.append(_number(r))
    return tuple(found)


def _step(r: Reader, number: int) -> BodyStep:
    if _number(r) != number:
        r.at -= 1
        r.fail(f"the next value of the loop is #{number}")
    r.expect(":")
    dtype = _dtype(r)
    r.expect("=")
    op = r.next()
    args: tuple[int, ...] = ()
    if r.accept("("):
        args = _numbers(r)
        r.expect(")")
    r.nesting += 1
    if r.nesting > 50:
        r.fail("loops are nested too deeply")
    attrs = _attrs(r, op)
    r.nesting -= 1
    return BodyStep(op, args, dtype, attrs)


def _value(r: Reader) -> Any:
    """A static parameter; the inverse of `fuser.text`'s printing of one."""
    r.nesting += 1
    if r.nesting > 50:
        r.fail("a parameter is nested too deeply")
    value = _plain_value(r)
    r.nesting -= 1
    return value


def _plain_value(r: Reader) -> Any:
    if r.kind == "string":
        return json.loads(r.next())
    if r.accept("None"):
        return None
    if r.accept("<"):
        dtype = _dtype(r)
        r.expect(">")
        return dtype
    if r.accept("`"):
        expr = r.expression()
        r.expect("`")
        return expr
    if r.accept("("):
        items: list[Any] = []
        while not r.accept(")"):
            items.append(_value(r))
            r.expect(",")
        return tuple(items)
    literal = r.chain()
    if not literal.is_literal:
        r.fail("a parameter is a literal; expressions stand in backquotes")
    return literal.value


_ROW_ATTRS: tuple[tuple[type[Any], str], ...] = (
    (Reduction, "reduce"), (Scan, "scan"), (Composite, "params"), (OpaqueOp, "opaque"),
)  # fmt: skip
_ATTR_READERS: dict[str, Callable[[Reader], Attrs]] = {
    "input": lambda r: InputAttrs(_integer(r)),
    "scalar": lambda r: ScalarAttrs(r.expression()),
    "iota": lambda r: IotaAttrs(_integer(r)),
    "view": lambda r: ViewAttrs(_map(r)),
    "piecewise": _pieces,
    "item": lambda r: ItemAttrs(_integer(r)),
    "round": lambda r: RoundAttrs(_dtype(r)),
    "reduce": _reduce,
    "loop": _loop,
    "scan": lambda r: ScanAttrs(_integer(r), r.accept("exclusive"), r.accept("reverse")),
    "params": lambda r: CompositeAttrs(_params(r)),
    "opaque": lambda r: OpaqueAttrs(_params(r)),
}
