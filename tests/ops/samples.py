"""Awkward values for every row and dtype, and how close a result must come.

In: a row of the operator table. Out: `signatures` (dtypes it computes in), `operands` (arrays with NaN, inf, -0.0,
subnormals, extremes, small and random values, every special against every other) and `difference` (what is wrong
with a result, as text, or None). Any test that runs a backend over the table uses these three:

    for dtypes in signatures(row):
        arrays = operands(row, dtypes.operands, result=dtypes.result)
        want = evaluate_scalar(row, *arrays, dtype=dtypes.result)
        assert difference(row, run_backend(arrays), want) is None
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, DType
from fuser.optable.base import Reduction, Resolution, ScalarOp
from fuser.optable.evaluate import dtype_of

Array = np.ndarray[Any, Any]
_LOOSE = 1000.0
LENGTHS = (1, 2, 31, 32, 33, 127, 1000, 4097)  # whole and ragged against warps, vectors and shares
_DIGITS = {F16: 11, BF16: 8, F32: 24, F64: 53}
_SMALLEST_NORMAL = {F16: -14, BF16: -126, F32: -126, F64: -1022}  # exponents


def specials(dtype: DType) -> Array:
    """The values of a dtype that code gets wrong: 1-D, no two the same (NaN once)."""
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        ends = [int(info.min), int(info.min) + 1, int(info.max), int(info.max) - 1, int(info.max) // 2 + 1]
        small = [0, 1, 2, 3, 7, 63, 100, dtype.bits - 1, dtype.bits, -1, -2, -7, -64]
        return np.array(sorted({v for v in (*small, *ends) if info.min <= v <= info.max}), dtype.numpy)
    tiny = 2.0 ** _SMALLEST_NORMAL[dtype]
    step = 2.0 ** (1 - _DIGITS[dtype])
    largest = _largest(dtype)
    plus = [
        0.0, tiny * step, tiny * (1 - step), tiny, step / 2, 0.25, 0.5, 1 - step / 2, 1.0, 1 + step, 1.5, 2.0, 2.5, 3.0,
        3.5, 7.0, 100.0, 127.5, 255.9, 1 / step - 0.5, 1 / step, 2 / step, largest, float("inf"),
    ]  # fmt: skip
    with np.errstate(over="ignore"):
        values = np.array([*plus, *(-v for v in plus), float("nan")], np.float64).astype(dtype.numpy)
    bits = values.view(f"u{dtype.bytes}")  # some fall together in a narrow dtype
    return values[np.sort(np.unique(bits, return_index=True)[1])]


def _largest(dtype: DType) -> float:
    if dtype == BF16:
        return (2 - 2.0**-7) * 2.0**127
    return float(np.finfo(dtype.numpy).max)


def random_values(dtype: DType, n: int, domain: tuple[float, float] | None = None, seed: int = 0) -> Array:
    """`n` values, spread evenly over a domain; without one, over magnitudes for floats and over bits for integers."""
    rng = np.random.default_rng([seed, n, dtype.bits, ord(dtype.kind)])
    if dtype == BOOL:
        return rng.random(n) < 0.5
    if dtype.is_integer:
        whole = rng.integers(0, 256, (n, dtype.bytes), dtype=np.uint8).view(dtype.numpy)[:, 0]
        small = rng.integers(0, 20, n).astype(dtype.numpy)
        return np.where(rng.random(n) < 0.5, whole, small)
    if domain is None:
        exponent = rng.uniform(-12, 12, n)
        return (rng.choice([-1.0, 1.0], n) * 2.0**exponent).astype(dtype.numpy)
    low, high = domain
    if low > 0 and high / low > 1e3:  # many magnitudes: evenly by exponent
        values = np.exp(rng.uniform(np.log(low), np.log(high), n))
    else:
        values = rng.uniform(low, high, n)
    with np.errstate(over="ignore"):  # a domain may be wider than f16
        return values.astype(dtype.numpy)


def signatures(row: ScalarOp, halves: bool = False) -> list[Resolution]:
    """The dtypes a row computes in: those that its rule leaves as they are. Without `halves`, those of kernels.

    For rows whose result dtype is an argument: every pair of source and target (bits of one width for `bitcast`).
    """
    usable = [t for t in ALL if halves or not t.is_half]
    if row.converts:
        return [Resolution((a,), t) for a, t in product(usable, usable) if _convertible(row.name, a, t)]
    found = (row.rule(dtypes) for dtypes in product(usable, repeat=row.arity))
    fixed = {r.operands: r for r in found if r is not None and all(t in usable for t in (*r.operands, r.result))}
    return list(fixed.values())


def _convertible(name: str, source: DType, target: DType) -> bool:
    if name == "bitcast":
        return source.bits == target.bits and BOOL not in (source, target) and source != target
    return name == "cast" or target != BOOL


def operands(
    row: ScalarOp, dtypes: Sequence[DType], n: int | None = None, seed: int = 0, result: DType | None = None
) -> list[Array]:
    """One 1-D array an operand: every special value against every other, then random ones in and out of the domain.

    n: cut or repeat to a length. Arguments that a helper's notes exclude (counts of raw shifts, divisors of C's
    division, values that `convert` cannot hold in `result`) are left out.
    """
    columns = [specials(t) for t in dtypes]
    if len(columns) == 3:  # the full product of three would be large: specials against a few
        columns[1:] = [c[:: max(1, len(c) // 8)] for c in columns[1:]]
    grid = [a.ravel() for a in np.meshgrid(*columns, indexing="ij")]
    inside = [random_values(t, 300, row.domain, seed + k) for k, t in enumerate(dtypes)]
    anywhere = [random_values(t, 300, None, seed + 17 + k) for k, t in enumerate(dtypes)]
    whole = [np.concatenate(parts) for parts in zip(grid, inside, anywhere, strict=True)]
    arrays = _within_contract(row.name, result, whole)
    return arrays if n is None else [np.resize(a, n) for a in arrays]


def _within_contract(name: str, result: DType | None, arrays: list[Array]) -> list[Array]:
    """Arguments that a helper's contract excludes, taken out."""
    if name in ("shl", "shr"):
        x, count = arrays
        keep = (count >= 0) & (count < dtype_of(x).bits)
    elif name in ("trunc_div", "trunc_rem"):
        x, divisor = arrays
        lowest = np.iinfo(x.dtype).min
        keep = (divisor != 0) & ~((x == lowest) & (divisor == x.dtype.type(-1 if lowest < 0 else 0)))
    elif name == "convert" and result is not None and result.is_integer and arrays[0].dtype.kind == "f":
        info, wide = np.iinfo(result.numpy), arrays[0].astype(np.float64)
        keep = (wide >= float(info.min)) & (wide < float(info.max) + 1)
    else:
        return arrays
    return [a[keep] for a in arrays]


