"""The approximations behind variants, held against float64 within the errors that their rows state.

No GPU is needed: the text of each device function is run in NumPy, statement by statement, in f32. The instructions of
the special-function unit are taken as their real function, rounded, and once as far off as NVIDIA documents in each
direction (2 ulp; `div`, `rcp`, `sqrt`, `rsqrt` 1 ulp), with subnormals flushed where the instruction flushes them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import special

import fuser
from fuser.codegen.cuda.arithmetic import ARITHMETIC
from fuser.dtypes import F32, U32
from fuser.optable import table
from fuser.optable.base import Call, ScalarOp
from fuser.optable.evaluate import evaluate_expand, evaluate_scalar

Array = Any
SMALLEST = 2.0**-126
UNIT = {  # instruction -> (real function, units in the last place)
    "ex2": (np.exp2, 2), "rcp": (lambda x: 1 / x, 1), "sqrt": (np.sqrt, 1), "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "lg2": (np.log2, 2),
}  # fmt: skip
EXACT: dict[str, Any] = {
    "exp": np.exp, "sigmoid": special.expit, "tanh": np.tanh, "one_plus_tanh": lambda x: 2 * special.expit(2 * x),
    "one_plus_erf": lambda x: special.erfc(-x), "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x, "divide": lambda x, y: x / y, "log": np.log, "log2": np.log2,
}  # fmt: skip
VARIANTS = [row for row in table().of(ScalarOp) if row.variant_of]
FLUSHES = frozenset({"one_plus_tanh", "one_plus_erf"})  # their rows say so


# -- device functions in NumPy ---------------------------------------------------------------------
class Device:
    """Runs the body of a device function on f32 arrays. off: units that special functions err, with a sign."""

    def __init__(self, off: float) -> None:
        self.off = off

    def call(self, name: str, *arguments: Array) -> Array:
        head, *body = ARITHMETIC[name]
        names = [p.split()[-1] for p in re.findall(r"\((.*)\)", head)[0].split(", ")]
        self.values: dict[str, Array] = dict(zip(names, arguments, strict=True))
        for line in self.lines(body):
            found = self.statement(line)
            if found is not None:
                return found
        raise AssertionError(f"{name} returns nothing")

    @staticmethod
    def lines(body: tuple[str, ...] | list[str]) -> list[str]:
        """Statements, by the branch of the preprocessor for sm_80 and later."""
        kept, inside = [], True
        for line in body:
            if line.startswith("#"):
                inside = not line.startswith("#else")
            elif inside:
                kept += [s.strip() for s in line.strip().rstrip("}").split("; ") if s.strip()]
        return [s.rstrip(";") for s in kept]

    def statement(self, line: str) -> Array | None:
        if line.startswith("asm"):
            self.instruction(line)
        elif line.startswith("return "):
            return self.expression(line.removeprefix("return "))
        elif " = " in line:
            target, text = line.split(" = ", 1)
            self.values[target.split()[-1]] = self.expression(text)
        else:
            assert re.fullmatch(r"float \w+", line), line
        return None

    def instruction(self, line: str) -> None:
        found = re.fullmatch(r'asm\("([\w.]+) .*?" : "[=+]f"\((\w+)\) : (.*)\)', line)
        assert found, line
        name, result, operands = found.groups()
        values = [self.expression(t) for t in re.findall(r'"f"\((.*?)\)(?=, "|$)', operands)]
        if name.startswith(("min.NaN", "max.NaN")):
            pair = values if len(values) == 2 else [self.values[result], *values]
            self.values[result] = (np.minimum if name.startswith("min") else np.maximum)(*pair)
            return
        function, ulp = UNIT[name.split(".")[0]]
        x = values[0].astype(np.float64)
        if ".ftz" in name:
            x = np.where(np.abs(x) < SMALLEST, 0 * x, x)
        exact = function(x)
        out = (exact * (1 + self.off * ulp * 2.0**-24)).astype(np.float32)
        out = np.where(exact == np.rint(exact), exact.astype(np.float32), out) if name.startswith("ex2") else out
        self.values[result] = np.where(np.abs(out) < SMALLEST, 0 * out, out) if ".ftz" in name else out

    def expression(self, text: str) -> Array:
        """C's arithmetic and `c ? a : b`, in f32."""
        if " ? " in text:
            condition, rest = text.split(" ? ", 1)
            yes, no = rest.split(" : ", 1)
            return np.where(self.expression(condition), self.expression(yes), self.expression(no)).astype(np.float32)
        text = re.sub(r"(?<![\w.])(\d[\d.]*(?:e[-+]?\d+)?)f", r"f32(\1)", text)
        names = {"f32": np.float32, "fabsf": np.abs, "fmaf": _fma, **self.values}
        return eval(text, {"__builtins__": {}}, names)  # this project's own text


