"""Numbered dumps: what each stage made of a program, in the order in which it was made.

In: a program's name, a stage, a text. Out: files such as `004-softmax-fold.txt` in the folder that `FUSER_DUMP_DIR`
names, where `FUSER_DEBUG` is 2 or more; else nothing. Its own file because passes, plans and kernels are all dumped
alike. Numbers go on from the highest in the folder, so that nothing is overwritten and processes may share it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from fuser.errors import ArgumentError
from fuser.settings import Settings, settings

if TYPE_CHECKING:
    from fuser.plan import Plan

FROM = 2  # the level of `debug` from which on dumps are written


class _Folder:
    """A folder that takes numbered files."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        path.mkdir(parents=True, exist_ok=True)
        numbers = (int(found[1]) for f in path.iterdir() if (found := re.match(r"(\d{3,})-", f.name)))
        self._last = max(numbers, default=0)

    def write(self, name: str, text: str) -> None:
        with self._lock:
            while True:
                self._last += 1
                try:
                    with (self._path / f"{self._last:03}-{name}").open("x", encoding="utf-8") as file:
                        file.write(text)
                    return
                except FileExistsError:  # another process was faster
                    continue


@cache
def _folder(path: str) -> _Folder:
    return _Folder(Path(path))


def wanted(options: Settings | None = None) -> bool:
    """Whether dumps are written."""
    return (options or settings()).debug >= FROM


def write(program: str, stage: str, text: str, kind: str = "txt", options: Settings | None = None) -> None:
    """Dump a stage of a program; `kind` is the end of the file's name. Nothing where no dumps are wanted."""
    if not wanted(options):
        return
    path = (options or settings()).dump_dir
    try:
        _folder(path).write(f"{_plain(program)}-{_plain(stage)}.{kind}", text if text.endswith("\n") else text + "\n")
    except OSError as error:
        message = f"cannot write dumps to FUSER_DUMP_DIR={path}: {error.strerror or error}"
        raise ArgumentError(message, "bad-setting") from None


def write_plan(plan: Plan) -> None:
    """Dump a compiled plan: everything about it, then for each kernel its loops, its source, and what the compiler made
    of that."""
    if not wanted():
        return
    program = plan.graph.name
    write(program, "plan", plan.explain())
    for position, built in enumerate(plan.built):
        label = plan.outline[position].label
        for one in built:
            for kind, text in plan.toolchain.show(one).items():
                write(program, f"{label}-{one.kernel.name}", text, kind)


def _plain(name: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^\w.]+", "_", name).strip("_") or "program"
