"""Each derivative equals the difference quotient of its row's reference, and covers every operand."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.dtypes import F32, F64, I32, I64
from fuser.optable import table
from fuser.optable.base import Reduction, ScalarOp
from fuser.optable.evaluate import NumPyEmit, evaluate_reduction, evaluate_scalar
from tests.ops.samples import random_values, signatures

ROWS = [row for row in table().of(ScalarOp) if row.vjp is not None and not row.converts]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_vjp_is_the_slope(row: ScalarOp) -> None:
    dtypes = next(s.operands for s in signatures(row) if s.result == F64 and s.operands[-1] in (F64, I32, I64))
    arrays = [random_values(t, 200, row.domain or (-3, 3), seed=k) for k, t in enumerate(dtypes)]
    if row.name == "ldexp":
        arrays[1] = arrays[1] % 9
    if row.name == "clip":
        arrays[1], arrays[2] = np.minimum(arrays[1], arrays[2]), np.maximum(arrays[1], arrays[2])
    emit = NumPyEmit(table())
    y = evaluate_scalar(row, *arrays, dtype=F64)
    weight = random_values(F64, 200, (0.5, 2.0), seed=9)
    assert row.vjp is not None
    gradients = row.vjp(emit.handle(weight), emit.handle(y), *map(emit.handle, arrays))
    assert len(gradients) == row.arity
    for k, (g, x) in enumerate(zip(gradients, arrays, strict=True)):
        if x.dtype.kind != "f":
            assert g is None, f"operand {k} is no float"
            continue
        above, below = x * (1 + 1e-6), x * (1 - 1e-6)
        sides = [evaluate_scalar(row, *arrays[:k], s, *arrays[k + 1 :], dtype=F64) for s in (above, below)]
        growth = (sides[0] - sides[1]) / (above - below) * x  # by the relative change of x, so of one scale everywhere
        smooth = np.abs(growth) < 1e5 * (1 + np.abs(y))  # not across a jump
        assert smooth.mean() > 0.9
        got = np.broadcast_to(g.value, y.shape) * x
        np.testing.assert_allclose(got[smooth], (weight * growth)[smooth], rtol=2e-4, atol=1e-6 * np.abs(y).max())


def test_vjp_of_a_cast_returns_to_the_source() -> None:
    emit = NumPyEmit(table())
    row = table().scalar("cast")
    assert row.vjp is not None
    x, g = np.ones(3, np.float32), np.full(3, 0.1)
    (back,) = row.vjp(emit.handle(g), emit.handle(g), emit.handle(x))
    assert back.dtype == F32
    np.testing.assert_array_equal(back.value, g.astype(np.float32))


@pytest.mark.parametrize("row", [r for r in table().of(Reduction) if r.vjp], ids=lambda row: row.name)
def test_vjp_of_a_reduction(row: Reduction) -> None:
    """g and y come spread over the reduced axis; at an extreme all of g goes to the (only) winner."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 1.5, (3, 5))
    emit = NumPyEmit(table())
    (y,) = evaluate_reduction(row, x, (1,))
    g = np.broadcast_to(np.array([[1.0], [2.0], [3.0]]), x.shape)
    assert row.vjp is not None
    (got,) = row.vjp(emit.handle(g), emit.handle(np.broadcast_to(y[:, None], x.shape)), emit.handle(x))
    want = np.empty_like(x)
    for k in range(5):
        step = np.zeros_like(x)
        step[:, k] = 1e-6
        slope = evaluate_reduction(row, x + step, (1,))[0] - evaluate_reduction(row, x - step, (1,))[0]
        want[:, k] = g[:, k] * slope / 2e-6
    np.testing.assert_allclose(got.value, want, rtol=1e-4, atol=1e-6)
