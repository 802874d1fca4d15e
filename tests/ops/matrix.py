"""The operator matrix: every row that users can call x dtypes x an engine, held against the row's reference.

In: an engine. Out: a list of findings, empty when all is well; the tests of this folder and of tests/gpu assert that. Rows of one
operand signature are traced into one program, which is compiled once for each size class and run at all lengths: a kernel
of many outputs instead of hundreds of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import fuser
from fuser.dtypes import ALL, BOOL, DType
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


# -- reductions and scans --------------------------------------------------------------------------
Shape = Callable[[int], tuple[int, ...]]


@dataclass(frozen=True)
class Axes:
    """Which axes of which shape are folded: what the length n runs along."""

    name: str
    axis: Any
    shape: Shape

    def __str__(self) -> str:
        return self.name

    def rows_of(self, x: Array) -> Array:
        """`x` as [results, folded elements], in the order of the results."""
        folded = range(x.ndim) if self.axis is None else np.atleast_1d(self.axis)
        axes = sorted(int(a) % x.ndim for a in folded)
        kept = [a for a in range(x.ndim) if a not in axes]
        count = int(np.prod([x.shape[a] for a in kept], dtype=np.int64))
        return x.transpose(*kept, *axes).reshape(count, int(np.prod([x.shape[a] for a in axes], dtype=np.int64)))


AXES = (
    Axes("inner", -1, lambda n: (3, n)),
    Axes("outer", 0, lambda n: (n, 3)),
    Axes("full", None, lambda n: (n,)),
    Axes("middle", 1, lambda n: (2, n, 3)),
    Axes("last-two", (1, 2), lambda n: (3, 2, n)),
    Axes("ends", (0, 2), lambda n: (2, 3, n)),
    Axes("first-two", (0, 1), lambda n: (2, n, 3)),
    Axes("rows-of-few", 1, lambda n: (n, 3)),
)
FOLDS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero,
    "mean": np.mean, "var": np.var, "std": np.std,
}  # fmt: skip
EXTREMES: dict[str, Callable[..., Any]] = {
    "max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin, "ptp": np.ptp,
}  # fmt: skip
EXACT = {"max", "min", "argmax", "argmin", "any", "all", "count_nonzero"}


def fold_program(axes: Axes, names: Sequence[str]) -> Program:
    axis = axes.axis
    functions = [(FOLDS | EXTREMES)[name] for name in names]

    def folds(x: Any) -> Any:
        return tuple(f(x, axis=axis) for f in functions)

    return folds


def folds_of(dtype: DType) -> tuple[str, ...]:
    """What NumPy lets a dtype fold with: bool has neither `ptp` nor, as a number, much sense in moments."""
    names = (*FOLDS, *EXTREMES)
    return tuple(n for n in names if dtype != BOOL or n not in ("ptp", "var", "std"))


def fold_operands(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Iterator[Array]:
    """Moderate values; ties; and for floats infinities and NaN among them, in some of the results only."""
    rng = np.random.default_rng([seed, dtype.bits, *shape])
    if not dtype.is_float:
        yield random_values(dtype, int(np.prod(shape)), seed=seed).reshape(shape)
        yield rng.integers(0, 2, shape).astype(dtype.numpy)
        return
    yield rng.standard_normal(shape).astype(dtype.numpy)
    yield rng.integers(-2, 3, shape).astype(dtype.numpy)
    wild = rng.standard_normal(shape).astype(dtype.numpy)
    flat = wild.reshape(-1)
    for value in (np.inf, -np.inf, np.nan, -0.0):
        flat[rng.integers(0, flat.size, max(1, flat.size // 200))] = value
    yield wild


def fold_faults(engine: Engine, axes: Axes, dtype: DType, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """Findings over all lengths; length 0 for those folds that have an identity."""
    names = folds_of(dtype)
    program = engine.compile(fold_program(axes, names))
    found = []
    for n in lengths:
        for k, x in enumerate(fold_operands(dtype, axes.shape(n))):
            got = program(x)
            rows = axes.rows_of(x)
            for name, g in zip(names, got, strict=True):
                if wrong := fold_difference(name, np.asarray(g), x, axes, rows):
                    found.append(f"{name} of {dtype}{list(x.shape)}, sample {k}: {wrong}")
    return found


def fold_difference(name: str, got: Array, x: Array, axes: Axes, rows: Array) -> str | None:
    """What is wrong with a fold, by NumPy in f64 with the error bound of any order of summation of that length."""
    f = (FOLDS | EXTREMES)[name]
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) if x.dtype.kind not in "biu" else x
        want = np.asarray(f(wide, axis=axes.axis))
        exact = name in EXACT or x.dtype.kind in "biu" and got.dtype.kind in "biu"
        expected = np.asarray(f(x, axis=axes.axis)).dtype if x.dtype.kind != "V" else got.dtype
        if got.shape != want.shape or got.dtype != expected:
            return f"{got.dtype}{got.shape} instead of {expected}{want.shape}"
        if exact:
            same = (got.astype(want.dtype) == want) | (_nan(got) & _nan(want))
            return None if same.all() else _first(got, want, ~same)
        allowed = _allowance(name, rows, got).reshape(want.shape)
        a = got.astype(np.float64)
        near = np.abs(a - want) <= allowed
        # a square root or product beyond the narrow dtype's range may overflow; the same infinity counts as equal
        same = near | (a == want.astype(got.dtype)) | (np.isnan(a) & np.isnan(want)) | _undefined(name, rows, want)
    return None if same.all() else _first(a, want, ~same)


def _nan(a: Array) -> Array:
    return np.isnan(a.astype(np.float64)) if a.dtype.kind not in "biu" else np.zeros(a.shape, bool)


def _undefined(name: str, rows: Array, want: Array) -> Array:
    """Rows in which NaN and infinity may meet in any order."""
    del name, rows
    return np.zeros(want.shape, bool)


def _first(got: Array, want: Array, wrong: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} wrong, at {at} got {got[at]!r}, want {want[at]!r}"


def _allowance(name: str, rows: Array, got: Array) -> Array:
    """Absolute error allowed each result: a few roundings an operand (sums pairwise or in lanes), and one of the result."""
    eps = float(_eps(got.dtype))
    working = max(eps, 2.0**-23) if got.dtype.itemsize == 2 else eps  # halves fold in f32
    working = 2.0**-23 if got.dtype.itemsize == 2 else working
    wide = np.abs(rows.astype(np.float64))
    n = max(rows.shape[1], 1)
    size = np.where(np.isfinite(wide), wide, 0).sum(axis=1)
    squares = np.where(np.isfinite(wide), wide * wide, 0).sum(axis=1)
    terms = 4 + np.log2(n) + n / 128
    result = {
        "sum": size, "mean": size / n, "var": squares / n, "std": np.sqrt(squares / n), "ptp": np.zeros_like(size),
        "prod": np.zeros_like(size),
    }[name]  # fmt: skip
    with np.errstate(all="ignore"):
        magnitude = np.abs(np.nan_to_num(got.astype(np.float64).reshape(-1), posinf=0.0, neginf=0.0))
    relative = n * working if name == "prod" else terms * working
    tiny = float(np.finfo(np.float32).tiny) if got.dtype.itemsize < 8 else 0.0
    return np.asarray(terms * working * result + (relative + 2 * eps) * magnitude + tiny)


def _eps(dtype: np.dtype[Any]) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(dtype.name, 2.0**-52)
