"""Files and functions stay small enough to be read in one go, and every module says what it is for."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.meta.project import ROOT, sources

FILE_LINES = 420  # 400, and a little so that a comment is never saved to fit
FUNCTION_LINES = 40  # without the docstring
FUNCTION_LINES_AT_MOST = 70
LONG_FUNCTIONS = 0.02  # the share of functions that may lie between the two

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Place and length of every function; a nested one counts in its outer one too."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield f"{path}:{node.lineno} {node.name}", length(node)


def length(function: Function) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def test_files_are_short() -> None:
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in sources()}
    long = [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > FILE_LINES]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    found = [entry for path in sources() for entry in functions(path)]
    long = sorted((entry for entry in found if entry[1] > FUNCTION_LINES), key=lambda entry: -entry[1])
    listing = "\n".join(f"{place}: {lines} lines" for place, lines in long)
    assert not long or long[0][1] <= FUNCTION_LINES_AT_MOST, listing
    assert len(long) <= LONG_FUNCTIONS * len(found), listing


def test_every_module_says_what_it_is_for() -> None:
    mute = [
        str(path) for path in sources() if not ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    ]
    assert not mute, "\n".join(mute)
