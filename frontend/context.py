"""One trace in progress: its builder, the user's current line, hidden inputs, and what had to be refused.

In: operations as the tracers meet them. Out: nodes with spans and names; `Specialize` when Python needs a number
that only a call knows. Its own file because arrays, scalars, protocols and shims all share it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from fuser.construct.common import fail
from fuser.dtypes import find
from fuser.errors import DTypeError, FuserError, Span, TraceError, UnsupportedError
from fuser.frontend import conditions, locations
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr
from fuser.record import dataclass

LONGEST = 100_000  # nodes of one trace; a Python loop that makes more would take minutes to plan and compile


class Specialize(BaseException):
    """Python asked for the value of a run-time scalar or dim: trace again with `expr`'s symbols static.

    Not an `Exception`, so that a user's `except Exception:` cannot swallow it.
    """

    def __init__(self, what: str, expr: HostExpr, span: Span | None) -> None:
        super().__init__(what)
        self.what, self.expr, self.span = what, expr, span


@dataclass(frozen=True)
class Captured:
    """A hidden input: an array that the function reads from outside, or made itself of constants.

    `get` gives its current value; `path` says where it lives (`W`, `self.w`), "" for a constant of the trace.
    """

    path: str
    get: Callable[[], Any]

    @property
    def is_constant(self) -> bool:
        return not self.path


@dataclass(frozen=True)
class Refusal:
    """A call without an operator."""

    text: str
    advice: str
    span: Span | None
    kind: type[UnsupportedError] = UnsupportedError


class Context:
    """The state of one trace.

    `known` maps the id of an outside array to its `Captured`; `calls` counts what the program called; `env` holds the
    dims of the call that asked for the trace, if there is one: conditions on dims may then become guards.
    """

    def __init__(self, name: str, env: Mapping[str, Any] | None = None) -> None:
        self.name, self.env = name, env
        self.torch = False  # a function of torch tensors: torch's methods, promotion and names
        self.b = Builder(name)
        self.calls = 0
        self.asked: set[Any] = set()  # places where a refused call's result was tested
        self._mark = 0
        self.refusals: list[Refusal] = []
        self.needs_contiguous: set[int] = set()
        self.captured: list[Captured] = []
        self.known: dict[int, Captured] = {}
        self._inputs: dict[int, tuple[Any, Any, Node]] = {}  # id -> (array, its content then, input node)

    # -- places and names --------------------------------------------------------------------------
    def enter(self) -> FrameType | None:
        """Note that an operation starts: the builder's span becomes the user's line, whose frame is returned."""
        frame = locations.user_frame(sys._getframe(1))
        if frame is not None:
            self.b.span = locations.span_of(frame)
        if len(self.b.nodes) > LONGEST:
            message = f"`{self.name}` makes more than {LONGEST} operations: its loops are unrolled while tracing"
            ways = ("write the loop over a whole axis", "call the compiled body from a Python loop")
            fail(self.b, TraceError, message, "trace-size", *ways)
        self.calls += 1
        self._mark = len(self.b.nodes)
        return frame

    def label(self, node: Node, frame: FrameType | None) -> str | None:
        """Name a result after the variable it is stored to."""
        name = locations.stored_name(frame)
        if name is not None:
            self.name_node(node, name)
        return name

    def name_node(self, node: Node, name: str) -> None:
        """Note a name on a node, and on the operator of the same call that it only rearranges (keepdims)."""
        while node.op not in ("input", "scalar"):
            self.b.label(node, name)
            if node.op not in ("view", "cast", "item") or node.inputs[0].id < self._mark:
                break
            node = node.inputs[0]

    # -- outside arrays ----------------------------------------------------------------------------
    def outside(self, array: Any) -> Node:
        """The hidden input for an outside array or tensor; one changed since it was last used is another input."""
        found = self._inputs.get(id(array))
        if found is not None and (id(array) in self.known or _same_content(found[1], array)):
            return found[2]
        dtype = find(str(array.dtype).removeprefix("torch."))
        if dtype is None:
            message = f"an array of dtype {array.dtype} is used: not supported"
            fail(self.b, DTypeError, message, "dtype")
        captured = self.known.get(id(array))
        content = array
        if captured is None:
            content = array.copy()
            captured = Captured("", lambda: content)
        node = self.b.argument(self._fresh(captured.path or "constant"), dtype, tuple(array.shape), captured=True)
        self.captured.append(captured)
        self._inputs[id(array)] = (array, content, node)
        return node

    def _fresh(self, name: str) -> str:
        taken = {a.name for a in self.b.arguments}
        if name not in taken:
            return name
        return next(f"{name}.{k}" for k in range(2, len(taken) + 3) if f"{name}.{k}" not in taken)

    def position(self, node: Node) -> int:
        """The argument number of an input node."""
        return next(k for k, a in enumerate(self.b.arguments) if self._is_input(node, k))

    def _is_input(self, node: Node, position: int) -> bool:
        return getattr(node.attrs, "position", None) == position

    # -- what cannot be --------------------------------------------------------------------------------
    def specialize(self, what: str, expr: HostExpr) -> NoReturn:
        """Ask for a trace with the symbols of `expr` known."""
        frame = locations.user_frame(sys._getframe(1))
        raise Specialize(what, expr, locations.span_of(frame) if frame is not None else self.b.span)

    def refuse(
        self, frame: FrameType | None, advice: str, text: str = "", span: Span | None = None,
        kind: type[UnsupportedError] = UnsupportedError,
    ) -> None:  # fmt: skip
        """Collect a call without an operator; the trace goes on to find the others."""
        span = locations.span_of(frame) if frame is not None else span or self.b.span
        shown = locations.source_text(frame) if frame is not None else text
        if text and text.rpartition(".")[2] not in shown:  # called through another name
            shown = f"{shown} ({text})" if shown else text
        refusal = Refusal(shown, advice, span, kind)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def unreached(self, text: str, advice: str, span: Span) -> None:
        """Add a call that the trace did not come to, unless a refusal is about it."""
        if not any(r.span is not None and r.span.where == span.where and r.text in (text, "") for r in self.refusals):
            self.refusals.append(Refusal(text, advice, span))

    def ask(self, keyword: str, needs: str, what: str, slug: str, *notes: str) -> TraceError:
        """The error for Python asking a traced array for a value: `keyword` names the question if the source cannot."""
        frame = locations.user_frame(sys._getframe(1))
        q = conditions.ask(frame, keyword, f"{what}, known only at run time")
        is_what = "is an array" if "[" in what else "is known only at run time"
        message = f"{q.keyword} needs {needs}; `{q.subject}` {is_what}"
        return TraceError(message, slug, (q.where,), q.notes or notes)

    def failure(self) -> UnsupportedError | None:
        """All refused calls as one error, in the order of the program."""
        if not self.refusals:
            return None
        count = len(self.refusals)
        width = max(len(r.text) for r in self.refusals)
        places = [r.span.where if r.span else "" for r in self.refusals]
        room = max(map(len, places))
        lines = [f"{p:<{room}}  {r.text:<{width}}  {r.advice}" for p, r in zip(places, self.refusals, strict=True)]
        of = f"{count} of {max(self.calls, count)} calls in `{self.name}`"
        kinds = {r.kind for r in self.refusals}
        kind = kinds.pop() if len(kinds) == 1 else UnsupportedError
        return kind(f"{of} {'has' if count == 1 else 'have'} no operator", "unsupported-call", (), lines)

    def located(self, error: FuserError, frame: FrameType | None) -> FuserError:
        """The error with the user's line, where it has no place yet."""
        if not error.spans and frame is not None:
            error.spans = (replace(locations.span_of(frame)),)
        return error


def _same_content(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# -- the trace that is running in this thread --------------------------------------------------------
class _Running(threading.local):
    def __init__(self) -> None:
        self.stack: list[Context] = []


_running = _Running()


def current() -> Context | None:
    """The innermost trace running in this thread."""
    return _running.stack[-1] if _running.stack else None


class tracing:
    """Makes a context the current one."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def __enter__(self) -> Context:
        _running.stack.append(self.context)
        return self.context

    def __exit__(self, *_: object) -> None:
        _running.stack.pop()
