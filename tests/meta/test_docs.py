"""The pages say what is true: programs run, commands work, dumps are real, every error is explained."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.meta import shown_plans, slugs, stages, workload_plans
from tests.meta.project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_TEST = "language.md"  # tests/frontend/dsl/test_docs.py
SHOWN_ONLY = "architecture.md"  # its programs are dumps, compared below


def blocks(path: Path, language: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every fenced block of a language."""
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 2, match[1]


def programs() -> list[Any]:
    return [
        pytest.param(path, line, text, id=f"{path.name}:{line}")
        for path in PAGES
        if path.name not in (OWN_TEST, SHOWN_ONLY)
        for line, text in blocks(path, "python")
    ]


def commands() -> list[str]:
    return [
        line.partition("  #")[0].strip()
        for path in PAGES
        for _, text in blocks(path, "sh")
        for line in text.splitlines()
        if line.startswith("fuserc ")
    ]


@pytest.mark.parametrize(("path", "line", "text"), programs())
def test_a_program_of_a_page(path: Path, line: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks run; those in the language (their types are no Python) are compiled and planned."""
    if re.search(r": \w+\[[^\]\"']*\](?=[,)=])", text) and "import" not in text:
        import fuser

        for name in (program := fuser.parse(text, path.name)):
            assert program[name].plan("bf16[8, 64]", "bf16[64]", device="cpu").kernels
        return
    if "register(" in text:  # adds to the operator table: not in this process
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    monkeypatch.chdir(tmp_path)
    small = text.replace("8192, 4096", "64, 48")  # the page's sizes are for people
    source = tmp_path / f"{path.stem}_{line}.py"  # the tracer reads sources from files
    source.write_text(small, encoding="utf-8")
    exec(compile(small, str(source), "exec"), {"__name__": "a_page"})


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_page(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from fuser.cli import cli

    monkeypatch.chdir(ROOT)
    words = ["n=64,d=48" if w == "n=8192,d=4096" else w for w in shlex.split(command)[1:]]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.output


def test_every_error_is_explained() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    explained = re.findall(r"^### `([a-z0-9-]+)`$", page, re.MULTILINE)
    raised: dict[str, str] = {}
    for slug, place in slugs.slugs():
        raised.setdefault(slug, place)
    missing = {slug: place for slug, place in raised.items() if slug not in explained}
    assert not missing, f"write a paragraph in docs/errors.md for {missing}"
    assert sorted(set(explained) - set(raised)) == [], "docs/errors.md explains errors that nothing raises"
    assert len(explained) == len(set(explained)) > 150


def test_every_paragraph_about_an_error_says_something() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for slug, text in re.findall(r"^### `([a-z0-9-]+)`\n\n(.*?)\n\n", page + "\n\n", re.MULTILINE | re.DOTALL):
        assert len(text) > 20, slug
        assert text[-1] in ".)", slug


def test_the_dumps_of_the_architecture_page_are_real() -> None:
    page = stages.PAGE.read_text(encoding="utf-8")
    texts = stages.dumps()
    assert re.findall(r"<!-- dump: ([\w-]+) -->", page) == list(texts)
    assert stages.written(page, texts) == page, "run `python -m tests.meta.stages`, and read what changed"


def test_the_page_of_plans_is_what_fuser_plans() -> None:
    page = workload_plans.PAGE.read_text(encoding="utf-8")
    assert page == workload_plans.page(), "run `python -m tests.meta.workload_plans`, and read what changed"


@pytest.mark.parametrize("page", shown_plans.PAGES, ids=lambda p: p.name)
def test_the_plans_shown_are_what_fuser_plans(page: Path) -> None:
    found = list(shown_plans.blocks(page))
    assert found
    for example, shown in found:
        assert shown_plans.same(shown, shown_plans.printed(example)), "run `python -m tests.meta.shown_plans`"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target
