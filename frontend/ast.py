"""The syntax tree of a `.fuse` program: frozen nodes, each with its place in the text.

In: made by `fuser.frontend.syntax` while the text is parsed. Out: read by `resolve` and `build`. Its own
classes rather than Python's `ast`, so that what the language has is stated here and nowhere else.

Nodes compare by identity. Nothing here recurses: `children` is what iterative walks are made of.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.errors import Span
from fuser.record import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """1-based line and column of the first character, and of the one after the last."""

    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Place) -> Place:
        """From the start of this place to the end of another."""
        return Place(self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True, eq=False, slots=True)
class Syntax:
    """Base of all nodes."""

    place: Place


# -- expressions -----------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, slots=True)
class Number(Syntax):
    value: int | float | complex


@dataclass(frozen=True, eq=False, slots=True)
class Text(Syntax):
    value: str


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Syntax):
    """None, True, False or `...`."""

    value: object


@dataclass(frozen=True, eq=False, slots=True)
class Name(Syntax):
    id: str


@dataclass(frozen=True, eq=False, slots=True)
class Items(Syntax):
    """`(a, b)`, `a, b` or `[a, b]`."""

    items: tuple[Expr, ...]
    brackets: bool


@dataclass(frozen=True, eq=False, slots=True)
class Unary(Syntax):
    """`-x`, `+x`, `~x`, `not x`."""

    op: str
    operand: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Binary(Syntax):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Logical(Syntax):
    """`a and b`, `a or b`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Compare(Syntax):
    """`first op1 rest1 op2 rest2 ...`: every neighbouring pair must hold."""

    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Choice(Syntax):
    """`yes if test else no`."""

    test: Expr
    yes: Expr
    no: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Keyword(Syntax):
    """`name=value` in a call."""

    name: str
    value: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Call(Syntax):
    function: Expr
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Attribute(Syntax):
    value: Expr
    name: str
    name_place: Place


@dataclass(frozen=True, eq=False, slots=True)
class Slice(Syntax):
    """`start:stop:step`; only inside a subscript."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(frozen=True, eq=False, slots=True)
class Subscript(Syntax):
    """`value[keys]`; `single` when there is one key and no comma."""

    value: Expr
    keys: tuple[Expr | Slice, ...]
    single: bool


Expr = (
    Number | Text | Constant | Name | Items | Unary | Binary | Logical | Compare | Choice | Call | Attribute | Subscript
)


# -- annotations -----------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, slots=True)
class ArrayType(Syntax):
    """`f32[n, d]`, `[n, d]` (any dtype) or `f32` (a strong scalar, dims = ()).

    A dim is an int, an expression over dim names, or `...` (first only; None here).
    """

    dtype: str | None
    dims: tuple[Expr | None, ...]


@dataclass(frozen=True, eq=False, slots=True)
class WeakType(Syntax):
    """`float`, `int` or `bool`: a run-time scalar without a dtype of its own."""

    kind: str


@dataclass(frozen=True, eq=False, slots=True)
class StaticType(Syntax):
    """`str`: a value known while compiling."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class TupleType(Syntax):
    """Several results: `(f32[n], i64[n])` or `tuple[f32[n], i64[n]]`."""

    items: tuple[Annotation, ...]


@dataclass(frozen=True, eq=False, slots=True)
class NoneType(Syntax):
    """`None`: a function run for its stores."""


Annotation = ArrayType | WeakType | StaticType | TupleType | NoneType


# -- statements ------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, slots=True)
class Assign(Syntax):
    """`a = b = value`; an annotated assignment has its annotation."""

    targets: tuple[Expr, ...]
    value: Expr
    annotation: Annotation | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Update(Syntax):
    """`target op= value`."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Return(Syntax):
    value: Expr | None


@dataclass(frozen=True, eq=False, slots=True)
class For(Syntax):
    target: Expr
    iterable: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class If(Syntax):
    test: Expr
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Pass(Syntax):
    """`pass`, or a string that stands as a comment."""


@dataclass(frozen=True, eq=False, slots=True)
class Break(Syntax):
    """`break`: in the `if` that stands first in a loop."""


@dataclass(frozen=True, eq=False, slots=True)
class Ignored(Syntax):
    """An expression whose value nothing uses."""

    value: Expr


Statement = Assign | Update | Return | For | If | Pass | Break | Ignored


@dataclass(frozen=True, eq=False, slots=True)
class Parameter(Syntax):
    name: str
    annotation: Annotation | None
    default: Expr | None
    keyword_only: bool


@dataclass(frozen=True, eq=False, slots=True)
class Function(Syntax):
    name: str
    parameters: tuple[Parameter, ...]
    returns: Annotation | None
    body: tuple[Statement, ...]
    doc: str
    header: Place  # the name in `def name(...)`


@dataclass(frozen=True, eq=False)
class Module:
    """A whole program: constants and functions by name, in the order of the text."""

    filename: str
    text: str
    lines: tuple[str, ...]
    doc: str
    constants: tuple[Assign, ...]
    functions: tuple[Function, ...]

    def span(self, place: Place) -> Span:
        """The error span of a place; one of several lines ends with its first."""
        return span_of(self.filename, self.lines, place)

    def excerpt(self, place: Place) -> str:
        """The text of a place, cut after its first line."""
        line = self.lines[place.line - 1]
        if place.end_line == place.line:
            return line[place.column - 1 : place.end_column - 1]
        return line[place.column - 1 :].rstrip() + " ..."


def span_of(filename: str, lines: tuple[str, ...], place: Place) -> Span:
    """`Module.span` where there is no module yet."""
    text = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    end = place.end_column if place.end_line == place.line else len(text.rstrip()) + 1
    return Span(filename, place.line, place.column, max(end, place.column + 1), text)


def children(node: Expr | Slice) -> Iterator[Expr | Slice]:
    """The expressions directly inside an expression, left to right."""
    match node:
        case Items():
            yield from node.items
        case Unary():
            yield node.operand
        case Binary() | Logical():
            yield from (node.left, node.right)
        case Compare():
            yield node.first
            yield from (right for _, right in node.rest)
        case Choice():
            yield from (node.test, node.yes, node.no)
        case Call():
            yield node.function
            yield from node.arguments
            yield from (k.value for k in node.keywords)
        case Attribute():
            yield node.value
        case Subscript():
            yield node.value
            yield from node.keys
        case Slice():
            yield from (part for part in (node.start, node.stop, node.step) if part is not None)


def walk(root: Expr | Slice) -> Iterator[Expr | Slice]:
    """Every expression under `root`, outer before inner, left to right; iterative."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(tuple(children(node))))


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement of a body, those inside `for` and `if` too, in text order; iterative."""
    stack = list(reversed(body))
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, For):
            stack.extend(reversed(statement.body))
        elif isinstance(statement, If):
            stack.extend(reversed((*statement.body, *statement.otherwise)))


def expressions(statement: Statement) -> Iterator[Expr]:
    """The outermost expressions that a statement reads or stores through, not those of nested statements."""
    match statement:
        case Assign():
            yield statement.value
            yield from statement.targets
        case Update():
            yield from (statement.value, statement.target)
        case Return():
            if statement.value is not None:
                yield statement.value
        case For():
            yield from (statement.iterable, statement.target)
        case If():
            yield statement.test
        case Ignored():
            yield statement.value
