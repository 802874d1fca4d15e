"""Notebooks: `%load_ext fuser` brings `%%fuse`, whose cell is a `.fuse` program; places in cells are shown as cells.

In: IPython's shell. Out: a program's functions as variables of the notebook, and `In [3]` for what Python calls
`/tmp/ipykernel_17/401.py`. Its own file because IPython is met here only, and never imported.
"""

from __future__ import annotations

import re
import sys
from typing import Any

_CELL = re.compile(r"In ?\[(\d+)\]")


def load(shell: Any) -> None:
    """Register `%%fuse` with an IPython shell."""

    def fuse(line: str, cell: str) -> None:
        import fuser

        # The magic's own line counts, as it does in what a notebook numbers.
        program = fuser.parse("\n" + cell, _running(shell))
        names = {line.strip(): program} if line.strip() else {name: program[name] for name in program}
        shell.user_ns.update(names)

    fuse.__doc__ = "Compile a cell as a `.fuse` program: its functions become variables; after `%%fuse norms`, norms.f."
    shell.register_magic_function(fuse, magic_kind="cell", magic_name="fuse")


def _running(shell: Any) -> str:
    """The cell that runs. (The shell's own count is that of the next cell already, in some versions.)"""
    frame = sys._getframe()
    while frame.f_back is not None:
        if known := cell(frame.f_code.co_filename):
            return known
        frame = frame.f_back
    return f"In [{shell.execution_count}]"


def cell(filename: str) -> str | None:
    """`In [3]` for the file that a notebook's cell is compiled as; None for any other."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    known = shell.compile.format_code_name(filename) if shell is not None else None
    found = _CELL.search(known[1]) if known else None
    return f"In [{found[1]}]" if found else None
