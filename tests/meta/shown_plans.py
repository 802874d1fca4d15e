"""The plans that README and docs/reading-plans.md show of the examples.

In: the pages, whose blocks start with a plan's first words. Out: the plans as fuser prints them. `python -m
tests.meta.shown_plans` puts them into the pages (it needs NVRTC); tests/meta/test_docs.py holds the pages against them,
but for what only a compiler can say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import fuser
from tests.meta.project import ROOT
from tests.meta.workload_plans import uncompiled

EXAMPLES = {"softmax": ("f32[8192, 4096]",), "scores": ("f32[65536, 1024]", "f32[1024, 256]", "f32[1024]")}
PAGES = (ROOT / "README.md", ROOT / "docs" / "reading-plans.md")
BLOCK = re.compile(r"```text\n((softmax|scores)\(x: .*?)```", re.DOTALL)


def printed(example: str) -> str:
    """The plan that `fuserc examples/NAME.fuse --dump-graph --device sm_90` prints at the size shown."""
    program = fuser.load(ROOT / "examples" / f"{example}.fuse")[example]
    return program.plan(*EXAMPLES[example], device="sm_90").to_text()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(example, plan as shown) of a page."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield found[2], found[1]


def same(shown: str, now: str) -> bool:
    """Whether two plans say the same, registers and predicted times apart."""
    return list(uncompiled(shown)) == list(uncompiled(now))


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(lambda m: f"```text\n{printed(m[2]).rstrip()}\n```", text), encoding="utf-8")


if __name__ == "__main__":
    main()
