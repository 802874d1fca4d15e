"""A `.fuse` program as the rest of fuser sees it: functions by name, their signatures, graphs for given arguments.

In: text, or a file. Out: `Program`. All that is independent of arguments (syntax, names, constants, defaults) is
checked when the program is read; `build` needs dtypes and shapes and may be called again for others.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fuser.dtypes import DType
from fuser.errors import ArgumentError, DTypeError, FuserError, InternalError, NameResolutionError
from fuser.frontend import ast, parser
from fuser.frontend.build import Runner
from fuser.frontend.resolve import Names, nearest, resolve
from fuser.frontend.values import Array, Value, describe
from fuser.graph import Builder, Graph
from fuser.hostexpr import ExprKind, HostExpr
from fuser.record import dataclass
from fuser.specs import DTYPE_NAMES, Spec, StaticSpec

Kind = Literal["array", "scalar", "static", "any"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function.

    kind: "array" (annotated with dims or a dtype), "scalar" (`float`, `int`, `bool`, or a number as default),
        "static" (`str`), "any" (the argument decides).
    dtype: the declared one of an array, None if open. weak: the declared kind of a scalar, None if open.
    dims: the declared dims as text, `"..."` in front for any number more; None if open.
    default: MISSING if required. annotation: as written.
    """

    name: str
    kind: Kind
    dtype: DType | None = None
    dims: tuple[str, ...] | None = None
    weak: ExprKind | None = None
    default: Any = MISSING
    keyword_only: bool = False
    annotation: str = ""

    @property
    def required(self) -> bool:
        return self.default is MISSING

    def axis_names(self, rank: int) -> tuple[str | None, ...]:
        """The declared name of each axis of an argument of this rank; None where there is none."""
        dims = self.dims or ()
        named = dims[1:] if dims[:1] == ("...",) else dims
        front = (None,) * max(rank - len(named), 0)
        names = tuple(d if d.isidentifier() and d != "_" else None for d in named)
        return (*front, *names)[:rank]


@dataclass(frozen=True)
class Signature:
    """A function as its callers see it; `str()` is its header, `doc` its docstring as written."""

    name: str
    parameters: tuple[Parameter, ...]
    doc: str
    text: str
    line: int

    def __str__(self) -> str:
        return self.text