# -- judging results -------------------------------------------------------------------------------
def difference(row: ScalarOp, got: Array, want: Array, arrays: Sequence[Array] = ()) -> str | None:
    """What is wrong with `got`, None when nothing is.

    Exact rows: bit for bit (any NaN equals any NaN). Others: within the row's ulp, zeros of the right sign, f16 and
    bf16 within one ulp; where an operand of `arrays` is outside the row's domain, `_LOOSE` ulp of the value or of 1.
    """
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{row.name}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    dtype = dtype_of(want)
    allowed = 0.0 if row.exact or not dtype.is_float else 1.0 if dtype.is_half else float(row.ulp[dtype.name])
    error = ulps(got, want)
    if row.domain is not None and not row.exact and dtype.is_float:
        error = np.where(_inside(row, arrays, want.shape), error, _loosely(error, got, want, dtype, allowed))
    worst = int(np.argmax(error)) if error.size else 0
    if not error.size or error.flat[worst] <= allowed:
        return None
    where = f"at {worst} got {got.flat[worst]!r}, want {want.flat[worst]!r}"
    wrong = int((error > allowed).sum())
    return f"{row.name} on {dtype}: {error.flat[worst]:.3g} ulp (allowed {allowed:g}), {wrong} wrong; {where}"


def _inside(row: ScalarOp, arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    assert row.domain is not None
    low, high = row.domain
    inside = np.ones(shape, np.bool_)
    with np.errstate(all="ignore"):  # bf16 compares NaN, and f16 a wide domain, with a warning
        for a in arrays:
            inside &= (a >= low) & (a <= high)
    return inside


def _loosely(error: Array, got: Array, want: Array, dtype: DType, allowed: float) -> Array:
    """The error outside a domain: what exceeds `_LOOSE` ulp of the value, or of 1 (a result near a root), counts."""
    with np.errstate(all="ignore"):
        distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    near = (error <= _LOOSE) | (distance <= _LOOSE * 2.0 ** (1 - _DIGITS[dtype]))
    return np.where(near, np.minimum(error, allowed), error)


def ulps(got: Array, want: Array) -> Array:
    """Distance in units of `want`'s last place.

    Infinite where only one is NaN or infinite, and where zeros differ in sign.
    """
    dtype = dtype_of(want)
    if not dtype.is_float:
        return np.where(got == want, 0.0, np.inf)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        exponent = np.maximum(np.frexp(b)[1] - 1, _SMALLEST_NORMAL[dtype])
        unit = np.ldexp(1.0, exponent - (_DIGITS[dtype] - 1))
        error = np.abs(a - b) / unit
    error = np.where(a == b, np.where((b == 0) & (np.signbit(a) != np.signbit(b)), np.inf, 0.0), error)
    error = np.where(np.isnan(a) & np.isnan(b), 0.0, error)
    return np.where(np.isnan(error), np.inf, error)


# -- reductions ------------------------------------------------------------------------------------
def reduction_operands(row: Reduction, dtype: DType, n: int, rows: int = 4, seed: int = 0) -> list[Array]:
    """[rows, n] arrays of a dtype: moderate values, values with many ties, and one with specials sprinkled in."""
    rng = np.random.default_rng([seed, n, dtype.bits])
    if not dtype.is_float:
        return [random_values(dtype, rows * n, seed=seed).reshape(rows, n), np.zeros((rows, n), dtype.numpy)]
    moderate = rng.standard_normal((rows, n))
    if row.name == "prod":  # near 1, or it would under- or overflow on the way, in f32 before f64
        moderate = np.exp2(moderate / 64) * np.sign(moderate)
    ties = rng.integers(-2, 3, (rows, n)).astype(np.float64)
    wild = moderate.copy()
    for value in (np.inf, -np.inf, np.nan):
        wild[rng.integers(rows), rng.integers(n)] = value
    infinite = np.full((rows, n), -np.inf)
    return [a.astype(dtype.numpy) for a in (moderate, ties, wild, infinite, -infinite)]
