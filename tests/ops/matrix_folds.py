"""The matrix of reductions and scans: folds x axes x dtypes x an engine, held against NumPy in double precision.

In: an engine, where the folded axes lie, a dtype. Out: a list of findings. All folds of one case are one program. What
may differ is the error bound of summing in any order, so the oracle folds each result's elements pairwise in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fuser
from fuser.dtypes import BOOL, DType
from tests.engines import Array, Engine, Program, unlike
from tests.ops.samples import LENGTHS, random_values

FEW_LENGTHS = (1, 2, 33, 1000)
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1074}  # below: no digits


@dataclass(frozen=True)
class Axes:
    """Which axes of which shape are folded; the length n runs along a folded axis unless the name says otherwise."""

    name: str
    axis: Any
    shape: Callable[[int], tuple[int, ...]]
    lengths: tuple[int, ...] = LENGTHS

    def __str__(self) -> str:
        return self.name

    def folded(self, x: Array) -> tuple[tuple[int, ...], Array]:
        """(shape of the result, `x` as [results, folded elements] in the order of both)."""
        axes = range(x.ndim) if self.axis is None else sorted(a % x.ndim for a in np.atleast_1d(self.axis).tolist())
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows, length = int(np.prod(shape, dtype=np.int64)), int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
        return shape, np.ascontiguousarray(x.transpose(*kept, *axes)).reshape(rows, length)


ONE_AXIS = (
    Axes("inner", -1, lambda n: (3, n)),
    Axes("outer", 0, lambda n: (n, 3)),
    Axes("full", None, lambda n: (n,)),
    Axes("middle", 1, lambda n: (2, n, 3)),
)
SEVERAL_AXES = (
    Axes("last-two", (1, 2), lambda n: (3, 2, n), FEW_LENGTHS),
    Axes("ends", (0, 2), lambda n: (2, 3, n), FEW_LENGTHS),
    Axes("first-two", (0, 1), lambda n: (2, n, 3), FEW_LENGTHS),
    Axes("full-2d", None, lambda n: (n, 3), FEW_LENGTHS),
    Axes("many-short-rows", 1, lambda n: (n, 3), FEW_LENGTHS),
    Axes("many-short-columns", 0, lambda n: (3, n), FEW_LENGTHS),
)
SUMS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero,
    "mean": np.mean, "var": np.var, "std": np.std,
}  # fmt: skip
EXTREMES: dict[str, Callable[..., Any]] = {"max": np.max, "min": np.min, "ptp": np.ptp}
FOLDS = SUMS | EXTREMES | {"argmax": np.argmax, "argmin": np.argmin}
EXACT = {"max", "min", "argmax", "argmin", "any", "all", "count_nonzero"}


def folds_of(dtype: DType, axes: Axes) -> tuple[str, ...]:
    """What NumPy folds a dtype with over these axes."""
    no = {"ptp"} if dtype == BOOL else set()
    return tuple(n for n in FOLDS if n not in no and not (n.startswith("arg") and isinstance(axes.axis, tuple)))


def fold_program(names: Sequence[str], axis: Any) -> Program:
    functions = [FOLDS[name] for name in names]

    def folds(x: Any) -> Any:
        return tuple(f(x, axis=axis) for f in functions)

    return folds


def fold_operands(dtype: DType, shape: tuple[int, ...]) -> Iterator[Array]:
    """Moderate values; ties; and for floats infinities, NaN and -0.0 among them."""
    rng = np.random.default_rng([dtype.bits, *shape])
    if not dtype.is_float:
        yield random_values(dtype, int(np.prod(shape))).reshape(shape)
        yield rng.integers(0, 2, shape).astype(dtype.numpy)
        return
    yield rng.standard_normal(shape).astype(dtype.numpy)
    yield rng.integers(-2, 3, shape).astype(dtype.numpy)
    near_one = np.exp2(rng.standard_normal(shape) / 64) * rng.choice([-1, 1], shape)  # products stay in range
    wild = near_one.astype(dtype.numpy)
    flat = wild.reshape(-1)
    for value in (np.inf, -np.inf, np.nan, -0.0):
        flat[rng.integers(0, flat.size, max(1, flat.size // 200))] = value
    yield wild


def fold_faults(engine: Engine, axes: Axes, dtype: DType) -> list[str]:
    """Findings over all lengths."""
    names = folds_of(dtype, axes)
    program = engine.compile(fold_program(names, axes.axis))
    found = []
    for n in axes.lengths:
        for k, x in enumerate(fold_operands(dtype, axes.shape(n))):
            for name, got in zip(names, program(x), strict=True):
                if wrong := fold_difference(name, np.asarray(got), x, axes):
                    found.append(f"{name} of {dtype}{list(x.shape)}, sample {k}: {wrong}")
    return found


def fold_difference(name: str, got: Array, x: Array, axes: Axes) -> str | None:
    """What is wrong with a fold; None when nothing is."""
    fold, (shape, rows) = FOLDS[name], axes.folded(x)
    floating = x.dtype.kind not in "biu"
    with np.errstate(all="ignore"):
        want = np.asarray(fold(rows.astype(np.float64) if floating else rows, axis=1)).reshape(shape)
        expected = np.asarray(fold(x, axis=axes.axis)).dtype
    if got.shape != want.shape or got.dtype != expected:
        return f"{got.dtype}{got.shape} instead of {expected}{want.shape}"
    if name in EXACT or got.dtype.kind in "biu":
        return first_wrong(got, want, np.zeros(shape))
    return first_wrong(got, want, _allowance(name, rows, want.reshape(-1), got.dtype).reshape(shape))


def first_wrong(got: Array, want: Array, allowed: Array) -> str | None:
    """Where `got` is further from `want` than allowed; NaN and infinity must be where they are in `want`."""
    with np.errstate(all="ignore"):
        a, b = got, want
        if want.dtype.kind not in "biu":
            a, b = got.astype(np.float64), want.astype(np.float64)
            rounded = b.astype(got.dtype).astype(np.float64)  # beyond a narrow dtype's range: its infinity
            same = (np.abs(a - b) <= allowed) | (a == rounded) | (np.isnan(a) & np.isnan(b))
        else:
            same = a == b
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{int((~same).sum())} of {same.size} wrong, at {at} got {got[at]!r}, want {want[at]!r}"


def _allowance(name: str, rows: Array, want: Array, dtype: np.dtype[Any]) -> Array:
    """Absolute error allowed each result: some roundings an operand in the working precision, one in the result's."""
    working = 2.0**-23 if dtype.itemsize <= 4 else 2.0**-52
    wide = np.abs(rows.astype(np.float64))
    wide = np.where(np.isfinite(wide), wide, 0)
    n = max(rows.shape[1], 1)
    terms = 4 + np.log2(n) + n / 16 if name != "prod" else n
    size = {"sum": wide.sum(axis=1), "mean": wide.mean(axis=1), "ptp": wide.max(axis=1), "prod": np.zeros(want.shape)}
    if name in ("var", "std"):
        spread = (wide * wide).mean(axis=1)
        size |= {"var": spread, "std": np.sqrt(spread)}
    magnitude = np.abs(np.nan_to_num(want, posinf=0.0, neginf=0.0))
    smallest = np.full(want.shape, SMALLEST[dtype.name])
    if name == "std" and dtype == np.float16:  # NumPy's variance is f16 too, and where it is subnormal the root sees it
        smallest = smallest / np.maximum(2 * magnitude, SMALLEST[dtype.name])
    return np.asarray(terms * working * (size[name] + magnitude) + eps(dtype) * magnitude + smallest)


