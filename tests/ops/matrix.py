"""The operator matrix: every row that users can call x dtypes x an engine, held against the row's reference.

In: an engine. Out: a list of findings, empty when all is well; the tests of this folder and of tests/gpu assert that.
Rows of one operand signature are traced into one program, which is compiled once for each size class and run at all
lengths: a kernel of many outputs instead of hundreds of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import fuser
from fuser.dtypes import ALL, DType
from fuser.optable import table
from fuser.optable.base import ScalarOp
from fuser.optable.evaluate import evaluate_scalar
from tests.engines import Array, Engine, Program, unlike
from tests.ops.samples import LENGTHS, difference, random_values, signatures, specials

SHIFTS = (1, 3, 16)  # f(x)[k:] against f(x[k:]): not aligned, and aligned again
SPELLED = {"clip": "clamp"}  # rows that users reach under the name of a function
FEW = 9  # specials an operand of three


@dataclass(frozen=True)
class Batch:
    """Rows of one operand signature, as one program. results: the dtype of each."""

    dtypes: tuple[DType, ...]
    rows: tuple[ScalarOp, ...]
    results: tuple[DType, ...]

    def __str__(self) -> str:
        return "-".join(map(str, self.dtypes))

    def program(self) -> Program:
        """A function of as many arrays as the rows have operands; one result a row."""
        names = [SPELLED.get(r.name, r.name) for r in self.rows]

        def one(x: Any) -> Any:
            return tuple(getattr(fuser.ops, name)(x) for name in names)

        def two(x: Any, y: Any) -> Any:
            return tuple(getattr(fuser.ops, name)(x, y) for name in names)

        def three(x: Any, y: Any, z: Any) -> Any:
            return tuple(getattr(fuser.ops, name)(x, y, z) for name in names)

        return (one, two, three)[len(self.dtypes) - 1]

    def arrays(self) -> list[Array]:
        """Every special against every other (three operands: a few), then values in each row's domain and anywhere."""
        columns = [specials(t) for t in self.dtypes]
        if len(columns) == 3:
            columns[1:] = [c[:: max(1, len(c) // FEW)] for c in columns[1:]]
        parts = [[a.ravel() for a in np.meshgrid(*columns, indexing="ij")]]
        domains = dict.fromkeys((None, *(r.domain for r in self.rows)))
        for seed, domain in enumerate(domains):
            parts.append([random_values(t, 200, domain, 7 * seed + k) for k, t in enumerate(self.dtypes)])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def want(self, arrays: Sequence[Array]) -> list[Array]:
        return [evaluate_scalar(r, *arrays, dtype=t) for r, t in zip(self.rows, self.results, strict=True)]

    def faults(self, got: Sequence[Any], arrays: Sequence[Array], at: str) -> Iterator[str]:
        for row, g, w in zip(self.rows, got, self.want(arrays), strict=True):
            if found := difference(row, np.asarray(g), w, arrays):
                yield f"{found} [{self} {at}]"


def callable_rows() -> list[ScalarOp]:
    """Rows with a public name, `clip` (a function's), but not those whose result dtype is an argument: see `casts`."""
    rows: list[ScalarOp] = table().of(ScalarOp)
    return [r for r in rows if (not r.hidden or r.name in SPELLED) and not r.converts]


@cache
def batches() -> tuple[Batch, ...]:
    """All rows by operand signature, halves included."""
    found: dict[tuple[DType, ...], list[tuple[ScalarOp, DType]]] = {}
    for row in callable_rows():
        for s in signatures(row, halves=True):
            found.setdefault(s.operands, []).append((row, s.result))
    return tuple(
        Batch(dtypes, tuple(r for r, _ in pairs), tuple(t for _, t in pairs)) for dtypes, pairs in found.items()
    )


def elementwise_faults(engine: Engine, batch: Batch) -> list[str]:
    """Findings of a batch: against the reference at every length, and f(x)[k:] against f(x[k:])."""
    program = engine.compile(batch.program())
    whole = batch.arrays()
    found: list[str] = []
    for n in (0, *LENGTHS):
        arrays = [np.resize(np.roll(a, -n), n) for a in whole]
        found += batch.faults(program(*arrays), arrays, f"n={n}")
    got = program(*whole)
    found += batch.faults(got, whole, "whole")
    for k in SHIFTS:
        part = program(*(a[k:] for a in whole))
        if wrong := unlike(part, tuple(np.asarray(g)[k:] for g in got)):
            found.append(f"f(x[{k}:]) is not f(x)[{k}:]: {_named(wrong, batch)} [{batch}]")
    return found


def _named(wrong: str, batch: Batch) -> str:
    k = int(wrong.split()[1])
    return f"{batch.rows[k].name}: {wrong}"


# -- casts -----------------------------------------------------------------------------------------
def cast_faults(engine: Engine, source: DType) -> list[str]:
    """One program casts a dtype to all dtypes; values with no agreed meaning have fuser's own (see the row's notes)."""
    row = table().scalar("cast")
    targets = [t for t in ALL if t != source]

    def casts(x: Any) -> Any:
        return tuple(x.astype(t.numpy) for t in targets)

    program = engine.compile(casts)
    whole = np.concatenate([specials(source), random_values(source, 500), random_values(source, 500, (-300.0, 300.0))])
    found = []
    for n in (0, *LENGTHS):
        x = np.resize(np.roll(whole, -n), n)
        for t, got in zip(targets, program(x), strict=True):
            if wrong := difference(row, np.asarray(got), evaluate_scalar(row, x, dtype=t)):
                found.append(f"{source} to {t}, n={n}: {wrong}")
    return found
