"""Whatever the text: a graph or an error of fuser's own, and what parses also parses as Python."""

from __future__ import annotations

import ast
import re
import warnings

from hypothesis import given
from hypothesis import strategies as st

from fuser.errors import FuserError, InternalError
from fuser.frontend import parser
from fuser.frontend.program import Program
from fuser.specs import ScalarSpec, Spec, parse
from tests.frontend.dsl.support import corpus

SIGNS = [*"()[],:=+-*/%@<.;~&#$!²é\\", "//", "**", "==", "!=", "...", "->", "+="]
LINES = ["\n", "\n    ", "\n        ", "\n\t", "\\\n", "#c", '"""', "'a'", "def f(x):", "def g(a, b=1):"]
KEYWORDS = sorted(
    {"return", "not", "and", "or", "if", "else", "elif", "for", "in", "is", "None", "True", "lambda", "pass"}
)
NAMES = sorted(
    {"x", "y", "sum", "exp", "max", "f32", "float", "range(3)", ".T", ".sum", ".shape", "axis=", "f32[n]", "while"}
)
NUMBERS = sorted({"1", "2.5", "0x", "1e", "1.", ".5", "1j", "007", "9" * 30})
WORDS = [*SIGNS, *LINES, *KEYWORDS, *NAMES, *NUMBERS]
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
TEXTS = [path.read_text(encoding="utf-8") for path in corpus()]
SPECS: list[Spec] = [parse("f32[n, d]"), parse("i32[n]"), ScalarSpec("float")]

soups = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
bodies = st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: "def f(x, y):\n    return " + " ".join(words))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A program of the corpus with a few of its tokens dropped, doubled or replaced."""
    tokens = TOKEN.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place] = draw(st.sampled_from(["", tokens[place] * 2, *WORDS]))
    return "".join(tokens)


def attempt(text: str) -> None:
    """Parse and build every function for a few kinds of arguments."""
    try:
        parser.parse(text)
    except FuserError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of "\\d" and `1 is None`, and accepts them
        ast.parse(text)
    for spec in SPECS:
        try:
            program = Program(text)
            for name in program.functions:
                program.build(name, [spec] * len(program.signature(name).parameters))
        except InternalError:
            raise
        except FuserError as error:
            str(error)


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    attempt(text)


@given(soups)
def test_token_soup(text: str) -> None:
    attempt(text)


@given(bodies)
def test_expression_soup(text: str) -> None:
    attempt(text)


@given(damaged())
def test_damaged_programs(text: str) -> None:
    attempt(text)
