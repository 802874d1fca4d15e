"""Texts from strangers: deep, long, endless or absurd ones are refused quickly, by fuser's own errors."""

from __future__ import annotations

import ast
import sys

import pytest

from fuser.dtypes import C128
from fuser.errors import FuserError, ParseError
from fuser.frontend.program import Program
from fuser.graph import ScalarAttrs
from tests.frontend.dsl.support import build

HEAD = "def f(x):\n    return "

DEEP = {
    "parentheses": "(" * 3000 + "x" + ")" * 3000,
    "brackets": "[" * 3000 + "x" + "]" * 3000,
    "calls": "exp(" * 3000 + "x" + ")" * 3000,
    "subscripts": "x[" * 3000 + "0" + "]" * 3000,
    "minus signs": "-" * 3000 + "x",
    "nots": "not " * 3000 + "x",
    "powers": "x ** " * 3000 + "x",
    "choices": "x if x else " * 3000 + "x",
    "sums": "x + " * 3000 + "x",
    "attributes": "x" + ".T" * 3000,
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_expressions_are_refused(name: str) -> None:
    with pytest.raises(ParseError) as caught:
        Program(HEAD + DEEP[name])
    assert caught.value.slug == "nesting"


def test_deep_blocks_are_refused() -> None:
    text = "def f(x):\n" + "".join("  " * (k + 1) + "for i in range(1):\n" for k in range(200)) + "  " * 201 + "pass\n"
    with pytest.raises(ParseError) as caught:
        Program(text)
    assert caught.value.slug == "nesting"


ALLOWED = {
    "parentheses": "(" * 100 + "x" + ")" * 100,
    "calls": "exp(" * 100 + "x" + ")" * 100,
    "minus signs": "-" * 800 + "x",
    "powers": "x ** " * 800 + "x",
    "choices": "x if x > 0 else " * 800 + "x",
    "sums": "x + " * 800 + "x",
    "transposes": "x" + ".T" * 800,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_builds_and_is_python(name: str) -> None:
    assert sys.getrecursionlimit() == 1000, "the default, as users have it"
    build(HEAD + ALLOWED[name], "f32[n]")
    ast.parse(HEAD + ALLOWED[name])


ENDLESS = {
    "a long loop": "def f(x):\n    for i in range(10**9):\n        pass\n    return x\n",
    "nested loops": "def f(x):\n"
    + "".join("  " * (k + 1) + "for i in range(99):\n" for k in range(9))
    + "  " * 10
    + "x = x\n",
    "doubling calls": "def f0(x): return x + 1\n"
    + "".join(f"def f{k}(x): return f{k - 1}(x) * f{k - 1}(x)\n" for k in range(1, 40)),
    "a growing tuple": "def f(x):\n    t = (x,)\n    for i in range(99):\n        t = t + t\n    return t\n",
    "a nesting tuple": "def f(x):\n    t = (x,)\n    for i in range(999):\n        t = (t,)\n    return t\n",
    "a growing integer": "def f(x):\n    n = 3\n    for i in range(99):\n        n = n * n\n    return x * n\n",
    "a power": "def f(x):\n    return x + 10 ** 10 ** 10\n",
    "a shift": "def f(x):\n    return x + (1 << 10 ** 10)\n",
    "a product of dims": "def f(x):\n    n = len(x)\n    for i in range(99):\n        n = n * n\n    return x * n\n",
    "a sum of dims": "def f(x):\n    n = len(x)\n    for i in range(99):\n        n = n * n + n\n    return x * n\n",
    "a run-time float": "def f(x, h: float):\n    for i in range(99):\n        h = h * h + h\n    return x * h\n",
    "a constant": "A = 9 ** 9 ** 9\ndef f(x):\n    return x\n",
    "a literal": f"def f(x):\n    return x + {'9' * 5000}\n",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_programs_are_refused(name: str) -> None:
    with pytest.raises(FuserError) as caught:
        build(ENDLESS[name], "f32[n]", *(["float"] if "h: float" in ENDLESS[name] else []))
    assert caught.value.slug in ("unroll", "size", "nesting", "number-size")


def test_a_text_too_long_to_read() -> None:
    with pytest.raises(ParseError) as caught:
        Program("# " + "x" * 3_000_000)
    assert caught.value.slug == "size"


def test_five_thousand_statements() -> None:
    text = "def f(x, y):\n" + "".join(f"    x = x * 1.5 + y - {k}\n" for k in range(5000)) + "    return x\n"
    graph = build(text, "f32[n]", "f32[n]")
    assert sum(n.op == "multiply" for n in graph.nodes) == 5000
    assert graph.spans[graph.outputs[0]][0].line == 5001


def test_a_long_chain_of_functions() -> None:
    text = "def f0(x): return x + 1\n" + "".join(f"def f{k}(x): return f{k - 1}(x) * 2\n" for k in range(1, 2000))
    assert len(build(text, "f32[n]").nodes) > 2000


def test_values_that_overflow_as_python_does() -> None:
    """Kept for the call, where Python's own error is raised: nothing is folded to a wrong value."""
    for text in ("2.0 ** 10000", "1 / 0", "7 % 0"):
        graph = build(f"def f(x):\n    return x * ({text})\n", "f64[n]")
        (scalar,) = (n for n in graph.nodes if n.op == "scalar")
        assert isinstance(scalar.attrs, ScalarAttrs)
        with pytest.raises(ArithmeticError):
            scalar.attrs.expr.evaluate({})
    assert build("def f(x):\n    return x * (-8.0) ** 0.5\n", "f64[n]").outputs[0].dtype == C128
