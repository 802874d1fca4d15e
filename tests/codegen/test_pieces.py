"""Loops cut where their indices divide: the same values, and no division an element."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.loops import For, Let, walk
from fuser.codegen.program import Program
from fuser.codegen.schedule.axes import Axis
from fuser.codegen.schedule.body import StageBody, StoreSite
from fuser.codegen.schedule.pieces import cut
from fuser.dtypes import F32
from fuser.hostexpr import HostExpr, lit, sym
from fuser.proofs import Ranges

Array = np.ndarray[Any, Any]
R, S, T = sym("r"), sym("s"), sym("t")


def group_norm(x: Array, w: Array) -> Array:
    n, c, s = x.shape
    g = x.reshape(n, c // 4, 4 * s)
    centred = g - np.mean(g, axis=-1, keepdims=True)
    scale = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    return (centred / scale).reshape(n, c, s) * w[None, :, None]


def scaled_blocks(x: Array, w: Array) -> Array:
    n, c, s = x.shape
    return (x * w[None, :, None]).reshape(n, c * s) + x.reshape(n, c * s)


def repeated(x: Array, w: Array) -> Array:
    return np.repeat(w, 100) * 2


@pytest.mark.parametrize("program", [group_norm, scaled_blocks, repeated], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(2, 8, 37), (3, 4, 1), (1, 12, 300)], ids=str)
def test_values(program: Callable[[Array, Array], Array], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)
    compiled = fuser.compile(program)
    np.testing.assert_allclose(compiled(x, w), program(x, w), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("program", [group_norm, scaled_blocks, repeated], ids=lambda f: f.__name__)
def test_no_element_divides(program: Callable[[Array, Array], Array]) -> None:
    plan = fuser.compile(program).plan(np.ones((2, 8, 64), np.float32), np.ones(8, np.float32))
    bodies: list[Any] = [b.kernel for k in plan.kernels for b in k.built]
    vectors = [s for k in bodies for s in walk(k.body) if isinstance(s, For) and s.kind == "vector"]
    lets = [t.op for s in vectors for t in walk(s.body) if isinstance(t, Let)]
    divisions = [op for op in lets if op in ("trunc_div", "trunc_rem")]
    assert vectors
    assert not divisions


def stage(*offsets: HostExpr) -> StageBody:
    stores = tuple(StoreSite(k, 0, e, F32) for k, e in enumerate(offsets))
    return StageBody(Program((), ()), (), stores, Program((), ()), ())


@pytest.mark.parametrize(
    ("extent", "offsets", "length"),
    [
        (4 * S, (R, R // S), S),
        (4 * S * T, (R // S, R % S), S),
        (S * T, (R // (S * T) + R,), None),  # decided by the extent
        (lit(64), (R // 32,), lit(32)),
        (lit(64), (R // 2,), None),  # too short a loop
        (4 * S + 1, (R // S,), None),  # no whole number of pieces
        (S, (R,), None),
        (6 * S, (R // (2 * S), R // (3 * S)), None),  # pieces of one leave divisions by the other
    ],
)  # fmt: skip
def test_where_an_axis_is_cut(extent: HostExpr, offsets: tuple[HostExpr, ...], length: HostExpr | None) -> None:
    axis = Axis("r", extent)
    ranges = Ranges({"r": extent})
    pieces = cut(axis, (stage(*(ranges.simplify(e) for e in offsets)),), ranges)
    assert (pieces and pieces.within.extent) == length


@pytest.mark.parametrize("shape", [(40, 1000), (33, 4097), (17, 31), (100, 128)], ids=str)
@pytest.mark.parametrize("t", [np.float32, np.float64])
def test_a_transposed_operand_of_a_row_sum_is_read_along_its_lines(shape: tuple[int, int], t: Any) -> None:
    """Rows go in bands that share the lines; the bits are those of an operand that lies the usual way."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal(shape).astype(t), rng.standard_normal(shape[::-1]).astype(t)
    crossed = fuser.compile(lambda x, y: np.sum(np.abs(x + y.T), axis=1))
    plain = fuser.compile(lambda x, z: np.sum(np.abs(x + z), axis=1))
    assert [getattr(s, "block_rows", 1) > 1 for s in crossed.plan(x, y).schedules] == [True]
    np.testing.assert_array_equal(crossed(x, y), plain(x, np.ascontiguousarray(y.T)))
