"""What the repository holds works anywhere: no path or host of the machine that it was written on."""

import re

import pytest

from tests.meta.project import ROOT, tracked_files

# Written so that this file does not match itself.
FOREIGN = {
    "a path of one machine": r"(?<![\w.])/(?:w[o]rk|r[o]ot|h[o]me/\w+|U[s]ers/\w+)/|/t[m]p/venv|/o[p]t/pypi",
    "a package registry's host": r"(?:p[y]pi\.org|p[y]thonhosted\.org|r[e]gistry\.npmjs|d[e]b\.debian\.org)",
    "a file outside the repository": r"\.\./s[h]ared/|\bs[h]ared/\w+\.md|\b(?:h[o]pper|a[n]chors|D[E]SIGN)\.md",
}

TEXT = {"", ".cfg", ".cu", ".fuse", ".json", ".lark", ".ll", ".md", ".py", ".sh", ".toml", ".txt", ".yml"}

FIXED = {"fuser", "frontend", "passes", "codegen", "tests", "examples", "pyproject.toml"}
BESIDE = {"README.md", "LICENSE", "CONTRIBUTING.md", "Makefile", "docs", "benchmarks", ".ci", ".gitignore"}


@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_foreign_in_tracked_text(kind: str) -> None:
    pattern = re.compile(FOREIGN[kind])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_top_level_is_fixed() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert tops <= FIXED | BESIDE
