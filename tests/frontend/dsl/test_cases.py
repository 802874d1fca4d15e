"""Programs and the graphs they become; programs that are refused and the words that refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuser.errors import FuserError, InternalError
from fuser.frontend.program import Program
from fuser.graph import Graph
from fuser.text import print_graph
from fuser.textparse import parse_graph
from tests.frontend.dsl.support import build_line, case_files, compare


def build_case(text: str, filename: str) -> Graph:
    """Read a case and build its last function as its header says."""
    program = Program(text, filename)
    specs = build_line(text)
    assert specs is not None, "a case says how it is built: `# build: f32[n]`"
    return program.build(program.functions[-1], specs)


@pytest.mark.parametrize("path", case_files("cases"), ids=lambda p: p.stem)
def test_a_program_becomes_this_graph(path: Path) -> None:
    printed = print_graph(build_case(path.read_text(encoding="utf-8"), path.name))
    assert print_graph(parse_graph(printed)) == printed
    compare(path.with_suffix(".graph"), printed)


@pytest.mark.parametrize("path", case_files("errors"), ids=lambda p: p.stem)
def test_a_program_is_refused_in_these_words(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")  # line ends as they are
    with pytest.raises(FuserError) as caught:
        build_case(text, path.name)
    assert not isinstance(caught.value, InternalError)
    compare(path.with_suffix(".error"), f"{type(caught.value).__name__}: {caught.value}\n")


def test_building_again_gives_the_same_graph() -> None:
    path = case_files("cases")[0]
    text = path.read_text(encoding="utf-8")
    program = Program(text, path.name)
    specs = build_line(text)
    assert specs is not None
    first, second = (print_graph(program.build(program.functions[-1], specs)) for _ in range(2))
    assert first == second
