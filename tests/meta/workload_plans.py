"""The plans of the public workloads: docs/plans.md is made of them.

In: `benchmarks.workloads`. Out: a page, as text. `python -m tests.meta.workload_plans` writes it, and
tests/meta/test_docs.py holds it against the plans. What only a compiler can say (registers) and predicted times are
left out, so that the page needs no GPU and no NVRTC and stays as it is from one version of them to the next.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import fuser
from benchmarks.workloads import WORKLOADS, Workload
from tests.meta.project import ROOT

PAGE = ROOT / "docs" / "plans.md"
HEAD = """# Plans of the public workloads

Each program as it is written in [benchmarks/programs.py](../benchmarks/programs.py), and its plan for an H200
(`sm_90`) at the size that the benchmarks run. `was` counts one kernel an operator, `floor` each argument read once and
each result written once. [Reading a plan](reading-plans.md) explains the rest.

This page is made by `python -m tests.meta.workload_plans`.
"""
LEFT_OUT = ("  registers ", "  occupancy ", "  bound by ", "replans ", "ask more ", "time ")
MEASURES = re.compile(r" +regs \S+ +occ \S+| \| ~.*")


def page() -> str:
    """The page as it should be."""
    return "\n".join([HEAD, *(line for w in WORKLOADS for line in section(w))]) + "\n"


def section(w: Workload) -> Iterator[str]:
    """A workload: its program where it is the first that shows it, and its plan."""
    plan = fuser.compile(w.fn, fast_math=w.fast_math).plan(*w.specs, device="sm_90")
    specs = ", ".join(f"`{s}`" if isinstance(s, str) else str(s) for s in w.specs)
    yield from (f"## {w.id} {w.name}", "", specs + (" with `fast_math=True`" if w.fast_math else ""), "")
    if next(v for v in WORKLOADS if v.program == w.program) is w:
        yield from ("```python", textwrap.dedent(inspect.getsource(w.fn)).rstrip(), "```", "")
    yield from ("```", *uncompiled(plan.to_text()), "```", "")


def uncompiled(plan: str) -> Iterator[str]:
    """The lines of a printed plan that no compiler and no prediction has a part in."""
    shown = [MEASURES.sub("", line) for line in plan.splitlines() if not line.startswith(LEFT_OUT)]
    while shown and not shown[-1]:
        shown.pop()
    for line, following in zip(shown, [*shown[1:], ""], strict=True):
        if line or following:  # one empty line where a line between two was left out
            yield line.rstrip()


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
