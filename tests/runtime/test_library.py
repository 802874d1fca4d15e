"""Matrix products take views of their operands as they are: the right values, and no kernel that copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.dtypes import BF16
from fuser.runtime import library
from fuser.runtime.library import layout
from tests.engines import Engine, each

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


# Program, arguments, kernels besides the product.
CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], int]] = {
    "as it is": (lambda x, w: x @ w, (array(6, 5), array(5, 4)), 0),
    "right transposed": (lambda x, w: x @ w.T, (array(6, 5), array(4, 5)), 0),
    "left transposed": (lambda x, w: x.T @ w, (array(5, 6), array(5, 4)), 0),
    "both transposed": (lambda x, w: x.T @ w.T, (array(5, 6), array(4, 5)), 0),
    "with itself": (lambda x: x @ x.T, (array(6, 5),), 0),
    "reshaped": (lambda x, w: x.reshape(-1, 5) @ w, (array(2, 3, 5), array(5, 4)), 0),
    "some columns": (lambda x, w: x[:, 1:6] @ w, (array(6, 8), array(5, 4)), 0),
    "every other row": (lambda x, w: x[::2] @ w, (array(6, 5), array(5, 4)), 0),
    "every other column": (lambda x, w: x[:, ::2] @ w, (array(6, 10), array(5, 4)), 1),
    "rows from the end": (lambda x, w: x[::-1] @ w, (array(6, 5), array(5, 4)), 1),
    "heads": (lambda q, k: np.einsum("bthd,bshd->bhts", q, k), (array(2, 7, 3, 4), array(2, 5, 3, 4)), 0),
    "one matrix for all": (lambda x, w: x @ w[None], (array(3, 6, 5), array(5, 4)), 0),
    "batches spread": (lambda x, w: x @ w, (array(3, 1, 6, 5), array(2, 5, 4)), 0),
    "computed, transposed": (lambda x, w: np.exp(x).T @ w, (array(5, 6), array(5, 4)), 1),
    "a view that is returned": (lambda x, w: (x @ w.T, w.T), (array(6, 5), array(4, 5)), 1),
    "result transposed": (lambda x, w: (x @ w).T, (array(6, 5), array(5, 4)), 0),
    "results transposed": (lambda x, w: np.swapaxes(x @ w.T, -1, -2), (array(3, 6, 5), array(4, 5)), 0),
    "both ways": (lambda x, w: (lambda y: (y, y.T))(x @ w), (array(6, 5), array(5, 4)), 1),
    "nothing to add": (lambda x, w: x @ w.T, (array(6, 0), array(4, 0)), 1),
    "no rows": (lambda x, w: x[3:3] @ w.T, (array(6, 5), array(4, 5)), 0),
    "one column": (lambda x, w: x @ w.T, (array(6, 5), array(1, 5)), 0),
}


@each
@pytest.mark.parametrize("name", CASES)
def test_views_are_multiplied_as_numpy_does(engine: Engine, name: str) -> None:
    fn, args, kernels = CASES[name]
    got, want = engine.compile(fn)(*args), fn(*args)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
    plan = fuser.compile(fn).plan(*args, device="sm_90" if engine.kind == "cuda" else "cpu")
    assert sum(g.library is None for g in plan.groups) <= kernels


@pytest.mark.parametrize("name", ["right transposed", "reshaped", "some columns", "heads"])
def test_strided_arguments(name: str) -> None:
    """Arrays that are views themselves: every other element of larger ones, or transposed in memory."""
    fn, args, _ = CASES[name]
    compiled = fuser.compile(fn)
    spread = [np.repeat(a, 2, axis=-1)[..., ::2] for a in args]
    turned = [np.asfortranarray(a) for a in args]
    for given in (spread, turned):
        np.testing.assert_allclose(compiled(*given), fn(*args), rtol=1e-5, atol=1e-5)


def test_half_types_keep_theirs() -> None:
    compiled = fuser.compile(lambda x, w: x @ w.T)
    x, w = array(6, 5).astype(BF16.numpy), array(4, 5).astype(BF16.numpy)
    want = (x.astype(np.float32) @ w.astype(np.float32).T).astype(BF16.numpy)
    assert np.array_equal(compiled(x, w), want)
    assert len(compiled.plan(x, w).groups) == 1


def test_blas_is_never_handed_what_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy multiplies arrays that no leading dimension describes element by element."""
    seen: list[Any] = []
    wide = array(6, 10)
    compiled = fuser.compile(lambda x, w: x @ w)
    compiled(wide[:, ::2], wide[:5, :4])
    matmul = np.matmul

    def spy(a: Any, b: Any, out: Any) -> Any:
        seen.extend((a, b))
        return matmul(a, b, out)

    monkeypatch.setattr(library.np, "matmul", spy)
    want = matmul(wide[:, ::2].copy(), wide[:5, :4])
    np.testing.assert_allclose(compiled(wide[:, ::2], wide[:5, :4]), want, rtol=1e-5)
    assert seen
    assert all(layout(x.shape, x.strides, x.itemsize) is not None for x in seen)


@pytest.mark.parametrize(
    ("shape", "strides", "want"),
    [
        ((3, 4), (16, 4), (False, 4)),
        ((3, 4), (4, 12), (True, 3)),
        ((3, 4), (40, 4), (False, 10)),
        ((3, 4), (32, 8), None),
        ((3, 4), (-16, 4), None),
        ((3, 4), (0, 4), None),
        ((1, 4), (996, 4), (False, 4)),
        ((3, 1), (4, 996), (False, 1)),
        ((1, 1), (0, 0), (False, 1)),
        ((3, 4), (18, 4), None),
    ],
)
def test_layouts(shape: tuple[int, int], strides: tuple[int, int], want: tuple[bool, int] | None) -> None:
    assert layout(shape, strides, 4) == want
