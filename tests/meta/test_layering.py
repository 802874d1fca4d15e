"""Imports point one way: the parts import the core, never each other; only the wiring imports the parts."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.project import PACKAGES, ROOT, module_name, sources

PARTS = ("fuser.frontend", "fuser.passes", "fuser.codegen")

# The modules that wire the parts together.  To add one is a decision about the architecture, not a fix.
WIRING = ("fuser.api", "fuser.cli", "fuser.wiring")

# Heavy or optional libraries, and the only places that may import them.
CONFINED = {
    "cupy": ("fuser.runtime", "fuser.codegen.cuda"),
    "cupy_backends": ("fuser.runtime", "fuser.codegen.cuda"),
    "torch": ("fuser.runtime", "fuser.frontend"),
    "llvmlite": ("fuser.runtime", "fuser.codegen.llvm"),
    "lark": ("fuser.frontend",),
    "click": ("fuser.cli",),
    "rich": ("fuser.progress",),
}


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a file imports, wherever in it; dynamic imports by a literal too."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(level=level, module=module, names=names):
                base = "." * level + (module or "")
                # With the names, because `from fuser import passes` imports fuser.passes.
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def fault(importer: str, name: str) -> str | None:
    """Why `importer` may not import `name`, or None."""
    if name.startswith("."):
        return "relative import; write it from `fuser.` on"
    if name.split(".")[0] in set(PACKAGES) - {"fuser"}:
        return f"bare name; write `fuser.{name}`"
    part = next((part for part in PARTS if within(name, (part,))), None)
    if part and not within(importer, (part, *WIRING)):
        return f"only {part} itself and {', '.join(WIRING)} may import it"
    if within(name, WIRING) and within(importer, PARTS):
        return "the parts do not know what wires them together"
    allowed = CONFINED.get(name.split(".")[0])
    if allowed and not within(importer, allowed):
        return f"only {', '.join(allowed)} may import it"
    return None


@pytest.mark.parametrize("folder", PACKAGES)
def test_imports_point_one_way(folder: str) -> None:
    faults = [
        f"{path}:{line}: {name}: {why}"
        for path in sources()
        if path.parts[0] == folder
        for line, name in imported(path)
        if (why := fault(module_name(path), name))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("importer", "name", "allowed"),
    [
        ("fuser.passes.fuse", "fuser.graph.Graph", True),
        ("fuser.passes.fuse", "fuser.passes.cost", True),
        ("fuser.passes.fuse", "fuser.codegen.loops", False),
        ("fuser.passes.fuse", "passes.cost", False),
        ("fuser.passes.fuse", "..graph", False),
        ("fuser.passes.fuse", "fuser.api", False),
        ("fuser.plan", "fuser.passes", False),
        ("fuser.api", "fuser.passes.fuse", True),
        ("fuser.cli.main", "fuser.codegen.cuda", True),
        ("fuser.optable.scalar", "cupy", False),
    ],
)
def test_the_rule_itself(importer: str, name: str, allowed: bool) -> None:
    assert (fault(importer, name) is None) == allowed
