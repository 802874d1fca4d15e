"""Program text -> syntax tree.

In: text (or bytes of a file) and the name it is shown under. Out: `ast.Module`, or a ParseError that says where
and what was expected. Lark lives behind this file: no exception of its own leaves it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fuser.errors import FuserError, ParseError, Span
from fuser.files import no_file
from fuser.frontend import ast

if TYPE_CHECKING:
    from lark import Lark

    from fuser.frontend.layout import Refused
    from fuser.frontend.syntax import Parsed

MAX_CHARACTERS = 2_000_000
MAX_DEPTH = 900  # of an expression: Python's own parser gives up a little later


def parse(text: str, filename: str = "<string>") -> ast.Module:
    """The syntax tree of a program: functions and constants, or one `lambda`.

    Raises ParseError (slugs syntax, indentation, nesting, size, encoding, annotation, ...).
    """
    from lark.exceptions import UnexpectedInput

    from fuser.frontend.expected import explain
    from fuser.frontend.layout import Refused

    lines, source = _prepare(text, filename)
    start = "lambda_line" if source.lstrip().startswith("lambda") else "module"
    try:
        parsed: Parsed = _lark().parse(source, start=start)  # type: ignore[assignment]
        module = _module(filename, text, lines, parsed)
        _check_depth(module)
        return module
    except Refused as refused:
        raise _error(refused, filename, lines) from None
    except UnexpectedInput as error:
        raise _error(explain(error, lines), filename, lines) from None


def read(path: str | Path) -> str:
    """The text of a `.fuse` file. Raises ParseError [encoding] (it is not UTF-8), FileError [no-file]."""
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise no_file(path) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        text = data.split(b"\n")[line - 1].decode("utf-8", "replace")
        span = Span(str(path), line, column, column + 1, text)
        message = f"the file is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        raise ParseError(message, "encoding", (span,), ("save it as UTF-8",)) from None


@cache
def _lark() -> Lark:
    """The parser, made once a process; its parts keep no state between parses."""
    from lark import Lark

    from fuser.frontend.layout import Layout
    from fuser.frontend.syntax import Builder

    return Lark(
        Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        postlex=Layout(),
        transformer=Builder(),
        start=["module", "lambda_line"],
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


def _prepare(text: str, filename: str) -> tuple[tuple[str, ...], str]:
    """Lines, and the text as the grammar wants it: `\\n` line ends, one at the end, no byte-order mark."""
    if len(text) > MAX_CHARACTERS:
        message = f"the program has {len(text)} characters; the bound is {MAX_CHARACTERS}"
        raise ParseError(message, "size", (Span(filename, 1),), ("split it into files",))
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip(" \t\n") + "\n"
    lines = tuple(source.split("\n"))
    for number, line in enumerate(lines, 1):
        bad = next((k for k, c in enumerate(line, 1) if c == "\0" or "\ud800" <= c <= "\udfff"), None)
        if bad:
            raise ParseError("the text holds a character that is none", "encoding", (Span(filename, number, bad),))
    first = lines[0]
    if first[:1] in (" ", "\t") and first.strip() and not first.lstrip().startswith(("#", "lambda")):
        span = Span(filename, 1, 1, 2, first)
        raise ParseError("the program starts indented", "indentation", (span,), ("use textwrap.dedent(text)",))
    return lines, source


def _error(refused: Refused, filename: str, lines: tuple[str, ...]) -> FuserError:
    spans = tuple(ast.span_of(filename, lines, place) for place in refused.places)
    error = ParseError(refused.message, refused.slug, spans, refused.notes)
    if spans:  # what Python's own SyntaxError carries, for editors
        error.filename, error.lineno, error.offset = filename, spans[0].line, spans[0].column
        error.text = spans[0].text
    return error


def _module(filename: str, text: str, lines: tuple[str, ...], parsed: Parsed) -> ast.Module:
    """Functions and constants of the top level; anything else there is refused."""
    from fuser.frontend.layout import Refused

    doc = ""
    constants: list[ast.Assign] = []
    for position, statement in enumerate(parsed.statements):
        match statement:
            case ast.Ignored(value=ast.Text(value=value)):
                doc = value if position == 0 else doc
            case ast.Assign(targets=(ast.Name(),)):
                constants.append(statement)
            case ast.Pass():
                pass
            case _:
                hint = "the top level holds functions and constants such as `EPS = 1e-6`"
                raise Refused("this statement belongs into a function", "top-level", (statement.place,), hint)
    seen: dict[str, ast.Place] = {}
    for name, place in _top_names(parsed.functions, constants):
        if name in seen:
            raise Refused(f"`{name}` is defined twice", "defined-twice", (seen[name], place))
        seen[name] = place
    return ast.Module(filename, text, lines, doc, tuple(constants), parsed.functions)


def _top_names(functions: tuple[ast.Function, ...], constants: list[ast.Assign]) -> list[tuple[str, ast.Place]]:
    names = [(f.name, f.header) for f in functions]
    names += [(t.id, t.place) for c in constants for t in c.targets if isinstance(t, ast.Name)]
    return sorted(names, key=lambda n: (n[1].line, n[1].column))


def _check_depth(module: ast.Module) -> None:
    """Bound the depth of every expression; iterative."""
    from fuser.frontend.layout import Refused

    roots = [c.value for c in module.constants]
    for f in module.functions:
        roots += [e for s in ast.statements(f.body) for e in ast.expressions(s)]
        roots += [p.default for p in f.parameters if p.default is not None]
    stack: list[tuple[ast.Expr | ast.Slice, int]] = [(root, 1) for root in roots]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            message = f"this expression is more than {MAX_DEPTH} operators deep"
            place = node.place
            raise Refused(message, "nesting", (place,), "give a part a name of its own")
        stack.extend((c, depth + 1) for c in ast.children(node))
