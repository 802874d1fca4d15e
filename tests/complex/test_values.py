"""What complex numbers mean beyond the arithmetic: scalars, special values, parts as views, libraries, plans."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import ComplexError, FuserError
from tests.complex.programs import numbers

Z, W = numbers((4, 6), np.complex64, 1), numbers((4, 6), np.complex64, 2)


# -- scalars ---------------------------------------------------------------------------------------
def test_a_complex_argument_is_weak_and_counts_at_each_call() -> None:
    def program(z: Any, c: complex, h: float) -> Any:
        k = 2j * h + c.conjugate() * c / (c + 1) - abs(c) ** 2 + c.real * c.imag - c**3
        return z * k, k * 1.0, c == 1j

    run = fuser.compile(program)
    for c, h in ((1 + 2j, 0.5), (-0.25j, 3.0), (1j, 0.0)):
        got, want = run(Z, c, h), program(Z, c, h)
        assert got[0].dtype == np.complex64
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
        assert complex(got[1]) == pytest.approx(want[1], rel=1e-15)
        assert bool(got[2]) == want[2]
    assert run.specializations == {}


def test_a_complex_argument_that_python_must_know_is_traced_for_its_value() -> None:
    run = fuser.compile(lambda z, c: z * cmath.exp(c) if c else z)
    for c in (1 + 2j, 0j, 1j):
        want = Z * cmath.exp(c) if c else Z
        np.testing.assert_allclose(run(Z, c), want, rtol=1e-6)


def test_numpy_scalars_are_strong_and_full_reductions_give_them() -> None:
    run = fuser.compile(lambda z, s: (z * s).sum())
    got = run(Z, np.complex128(1 + 1j))
    assert type(got) is np.complex128
    assert got == pytest.approx((Z * np.complex128(1 + 1j)).sum())


def test_no_silent_constant() -> None:
    factor = 1j

    def program(z: Any) -> Any:
        return z * factor

    run = fuser.compile(program)
    np.testing.assert_array_equal(run(Z), program(Z))
    factor = 2 - 1j
    np.testing.assert_allclose(run(Z), program(Z), rtol=1e-6)


# -- values ----------------------------------------------------------------------------------------
PARTS = (0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan)
SPECIAL = np.array([complex(a, b) for a in PARTS for b in PARTS])


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_special_values_of_arithmetic_are_numpys(name: str) -> None:
    z, w = (a.reshape(-1) for a in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(z, w)
    got = fuser.compile(lambda z, w: getattr(np, name)(z, w))(z, w)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["negative", "conjugate", "isnan", "isinf", "isfinite", "absolute", "real", "imag"])
def test_special_values_of_parts_are_numpys(name: str) -> None:
    np.testing.assert_array_equal(fuser.compile(lambda z: getattr(np, name)(z))(SPECIAL), getattr(np, name)(SPECIAL))


def test_the_cut_of_the_root_and_of_the_angle_runs_along_the_negative_axis() -> None:
    z = np.array([complex(-4, 0.0), complex(-4, -0.0), 4, 4j, -4j, 0])
    np.testing.assert_allclose(fuser.compile(np.sqrt)(z), np.sqrt(z), atol=1e-15)
    np.testing.assert_allclose(fuser.compile(lambda z: np.angle(z))(z), np.angle(z))
    np.testing.assert_allclose(fuser.compile(np.log)(z[:5]), np.log(z[:5]), atol=1e-15)


def test_a_joined_pair_keeps_signs_of_zeros() -> None:
    program = fuser.parse("def f(x, y):\n    return complex(x, y)\n")["f"]
    x, y = np.array([-0.0, np.inf]), np.array([0.0, np.nan])
    got = program(x, y)
    assert got.real.tobytes() == x.tobytes()
    assert got.imag.tobytes() == y.tobytes()


# -- parts are views -------------------------------------------------------------------------------
def test_stores_into_parts_are_seen_by_the_whole() -> None:
    def program(z: Any) -> Any:
        part = z.imag
        part[1:, ::2] = 7
        z.real = part.T[0, 0]
        z.real[0] += z.imag[0]
        return z.conj(), part

    mine, theirs = Z.copy(), Z.copy()
    got, want = fuser.compile(program)(mine), program(theirs)
    np.testing.assert_array_equal(mine, theirs)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_out_arguments() -> None:
    run = fuser.compile(lambda z, w: z - w)
    out = np.empty_like(Z)
    assert run(Z, W, out=out) is out
    np.testing.assert_array_equal(out, Z - W)
    wide = np.empty(Z.shape, np.complex128)
    run(Z, W, out=wide)
    np.testing.assert_array_equal(wide, (Z - W).astype(np.complex128))

    def inside(z: Any, w: Any) -> Any:
        found = np.empty_like(z)
        np.multiply(z, 2, out=found)
        np.abs(w, out=found.real)
        return found

    np.testing.assert_allclose(fuser.compile(inside)(Z, W), inside(Z, W), rtol=1e-6)


def test_a_complex_result_does_not_go_into_a_real_array() -> None:
    def program(x: Any, z: Any) -> Any:
        x += z
        return x

    with pytest.raises(FuserError, match="Cannot cast"):
        fuser.compile(program)(Z.real.copy(), Z)
    with pytest.raises(TypeError):
        program(Z.real.copy(), Z)


# -- refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "program",
    [
        lambda z: z > 0, lambda z: np.sort(z), lambda z: np.clip(z, 0, 1), lambda z: z % 2, lambda z: z // 2,
        lambda z: np.argmax(z), lambda z: np.fmax(z, 1), lambda z: np.cumprod(z, axis=0), lambda z: np.ceil(z),
        lambda z: z.astype(float), lambda z: z & 1, lambda z: np.real_if_close(z), lambda z: fuser.ops.softmax(z),
        lambda z: fuser.ops.gelu(z), lambda z: np.median(z), lambda z: np.hypot(z, z), lambda z: np.interp(z, [0], [1]),
    ],
)  # fmt: skip
def test_what_has_no_complex_meaning_is_refused_with_advice(program: Any) -> None:
    with pytest.raises(FuserError) as caught:
        fuser.compile(program)(Z)
    assert len(str(caught.value).splitlines()) > 1, str(caught.value)


def test_the_error_is_a_type_error_too() -> None:
    with pytest.raises(ComplexError) as caught:
        fuser.compile(lambda z: z <= 1)(Z)
    assert isinstance(caught.value, TypeError)


# -- libraries -------------------------------------------------------------------------------------
def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")

    def program(z: Any, x: Any) -> Any:
        pairs = torch.view_as_complex(torch.stack([x, x], -1))
        return (
            z * x + 1j, z.abs(), z.conj() * z, torch.exp(z), z.real + z.imag, x * 1j, torch.angle(z), z.sum(dim=0),
            z * x.double(), x.double() * 1j, z / (z + 1), torch.sgn(z), z**2, torch.polar(x.abs(), x), z.mH @ z, pairs,
            torch.view_as_real(z * 2), z.cdouble(), torch.linalg.norm(z), torch.vdot(z[0], z[1]), z.mean(), z == z,
            torch.where(x > 0, z, 2 * z), torch.cat([z, z], 1),
        )  # fmt: skip

    z, x = torch.from_numpy(Z), torch.from_numpy(W.real.copy())
    for g, w in zip(fuser.compile(program)(z, x), program(z, x), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        torch.testing.assert_close(g, w.resolve_conj())
    with pytest.raises(FuserError, match="resolve_conj"):
        fuser.compile(lambda z: z * 2)(z.conj())
    halves = fuser.compile(lambda x: torch.complex(x[..., 0], x[..., 1]))(torch.view_as_real(z))
    torch.testing.assert_close(halves, z)


# -- programs as text, plans ------------------------------------------------------------------------
TEXT = """
def step(z: c64[n, d], w: complex64[n, d], c: complex = 1j, h: float = 0.5) -> c64[n, d]:
    y = z * w + (2j * h + c)
    y[0] = 1 + 2j
    y.real[1] = 3
    return conj(y) / abs(y) + c64(h) * y.imag
