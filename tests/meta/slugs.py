"""Every slug of an error in the sources, read from the syntax tree: what docs/errors.md must explain.

A slug is a constant given where an error class of fuser.errors, or a function with a parameter `slug`, takes it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.meta.project import ROOT, sources

Place = str
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # a message at the same position of another function has spaces


@cache
def trees() -> dict[str, ast.Module]:
    return {str(path): ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in sources()}


@cache
def positions() -> dict[str, set[int]]:
    """Name of a class or function that takes a slug -> the positions at which one of that name takes it."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(trees()["fuser/errors.py"]):
        if isinstance(node, ast.ClassDef) and node.name != "Span":
            found[node.name] = {1}
    for tree in trees().values():
        for node in ast.walk(tree):
            methods = [f for f in node.body if isinstance(f, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
            named = [(node.name, f) for f in methods if isinstance(node, ast.ClassDef) and f.name == "__init__"]
            named += [(node.name, node)] if isinstance(node, ast.FunctionDef) and node.name != "__init__" else []
            for name, function in named:
                parameters = [a.arg for a in function.args.args if a.arg != "self"]
                if "slug" in parameters:
                    found.setdefault(name, set()).add(parameters.index("slug"))
    return found


def slugs() -> Iterator[tuple[str, Place]]:
    """(slug, file:line) of every place."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in positions():
                    for argument in _arguments(node, positions()[name]):
                        yield from ((s, f"{path}:{node.lineno}") for s in _constants(argument))
            elif isinstance(node, ast.FunctionDef):  # `slug: str = "default"`
                named = [*node.args.args[len(node.args.args) - len(node.args.defaults) :]]
                for a, default in zip(named, node.args.defaults, strict=True):
                    if a.arg == "slug":
                        yield from ((s, f"{path}:{node.lineno}") for s in _constants(default))


def _arguments(call: ast.Call, where: set[int]) -> Iterator[ast.expr]:
    yield from (k.value for k in call.keywords if k.arg == "slug")
    yield from (call.args[k] for k in sorted(where) if k < len(call.args))


def _constants(e: ast.expr) -> Iterator[str]:
    if isinstance(e, ast.IfExp):
        yield from (*_constants(e.body), *_constants(e.orelse))
    elif isinstance(e, ast.Constant) and isinstance(e.value, str) and SLUG.fullmatch(e.value):
        yield e.value
