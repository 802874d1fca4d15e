"""The public functions, and the one place where front ends are wired to the rest (`wiring` joins what lies behind).

In: Python functions and `.fuse` text. Out: `Compiled` objects. Lark is imported when it is first needed.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fuser.compiled import Compiled
from fuser.errors import ArgumentError, DTypeError, NameResolutionError, ParseError, ShapeError
from fuser.quick import Watch
from fuser.shapes import text_of
from fuser.source import Options, Text
from fuser.specs import ArraySpec, concrete, dim_names_of
from fuser.wiring import load as load_compiler
from fuser.wiring import toolchain

if TYPE_CHECKING:
    from fuser.graph import Graph
    from fuser.specs import Spec


@overload
def compile(
    fn: None = None,
    *,
    device: str | None = None,
    fast_math: bool = False,
    rounding: str = "graph",
    static_argnames: Sequence[str] = (),
    expect_kernels: int | None = None,
    tune: bool = False,
    cuda_graph: bool = False,
) -> Callable[[Callable[..., Any]], Compiled]: ...
@overload
def compile(
    fn: Callable[..., Any] | str,
    *,
    device: str | None = None,
    fast_math: bool = False,
    rounding: str = "graph",
    static_argnames: Sequence[str] = (),
    expect_kernels: int | None = None,
    tune: bool = False,
    cuda_graph: bool = False,
) -> Compiled: ...
def compile(
    fn: Callable[..., Any] | str | None = None,
    *,
    device: str | None = None,
    fast_math: bool = False,
    rounding: str = "graph",
    static_argnames: Sequence[str] = (),
    expect_kernels: int | None = None,
    tune: bool = False,
    cuda_graph: bool = False,
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a NumPy function, or a one-line program such as `"lambda x, y: 2*x + 3*y**2"`. Also a decorator.

    device: None runs where the arrays live; "cpu" or "cuda" insists. fast_math: permits contraction and approximate
    instructions. rounding: "graph" rounds half precision at casts and results, "each-op" after every operator as NumPy
    does. static_argnames: arguments that are part of the key. expect_kernels: raise FusionLost if a plan has more.
    tune: the first call of a size class measures schedules beside the formula's, unless the disk cache has the outcome.
    cuda_graph: on a GPU, replay the kernels of a call as one CUDA graph.
    """
    names = static_argnames if isinstance(static_argnames, str) else tuple(static_argnames)
    options = Options(device, fast_math, rounding, names, expect_kernels, tune, cuda_graph)
    if fn is None:
        return lambda function: Compiled(_PythonSource(function), options, toolchain)
    if isinstance(fn, Compiled):
        raise ArgumentError(
            f"`{fn.__name__}` is compiled already", "compiled", notes=["change options: f.with_options(...)"]
        )
    if isinstance(fn, str):
        return Compiled(_one_liner(fn), options, toolchain)
    if not callable(fn):
        raise ArgumentError(f"compile takes a function or text; this is of type {type(fn).__name__}", "not-callable")
    return Compiled(_PythonSource(fn), options, toolchain)


class ProgramFile:
    """The functions of a `.fuse` program: `prog["name"]` or `prog.name` is a `Compiled`."""

    def __init__(self, text: str, filename: str) -> None:
        from fuser.frontend.program import Program

        self._program = Program(text, filename)
        self.filename = filename
        self._compiled: dict[str, Compiled] = {}

    def __getitem__(self, name: str) -> Compiled:
        if name not in self._program.functions:
            raise _no_function(name, self.filename, list(self._program.functions))
        if name not in self._compiled:
            self._compiled[name] = Compiled(_DslSource(self._program, name), Options(), toolchain)
        return self._compiled[name]

    def __getattr__(self, name: str) -> Compiled:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except NameResolutionError as error:
            raise AttributeError(str(error)) from error

    @property
    def entry(self) -> str:
        """The function that is meant when none is named: the only one that no other calls.

        Raises ArgumentError [which-function]. A function that is itself called `entry` is `prog["entry"]`.
        """
        return str(self._program.entry)

    def __iter__(self) -> Any:
        return iter(self._program.functions)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._program.functions]

    def __repr__(self) -> str:
        return f"<fuser program {self.filename}: {', '.join(self)}>"


def _no_function(name: str, filename: str, known: list[str]) -> NameResolutionError:
    hint = nearest(name, known) or f"it has {', '.join(known) or 'none'}"
    return NameResolutionError(f"{filename} has no function `{name}`", "unknown-function", notes=[hint])


