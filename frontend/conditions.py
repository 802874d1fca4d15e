"""What a piece of Python asked a traced value for: the syntax around it, and how to write it per element.

In: the frame that called `__bool__`, `__int__`, `__iter__`, ... Out: a `Question` (`if`, `while`, `range()`, the
source of the value that was asked) and a way out made of the user's own expressions. Reads the source file
as an AST, only when an error is about to be raised.
"""

from __future__ import annotations

import ast
import linecache
import sys
from types import FrameType

from fuser.errors import Span
from fuser.frontend.locations import Position, make_span, position_of
from fuser.record import dataclass

Around = dict[ast.AST, ast.AST]  # node -> parent


@dataclass(frozen=True)
class Question:
    """keyword: "`if`", "`bool()`"; subject: source of the value; where: its place; notes: ways out."""

    keyword: str
    subject: str
    where: Span
    notes: tuple[str, ...] = ()


def ask(frame: FrameType | None, fallback: str, note: str) -> Question:
    """The question that the frame's current instruction asks. `fallback` names it when the source is unknown."""
    if frame is None:
        return Question(f"`{fallback}`", "the value", Span("<unknown>", 0, note=note))
    filename, at = frame.f_code.co_filename, position_of(frame)
    text = "".join(linecache.getlines(filename))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Question(f"`{fallback}`", "this value", make_span(filename, at, note))
    parents: Around = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    node = _node_at(tree, at, text.splitlines())
    if node is None:
        return Question(f"`{fallback}`", "this value", make_span(filename, at, note))
    keyword, subject = _around(node, parents, fallback)
    place = _position(subject, text.splitlines())
    ways = _ways_out(subject, parents, fallback)
    return Question(f"`{keyword}`", ast.unparse(subject), make_span(filename, place, note), ways)


def _position(node: ast.expr, lines: list[str]) -> Position:
    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode(errors="ignore"))

    end = node.end_lineno or node.lineno
    return Position(node.lineno, end, column(node.lineno, node.col_offset), column(end, node.end_col_offset or 0))


def _node_at(tree: ast.AST, at: Position, lines: list[str]) -> ast.expr | ast.stmt | None:
    """The expression (or statement) with exactly this range; without columns, a condition on the line."""
    if at.column < 0 or sys.version_info < (3, 11):
        on_line = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno == at.line]
        tests = [n for n in on_line if isinstance(n, (ast.If, ast.While, ast.Assert, ast.For))]
        return tests[0] if tests else on_line[0] if len(on_line) == 1 else None
    found: ast.expr | ast.stmt | None = None
    for n in ast.walk(tree):
        if isinstance(n, (ast.expr, ast.stmt)) and n.lineno == at.line and n.end_lineno == at.end_line:
            column = len(lines[n.lineno - 1].encode()[: n.col_offset].decode(errors="ignore"))
            end = len(lines[at.end_line - 1].encode()[: n.end_col_offset].decode(errors="ignore"))
            if (column, end) == (at.column, at.end_column) and (found is None or isinstance(n, ast.expr)):
                found = n
    return found


def _around(node: ast.expr | ast.stmt, parents: Around, fallback: str) -> tuple[str, ast.expr]:
    """The keyword that asks, and the expression it asks about."""
    if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        return _keyword_of(node), _without_not(node.test)
    if isinstance(node, ast.For):
        return "for", node.iter
    if not isinstance(node, ast.expr):
        value = getattr(node, "value", None)
        if isinstance(value, ast.expr):
            return fallback, value
        return fallback, ast.Name(fallback, lineno=node.lineno, col_offset=0)
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "not", node.operand
    if isinstance(node, ast.BoolOp):
        return ("and" if isinstance(node.op, ast.And) else "or"), node
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return "in", node
    if isinstance(node, ast.Subscript):
        return "[...]", node.slice
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return "for", node.generators[0].iter
    return _by_parent(node, parents, fallback), node


def _called(node: ast.Call) -> tuple[str, ast.expr]:
    """`int(x)` asks about x, `x.item()` too."""
    if node.args:
        return f"{ast.unparse(node.func)}()", node.args[0]
    if isinstance(node.func, ast.Attribute):
        return f"{node.func.attr}()", node.func.value
    return f"{ast.unparse(node.func)}()", node