class Program:
    """A parsed program; a mapping of names to functions in text order.

    Raises ParseError and NameResolutionError for a text that no arguments could make right.
    """

    def __init__(self, text: str, filename: str = "<string>") -> None:
        self.module = parser.parse(text, filename)
        self.names: Names = resolve(self.module)
        self.constants: dict[str, Value] = {}
        for constant in self.module.constants:
            value = self._constant(constant.value)
            self.constants.update((t.id, value) for t in constant.targets if isinstance(t, ast.Name))
        self.signatures: dict[str, Signature] = {f.name: self._signature(f) for f in self.module.functions}

    @classmethod
    def load(cls, path: str | Path) -> Program:
        """Read a `.fuse` file. Raises ParseError [encoding] (it is not UTF-8), FileError [no-file]."""
        return cls(read_source(path), str(path))

    @classmethod
    def from_lambda(cls, text: str) -> Program:
        """A one-liner, `lambda x, y: 2*x + 3*y**2`: a program of one function named `lambda`."""
        return cls(text, "<lambda>")

    @property
    def filename(self) -> str:
        return self.module.filename

    @property
    def doc(self) -> str:
        """The module's docstring, as written."""
        return self.module.doc

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions, in text order."""
        return tuple(self.signatures)

    @property
    def entry(self) -> str:
        """The function that is meant when none is named: the only one that no other calls.

        Raises ArgumentError [which-function] if there are several or none.
        """
        called = {n.id for f in self.module.functions for s in ast.statements(f.body) for e in ast.expressions(s)
                  for n in ast.walk(e) if isinstance(n, ast.Name)}  # fmt: skip
        roots = [name for name in self.functions if name not in called]
        if len(roots) == 1:
            return roots[0]
        if not roots:
            raise ArgumentError(f"{self.filename} defines no function", "which-function")
        names = ", ".join(f"`{n}`" for n in roots)
        raise ArgumentError(f"{self.filename} defines several functions: {names}", "which-function")

    def signature(self, name: str) -> Signature:
        """Raises NameResolutionError with the nearest name."""
        if name not in self.signatures:
            hint = nearest(name, frozenset(self.signatures))
            near = (hint,) if hint and any(f"`{n}`" in hint for n in self.signatures) else ()
            raise NameResolutionError(f"{self.filename} defines no function `{name}`", "unknown-function", notes=near)
        return self.signatures[name]

    def python_signature(self, name: str) -> inspect.Signature:
        """What binds a call's arguments; annotations as written."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        found = [
            inspect.Parameter(
                p.name, kinds[p.keyword_only], default=inspect.Parameter.empty if p.required else p.default,
                annotation=p.annotation or inspect.Parameter.empty,
            )
            for p in self.signature(name).parameters
        ]  # fmt: skip
        return inspect.Signature(found)

    def dim_names(self, name: str, argument: str, rank: int) -> tuple[str | None, ...]:
        """The declared names of an argument's axes, to be preferred for its symbols."""
        found = next((p for p in self.signature(name).parameters if p.name == argument), None)
        return found.axis_names(rank) if found else (None,) * rank

    def build(self, name: str, arguments: Sequence[Spec]) -> Graph:
        """The graph of a function for one spec a parameter, in order; those left out at the end take their defaults.

        `ArraySpec` makes an argument of the graph (positions count arrays only), `ScalarSpec` the host symbol
        `=name`, `StaticSpec` a value that is built in. `Graph.output_tree` is a `fuser.trees.OutputTree`. Raises
        FuserError subclasses only; NeedsStatic (fuser.construct.common) holds the host expression whose symbols must
        be static to go on.
        """
        signature = self.signature(name)
        specs = self._complete(signature, arguments)
        runner = Runner(self.module, self.names, self.constants, Builder(name))
        graph: Graph = _guarded(lambda: runner.graph(self.names.functions[name], specs), runner)
        return graph

    def _complete(self, signature: Signature, arguments: Sequence[Spec]) -> list[Spec]:
        parameters, given = signature.parameters, list(arguments)
        if len(given) > len(parameters):
            message = f"`{signature.name}` takes {len(parameters)} arguments, not {len(given)}"
            raise ArgumentError(message, "call", notes=(signature.text,))
        for parameter in parameters[len(given) :]:
            if parameter.required:
                message = f"`{signature.name}` also needs `{parameter.name}`"
                raise ArgumentError(message, "call", notes=(signature.text,))
            given.append(StaticSpec(parameter.default))
        return given

    # -- what is known without arguments -----------------------------------------------------------
    def _constant(self, expr: ast.Expr) -> Value:
        """A value known while compiling: a module constant or a default."""
        runner = Runner(self.module, self.names, self.constants, Builder("constants"))
        value = _guarded(lambda: runner.run(runner.constant(expr)), runner)
        if isinstance(value, Array | HostExpr) or callable(value):
            span = self.module.span(expr.place)
            raise DTypeError(f"{describe(runner.b, value)} is not known while compiling", "constant", (span,))
        return value  # type: ignore[no-any-return]

    def _signature(self, f: ast.Function) -> Signature:
        parameters = tuple(self._parameter(p) for p in f.parameters)
        shown = ", ".join(self._shown(p) for p in f.parameters)
        result = f" -> {self.module.excerpt(f.returns.place)}" if f.returns is not None else ""
        return Signature(f.name, parameters, f.doc, f"{f.name}({shown}){result}", f.place.line)

    def _shown(self, p: ast.Parameter) -> str:
        text = " ".join(self.module.excerpt(p.place).split())
        return f"*, {text}" if p.keyword_only else text

    def _parameter(self, p: ast.Parameter) -> Parameter:
        default = MISSING if p.default is None else self._constant(p.default)
        text = "" if p.annotation is None else self.module.excerpt(p.annotation.place)
        common: dict[str, Any] = {"default": default, "keyword_only": p.keyword_only, "annotation": text}
        match p.annotation:
            case ast.ArrayType() as t:
                dims = tuple("..." if d is None else self.module.excerpt(d.place) for d in t.dims)
                return Parameter(p.name, "array", DTYPE_NAMES[t.dtype] if t.dtype else None, dims, **common)
            case ast.WeakType() as w:
                return Parameter(p.name, "scalar", weak=w.kind, **common)  # type: ignore[arg-type]
            case ast.StaticType():
                return Parameter(p.name, "static", **common)
        if isinstance(default, bool | int | float):
            return Parameter(p.name, "scalar", weak=type(default).__name__, **common)  # type: ignore[arg-type]
        return Parameter(p.name, "static" if isinstance(default, str) else "any", **common)


def read_source(path: str | Path) -> str:
    """The text of a `.fuse` file. Raises ParseError [encoding] (it is not UTF-8), FileError [no-file]."""
    return parser.read(path)


def _guarded(task: Any, runner: Runner) -> Any:
    """Run a task; whatever is not fuser's own error is a fault of fuser, and says so with the user's line."""
    try:
        return task()
    except FuserError:
        raise
    except Exception as error:
        spans = (runner.b.span,) if runner.b.span else ()
        message = f"building failed: {type(error).__name__}: {error}"
        raise InternalError(message, "internal", spans, ("please report this program",)) from error