def eps(dtype: np.dtype[Any]) -> float:
    """Distance of 1.0 to the next value of a float dtype."""
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(dtype.name, 2.0**-52)


# -- a row alone -----------------------------------------------------------------------------------
def row_program(axis: int) -> Program:
    def rows(x: Any) -> Any:
        centred = x - np.mean(x, axis=axis, keepdims=True)
        return (
            np.sum(x, axis=axis, keepdims=True), np.prod(x, axis=axis, keepdims=True),
            np.var(x, axis=axis, keepdims=True), fuser.ops.logsumexp(x, axis=axis, keepdims=True),
            np.sum(np.abs(centred), axis=axis, keepdims=True), fuser.ops.softmax(x, axis=axis),
            np.cumsum(x, axis=axis), centred,
        )  # fmt: skip

    return rows


def alone_faults(engine: Engine, axis: int, dtype: DType) -> list[str]:
    """A row (or column) computed alone against the same one in a batch, bit for bit."""
    program = engine.compile(row_program(axis))
    found = []
    for n in LENGTHS:
        shape = (5, n) if axis == 1 else (n, 5)
        x = np.random.default_rng(n).standard_normal(shape).astype(dtype.numpy)
        batch = program(x)
        for k in (0, 3):
            pick = (slice(k, k + 1), slice(None)) if axis == 1 else (slice(None), slice(k, k + 1))
            if wrong := unlike(program(x[pick]), tuple(r[pick] for r in batch)):
                found.append(f"{dtype}{list(shape)} row {k}: {wrong}")
    return found


