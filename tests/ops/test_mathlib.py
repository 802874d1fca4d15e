"""The functions of `fuser.optable.mathlib` as native code: errors, special values, and that an element's bits depend on
nothing but the element."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.llvm.host import host
from fuser.codegen.loops import Launch
from fuser.dtypes import F32, F64, I64, DType
from fuser.hostexpr import sym
from fuser.optable import table
from fuser.optable.evaluate import evaluate_expand, evaluate_scalar
from tests.codegen.native import compiled, run, same_bits
from tests.ops.mathlib import FUNCTIONS, error, in_mpmath, inputs
from tests.ops.samples import specials

Array = np.ndarray[Any, Any]
N = sym("n")
CIRCULAR = {"sin", "cos", "tan"}  # with a call for huge arguments
NESTED = {"sigmoid", "arcsinh", "arccosh", "arctanh"}  # whose expansions refer to other functions
HAS_FMA = "+fma" in host().features or host().triple.startswith(("aarch64", "arm64"))


@cache
def kernel(name: str, dtype: DType) -> tuple[Any, Any]:
    """out[i] = name(x0[i], ...) as one vector loop: the kernel and its native code."""
    b = KernelBuilder("kernel", "cpu")
    arity = FUNCTIONS[name].arity
    ins = [b.buffer(f"x{k}", dtype, "in", k, N) for k in range(arity)]
    out = b.buffer("out", dtype, "out", arity, N)
    zero, one = b.literal(0, I64), b.literal(1, I64)
    with b.loop("p", zero, one, one, "parallel"), b.loop("i", zero, b.scalar(N, I64), one, "vector") as i:
        first, *others = (b.handle(b.load(x, i)) for x in ins)
        b.store(out, i, first.op(name, *others).value)
    made = b.finish(Launch((1, 1), 1))
    return made, compiled(made)


def native(name: str, *arrays: Array) -> Array:
    dtype = F32 if arrays[0].dtype == np.float32 else F64
    made, code = kernel(name, dtype)
    out = np.empty_like(arrays[0])
    buffers = {f"x{k}": np.ascontiguousarray(a) for k, a in enumerate(arrays)}
    run(made, {**buffers, "out": out}, {"n": len(out)}, native=code)
    return out


# -- errors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_in_f32_over_all_magnitudes(name: str) -> None:
    """A million values: every exponent of either sign, and the ranges where the function is hard."""
    arrays = inputs(name, np.float32, 1_000_000)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name].wide(*(a.astype(np.float64) for a in arrays))
    found = error(native(name, *arrays), want)
    worst = int(np.argmax(found))
    assert found[worst] <= FUNCTIONS[name].f32, [a[worst] for a in arrays]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_in_f64(name: str) -> None:
    arrays = inputs(name, np.float64, 4000)
    if name in CIRCULAR:  # mpmath's reduction at 60 digits
        arrays = [a[np.abs(a) < 2.0**100] for a in arrays]
    if name == "power":  # a negative base with a broken exponent is another test's
        arrays[0] = np.abs(arrays[0])
    want, low = in_mpmath(name, arrays)
    found = error(native(name, *arrays), want, low)
    worst = int(np.argmax(found))
    assert found[worst] <= FUNCTIONS[name].f64, [float(a[worst]) for a in arrays]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_promises_are_within_the_rows_bound(name: str) -> None:
    """A row's bound is for all devices; half a unit is the last rounding's."""
    ulp = table().scalar(name).ulp
    assert FUNCTIONS[name].f32 <= ulp["f32"] + 0.5
    assert FUNCTIONS[name].f64 <= ulp["f64"] + 0.5


# -- special values --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: DType) -> None:
    """Zeros with their signs, infinities, NaN, subnormals, the largest values, against NumPy."""
    columns = np.meshgrid(*([specials(dtype)] * FUNCTIONS[name].arity))
    arrays = [c.ravel() for c in columns]
    row = table().scalar(name)
    want = evaluate_scalar(row, *arrays, dtype=dtype)
    got = native(name, *arrays)
    found = error(got, want.astype(np.float64))
    worst = int(np.argmax(found))
    assert found[worst] <= row.ulp[dtype.name] + 0.5, ([a[worst] for a in arrays], got[worst], want[worst])
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_thresholds_of_overflow_and_underflow() -> None:
    x = np.array([88.72283, 88.72284, -103.9720, -103.9722, -87.33655], np.float32)
    got = native("exp", x)
    assert np.isinf(got).tolist() == [False, True, False, False, False]
    assert (got == 0).tolist() == [False, False, False, True, False]
    y = native("exp", np.array([709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412]))
    assert np.isinf(y).tolist() == [False, True, False, False]
    assert y[2] == 5e-324
    assert y[3] == 0
    assert native("exp2", np.array([-149, -150, 127, 128], np.float32)).tolist() == [2.0**-149, 0.0, 2.0**127, np.inf]


def test_power_of_negative_bases() -> None:
    x = np.array([-2, -2, -2, -8, -0.0, -0.0, -np.inf, -np.inf, -1, -1, np.nan, 1], np.float64)
    y = np.array([3, 2, -1, 1 / 3, -3, 3, 3, 0.5, np.inf, 0.5, 0, np.nan], np.float64)
    want = np.array([-8, 4, -0.5, np.nan, -np.inf, -0.0, -np.inf, np.inf, 1, np.nan, 1, 1])
    for t in (np.float64, np.float32):
        got = native("power", x.astype(t), y.astype(t))
        assert np.array_equal(got, want, equal_nan=True)
        assert np.signbit(got[5])


def test_exact_results_are_exact() -> None:
    n = np.arange(-120, 121, dtype=np.float64)
    for t in (np.float32, np.float64):
        assert np.array_equal(native("exp2", n.astype(t)), 2.0**n)
        assert np.array_equal(native("log2", (2.0**n).astype(t)), n.astype(t))
        assert np.array_equal(native("cbrt", (n**3).astype(t)), n.astype(t))
        assert np.array_equal(native("power", n.astype(t), np.full_like(n, 2).astype(t)), (n * n).astype(t))
        assert np.array_equal(native("hypot", (3 * n).astype(t), (4 * n).astype(t)), np.abs(5 * n).astype(t))


# -- one value an element --------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_position_does_not_matter(name: str, dtype: DType) -> None:
    arrays = [a[:203] for a in inputs(name, dtype.numpy, 812)]
    whole = native(name, *arrays)
    for start, stop in ((1, 203), (17, 203), (0, 5), (30, 31), (3, 100)):
        assert same_bits(native(name, *(a[start:stop] for a in arrays)), whole[start:stop])


@pytest.mark.parametrize("name", sorted(CIRCULAR))
def test_a_huge_argument_changes_only_its_own_element(name: str) -> None:
    for t, bound in ((np.float32, 2.0**17), (np.float64, 2.0**32)):
        x = np.linspace(-bound, bound, 64).astype(t)
        plain = native(name, x)
        x[[5, 40]] = (1e15, -np.inf)
        got = native(name, x)
        keep = np.ones(64, np.bool_)
        keep[[5, 40]] = False
        assert same_bits(got[keep], plain[keep])
        assert np.isnan(got[40])
        np.testing.assert_allclose(got[5], FUNCTIONS[name].wide(np.float64(x[5])), rtol=4 * np.finfo(t).eps)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in NESTED])
def test_numpy_runs_the_same_arithmetic(name: str, dtype: DType) -> None:
    """`expand` on NumPy arrays and as machine code: the same bits, as every operator in it is exact."""
    arrays = [a[::4] for a in inputs(name, dtype.numpy, 1600)]
    if name in CIRCULAR:
        arrays = [a[np.abs(a) < 2.0**17] for a in arrays]
    got = evaluate_expand(table().scalar(name), *arrays, dtype=dtype, table=table())
    assert same_bits(np.ascontiguousarray(got), native(name, *arrays))


# -- machine code ----------------------------------------------------------------------------------
@pytest.mark.skipif(not HAS_FMA, reason="without fused multiply-add a host calls a function for it")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_is_vectors_without_calls(name: str, dtype: DType) -> None:
    assembly = kernel(name, dtype)[1].assembly
    calls = [c for c in re.findall(r"^\s+(?:callq?|blr?)\s+(\S+)", assembly, re.M) if not c.startswith("kernel.work")]
    assert bool(calls) == (name in CIRCULAR)
    packed = r"v?f?n?madd\d+p[sd]|v?mulp[sd]|fml[as]\s+v\d"
    assert re.search(packed, assembly)


def test_hypot_reaches_the_largest_number() -> None:
    for t in (np.float32, np.float64):
        top = np.finfo(t).max
        assert native("hypot", np.array([top, top, 3.0, -top], t), np.array([0, 1, top, 2], t)).tolist() == [top] * 4


def test_hypot_of_doubles_is_the_expansion_on_every_device() -> None:
    assert "f64" not in table().rows["hypot"].cuda
