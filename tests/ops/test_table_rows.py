"""Every row of the table is complete, and its references mean what NumPy and SciPy mean."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fuser.dtypes import ALL, BF16, BOOL, C64, C128, F16, F32, F64, I8, I32, I64, U8, DType
from fuser.optable import base, rows, table
from fuser.optable.base import Reduction, ScalarOp, Scan
from fuser.optable.evaluate import evaluate_scalar
from tests.ops.samples import difference, operands, signatures

Array = np.ndarray[Any, Any]
SCALARS: list[ScalarOp] = table().of(ScalarOp)
SPELLINGS = base.Spelling.__args__  # type: ignore[attr-defined]
CUDA = {base.Infix, base.Prefix, base.Call, base.Ternary, base.Convert, base.Part, base.Join}
LLVM = {base.Instr, base.Intrinsic, base.Libm, base.Convert, base.Part, base.Join}


@pytest.mark.parametrize("row", SCALARS, ids=lambda row: row.name)
def test_scalar_row_is_complete(row: ScalarOp) -> None:
    faults = []
    for target, spellings, kinds in (("cuda", row.cuda, CUDA), ("llvm", row.llvm, LLVM)):
        faults += [f"{target} {key}: {s}" for key, s in spellings.items() if s is not None and type(s) not in kinds]
        for dtypes in signatures(row):
            second = dtypes.operands[1] if row.arity > 1 else None
            if base.pick(spellings, dtypes.operands[0], second) is None and row.expand is None:
                faults.append(f"no {target} spelling and no expand for {dtypes.operands}")
    if not row.exact:
        floats = {s.result.name for s in signatures(row) if s.result.is_float}
        faults += [f"no ulp for {t}" for t in floats - set(row.ulp)]
    if (row.vjp is None) != bool(row.no_vjp):
        faults.append("either a vjp or the reason why there is none")
    if row.growth is not None and len(row.growth) != row.arity:
        faults.append("growth has one factor per operand")
    if not signatures(row) and row.resolve((C64,)) is None and row.name != "complex":
        faults.append("no dtype is accepted")
    assert not faults


def test_exact_rows_claim_no_ulp() -> None:
    assert [row.name for row in SCALARS if row.exact and row.ulp] == []


def test_rows_are_named_once_and_hidden_ones_have_no_names() -> None:
    assert len(table().rows) == len({r.name for r in table().rows.values()})
    assert [r.name for r in SCALARS if r.hidden and r.names != base.Names()] == []
    assert all(table().find("dsl", r.name) is not r for r in SCALARS if r.hidden)


def test_every_listed_module_registers_rows() -> None:
    modules = (*rows.OPERATORS, *rows.FUNCTIONS)
    assert len(modules) == len(set(modules))
    for name in modules:
        assert callable(importlib.import_module(f"fuser.optable.{name}").register), name


def test_named_functions_are_registered_when_something_asks_for_them() -> None:
    names = list(table().rows)
    asks: list[Callable[[rows.BuiltIn], object]] = [
        lambda fresh: fresh.rows["softmax"],
        lambda fresh: fresh.find("numpy", "linspace"),
        lambda fresh: fresh.find("numpy", "there is no such name"),
        lambda fresh: fresh.names("dsl"),
        lambda fresh: fresh.of(base.Composite),
        lambda fresh: fresh.register(ScalarOp(name="mine", arity=1, rule=SCALARS[0].rule, reference=np.abs)),
    ]
    for ask in asks:
        fresh = rows.BuiltIn()
        assert "softmax" not in fresh.known
        assert fresh.find("numpy", "tanh") is fresh.scalar("tanh")
        assert fresh.of(ScalarOp)
        assert "softmax" not in fresh.known
        ask(fresh)
        assert list(fresh.known)[: len(names)] == names
        assert fresh.extended == (len(fresh.known) > len(names))


def test_threads_find_a_function_while_another_registers_it() -> None:
    together = threading.Barrier(4)

    def look(fresh: rows.BuiltIn) -> Any:
        together.wait()
        return fresh.find("numpy", "linspace")

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(look, [rows.BuiltIn()] * 4))
            assert [row.name for row in found] == ["linspace"] * 4


def test_a_second_claim_of_a_name_is_refused() -> None:
    fresh = base.Table()
    fresh.register(table().scalar("add"))
    with pytest.raises(ValueError, match="declared twice"):
        fresh.register(table().scalar("add"))
    twin = ScalarOp(
        name="plus", arity=2, rule=table().scalar("add").rule, reference=np.add, names=base.Names(numpy=("add",))
    )
    with pytest.raises(ValueError, match="claimed by rows `add` and `plus`"):
        fresh.register(twin)


UFUNCS = [row for row in SCALARS if isinstance(getattr(np, row.name, None), np.ufunc)]


# -- coverage of NumPy -----------------------------------------------------------------------------
REFUSED_UFUNCS = {  # complex, datetime, several results, linear algebra
    "conjugate", "isnat", "divmod", "frexp", "modf", "matmul", "matvec", "vecdot", "vecmat",
}  # fmt: skip


def test_every_real_ufunc_of_numpy_has_a_row() -> None:
    ufuncs = {f.__name__ for f in vars(np).values() if isinstance(f, np.ufunc)}
    missing = {name for name in ufuncs if table().find("numpy", name) is None}
    assert missing <= REFUSED_UFUNCS


@pytest.mark.parametrize("row", UFUNCS, ids=lambda row: row.name)
def test_reference_is_numpys(row: ScalarOp) -> None:
    """On every sample, up to what NumPy itself leaves open (checked apart) and its own rounding errors."""
    ufunc: np.ufunc = getattr(np, row.name)
    for dtypes in signatures(row):
        arrays = operands(row, dtypes.operands)
        got = evaluate_scalar(row, *arrays, dtype=dtypes.result)
        keep = _agreed(row, arrays)
        with np.errstate(all="ignore"):
            want = np.asarray(ufunc(*(a[keep] for a in arrays)), dtypes.result.numpy)
        got = got[keep]
        if row.name in ("maximum", "minimum", "fmax", "fmin"):
            np.testing.assert_array_equal(got, want)  # zeros may differ in sign: NumPy's do by CPU and position
        elif row.exact:
            assert difference(row, got, want) is None, dtypes
        else:
            atol = 2e-7 if row.name.startswith("logaddexp") else 1e-37  # NumPy's digits cancel near a result of 0
            np.testing.assert_allclose(got, want, rtol=3e-6 if want.dtype.itemsize == 4 else 1e-13, atol=atol)


def _agreed(row: ScalarOp, arrays: list[Array]) -> Array:
    """Where NumPy defines the answer."""
    if row.name == "reciprocal" and arrays[0].dtype.kind in "iu":
        return np.asarray(arrays[0] != 0)
    if row.name == "power" and arrays[1].dtype.kind == "i":
        return np.asarray(arrays[1] >= 0)
    if row.name == "ldexp" and arrays[1].dtype.itemsize == 8:
        return np.abs(arrays[1]) < 2**31  # NumPy cuts the exponent to a C int
    return np.ones(arrays[0].shape, np.bool_)


SCIPY = [r for r in SCALARS if r.names.scipy]


@pytest.mark.parametrize("row", SCIPY, ids=lambda row: row.name)
def test_reference_is_scipys(row: ScalarOp) -> None:
    special = pytest.importorskip("scipy.special")
    for dtypes in signatures(row):
        arrays = operands(row, dtypes.operands)
        got = evaluate_scalar(row, *arrays, dtype=dtypes.result)
        want = np.asarray(getattr(special, row.names.scipy[0])(*(a.astype(np.float64) for a in arrays)))
        if row.name in ("gamma", "lgamma"):  # SciPy's answers at and next to the poles vary by version
            poles = ((arrays[0] <= 0) & (np.trunc(arrays[0]) == arrays[0])) | (np.abs(arrays[0]) < 1e-300)
            got, want = got[~poles], want[~poles]
        with np.errstate(over="ignore", under="ignore"):
            want = want.astype(got.dtype)
        rtol, atol = (3e-6, 1e-37) if got.dtype.itemsize == 4 else (1e-12, 1e-300)
        atol = max(atol, 1e-15) if row.name == "lgamma" else atol  # math.lgamma's digits cancel near its roots 1 and 2
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


# -- rules of our own ------------------------------------------------------------------------------
def scalar(name: str, *values: Any, dtype: DType, to: DType | None = None) -> Any:
    arrays = [np.array(v, dtype.numpy) for v in values]
    return evaluate_scalar(table().scalar(name), *arrays, dtype=to or dtype).tolist()


def test_integer_division_by_zero_is_zero() -> None:
    for name in ("floor_divide", "remainder", "fmod"):
        assert scalar(name, [7, -7, 0], [0, 0, 0], dtype=I32) == [0, 0, 0]
    assert scalar("reciprocal", [0, 1, -1, 2], dtype=I32) == [0, 1, -1, 0]


def test_most_negative_divided_by_minus_one_wraps() -> None:
    assert scalar("floor_divide", [-128], [-1], dtype=I8) == [-128]
    assert scalar("remainder", [-128], [-1], dtype=I8) == [0]


def test_negative_integer_exponent_truncates_the_reciprocal() -> None:
    assert scalar("power", [1, -1, -1, 2, 0, -3], [-5, -5, -4, -1, -1, -2], dtype=I64) == [1, -1, 1, 0, 0, 0]


def test_oversized_shifts_push_every_bit_out() -> None:
    assert scalar("left_shift", [1, 1, -1], [8, -1, 100], dtype=I8) == [0, 0, 0]
    assert scalar("right_shift", [-2, 2, -2], [8, 9, -1], dtype=I8) == [-1, 0, -1]


def test_float_to_integer_saturates_and_nan_is_zero() -> None:
    wild = [np.nan, np.inf, -np.inf, 3e9, -3e9, -1.9, 255.9, -0.5]
    assert scalar("cast", wild, dtype=F32, to=U8) == [0, 255, 0, 255, 0, 0, 255, 0]
    assert scalar("cast", wild, dtype=F64, to=I32) == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), -1, 255, 0]


def test_casts_to_half_round_once() -> None:
    tie = 1 + 2.0**-8  # halfway between two bf16; a little more must round up, though f32 cannot hold the little
    assert scalar("cast", [tie, tie + 2.0**-40], dtype=F64, to=BF16) == [1.0, 1.0078125]
    tie = 1 + 2.0**-11
    assert scalar("cast", [tie, tie + 2.0**-40], dtype=F64, to=F16) == [1.0, 1.0009765625]
    assert np.isnan(scalar("cast", [np.nan], dtype=F32, to=BF16)[0])


def test_comparison_of_signed_with_unsigned_is_exact() -> None:
    row = table().scalar("less")
    signed, unsigned = np.array([-1, 2**62, 0], np.int64), np.array([2**63, 2**62, 1], np.uint64)
    assert evaluate_scalar(row, signed, unsigned, dtype=BOOL).tolist() == [True, False, True]


def test_no_row_makes_complex_numbers_of_reals_but_the_one_that_joins_them() -> None:
    for row in SCALARS:
        if not row.converts and row.name != "complex":
            assert all(r.result in ALL for r in signatures(row, halves=True)), row.name


# -- names -----------------------------------------------------------------------------------------
def test_names_that_users_write() -> None:
    for namespace, name, row in [
        ("numpy", "abs", "absolute"), ("numpy", "mod", "remainder"), ("numpy", "amax", "max"),
        ("torch", "mul", "multiply"),
        ("torch", "atan2", "arctan2"), ("scipy", "expit", "sigmoid"), ("dsl", "atan", "arctan"),
        ("method", "sum", "sum"),
        ("cupy", "abs", "absolute"), ("dsl", "deg2rad", "radians"), ("torch", "eq", "equal"),
    ]:  # fmt: skip
        found = table().find(namespace, name)
        assert found is not None, name
        assert found.name == row


def test_reductions_and_scans_are_complete() -> None:
    reductions: list[Reduction] = table().of(Reduction)
    for row in reductions:
        accepted = {row.accepts(t) for t in (*ALL, C64, C128)} - {None}
        assert accepted, row.name
        for t in accepted:
            assert t is not None
            assert row.accepts(t) == t  # what it casts to, it accepts
            assert len(row.state(t)) == len(row.identity(t))
        assert (row.vjp is None) == bool(row.no_vjp), row.name
        assert row.exact or row.ulp_note, row.name
    scans: list[Scan] = table().of(Scan)
    for scan in scans:
        assert len(table().reduction(scan.reduction).state(F32)) == 1, scan.name


def test_half_computes_in_f32_and_rounds_once() -> None:
    x = np.array([1000.0, 60000.0], F16.numpy)
    assert evaluate_scalar(table().scalar("square"), x, dtype=F16).tolist() == [np.inf, np.inf]
    assert evaluate_scalar(table().scalar("square"), x, dtype=F32).tolist() == [1e6, 3.6e9]