"""


def test_program_text() -> None:
    run = fuser.parse(TEXT)["step"]

    def step(c: complex, h: float) -> Any:
        y = Z * W + (2j * h + c)
        y[0] = 1 + 2j
        y.real[1] = 3
        return y.conj() / abs(y) + np.complex64(h) * y.imag

    np.testing.assert_allclose(run(Z, W), step(1j, 0.5), rtol=1e-5)
    np.testing.assert_allclose(run(Z, W, 2 - 1j, h=2.0), step(2 - 1j, 2.0), rtol=1e-5)


def test_a_plan_counts_both_parts_once_and_shows_them_by_name() -> None:
    plan = fuser.compile(lambda z, w: (z * w + 1j).sum(axis=-1)).plan(
        "c64[512, 1024]", "c64[512, 1024]", device="sm_90"
    )
    assert len(plan.kernels) == 1
    assert plan.bytes_moved == 8 * (2 * 512 * 1024 + 512)
    assert plan.kernels_unfused == 3
    assert plan.bytes_unfused == 8 * (6 * 512 * 1024 + 512)
    text = plan.explain()
    assert "z.real" in text
    assert "out.imag" in text
    assert "c64x2" in text


def test_check_and_report_take_complex_results() -> None:
    run = fuser.compile(lambda z, w: np.exp(z) / w)
    run.check(Z, W)
    assert "c64" in str(run.report(Z, W))


def test_a_complex_argument_takes_the_short_road() -> None:
    run = fuser.compile(lambda z, c=1j, h=0.5: z * c + h)
    for c, h in ((1j, 0.5), (2 - 1j, 0.25), (2 - 1j, 2.0), (complex(np.inf, 0.0), 1.0)):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run(Z, c), Z * c + 0.5)
            np.testing.assert_array_equal(run(Z, c, h), Z * c + h)
            np.testing.assert_array_equal(run(Z, h=h), Z * 1j + h)
    assert all(type(key) is tuple for key in run._roads._table)
    assert len(run._roads._table) == 3