def nearest(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name; empty where nothing is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{near[0]}`?" if near else ""


def must_fuse(*values: Any) -> None:
    """In a program: these values are computed by one kernel, or planning raises FusionLost with the reason.

    It merges also where that is predicted not to pay. Outside a trace it does nothing.
    """
    from fuser.frontend.marks import mark

    mark(True, values)


def no_fuse(*values: Any) -> None:
    """In a program: no two of these values are computed by one kernel. Outside a trace it does nothing."""
    from fuser.frontend.marks import mark

    mark(False, values)


def parse(text: str, filename: str = "<string>") -> ProgramFile:
    """A `.fuse` program from text; ParseError with line, column and caret where it is not one."""
    return ProgramFile(text, filename)


def load(path: str | Path) -> ProgramFile:
    """A `.fuse` program from a file (UTF-8)."""
    from fuser.frontend.program import read_source

    return ProgramFile(read_source(path), str(path))


def reference(fn: Callable[..., Any] | Compiled | str) -> Callable[..., Any]:
    """The meaning of a program: the same graph evaluated node by node with NumPy, nothing fused."""
    return (fn if isinstance(fn, Compiled) else compile(fn)).reference


def _one_liner(text: str) -> _DslSource:
    from fuser.frontend.program import Program

    if text.endswith(".fuse"):
        raise ArgumentError(
            f"compile({text!r}) takes a program, not a file name",
            "file-name",
            notes=["did you mean fuser.load?"],
        )
    program = Program.from_lambda(text) if text.lstrip().startswith("lambda") else Program(text, "<string>")
    names = list(program.functions)
    if len(names) != 1:
        raise ParseError(
            f"the text defines {len(names)} functions", "one-function", notes=["use fuser.parse for several"]
        )
    return _DslSource(program, names[0])


class _PythonSource:
    """A Python function as a `Source`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        load_compiler()
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)

    @property
    def signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self.fn)
        except ValueError:  # some built-in functions and classes have none
            hint = f"wrap it: lambda x: {self.name}(x)"
            raise ArgumentError(f"`{self.name}` has no signature", "not-callable", notes=[hint]) from None

    def trace(self, names: Sequence[str], specs: Sequence[Spec], tree: Any, env: Mapping[str, Any]) -> Graph:
        from fuser.frontend.trace import trace

        return trace(self.fn, names, specs, tree, env)

    def captured(self, graph: Graph) -> Sequence[Any]:
        from fuser.frontend.capture import captured_arrays

        return captured_arrays(self.fn, graph)

    def state(self, statics: Mapping[str, Any] | None = None) -> Any:
        from fuser.frontend.capture import snapshot

        return snapshot(self.fn, statics)

    def watch(self) -> Watch | None:
        from fuser.frontend.watch import watch

        return watch(self.fn)

    def reference(self) -> Callable[..., Any]:
        return self.fn

    def bound_to(self, owner: Any) -> _PythonSource:
        return _PythonSource(types.MethodType(self.fn, owner))

    def pickled(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if isinstance(self.fn, types.MethodType):
            return _method_source, (self.fn.__self__, self.fn.__name__)
        return _PythonSource, (self.fn,)

    def dim_names(self, leaf: str, rank: int) -> Sequence[str | None]:
        """Names from an annotation such as `x: "f32[n, d]"`."""
        annotation = getattr(self.fn, "__annotations__", {}).get(leaf)
        return dim_names_of(annotation, rank)


def _method_source(owner: Any, name: str) -> Any:
    """A pickled method again; where the class has it compiled, that is what its object gives by this name."""
    found = getattr(owner, name)
    return found._source if isinstance(found, Compiled) else _PythonSource(found)


class _DslSource(Text):
    """A function of a `.fuse` program as a `Source`."""

    def __init__(self, program: Any, name: str) -> None:
        self.program, self.name = program, name

    @property
    def signature(self) -> inspect.Signature:
        found: inspect.Signature = self.program.python_signature(self.name)
        return found

    def trace(self, names: Sequence[str], specs: Sequence[Spec], tree: Any, env: Mapping[str, Any]) -> Graph:
        try:
            graph: Graph = self.program.build(self.name, specs)
        except (ShapeError, DTypeError) as error:
            error.with_context(notes=[_the_call(specs, env)])
            raise
        return graph

    def reference(self) -> Callable[..., Any]:
        return self.trace

    def pickled(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        module = self.program.module
        return _dsl_source, (module.text, module.filename, self.name)

    def dim_names(self, leaf: str, rank: int) -> Sequence[str | None]:
        names: Sequence[str | None] = self.program.dim_names(self.name, leaf, rank)
        return names


def _the_call(specs: Sequence[Spec], env: Mapping[str, Any]) -> str:
    """`called at train.py:88 with bf16[8, 4096], bf16[1024]`."""
    from fuser.frontend import locations

    frame = locations.caller(sys._getframe())
    shown = [f"{s.dtype}{text_of(concrete(s, env))}" if isinstance(s, ArraySpec) else str(s) for s in specs]
    return f"called {f'at {locations.span_of(frame).where} ' if frame else ''}with {', '.join(shown)}"


def _dsl_source(text: str, filename: str, name: str) -> _DslSource:
    """A pickled `.fuse` function again."""
    from fuser.frontend.program import Program

    return _DslSource(Program(text, filename), name)


class _Ops:
    """`fuser.ops`: every composite and function of the table, callable inside programs and on plain arrays."""

    def __getattr__(self, name: str) -> Any:
        from fuser.optable import table

        row = table().find("dsl", name)
        if row is None:
            hint = nearest(name, table().names("dsl"))
            raise AttributeError(f"fuser.ops has no `{name}`" + (hint and f": {hint}"))
        from fuser.frontend.protocols import public_function

        return public_function(row)

    def __dir__(self) -> list[str]:
        from fuser.optable import table

        return sorted(table().names("dsl"))


ops = _Ops()
