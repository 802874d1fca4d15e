"""The error for a program's file that is not there, with the nearest name that is.

In: a path as the user gave it. Out: a `FileError`. Its own file because the command line and `fuser.load` say the same.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from fuser.errors import FileError

PROGRAMS = (".fuse", ".py")


def no_file(path: str | Path) -> FileError:
    """Why there is no program at a path, and which one is meant."""
    where = Path(path)
    what = f"{path} is a folder" if where.is_dir() else f"there is no file {path}"
    near = difflib.get_close_matches(where.name, _programs(where.parent), 1)
    return FileError(what, "no-file", notes=[f"did you mean {where.parent / near[0]}?"] if near else [])


def _programs(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.suffix in PROGRAMS)
    except OSError:
        return []
