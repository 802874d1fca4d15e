"""Cells of notebooks: `%%fuse`, and places that are named as cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fuser import notebook
from fuser.errors import FuserError, ParseError, ShapeError, TraceError

Run = Callable[[str], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs cells of a fresh notebook one after the other; gives what a cell raised, or the notebook's variables."""
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()

    def cell(text: str) -> Any:
        done = shell.run_cell(text, store_history=True)
        return done.error_before_exec or done.error_in_exec or shell.user_ns

    cell("import numpy as np, fuser\n%load_ext fuser")
    yield cell
    InteractiveShell.clear_instance()


PROGRAM = """%%fuse
def unit(x: f32[n, d]):
    return x / max(abs(x))
"""


def test_a_cell_is_a_program_whose_functions_become_variables(run: Run) -> None:
    unit = run(PROGRAM)["unit"]
    assert unit(np.array([[1, -4]], np.float32)).tolist() == [[0.25, -1.0]]
    assert run(PROGRAM.replace("%%fuse", "%%fuse norms"))["norms"].unit(np.ones((1, 2), np.float32)).shape == (1, 2)


def test_errors_name_cells_and_lines_as_notebooks_number_them(run: Run) -> None:
    error = run("%%fuse\ndef f(x):\n    return x +\n")
    assert isinstance(error, ParseError)
    assert "In [2], line 3  return x +" in str(error)
    run(PROGRAM)
    error = run("y = 1\nunit(np.ones((2, 3, 4), 'f4'))")
    assert isinstance(error, ShapeError)
    assert "In [3], line 2  def unit(x: f32[n, d]):" in str(error)
    assert "called at In [4], line 2 with f32[2, 3, 4]" in str(error)
    error = run("@fuser.compile\ndef g(x):\n    if x > 0:\n        return x\n    return 2 * x\ng(np.ones(3))")
    assert isinstance(error, TraceError)
    assert "In [5], line 3  if x > 0:" in str(error)


class _Shell:
    """What fuser asks of IPython."""

    execution_count = 7

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Any] = {}

    def register_magic_function(self, function: Any, magic_kind: str, magic_name: str) -> None:
        self.magics[magic_kind, magic_name] = function


def test_the_magic_alone() -> None:
    shell = _Shell()
    notebook.load(shell)
    fuse = shell.magics["cell", "fuse"]
    fuse("", "def twice(x):\n    return 2 * x\n")
    assert shell.user_ns["twice"](np.ones(2)).tolist() == [2, 2]
    with pytest.raises(FuserError, match=r"In \[7\], line 2"):
        fuse("", "def f(x: q32[n]):\n    return x\n")


def test_other_files_are_no_cells() -> None:
    assert notebook.cell(__file__) is None
