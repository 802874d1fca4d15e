"""Every function row that NumPy has too, called as NumPy is; and the contractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.construct import elementwise as ew
from fuser.errors import FuserError, UnsupportedError
from fuser.graph import Builder
from fuser.optable import table
from tests.construct.support import run, same, trace

RNG = np.random.default_rng(1)
A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
V = RNG.standard_normal(4)
C = RNG.standard_normal((2, 3, 4))
D = RNG.standard_normal((2, 4, 5))
T = RNG.standard_normal((5, 3))
I8 = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
MASK = A > 0

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("clip", (A, -0.5, 0.5), {}),
    ("clip", (A, None, 0.5), {}),
    ("clip", (I8, 0, None), {}),
    ("clip", (A,), {"min": 0}),
    ("round", (A * 10,), {}),
    ("round", (A * 10, 1), {}),
    ("round", (I8 * 7, -1), {}),
    ("select", ([A > 1, A > 0], [A, A * 2], -1), {}),
    ("choose", (np.array([0, 1, 2, 1]), [V, -V, 0.5]), {}),
    ("piecewise", (A, [A < 0, A > 1], [-1, 1, 5]), {}),
    ("nan_to_num", (np.array([np.nan, np.inf, -np.inf, 1.0]),), {}),
    ("nan_to_num", (np.array([np.nan, np.inf, -np.inf, 1.0], np.float32),), {"nan": 7, "posinf": 3}),
    ("isclose", (A, A + 1e-9), {}),
    ("isclose", (np.array([np.nan, np.inf]), np.array([np.nan, np.inf])), {"equal_nan": True}),
    ("allclose", (A, A), {}),
    ("array_equal", (A, A), {}),
    ("array_equal", (A, B), {}),
    ("polyval", ([2, -1, 0.5], V), {}),
    ("interp", (V, np.array([-1.0, 0, 0.5, 2]), np.array([3.0, 1, 4, 1])), {}),
    ("digitize", (V, [-1, 0, 1]), {}),
    ("divmod", (I8, 4), {}),
    ("modf", (np.array([1.5, -2.25, np.inf, -0.0, np.nan]),), {}),
    ("gradient", (V,), {}),
    ("gradient", (A,), {}),
    ("gradient", (C, 0.5), {"axis": 1}),
    ("trapezoid", (A,), {}),
    ("trapezoid", (A, np.array([0, 1, 3, 4.0])), {}),
    ("ptp", (A,), {"axis": 1}),
    ("count_nonzero", (I8,), {"axis": 0}),
    ("sinc", (np.array([0.0, 0.5, 1, -2.5]),), {}),
    ("fix", (A * 3,), {}),
    ("isposinf", (np.array([np.inf, -np.inf, 1]),), {}),
    ("isneginf", (np.array([np.inf, -np.inf, 1]),), {}),
    ("isin", (I8, [1, 2, -6]), {}),
    ("isin", (I8, [1, 2, -6]), {"invert": True}),
    ("searchsorted", (np.array([-1.0, 0, 0, 2]), A), {}),
    ("searchsorted", (np.array([-1.0, 0, 0, 2]), np.array([0.0, 5, -9])), {"side": "right"}),
    ("convolve", (V, [1.0, 2, 3]), {}),
    ("convolve", (np.arange(9.0), np.array([1.0, -1, 0.5, 2])), {"mode": "same"}),
    ("convolve", (np.arange(9.0), [1, 0, -1]), {"mode": "valid"}),
    ("correlate", (np.arange(9.0), np.array([1.0, 2, 3])), {}),
    ("geomspace", (1, 1000, 4), {}),
    ("geomspace", (2.0, 32.0, 5), {"endpoint": False}),
    ("unwrap", (np.array([0, 2, 5, -1, 3, 8.0]),), {}),
    ("cov", (A,), {}),
    ("cov", (V,), {}),
    ("cov", (A,), {"rowvar": False, "bias": True}),
    ("corrcoef", (A,), {}),
    ("dsplit", (C, 2), {}),
    ("diagflat", (B[:2],), {}),
    ("vander", (V, 3), {}),
    ("astype", (A, "int32"), {}),
    ("linalg.matrix_norm", (C,), {}),
    ("where", (MASK, A, 0), {}),
    ("where", (MASK, 1, A), {}),
    ("mean", (A, 0, None, None, True), {}),
    ("cumulative_sum", (V,), {}),
    ("cumulative_sum", (A,), {"axis": 1, "include_initial": True}),
    ("dot", (A, B), {}),
    ("dot", (V, V), {}),
    ("dot", (C, V), {}),
    ("dot", (A, 2.0), {}),
    ("matmul", (A, B), {}),
    ("matmul", (C, D), {}),
    ("matmul", (C, B), {}),
    ("matmul", (A, D), {}),
    ("matmul", (A, V), {}),
    ("matmul", (V, B), {}),
    ("matmul", (V, V), {}),
    ("matmul", (I8, I8.T), {}),
    ("matmul", (MASK, MASK.T), {}),
    ("vdot", (A, A), {}),
    ("vecdot", (A, A), {}),
    ("matvec", (A, V), {}),
    ("vecmat", (V, B), {}),
    ("inner", (A, A), {}),
    ("inner", (C, V), {}),
    ("outer", (V, A), {}),
    ("kron", (A, B), {}),
    ("kron", (V, A), {}),
    ("tensordot", (C, D), {"axes": ([0, 2], [0, 1])}),
    ("tensordot", (C, A.T), {"axes": 1}),
    ("tensordot", (A, B), {"axes": 0}),
    ("trace", (A,), {}),
    ("cross", (T, T[::-1].copy()), {}),
    ("cross", (C, C + 1), {"axis": 1}),
    ("linalg.norm", (A,), {}),
    ("linalg.norm", (A, "fro"), {}),
    ("linalg.norm", (A, 1), {}),
    ("linalg.norm", (A, -np.inf), {}),
    ("linalg.norm", (A,), {"axis": 1}),
    ("linalg.norm", (A, 1, 0), {}),
    ("linalg.norm", (A, np.inf, 1), {"keepdims": True}),
    ("linalg.norm", (V, 3), {}),
    ("linalg.norm", (V, 0), {}),
    ("linalg.norm", (I8, None, (0, 1)), {"keepdims": True}),
    ("einsum", ("ij,jk->ik", A, B), {}),
    ("einsum", ("ij,jk", A, B), {}),
    ("einsum", ("bij,bjk->bik", C, D), {}),
    ("einsum", ("bij,bjk->ki", C, D), {}),
    ("einsum", ("ij->", A), {}),
    ("einsum", ("ij->ji", A), {}),
    ("einsum", ("ii->i", A[:, :3]), {}),
    ("einsum", ("ii", A[:, :3]), {}),
    ("einsum", ("i,j->ij", V, V), {}),
    ("einsum", ("i,i", V, V), {}),
    ("einsum", ("...ij,...jk->...ik", C, D), {}),
    ("einsum", ("...i->...", C), {}),
    ("einsum", ("ij,jk,k->i", A, B, B[0]), {}),
    ("einsum", ("ij,ij->j", I8, I8), {}),
    ("einsum", ("ij,kj->ik", A, np.ones((2, 1), np.float32)), {}),
    ("einsum", (A, [0, 1], B, [1, 2], [0, 2]), {}),
]


def _numpy(name: str) -> Any:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)])
def test_equals_numpy(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    """Arrays anywhere in the arguments, also in lists, become nodes."""
    name, args, kwargs = case
    row: Any = table().find("numpy", name)
    assert row is not None, name
    build = getattr(row, "build", None) or (lambda b, *given: ew.apply(b, row.name, *given))
    arrays: list[Any] = []

    def hide(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            arrays.append(v)
            return ("@", len(arrays) - 1)
        return [hide(i) for i in v] if isinstance(v, list) else v

    def show(v: Any, given: Any) -> Any:
        if isinstance(v, tuple) and v and v[0] == "@":
            return given[v[1]]
        return [show(i, given) for i in v] if isinstance(v, list) else v

    hidden = [hide(a) for a in args]
    same(
        lambda b, *n: build(b, *(show(h, n) for h in hidden), **kwargs),
        lambda *a: _numpy(name)(*(show(h, a) for h in hidden), **kwargs),
        *arrays,
        tolerance=1e-5,
    )


def test_matmul_is_opaque_only_between_matrices() -> None:
    matmul: Any = table().find("numpy", "matmul")
    for x, y, opaque in ((A, B, True), (A, V, False), (V, B, False), (C, D, True)):
        ops = {n.op for n in trace(lambda b, p, q: matmul.build(b, p, q), [x, y]).nodes}
        assert ("matmul" in ops) == opaque


def test_matmul_flops() -> None:
    row: Any = table().find("numpy", "matmul")
    assert row.flops([(3, 4), (4, 5)], None) == 120


@pytest.mark.parametrize(
    ("name", "arrays", "words"),
    [
        ("matmul", (A, A), "differ"),
        ("matmul", (A, np.float32(1)), "scalars"),
        ("tensordot", (A, B, 3), "axes"),
        ("cross", (V, V), "length 3"),
        ("concatenate", ([A, B],), "differ on axis"),
        ("stack", ([A, B],), "one shape"),
        ("linalg.norm", (A, 2), "singular"),
        ("einsum", ("ij,jk->iz", A, B), "`z`"),
        ("einsum", ("ij,jk", A), "2 operands"),
        ("einsum", ("ijk", A), "names 3 axes"),
        ("repeat", (A, [1, 2, 3]), "depends on data"),
        ("take", (A, 0, 5), "out of bounds"),
        ("split", (A, 5, 1), "equal parts"),
        ("pad", (A, 1, "mean"), "no mode"),
        ("expand_dims", (A, 7), "out of bounds"),
        ("transpose", (A, (0, 0)), "twice"),
    ],
)
def test_refusals(name: str, arrays: tuple[Any, ...], words: str) -> None:
    row: Any = table().find("numpy", name)
    with pytest.raises(FuserError, match=words):
        trace(lambda b: row.build(b, *_nodes(b, arrays)), [], static=True)


def _nodes(b: Builder, values: Any) -> Any:
    from fuser.dtypes import find

    def node(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            dtype = find(v.dtype)
            assert dtype is not None
            return b.argument(f"x{len(b.arguments)}", dtype, v.shape)
        return [node(i) for i in v] if isinstance(v, list) else v

    return [node(v) for v in values]


def test_one_argument_where_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="depends on data"):
        trace(lambda b, x: ew.apply(b, "where", x), [A])


def test_torch_signatures() -> None:
    find = table().find
    gather: Any = find("torch", "gather")
    index = np.array([[0, 1], [2, 0]])
    expected = np.take_along_axis(A[:2], index, 1)
    assert (run(lambda b, x, i: gather.build(b, x, 1, i), A, index)[0] == expected).all()
    var: Any = find("torch", "var")
    np.testing.assert_allclose(run(lambda b, x: var.build(b, x, 1), A)[0], A.var(1, ddof=1), rtol=1e-5)
    best: Any = find("torch", "max")
    value, place = run(lambda b, x: best.build(b, x, 1), A)
    assert (value == A.max(1)).all()
    assert (place == A.argmax(1)).all()
    mask: Any = find("torch", "masked_fill")
    assert (run(lambda b, x, m: mask.build(b, x, m, 0.0), A, MASK)[0] == np.where(MASK, 0, A)).all()
