"""Names: what each one in a program refers to, before anything is built.

In: a parsed module. Out: the local names of every function, or NameResolutionError with the nearest name; calls
that lead back to their own function are refused (functions are inlined). Apart from building, so that a program
with a misspelt name is refused when it is read, whichever of its functions is called first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache

from fuser.errors import NameResolutionError, ParseError, Span
from fuser.frontend import advice, ast
from fuser.frontend.values import Builtin, PythonType, Value
from fuser.optable import table
from fuser.optable.base import Row
from fuser.record import dataclass
from fuser.specs import DTYPE_NAMES

_PREFIXES = ("np", "numpy", "cp", "cupy", "torch", "math", "jnp", "jax", "scipy", "fuser", "F")
_ELSEWHERE = {
    "print": "a program has no output but its results",
    "input": "a program has no input but its parameters",
    "enumerate": "write `for i in range(4):` and index",
    "zip": "write `for i in range(4):` and index",
    "self": "a program has no classes",
}


@dataclass(frozen=True)
class Scope:
    """The names of one function that are its own."""

    parameters: frozenset[str]
    dims: frozenset[str]
    assigned: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.parameters or name in self.dims or name in self.assigned


NO_SCOPE = Scope(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True)
class Names:
    """What a module defines. `scopes` by function name."""

    functions: Mapping[str, ast.Function]
    scopes: Mapping[str, Scope]


@cache
def builtins() -> Mapping[str, Value]:
    """Names that need no definition, operators of the table apart."""
    values: dict[str, Value] = {"pi": math.pi, "inf": math.inf, "nan": math.nan, "newaxis": None}
    values |= DTYPE_NAMES
    values |= {"float": PythonType("float"), "int": PythonType("int"), "bool": PythonType("bool")}
    values |= {name: Builtin(name) for name in ("len", "range", "copy", "must_fuse", "no_fuse")}
    return values


def predefined(name: str) -> Value:
    """The value of a name that a program does not define. KeyError if there is none."""
    found = builtins()
    if name in found:
        return found[name]
    row = operator_named(name)
    if row is None:
        raise KeyError(name)
    return row


def operator_named(name: str) -> Row | None:
    """The operator of the table that a program means: by its name in the language, else by NumPy's."""
    return table().find("dsl", name) or table().find("numpy", name)


def is_predefined(name: str) -> bool:
    """Whether a program may use a name that it does not define: of the language, or of an operator."""
    return name in builtins() or operator_named(name) is not None


def resolve(module: ast.Module) -> Names:
    """Check every name of a module. Raises NameResolutionError [unknown-name], ParseError [recursion], [dim-name]."""
    functions = {f.name: f for f in module.functions}
    constants = [t.id for c in module.constants for t in c.targets if isinstance(t, ast.Name)]
    scopes = {f.name: _scope(module, f) for f in module.functions}
    known = frozenset(functions) | frozenset(constants)
    unknown: list[tuple[ast.Name, frozenset[str]]] = []
    before: set[str] = set()
    for c in module.constants:
        unknown += [(n, frozenset(before)) for n in _loads(c.value) if n.id not in before and not is_predefined(n.id)]
        before.update(t.id for t in c.targets if isinstance(t, ast.Name))
    for f in module.functions:
        scope = scopes[f.name]
        inner = known | scope.parameters | scope.dims | scope.assigned
        unknown += [(n, inner) for n in _names(f) if n.id not in inner and not is_predefined(n.id)]
        outer = frozenset(constants)
        unknown += [(n, outer) for n in _defaults(f) if n.id not in outer and not is_predefined(n.id)]
    if unknown:
        raise _unknown(module, unknown)
    _refuse_recursion(module, functions, scopes)
    return Names(functions, scopes)


def _scope(module: ast.Module, f: ast.Function) -> Scope:
    parameters = frozenset(p.name for p in f.parameters)
    dims = {n.id: n for p in f.parameters if p.annotation for n in dim_names(p.annotation)}
    dims |= {n.id: n for n in (dim_names(f.returns) if f.returns else ()) if n.id not in dims}
    for p in f.parameters:
        if p.name in dims:
            spans = (module.span(dims[p.name].place), module.span(p.place))
            raise ParseError(f"`{p.name}` is both a dim and a parameter", "dim-name", spans, ("rename one of them",))
    assigned = {n.id for s in ast.statements(f.body) for n in _stores(s)}
    return Scope(parameters, frozenset(dims) - {"_"}, frozenset(assigned))


