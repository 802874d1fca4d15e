"""Every program in docs/language.md is read, built as its comment says, and is Python."""

from __future__ import annotations

import ast
import re

import pytest

from fuser.frontend.program import Program
from tests.frontend.dsl.support import ROOT, build_line

TEXT = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- build: (.*?) -->\n```python\n(.*?)```", TEXT, re.DOTALL)


def test_every_program_says_how_it_is_built() -> None:
    assert len(BLOCKS) == TEXT.count("```python") >= 6


@pytest.mark.parametrize(("line", "program"), BLOCKS)
def test_a_program_of_the_page(line: str, program: str) -> None:
    ast.parse(program)
    read = Program(program, "language.md")
    specs = build_line(f"# build: {line}")
    assert specs is not None
    assert read.build(read.entry, specs).nodes


def test_the_one_liner_of_the_page() -> None:
    (text,) = re.findall(r'fuser\.compile\("(lambda.*?)"\)', TEXT)
    specs = build_line("# build: f32[n], f32[n]")
    assert specs is not None
    assert Program.from_lambda(text).build("lambda", specs).outputs


def test_the_bounds_are_those_of_the_code() -> None:
    from fuser.frontend.layout import MAX_BLOCKS, MAX_BRACKETS
    from fuser.frontend.machine import MAX_BITS, MAX_STEPS
    from fuser.frontend.parser import MAX_CHARACTERS, MAX_DEPTH

    bounds = TEXT[TEXT.index("## Bounds") : TEXT.index("## Errors")]
    for number in (MAX_BLOCKS, MAX_BRACKETS, MAX_BITS, MAX_STEPS, MAX_CHARACTERS, MAX_DEPTH):
        assert f"{number:,}" in bounds or str(number) in bounds
