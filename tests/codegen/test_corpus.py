"""Every kernel of the examples, of the public workloads and of random groups compiles for every architecture, spills
nothing, keeps no array on the stack, and uses about the registers that were predicted.

The table of registers is printed, and written to build/registers-ARCH.md for the record. No GPU is needed.
"""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Iterable, Iterator
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
from fuser.codegen.loops import Let, walk
from fuser.errors import DeviceError
from fuser.toolchain import Built
from tests.codegen.random_groups import built_groups

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py")) + sorted((ROOT / "examples").glob("*.fuse"))
WHOLE, TYPICAL_FEW = 300, 0.12  # random groups of the whole corpus; the median where there are fewer
MANY = [pytest.param(arch, WHOLE, marks=pytest.mark.slow) for arch in ("sm_80", "sm_90", "sm_120")]
ARCHS = [("sm_90", 60), *MANY]  # with how many random groups
# The error of predictions: the median, the furthest below, and the 90th percentile above.
TYPICAL, LOW, HIGH = 0.10, 0.25, 0.35
# Further below than the model may be: three stages of one row's columns in a cluster of 16 blocks, with a count in i64.
# ptxas keeps the addresses of all mailboxes from stage to stage (110 registers for 76 predicted, sm_90).
# Or with registers to spare: a maximum of one row in a cluster of two blocks, 40 of the 40 it may have for 25.
# And a maximum and a sum down columns of f64 that ask for the tiles of a later turn: 92 for 63.
TOO_LOW = {
    "larger_than_memory.py summary_columns_sum",
    "random 2 random2_full_max_store",
    "random 128 random128_columns_max_sum_store",
}
# Where 64 registers are all there are, the slow road of a division, which hardly ever runs, puts three on the stack.
SLOW_ROAD = {"P09 layernorm"}
FITTED = ("sm_80", "sm_90")  # architectures whose compiler the model's constants come from
KEEPS_ARRAY = frozenset({"sin", "cos", "tan"})  # for the reduction of large angles, 32 or 40 bytes a thread


@dataclass(frozen=True)
class Row:
    """A compiled kernel and what was predicted of it."""

    program: str
    kernel: str
    predicted: float
    registers: int
    spills: int
    stack: int

    @property
    def error(self) -> float:
        """Of the prediction; below 0 where it is too low."""
        return (self.predicted - self.registers) / self.registers

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
def table(arch: str, groups: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """(rows, programs that did not get through)."""
    rows, faults = [], []
    for name, compiled, inputs in programs():
        try:
            kernels = compiled.plan(*inputs, device=arch).kernels
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: " + "\n".join(str(error).splitlines()[:3]))
            continue
        rows += [_row(name, built) for k in kernels for built in k.built]
    rows += [_row(name, built) for name, built in built_groups(arch, groups)]
    return tuple(rows), tuple(faults)


def _row(program: str, built: Built) -> Row:
    found = built.resources
    known = any(isinstance(s, Let) and s.op in KEEPS_ARRAY for s in walk(built.kernel.body))  # type: ignore[attr-defined]
    stack = 0 if known else found.stack
    return Row(program, built.kernel.name, found.expected, found.registers, found.spills, stack)


@pytest.mark.parametrize(("arch", "groups"), ARCHS)
def test_every_kernel_compiles_without_spills_near_its_prediction(arch: str, groups: int) -> None:
    if reason := why_no_nvrtc():
        pytest.skip(reason)
    rows, faults = table(arch, groups)
    assert not faults, "\n".join(faults)
    _record(arch, rows)
    assert [str(r) for r in rows if r.spills or (r.stack and r.program not in SLOW_ROAD)] == []
    assert [str(r) for r in rows if not 0 < r.registers <= 255] == []
    assert {r.program for r in rows} >= {w.id + " " + w.name for w in WORKLOADS}
    if arch not in FITTED:
        return
    assert {f"{r.program} {r.kernel}" for r in rows if r.error < -LOW} <= TOO_LOW
    assert statistics.median(abs(r.error) for r in rows) <= (TYPICAL if groups >= WHOLE else TYPICAL_FEW)
    assert _ninth(r.error for r in rows) <= HIGH


def _ninth(errors: Iterable[float]) -> float:
    """The 90th percentile."""
    found = sorted(errors)
    return found[len(found) * 9 // 10]


def _record(arch: str, rows: tuple[Row, ...]) -> None:
    errors = [r.error for r in rows]
    lines = [
        f"# Registers on {arch}", "",
        f"{len(rows)} kernels; error of the prediction: median {statistics.median(map(abs, errors)):.0%}, "
        f"90th percentile {_ninth(errors):.0%} above, worst {min(errors):.0%} below", "",
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
