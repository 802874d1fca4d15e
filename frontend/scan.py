"""The calls in a Python function that have no operator, found in its text before anything runs.

In: source text and a function's name. Out: `Finding`s with place, text and the nearest way to write it, for the
function and the functions of the file that it calls. What depends on values (a mask's selection, an `if` on an array)
shows only when the function is traced; a method is judged by its name alone.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.testing.overrides import get_overridable_numpy_array_functions

from fuser.errors import ParseError, Span, UnsupportedError
from fuser.frontend import advice, numpy_functions, shims, torch_methods, torch_shim
from fuser.frontend.locations import Position, make_span
from fuser.frontend.protocols import function_name
from fuser.optable import table
from fuser.record import dataclass

# Methods of arrays that neither move to a NumPy function of the same name nor exist here.
METHODS = frozenset({
    "argpartition", "argsort", "byteswap", "compress", "dump", "dumps", "item", "itemset", "nonzero", "partition",
    "put", "resize", "setfield", "setflags", "sort", "tobytes", "tofile", "tolist",
})  # fmt: skip
_CLOCKS = ("time", "random", "secrets", "uuid", "datetime")
_TORCH_PLAIN = frozenset(
    ["device", "dtype", "finfo", "iinfo", "no_grad", "inference_mode", "enable_grad", "is_tensor", "Size", "compile"]
)


@dataclass(frozen=True)
class Finding:
    """One call without an operator."""

    line: int
    column: int
    text: str
    advice: str


def scan(text: str, filename: str, function: str) -> list[Finding]:
    """Findings of one function and of what it calls in the same file, in the order of the text."""
    try:
        module = ast.parse(text, filename)
    except SyntaxError as error:
        place = Span(filename, error.lineno or 1, error.offset or 1, (error.offset or 1) + 1, error.text or "")
        raise ParseError(error.msg, "syntax", (place,)) from None
    functions = {n.name: n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)}
    if function not in functions:  # a lambda, or none: whoever looks the name up will say
        return []
    names = imports(module)
    pending, seen, found = [function], {function}, []
    while pending:
        for call in _calls(functions[pending.pop()]):
            if isinstance(call.func, ast.Name) and call.func.id in functions and call.func.id not in seen:
                seen.add(call.func.id)
                pending.append(call.func.id)
            hint = _hint(call, names)
            if hint:
                shown = ast.get_source_segment(text, call) or ast.unparse(call)
                found.append(Finding(call.lineno, call.col_offset + 1, " ".join(shown.split()), hint))
    return sorted(set(found), key=lambda f: (f.line, f.column))


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    return (n for n in ast.walk(function) if isinstance(n, ast.Call))


def imports(module: ast.Module) -> dict[str, str]:
    """What names mean by the file's imports: `np` is `numpy`, `exp` is `numpy.exp`."""
    names: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _hint(call: ast.Call, names: dict[str, str]) -> str:
    """The nearest way to write a call; "" if it traces, as far as its text tells."""
    parts = _dotted(call.func)
    if not parts:
        return ""
    if parts[0] not in names:
        method = len(parts) > 1 and parts[-1] in METHODS
        return advice.unsupported(f"ndarray.{parts[-1]}") if method else ""
    library, _, name = ".".join((names[parts[0]], *parts[1:])).partition(".")
    if library in _CLOCKS:
        return "gives its first value at every call: pass the value as an argument"
    judge = {"numpy": _numpy, "cupy": _numpy, "torch": _torch, "scipy": _scipy}.get(library)
    return judge(name) if judge and name else ""


def _dotted(node: ast.expr) -> list[str]:
    """`np.linalg.norm` as its parts; [] for a call of a call or a subscript, except as a method."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "()")
    return parts[::-1]


def traces(name: str) -> bool:
    """Whether NumPy's function `name` (`sum`, `linalg.norm`) has an operator."""
    own = name in numpy_functions.OWN or name in shims.BY_ROW or name in shims.OWN
    return own or table().find("numpy", name) is not None


def _numpy(name: str) -> str:
    first, _, rest = name.partition(".")
    if first == "random":
        return advice.NUMPY_RANDOM
    value: Any = np
    for part in name.split("."):
        value = getattr(value, part, None)
    if isinstance(value, np.ufunc):
        return "" if traces(value.__name__) or value is np.conjugate else advice.unsupported(value.__name__)
    if isinstance(getattr(np, first, None), np.ufunc):  # np.add.at
        return "" if rest in ("reduce", "accumulate", "outer") else advice.unsupported(name)
    if value is None:
        near = difflib.get_close_matches(name, table().names("numpy"), 1)
        return f"NumPy has no such name; did you mean np.{near[0]}?" if near else "NumPy has no such name"
    if not is_array_function(value) or traces(function_name(value)) or traces(name):
        return ""
    return advice.unsupported(function_name(value))


def is_array_function(value: Any) -> bool:
    """Whether NumPy's function protocol hands a function over (asked anew: submodules add theirs when first used)."""
    return value in get_overridable_numpy_array_functions()


def _torch(name: str) -> str:
    plain = name.removeprefix("nn.functional.").removeprefix("special.")
    if plain in torch_shim.RANDOM:
        return advice.NUMPY_RANDOM
    first = plain.partition(".")[0]
    known = plain in torch_methods.OWN or plain in torch_shim.CREATORS or table().find("torch", plain) is not None
    if known or first in _TORCH_PLAIN or first in ("nn", "cuda", "autograd", "backends") or first[0].isupper():
        return ""
    return advice.unsupported_torch(plain)


def _scipy(name: str) -> str:
    space, _, function = name.rpartition(".")
    if space == "special" and table().find("scipy", function) is not None:
        return ""
    return advice.unsupported(name)


def of_function(fn: Any) -> list[tuple[Finding, Span]]:
    """Findings of a function in memory and of what it calls in its file; none where there is no source."""
    code = getattr(inspect.unwrap(getattr(fn, "__func__", fn)), "__code__", None)
    text = "".join(linecache.getlines(code.co_filename)) if code is not None else ""
    try:
        found = scan(text, "", code.co_name) if code is not None and text else []
    except (ParseError, RecursionError, ValueError):
        return []
    places = (Position(f.line, f.line, f.column - 1, f.column - 1 + len(f.text)) for f in found)
    return [(f, make_span(code.co_filename, p)) for f, p in zip(found, places, strict=True)] if code else []


def check_file(target: str) -> None:
    """Scan `FILE.py:function`; UnsupportedError lists every finding. Anything else is left to the trace."""
    file, _, function = target.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier() or not Path(file).is_file():
        return
    found = scan(Path(file).read_text(encoding="utf-8"), Path(file).name, function)
    if found:
        raise UnsupportedError(_heading(found, function), "unsupported-call", (), lines(found, Path(file).name))


def _heading(found: list[Finding], function: str) -> str:
    count = "1 call" if len(found) == 1 else f"{len(found)} calls"
    return f"{count} in `{function}` {'has' if len(found) == 1 else 'have'} no operator"


def lines(found: list[Finding], filename: str) -> list[str]:
    """Findings as the tracer lists refused calls."""
    places = [f"{filename}:{f.line}" for f in found]
    room, width = max(map(len, places)), max(len(f.text) for f in found)
    return [f"{p:<{room}}  {f.text:<{width}}  {f.advice}" for p, f in zip(places, found, strict=True)]