def _fma(a: Array, b: Array, c: Array) -> Array:
    return (np.float64(1) * a * b + c).astype(np.float32)


def samples(row: ScalarOp) -> list[Array]:
    """f32 values of every magnitude, and many within the domain where the function is interesting."""
    rng = np.random.default_rng(5)
    bits = [rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32) for _ in range(2)]
    low, high = row.domain or (-4.0, 4.0)
    inside = [rng.uniform(low, high, 200_000).astype(np.float32), rng.uniform(-4, 4, 200_000).astype(np.float32)]
    return [np.concatenate([b, inside[0], inside[1]]) for b in bits][: row.arity]


def relative(got: Array, want: Array, least: float) -> Array:
    """Relative error where the result is finite and at least `least`; elsewhere what is left of a subnormal unit."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        finite = np.isfinite(want.astype(np.float32)) & np.isfinite(want)
    error = np.where(finite, error / np.maximum(np.abs(want), least), 0.0)
    return np.where(np.isnan(got) & finite, np.inf, error)


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: row.name)
@pytest.mark.parametrize("off", [-1.0, 0.0, 1.0])
def test_errors_stay_below_what_the_row_states(row: ScalarOp, off: float) -> None:
    spelled = row.cuda["f32"]
    assert isinstance(spelled, Call)
    variant = table().scalar(row.variant_of).variants["fast"]
    arrays = samples(row)
    with np.errstate(all="ignore"):
        got = Device(off).call(spelled.name, *arrays)
        want = EXACT[row.variant_of](*(a.astype(np.float64) for a in arrays))
    assert got.dtype == np.float32
    error = relative(got, want, SMALLEST)
    if not variant.budget:  # a logarithm: near 1 its error is one of 1
        error = np.fmin(error, np.abs(got - want))
    if row.variant_of in FLUSHES:
        error = np.where((np.abs(want) < SMALLEST) & (got == 0), 0.0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= variant.error, [float(a[worst]) for a in arrays]


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: row.name)
def test_infinities_zeros_and_nan_are_the_plain_rows(row: ScalarOp) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40, -1e-40, 1.0, -1.0], np.float32)
    arrays = [a.ravel().copy() for a in np.meshgrid(*[values] * row.arity)]
    want = evaluate_scalar(table().scalar(row.variant_of), *arrays, dtype=F32)
    with np.errstate(all="ignore"):
        got = Device(0.0).call(row.cuda["f32"].name, *arrays)  # type: ignore[union-attr]
    special_value = ~np.isfinite(want) | (want == 0)
    np.testing.assert_array_equal(got[special_value], want[special_value])
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_results_that_are_subnormal_are_not_flushed() -> None:
    x = np.linspace(-103.0, -87.4, 5000).astype(np.float32)
    for name in ("exp", "sigmoid"):
        with np.errstate(all="ignore"):
            got = Device(0.0).call(f"fuser_{name}_fast", x)
            want = EXACT[name](x.astype(np.float64))
        assert np.all(np.abs(got - want) <= 2.0**-149 + want * 2.0**-16)
        assert got[-1] > 0


# -- rows ------------------------------------------------------------------------------------------
def test_variants_mean_their_plain_rows_and_are_them_on_cpus() -> None:
    assert {r.variant_of for r in VARIANTS} == set(EXACT)
    for row in VARIANTS:
        plain = table().scalar(row.variant_of)
        arrays = samples(row)
        assert table().plain(row.name) is plain
        assert row.llvm == {}
        assert row.cost.instructions < plain.cost.instructions
        want = evaluate_scalar(plain, *arrays, dtype=F32)
        np.testing.assert_array_equal(evaluate_scalar(row, *arrays, dtype=F32), want)
        np.testing.assert_array_equal(evaluate_expand(row, *arrays, dtype=F32, table=table()), want)


def test_users_cannot_name_a_variant() -> None:
    assert all(row.hidden and table().find("dsl", row.name) is None for row in VARIANTS)
    assert {"one_plus_tanh", "one_plus_erf"}.isdisjoint(table().names("dsl"))


@pytest.mark.parametrize("name", ["largest", "smallest"])
def test_extremes_tell_zeros_apart_whatever_comes_first(name: str) -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    row, winner = table().scalar(name), 0.0 if name == "largest" else -0.0
    for pair in (zeros, zeros[::-1]):
        got = evaluate_scalar(row, pair[:1], pair[1:], dtype=F32)
        assert np.signbit(got[0]) == np.signbit(winner)
    assert np.isnan(evaluate_scalar(row, np.float32(np.nan), np.float32(1), dtype=F32))
    assert np.isnan(evaluate_scalar(row, np.float32(1), np.float32(np.nan), dtype=F32))


def test_a_word_of_two_halves_takes_the_larger_of_each() -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38, -1e-40, 1e-40]
    halves = np.array(special, np.float32).view(np.uint32) & 0xFFFF0000
    a, b = (x.ravel() for x in np.meshgrid(halves, halves))
    low_a, low_b = b[::-1] >> 16, a[::-1] >> 16
    words = [(a | low_a).astype(np.uint32), (b | low_b).astype(np.uint32)]
    row = table().scalar("largest_bf16x2")
    got = evaluate_scalar(row, *words, dtype=U32)
    np.testing.assert_array_equal(got, evaluate_expand(row, *words, dtype=U32, table=table()))
    for part, (x, y) in ((got & 0xFFFF0000, (a, b)), (got << 16, (low_a << 16, low_b << 16))):
        floats = [v.astype(np.uint32).view(np.float32) for v in (x, y)]
        want = evaluate_scalar(table().scalar("largest"), *floats, dtype=F32)
        np.testing.assert_array_equal(part.astype(np.uint32).view(np.float32), want)
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(part.astype(np.uint32).view(np.float32))[zero], np.signbit(want[zero]))


# -- through the front door ------------------------------------------------------------------------
def black_scholes(spot: Any, strike: Any, years: Any) -> Any:
    spread = 0.25 * np.sqrt(years)
    d = (np.log(spot / strike) + 0.06 * years) / spread
    return spot * 0.5 * (1.0 + special.erf(d * 0.7071)) - strike * np.exp(-0.03 * years)


def test_fast_math_reaches_the_kernels_and_no_other_program() -> None:
    specs = ("f32[n]",) * 3
    fast = "\n".join(fuser.compile(black_scholes, fast_math=True).plan(*specs, device="sm_90").sources().values())
    plain = "\n".join(fuser.compile(black_scholes).plan(*specs, device="sm_90").sources().values())
    used = set(re.findall(r"fuser_\w+_fast", fast))
    assert used == {f"fuser_{n}_fast" for n in ("sqrt", "log", "divide", "one_plus_erf", "exp")}
    assert "fmaf(" in fast
    assert "_fast" not in plain


def test_fast_math_on_a_cpu_is_the_plain_functions() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(low, high, 1000).astype(np.float32) for low, high in ((10, 50), (10, 50), (0.25, 2))]
    got = fuser.compile(black_scholes, fast_math=True)(*arrays)
    want = black_scholes(*(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["silu", "gelu", "sigmoid", "tanh", "exp"])
def test_half_functions_round_as_float64_nearly_always(name: str, dtype: str) -> None:
    """In the interpreter's references: what variants change beside the functions themselves (1 + erf, fusing)."""
    import ml_dtypes

    half = np.dtype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    x = np.arange(1 << 16, dtype=np.uint16).view(half)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    exact = {"silu": lambda v: v * special.expit(v), "gelu": lambda v: v * special.ndtr(v), "sigmoid": special.expit}
    with np.errstate(all="ignore"):
        want = {**exact, "tanh": np.tanh, "exp": np.exp}[name](wide).astype(half)
        got = fuser.compile(getattr(fuser.ops, name))(x)
    finite = np.isfinite(want.astype(np.float32)) & (want != 0)
    wrong = finite & (got != want)
    assert wrong.sum() <= 64, [float(v) for v in x[wrong][:5]]
