"""Where in the user's source a traced operation stands, and which variable takes its result.

In: the running frames. Out: `Span`s with columns (Python 3.11+; whole lines before), the source text of a call,
and the names stored to by the instruction that follows. Its own file because all that depends on CPython's
frames and bytecode is here.
"""

from __future__ import annotations

import dis
import linecache
import os
import sys
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

import fuser.errors
from fuser import notebook
from fuser.errors import Span
from fuser.record import dataclass

# Libraries whose own Python frames are passed over on the way to the user's line.
LIBRARIES = ("numpy", "scipy", "cupy", "torch", "ml_dtypes")
_OURS = tuple(str(p) + os.sep for p in (Path(fuser.errors.__file__).resolve().parent, Path(__file__).resolve().parent))
_PASSED_OVER = {"CACHE", "COPY", "DUP_TOP", "NOP", "EXTENDED_ARG", "SWAP", "ROT_TWO"}


@dataclass(frozen=True)
class Position:
    """Source range of an instruction: 1-based lines, 0-based character columns; columns -1 where unknown."""

    line: int
    end_line: int
    column: int
    end_column: int


@dataclass
class _Code:
    """What was read off one code object. `code` is kept so that its id stays taken."""

    code: CodeType
    is_users: bool
    instructions: dict[int, dis.Instruction] | None = None
    following: dict[int, dis.Instruction] | None = None
    positions: tuple[tuple[int | None, int | None, int | None, int | None], ...] | None = None


_codes: dict[int, _Code] = {}
_spans: dict[tuple[int, int], Span] = {}


def _facts(code: CodeType) -> _Code:
    found = _codes.get(id(code))
    if found is None:
        found = _codes[id(code)] = _Code(code, _is_users(code.co_filename))
    return found


def _is_users(filename: str) -> bool:
    if filename.startswith(_OURS):
        return False
    loaded = (sys.modules.get(name) for name in LIBRARIES)
    files = (getattr(m, "__file__", None) for m in (np, *loaded) if m is not None)
    return not any(f and filename.startswith(os.path.dirname(f) + os.sep) for f in files)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame, from `frame` outwards, that is not fuser's or an array library's."""
    while frame is not None and not _facts(frame.f_code).is_users:
        frame = frame.f_back
    return frame


def caller(frame: FrameType | None) -> FrameType | None:
    """The user's frame that called a compiled function; None where the command line did."""
    while frame is not None and not _facts(frame.f_code).is_users:
        if frame.f_globals.get("__name__") == "fuser.cli":
            return None
        frame = frame.f_back
    return frame


# -- source ranges ---------------------------------------------------------------------------------
def position_of(frame: FrameType) -> Position:
    """The source range of the instruction that the frame is at."""
    code = frame.f_code
    if sys.version_info >= (3, 11):
        facts = _facts(code)
        if facts.positions is None:
            facts.positions = tuple(code.co_positions())
        line, end_line, column, end_column = facts.positions[frame.f_lasti // 2]
        if line is not None and end_line is not None and column is not None and end_column is not None:
            first, last = (linecache.getline(code.co_filename, n) for n in (line, end_line))
            return Position(line, end_line, _characters(first, column), _characters(last, end_column))
    return Position(frame.f_lineno, frame.f_lineno, -1, -1)


def _characters(text: str, column: int) -> int:
    """Columns of code objects count UTF-8 bytes."""
    return len(text.encode()[:column].decode(errors="ignore"))


def span_of(frame: FrameType) -> Span:
    """The user's place as errors show it."""
    key = (id(frame.f_code), frame.f_lasti)
    span = _spans.get(key)
    if span is None:
        _facts(frame.f_code)
        span = _spans[key] = make_span(frame.f_code.co_filename, position_of(frame))
    return span


def make_span(filename: str, at: Position, note: str = "") -> Span:
    """A span for a range; one over several lines is marked to the end of its first."""
    text = linecache.getline(filename, at.line).rstrip()
    if at.column < 0:
        return Span(shown_name(filename), at.line, 0, 0, text, note)
    end = at.end_column if at.end_line == at.line else len(text)
    return Span(shown_name(filename), at.line, at.column + 1, end + 1, text, note)


def shown_name(filename: str) -> str:
    """A file's name as users see it: relative below the working directory, else its last part; a notebook's cell."""
    if known := notebook.cell(filename):
        return known
    path = Path(filename)
    if filename.startswith("<") or not path.is_absolute():
        return filename
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name


def source_text(frame: FrameType) -> str:
    """The text of the expression the frame is at, on one line; the whole line where columns are unknown."""
    at, filename = position_of(frame), frame.f_code.co_filename
    lines = [linecache.getline(filename, n).rstrip("\n") for n in range(at.line, at.end_line + 1)]
    if at.column >= 0 and lines:
        lines[-1] = lines[-1][: at.end_column]
        lines[0] = lines[0][at.column :]
    return " ".join(" ".join(lines).split())


# -- names -----------------------------------------------------------------------------------------
def _instructions(code: CodeType) -> tuple[dict[int, dis.Instruction], dict[int, dis.Instruction]]:
    """Instructions by offset, and for each offset the next instruction that does something with the result."""
    facts = _facts(code)
    if facts.instructions is None or facts.following is None:
        every = list(dis.get_instructions(code))
        facts.instructions = {i.offset: i for i in every}
        facts.following = {}
        for k, instruction in enumerate(every):
            # 3.11 runs C functions in PRECALL, whose CALL is still to come.
            skipped = _PASSED_OVER | ({"CALL"} if instruction.opname == "PRECALL" else set())
            after = next((i for i in islice(every, k + 1, k + 12) if i.opname not in skipped), None)
            # A frame that called a Python function may stand at the inline caches behind its instruction.
            end = every[k + 1].offset if k + 1 < len(every) else instruction.offset + 2
            for offset in range(instruction.offset, end, 2):
                facts.instructions[offset] = instruction
                if after is not None:
                    facts.following[offset] = after
    return facts.instructions, facts.following


def instruction(frame: FrameType) -> dis.Instruction | None:
    """The instruction the frame is at."""
    return _instructions(frame.f_code)[0].get(frame.f_lasti)


def stored_name(frame: FrameType | None) -> str | None:
    """The variable that the running operation's result is stored to, through `return`s of helper functions."""
    for _ in range(16):
        if frame is None or not _facts(frame.f_code).is_users:
            return None
        after = _instructions(frame.f_code)[1].get(frame.f_lasti)
        if after is None:
            return None
        if after.opname.startswith(("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")):
            return str(after.argval[0] if isinstance(after.argval, tuple) else after.argval)
        if after.opname != "RETURN_VALUE":
            return None
        frame = frame.f_back
    return None


def unpacked_count(frame: FrameType) -> int | None:
    """How many values `a, b = x` asks for, when the frame is at such an unpacking."""
    found = instruction(frame)
    return int(found.arg) if found is not None and found.opname == "UNPACK_SEQUENCE" and found.arg else None
