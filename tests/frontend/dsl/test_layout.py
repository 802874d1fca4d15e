"""Comments, blank lines, tabs and line ends: the same program however it is laid out, and always Python too."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

import fuser
from fuser.errors import FuserError, ParseError
from fuser.frontend.program import Program
from fuser.text import print_graph
from tests.frontend.dsl.support import corpus, spec

PLAIN = """def f(x):
    a = x + 1
    b = (a * 2)
    return b - x
"""

VARIANTS = {
    "comments": """def f(x):
    a = x + 1      # trailing
# column 0

        # deeper
    b = (a *
         2)
    return b - x
""",
    "tabs": "def f(x):\n\ta = x + 1\n\t\t# deeper\n\tb = (a *\n2)\n\treturn b - x\n",
    "crlf": PLAIN.replace("\n", "\r\n"),
    "crlf with comments": "def f(x):\r\n    a = x + 1 # one\r\n# zero\r\n\r\n    b = (a * 2)\r\n    return b - x\r\n",
    "old Mac line ends": PLAIN.replace("\n", "\r"),
    "blank lines of blanks": PLAIN.replace("\n", "\n   \t  \n"),
    "no newline at the end": PLAIN.rstrip("\n"),
    "blanks at the end": PLAIN + "    ",
    "block ended by a comment": PLAIN + "    # the end",
    "block ended by a comment at column 0": PLAIN + "# the end\n        # really",
    "comment first": "# first\n\n    # indented\n" + PLAIN,
    "byte-order mark": "\ufeff" + PLAIN,
    "one line": "def f(x): a = x + 1; b = (a * 2); return b - x",
    "semicolon at the end": PLAIN.replace("x + 1", "x + 1;"),
    "backslash": PLAIN.replace("x + 1", "x \\\n  + 1"),
    "strings as comments": PLAIN.replace("    b", '    "two\\nlines"\n    """\nthree\n"""\n    b'),
    "brackets over lines": PLAIN.replace("(x)", "(\n    x,  # the array\n\n# column 0\n)"),
    "comment as long as the block": "def f(x):\n" + "    # c\n" * 500 + PLAIN.split("\n", 1)[1],
}


def graph_of(text: str) -> str:
    program = Program(text)
    return print_graph(program.build("f", [spec("f64[n]")]))


@pytest.mark.parametrize("name", VARIANTS)
def test_layout_does_not_matter(name: str) -> None:
    assert graph_of(VARIANTS[name]) == graph_of(PLAIN)
    ast.parse(VARIANTS[name].encode())


def test_places_are_those_of_the_text() -> None:
    program = Program(VARIANTS["crlf with comments"], "p.fuse")
    graph = program.build("f", [spec("f64[n]")])
    lines = {names[-1]: graph.spans[node][0].line for node, names in graph.names.items()}
    assert lines == {"x": 1, "a": 2, "b": 5, "out": 6}


@pytest.mark.parametrize("path", corpus(), ids=lambda p: p.name)
def test_the_corpus_parses_as_python(path: Path) -> None:
    text = path.read_bytes()
    Program.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ast.parse(text)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.fuse"
    path.write_bytes(b"def f(x):\n    return x  # caf\xe9\n")
    with pytest.raises(ParseError, match="not UTF-8: byte 0xe9 at offset 29") as caught:
        Program.load(path)
    assert (caught.value.slug, caught.value.spans[0].line, caught.value.spans[0].column) == ("encoding", 2, 20)


@pytest.mark.parametrize("text", ["def f(x):\n    return x\0", "def f(x):\n    return '\ud800'"])
def test_characters_that_are_none(text: str) -> None:
    with pytest.raises(ParseError, match="character that is none") as caught:
        Program(text)
    assert caught.value.spans[0].line == 2


def test_an_indented_program_says_how_to_dedent() -> None:
    with pytest.raises(ParseError, match=r"textwrap\.dedent"):
        Program("    def f(x):\n        return x\n")


def test_errors_carry_what_editors_read() -> None:
    with pytest.raises(SyntaxError) as caught:
        Program("def f(x):\n    return x +* 2\n", "bad.fuse")
    error = caught.value
    assert (error.filename, error.lineno, error.offset, error.text) == ("bad.fuse", 2, 15, "    return x +* 2")


def test_an_empty_program_has_no_functions() -> None:
    for text in ("", "\n", "# nothing\n", '"""Only a docstring."""'):
        assert Program(text).functions == ()
    assert Program('"""Only a docstring."""').doc == "Only a docstring."


def test_a_file_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "softmax.fuse").write_text("def f(x):\n    return x\n", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*softmx\.fuse") as caught:
        fuser.load(tmp_path / "softmx.fuse")
    assert isinstance(caught.value, FuserError)
    assert caught.value.slug == "no-file"
    assert caught.value.notes == (f"did you mean {tmp_path / 'softmax.fuse'}?",)
    with pytest.raises(FileNotFoundError, match="is a folder"):
        fuser.load(tmp_path)
