"""fuser's own errors: one class a kind of mistake, one slug a message, a location and a way out.

In: what went wrong, where in the user's source, and a hint. Out: exceptions whose text has the shape

    ShapeError: `d` is 4096 from `x` but 1024 from `w`              [dim-clash]
      norms.fuse:1  def rms_norm(x: bf16[..., d], w: bf16[d])
                                              ^           ^
      hint ...

Each class also subclasses the Python or NumPy exception a caller would expect. A slug is the anchor
of the error's paragraph in docs/errors.md.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from fuser.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 64  # column of the slug in the first line
LINE = 110  # characters of a source line that are shown


@dataclass(frozen=True)
class Span:
    """A place in the user's source: 1-based line, 1-based columns [column, end_column); 0 means unknown.

    `note` is shown behind the carets and says what stands there.
    """

    filename: str
    line: int
    column: int = 0
    end_column: int = 0
    text: str = ""
    note: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        cell = self.filename.startswith("In [")
        return f"{self.filename}, line {self.line}" if cell else f"{self.filename}:{self.line}"


def underline(spans: Sequence[Span]) -> list[str]:
    """Source lines with carets under the spans; spans of one line share it. A long line is cropped."""
    lines: list[str] = []
    done: set[tuple[str, int]] = set()
    for span in spans:
        place = (span.filename, span.line)
        if place in done:
            continue
        done.add(place)
        head = f"  {span.where}  "
        marks = [s for s in spans if (s.filename, s.line) == place and s.column]
        shown, cut = _cropped(span.text.rstrip(), min((s.column for s in marks), default=1))
        lines.append(head + shown)
        if marks:
            row = [" "] * len(shown) + [" "]
            for s in marks:
                for c in range(s.column - 1 - cut, max(s.end_column, s.column + 1) - 1 - cut):
                    if 0 <= c < len(row):
                        row[c] = "^"
            note = "; ".join(s.note for s in marks if s.note)
            lines.append((" " * len(head) + "".join(row).rstrip() + " " + note).rstrip())
    return lines


def _cropped(source: str, column: int) -> tuple[str, int]:
    """A source line without its indentation, at most LINE characters around a column, and how many lie before them."""
    cut = len(source) - len(source.lstrip())
    if len(source) - cut <= LINE:
        return source[cut:], cut
    left = max(cut, min(column - 1 - LINE // 3, len(source) - LINE))
    return source[left : left + LINE], left


class FuserError(Exception):
    """Base of all errors that fuser raises on purpose.

    message: one sentence, names in backticks. slug: anchor in docs/errors.md. spans: source places to
    underline. notes: further lines (hints, ways out), each already phrased.
    """

    def __init__(self, message: str, slug: str, spans: Sequence[Span] = (), notes: Sequence[str] = ()) -> None:
        self.message, self.slug = message, slug
        self.spans, self.notes = tuple(spans), tuple(notes)
        super().__init__(message)

    def __str__(self) -> str:
        head = self.message
        room = WIDTH - len(type(self).__name__) - 2
        lines = [f"{head:<{room}} [{self.slug}]"]
        lines += underline(self.spans)
        lines += [f"  {n}" for n in self.notes]
        return "\n".join(lines)

    def with_context(self, spans: Sequence[Span] = (), notes: Sequence[str] = ()) -> FuserError:
        """The same error with places and notes added by a caller that knows more."""
        self.spans += tuple(s for s in spans if s not in self.spans)
        self.notes += tuple(notes)
        return self


class ParseError(FuserError, SyntaxError):
    """The `.fuse` text does not follow the grammar."""

    def __str__(self) -> str:
        return FuserError.__str__(self)


class NameResolutionError(FuserError, NameError):
    """A name that nothing defines; the message has the nearest one."""


class TraceError(FuserError, ValueError):
    """Python code asked a traced array for something known only at run time."""


class TraceTypeError(FuserError, TypeError):
    """A traced value was used where its type does not belong."""


class ShapeError(FuserError, ValueError):
    """Ranks or dims do not agree."""


class DTypeError(FuserError, TypeError):
    """An operator does not take these dtypes."""


class IndexingError(FuserError, IndexError):
    """An index out of range or of a kind that cannot be traced."""


class ArgumentError(FuserError, TypeError):
    """A compiled function was called with arguments that do not fit."""


class UnsupportedError(FuserError, NotImplementedError):
    """Calls that have no operator; all of them in one message."""


class ComplexError(UnsupportedError, TypeError):
    """An operator that complex numbers do not have."""


class FileError(FuserError, FileNotFoundError):
    """A program's file is not there."""


class DeviceError(FuserError, RuntimeError):
    """The asked-for device does not exist or cannot be used; or arrays of several devices are mixed."""


class CompileForbidden(FuserError, RuntimeError):
    """A kernel is not in the cache, and the settings forbid to compile it."""


class OutOfMemory(FuserError, MemoryError):
    """The device has no room for a call's results and temporaries."""


class GradientError(FuserError, RuntimeError):
    """A torch tensor that requires grad: fuser has no gradients yet."""


class FusionLost(FuserError, AssertionError):
    """A plan has more kernels than the caller's `expect_kernels` allows."""


class CheckFailed(FuserError, AssertionError):
    """`Compiled.check` found a difference from the reference."""


class OverflowArgumentError(FuserError, OverflowError):
    """A Python integer that does not fit the dtype it meets, as NumPy 2 raises per call."""


class InternalError(FuserError, AssertionError):
    """fuser broke one of its own invariants (a verifier's findings are in the notes): please report it."""
