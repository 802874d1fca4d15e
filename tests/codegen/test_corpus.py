"""Every kernel of the examples and of the public workloads compiles for every architecture, spills nothing, and uses
about the registers that were predicted.

The table of registers is printed, and written to build/registers-ARCH.md for the record. No GPU is needed.
"""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fuser
from benchmarks.workloads import WORKLOADS
from fuser import targets
from fuser.codegen.cuda import nvrtc
from fuser.errors import DeviceError
from fuser.plan import PlannedKernel

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py")) + sorted((ROOT / "examples").glob("*.fuse"))
ARCHS = ["sm_90", pytest.param("sm_80", marks=pytest.mark.slow), pytest.param("sm_120", marks=pytest.mark.slow)]
TYPICAL_ERROR, WORST_FACTOR, GRANULE = 0.3, 3.5, 8


@dataclass(frozen=True)
class Row:
    """A compiled kernel and what was predicted of it."""

    program: str
    kernel: str
    predicted: float
    registers: int
    spills: int

    @property
    def error(self) -> float:
        return abs(self.predicted - self.registers) / self.registers

    def __str__(self) -> str:
        return f"| {self.program} | {self.kernel} | {self.predicted:.0f} | {self.registers} | {self.spills} |"


def example(path: Path) -> tuple[Any, list[Any]]:
    """(compiled function, inputs) of an example, as its own docstring says to run it."""
    if path.suffix == ".py":
        found = targets.find(str(path), None)
        return found.compiled, targets.inputs(found, (), "", data=False)
    (line,) = re.findall(r"^\s*fuserc run (.*)$", path.read_text(), re.MULTILINE)
    file, *words = shlex.split(line)
    pairs = list(pairwise(words))
    found = targets.find(str(ROOT / file), None)
    args = tuple(b for a, b in pairs if a == "--arg")
    return found.compiled, targets.inputs(found, args, dict(pairs).get("--dims", ""), data=False)


def programs() -> Iterator[tuple[str, Any, list[Any]]]:
    """(name, compiled function, inputs or specs) of the whole corpus."""
    for path in EXAMPLES:
        yield (path.name, *example(path))
    for w in WORKLOADS:
        yield f"{w.id} {w.name}", fuser.compile(w.fn), list(w.specs)


@cache
def why_no_nvrtc() -> str | None:
    """Why nothing can be compiled for CUDA here."""
    try:
        nvrtc.version()
    except DeviceError as error:
        return str(error.message)
    return None


@cache
def table(arch: str) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """(rows, programs that did not get through)."""
    rows, faults = [], []
    for name, compiled, inputs in programs():
        try:
            kernels = compiled.plan(*inputs, device=arch).kernels
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: " + "\n".join(str(error).splitlines()[:3]))
            continue
        rows += [row for k in kernels for row in _rows(name, k)]
    return tuple(rows), tuple(faults)


def _rows(name: str, planned: PlannedKernel) -> Iterator[Row]:
    for built in planned.built:
        found = built.resources
        yield Row(name, built.kernel.name, planned.predicted["registers"], found.registers, found.spills)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_compiles_without_spills_near_its_prediction(arch: str) -> None:
    if reason := why_no_nvrtc():
        pytest.skip(reason)
    rows, faults = table(arch)
    assert not faults, "\n".join(faults)
    _record(arch, rows)
    assert [str(r) for r in rows if r.spills] == []
    assert [str(r) for r in rows if not 0 < r.registers <= 255] == []
    assert {r.program for r in rows} >= {w.id + " " + w.name for w in WORKLOADS}
    far = [
        str(r)
        for r in rows
        if not r.registers / WORST_FACTOR - GRANULE <= r.predicted <= r.registers * WORST_FACTOR + GRANULE
    ]
    assert far == []
    assert statistics.median(r.error for r in rows) < TYPICAL_ERROR


def _record(arch: str, rows: tuple[Row, ...]) -> None:
    errors = sorted(r.error for r in rows)
    lines = [
        f"# Registers on {arch}", "",
        f"{len(rows)} kernels; error of the prediction: median {statistics.median(errors):.0%}, "
        f"90th percentile {errors[len(errors) * 9 // 10]:.0%}", "",
        "| program | kernel | predicted | compiled | spills |", "|---|---|---|---|---|", *map(str, rows),
    ]  # fmt: skip
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    (folder / f"registers-{arch}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def test_the_corpus_is_whole() -> None:
    assert len(EXAMPLES) >= 12
    assert len(WORKLOADS) >= 28
    for path in EXAMPLES:
        compiled, inputs = example(path)
        assert compiled.plan(*inputs, device="cpu").groups, path.name