def _without_not(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test


def _keyword_of(node: ast.AST) -> str:
    return "if ... else" if isinstance(node, ast.IfExp) else type(node).__name__.lower()


def _by_parent(node: ast.expr, parents: Around, fallback: str) -> str:
    parent = parents.get(node)
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return "chained comparison"
    if isinstance(parent, ast.BoolOp):
        return "and" if isinstance(parent.op, ast.And) else "or"
    if isinstance(parent, ast.UnaryOp):
        outer = parents.get(parent)
        return _keyword_of(outer) if isinstance(outer, (ast.If, ast.While, ast.Assert, ast.IfExp)) else "not"
    if isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        return _keyword_of(parent)
    if isinstance(parent, ast.comprehension):
        return "if" if node in parent.ifs else "for"
    return "for" if isinstance(parent, ast.For) else fallback


# -- ways out --------------------------------------------------------------------------------------
def _ways_out(subject: ast.expr, parents: Around, fallback: str) -> tuple[str, ...]:
    """How to say it per element, in the user's own terms."""
    parent = parents.get(subject)
    if isinstance(subject, ast.Compare) and isinstance(subject.ops[0], (ast.In, ast.NotIn)):
        left, right = ast.unparse(subject.left), ast.unparse(subject.comparators[0])
        return (f"as a value of the program: ({right} == {left}).any()" if fallback == "contains" else
                f"per element: ({left}[..., None] == np.array({right})).any(-1)",)  # fmt: skip
    if isinstance(subject, ast.Compare) and len(subject.ops) > 1:
        return (f"per element: {_chain(subject)}",)
    for joined in (subject, parent):
        if isinstance(joined, ast.BoolOp):
            return (f"per element: {_joined(joined)}",)
    if isinstance(parent, ast.Call):
        return _of_call(parent)
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    return _of_branch(ast.unparse(subject), parents.get(parent) if negated and parent else parent, negated, parents)


def _of_call(node: ast.Call) -> tuple[str, ...]:
    name, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
    if name in ("max", "min") and len(node.args) == 2:
        return (f"per element: np.{name}imum({first}, {ast.unparse(node.args[1])})",)
    if name in ("sum", "max", "min", "any", "all"):
        return (f"write np.{name}({first}{', axis=0' if name == 'sum' else ''})",)
    return ()


def _of_branch(text: str, around: ast.AST | None, negated: bool, parents: Around) -> tuple[str, ...]:
    """The way out of a statement that branches on `text` (on `not text` if negated)."""
    if isinstance(around, (ast.If, ast.IfExp)):
        if isinstance(around, ast.If):
            branches = _branches(around, parents)
        else:
            branches = (ast.unparse(around.body), ast.unparse(around.orelse))
        return (_where(text, *(branches[::-1] if negated else branches)) + "    option: pass a Python bool",)
    if isinstance(around, ast.While):
        return ("run a fixed number of steps, and let np.where keep finished elements; option: loop outside",)
    if isinstance(around, ast.Assert):
        return ("check outside the compiled function",)
    return (f"per element: np.logical_not({text})",) if negated else ()


def _where(test: str, yes: str, no: str) -> str:
    return f"per element: np.where({test}, {yes}, {no})"


def _branches(node: ast.If, parents: Around) -> tuple[str, str]:
    """What the two branches give, where that is one expression each; else the names `a, b` stand for them."""
    yes, no = _outcome(node.body), _outcome(node.orelse)
    if yes is None:
        return "a", "b"
    target, value = yes
    if not node.orelse:
        if target is not None:
            return value, target
        no = _outcome(_after(node, parents))
    if no is None or no[0] != target:
        return value, "b"
    return value, no[1]


def _outcome(body: list[ast.stmt]) -> tuple[str | None, str] | None:
    """(assigned name, or None for `return`; expression) of a branch of one statement."""
    if len(body) != 1:
        return None
    only = body[0]
    if isinstance(only, ast.Return) and only.value is not None:
        return None, ast.unparse(only.value)
    if isinstance(only, ast.Assign) and len(only.targets) == 1:
        return ast.unparse(only.targets[0]), ast.unparse(only.value)
    return None


def _after(node: ast.stmt, parents: Around) -> list[ast.stmt]:
    body = getattr(parents.get(node), "body", [])
    return body[body.index(node) + 1 :][:1] if isinstance(body, list) and node in body else []


def _sign(op: ast.cmpop) -> str:
    signs = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
    return signs.get(type(op).__name__, "?")


def _chain(node: ast.Compare) -> str:
    terms = [node.left, *node.comparators]
    pairs = zip(terms, node.ops, terms[1:], strict=False)
    return " & ".join(f"({ast.unparse(a)} {_sign(op)} {ast.unparse(b)})" for a, op, b in pairs)


def _joined(node: ast.BoolOp) -> str:
    sign = " & " if isinstance(node.op, ast.And) else " | "
    return sign.join(ast.unparse(v) if isinstance(v, ast.Name) else f"({ast.unparse(v)})" for v in node.values)