# -- scans -----------------------------------------------------------------------------------------
SCANS: dict[str, Callable[..., Any]] = {
    "cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": fuser.ops.cummax, "cummin": fuser.ops.cummin,
}  # fmt: skip
ORACLE = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def scan_program(axis: int | None) -> Program:
    def scans(x: Any) -> Any:
        return tuple(f(x, axis=axis) for f in SCANS.values())

    return scans


def scan_faults(engine: Engine, axes: Axes, dtype: DType) -> list[str]:
    """Findings of the four scans over all lengths, and of length 0."""
    program = engine.compile(scan_program(axes.axis))
    found = []
    for n in (0, *axes.lengths):
        for k, x in enumerate(fold_operands(dtype, axes.shape(n)) if n else [np.zeros(axes.shape(0), dtype.numpy)]):
            for name, got in zip(SCANS, program(x), strict=True):
                if wrong := _scan_difference(name, np.asarray(got), x, axes):
                    found.append(f"{name} of {dtype}{list(x.shape)}, sample {k}: {wrong}")
    return found


def _scan_difference(name: str, got: Array, x: Array, axes: Axes) -> str | None:
    axis = 0 if axes.axis is None else axes.axis
    summing = name in ("cumsum", "cumprod")
    with np.errstate(all="ignore"):
        if x.dtype.kind in "biu":
            wide = x.astype(np.cumsum(x[:0]).dtype) if summing else x
        else:
            wide = x.astype(np.float64)
        want = ORACLE[name].accumulate(wide, axis=axis, dtype=wide.dtype)
        expected = wide.dtype if x.dtype.kind in "biu" else x.dtype
        if got.shape != want.shape or got.dtype != expected:
            return f"{got.dtype}{got.shape} instead of {expected}{want.shape}"
        if not summing or x.dtype.kind in "biu":
            return first_wrong(got, want, np.zeros(want.shape))
        working = 2.0**-23 if x.dtype.itemsize <= 4 else 2.0**-52
        n = x.shape[axis]
        magnitude = np.abs(np.nan_to_num(want, posinf=0.0, neginf=0.0))
        size = np.add.accumulate(np.abs(np.nan_to_num(wide, posinf=0.0, neginf=0.0)), axis=axis)
        terms = 8 + n / 8 if name == "cumsum" else 2 * n
        allowed = terms * working * (size if name == "cumsum" else magnitude) + eps(x.dtype) * magnitude
        return first_wrong(got, want, allowed + n * SMALLEST[x.dtype.name])