def dim_names(annotation: ast.Annotation) -> Iterator[ast.Name]:
    """Names used as dims, in text order."""
    if isinstance(annotation, ast.TupleType):
        for item in annotation.items:
            yield from dim_names(item)
    elif isinstance(annotation, ast.ArrayType):
        for dim in annotation.dims:
            yield from (n for n in ast.walk(dim) if isinstance(n, ast.Name)) if dim is not None else ()


def _stores(statement: ast.Statement) -> Iterator[ast.Name]:
    """Names that a statement binds."""
    targets: tuple[ast.Expr, ...] = ()
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.Update | ast.For):
        targets = (statement.target,)
    stack = list(targets)
    while stack:
        target = stack.pop()
        if isinstance(target, ast.Items):
            stack.extend(target.items)
        elif isinstance(target, ast.Name):
            yield target


def _names(f: ast.Function) -> Iterator[ast.Name]:
    """Every name that a function's body mentions; those it binds are its own anyway."""
    for s in ast.statements(f.body):
        for e in ast.expressions(s):
            yield from _loads(e)


def _defaults(f: ast.Function) -> Iterator[ast.Name]:
    for p in f.parameters:
        if p.default is not None:
            yield from _loads(p.default)


def _loads(expr: ast.Expr) -> Iterator[ast.Name]:
    return (n for n in ast.walk(expr) if isinstance(n, ast.Name))


def _unknown(module: ast.Module, unknown: list[tuple[ast.Name, frozenset[str]]]) -> NameResolutionError:
    unknown.sort(key=lambda item: (item[0].place.line, item[0].place.column))
    name, own = unknown[0]
    spans = tuple(module.span(n.place) for n, _ in unknown if n.id == name.id)[:3]
    hints = [hint] if (hint := nearest(name.id, own)) else []
    others = dict.fromkeys(f"`{n.id}` (line {n.place.line})" for n, _ in unknown if n.id != name.id)
    if others:
        hints.append("also unknown: " + ", ".join(list(others)[:8]))
    return NameResolutionError(f"nothing is named `{name.id}`", "unknown-name", spans, hints)


def nearest(name: str, own: frozenset[str]) -> str | None:
    """A hint for an unknown name: what is meant elsewhere by it, or the most similar known one."""
    if name in _PREFIXES:
        return f"operators need no prefix: write `exp(x)` for `{name}.exp(x)`"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    offered = [*builtins(), *table().names("dsl"), *table().names("numpy")]
    if name in advice.WAYS:
        return f"NumPy's has no operator here: {advice.WAYS[name]}"
    near = get_close_matches(name, sorted(own), n=1) or get_close_matches(name, offered, n=1)
    return f"did you mean `{near[0]}`?" if near else None


def unknown_attribute(span: Span, what: str, name: str, known: list[str]) -> NameResolutionError:
    """The error for `x.name` that does not exist."""
    near = get_close_matches(name, [k for k in known if not k.startswith("_")], n=1)
    hints = (f"did you mean `.{near[0]}`?",) if near else ()
    return NameResolutionError(f"{what} has no `.{name}`", "unknown-method", (span,), hints)


def _refuse_recursion(module: ast.Module, functions: Mapping[str, ast.Function], scopes: Mapping[str, Scope]) -> None:
    """Depth-first over who mentions whom; iterative."""
    mentions = {
        f.name: [n for n in _names(f) if n.id in functions and n.id not in scopes[f.name]] for f in functions.values()
    }
    done: set[str] = set()
    for root in functions:
        path = [root]
        iterators = [iter(mentions[root])]
        while iterators:
            name = next(iterators[-1], None)
            if name is None:
                iterators.pop()
                done.add(path.pop())
            elif name.id in path:
                chain = " -> ".join((*path[path.index(name.id) :], name.id))
                message = f"`{name.id}` calls itself: {chain}"
                hint = "functions are inlined; write a loop `for i in range(4):`"
                raise ParseError(message, "recursion", (module.span(name.place),), (hint,))
            elif name.id not in done:
                path.append(name.id)
                iterators.append(iter(mentions[name.id]))
