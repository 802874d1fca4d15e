"""Complex operators and programs on every engine: NumPy's values, dtype and shape, and the same bits fused or not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from fuser import trees
from tests import engines
from tests.complex.programs import AXES, FOLDS, OPERATORS, PROGRAMS, Operator, numbers
from tests.engines import Engine

TYPES = (np.complex64, np.complex128)
SHAPE = (3, 8, 12)
each_type = pytest.mark.parametrize("dtype", TYPES, ids=("c64", "c128"))


def near(got: Any, want: Any, eps: float, scale: float = 1.0) -> None:
    """Each result of NumPy's dtype and shape, off by at most `eps` of the larger of its modulus and `scale`."""
    found, expected = trees.flatten(got)[0], trees.flatten(want)[0]
    assert len(found) == len(expected)
    for g, w in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if not eps or w.dtype.kind not in "fc":
            np.testing.assert_array_equal(g, w)
            continue
        unit = np.finfo(w.dtype).eps
        worst = np.abs(g.astype(np.complex128) - w) / (eps * unit * np.maximum(np.abs(w), scale))
        assert np.all(worst <= 1), f"off by {np.max(worst) * eps} eps"


def apart_too(engine: Engine, fn: Any, arguments: Any) -> Any:
    """The fused result, after asserting that one kernel an operator gives its bits."""
    fused = engine.compile(fn)(*copy.deepcopy(arguments))
    alone = engine.compile(fn, fused=False)(*copy.deepcopy(arguments))
    for f, a in zip(trees.flatten(fused)[0], trees.flatten(alone)[0], strict=True):
        assert np.asarray(f).tobytes() == np.asarray(a).tobytes()
    return fused


@engines.each
@each_type
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_operators(operator: Operator, dtype: Any, engine: Engine) -> None:
    arguments = [numbers((5, 13), dtype, seed) for seed in range(operator.arity)]
    with np.errstate(all="ignore"):
        want = operator.fn(*arguments)
    near(engine.compile(operator.fn)(*arguments), want, operator.eps)


@engines.each
@each_type
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_folds(axis: Any, dtype: Any, engine: Engine) -> None:
    z = numbers(SHAPE, dtype, 1)

    def every(z: Any) -> Any:
        return [fold(z, axis=axis) for fold in FOLDS.values()]

    near(apart_too(engine, every, [z]), every(z), 40)


@engines.each
@each_type
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: Any, engine: Engine) -> None:
    program = PROGRAMS[name]
    arguments = [numbers(SHAPE, dtype, seed) * dtype(0.5) for seed in (3, 4)]
    mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    want = program(*theirs)
    near(engine.compile(program)(*mine), want, 40)
    near(mine, theirs, 40)
    apart_too(engine, program, arguments)


@engines.each
def test_long_rows_and_odd_strides(engine: Engine) -> None:
    z = numbers((6, 5003), np.complex64, 7)

    def program(z: Any) -> Any:
        return z.sum(axis=1), (z * z.conj()).real.sum(axis=0), z.mean()

    for given in (z, z[::2, ::3], z.T, z[::-1, 1:]):
        want = program(given.astype(np.complex128))
        got = engine.compile(program)(given)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-3)


@engines.each
def test_an_address_that_only_a_part_is_aligned_to(engine: Engine) -> None:
    """complex128 at 8 bytes past a multiple of 16, as NumPy allows."""
    memory = np.zeros(16 * 33 + 8, np.uint8)
    start = (-memory.__array_interface__["data"][0]) % 16 + 8
    z = memory[start : start + 16 * 32].view(np.complex128)
    z[...] = numbers((32,), np.complex128, 2)
    near(engine.compile(lambda z: z * 2 + 1j)(z), z * 2 + 1j, 0)


def test_every_architecture_compiles() -> None:
    """NVRTC takes vectors of complex numbers, parts and joins."""
    import fuser
    from fuser.codegen.cuda import nvrtc
    from fuser.errors import DeviceError

    try:
        nvrtc.version()
    except DeviceError as error:
        pytest.skip(f"NVRTC cannot be used here: {error.message}")
    for dtype in ("c64", "c128"):
        for arch in ("sm_80", "sm_90"):
            for program in (PROGRAMS["mandelbrot"], PROGRAMS["coherence"], PROGRAMS["moved"]):
                plan = fuser.compile(program).plan(f"{dtype}[64, 96]", f"{dtype}[64, 96]", device=arch)
                for name, source in plan.sources().items():
                    assert nvrtc.compile(source, name, arch).cubin
