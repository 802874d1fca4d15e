"""The reference evaluator: bindings, scalars, views in every form, memory, and faults it must report."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.construct import elementwise as ew
from fuser.construct import indexing, reduction, views
from fuser.dtypes import BF16, F32, I32, U8
from fuser.errors import InternalError, OverflowArgumentError
from fuser.graph import Builder, Effect, PieceAttrs, RoundAttrs, ViewAttrs
from fuser.hostexpr import call, scalar_symbol, sym
from fuser.indexmap import IndexMap, Piece, axis
from fuser.interpreter import bind, evaluate, host_scalar

N = sym("n")
X = np.arange(6, dtype=np.float32)


def test_effects_and_outputs() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    y = ew.node(b, "add", x, 1)
    g = b.close([y, x], [Effect(0, ew.node(b, "multiply", y, 2))])
    outputs, effects = evaluate(g, [X], {"n": 6})
    assert (outputs[0] == X + 1).all()
    assert (outputs[1] == X).all()
    assert (effects[0] == (X + 1) * 2).all()


def test_binding_reads_plain_dims() -> None:
    b = Builder()
    x = b.argument("x", F32, (N, 1))
    g = b.close([x])
    assert bind(g, [np.zeros((4, 1))], {"=h": 1.0}) == {"n": 4, "=h": 1.0}


def test_scalars_convert_as_numpy() -> None:
    assert host_scalar(0.1, F32) == np.float32(0.1)
    assert host_scalar(2, F32).dtype == np.float32
    assert host_scalar(1e300, F32) == np.inf
    for value, dtype in ((300, U8), (-1, U8), (2**31, I32), (10**400, F32)):
        with pytest.raises(OverflowArgumentError):
            host_scalar(value, dtype)


def test_a_run_time_scalar_is_computed_in_double() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    h = scalar_symbol("h", "float")
    g = b.close([ew.node(b, "multiply", x, call("*", call("*", h, 10.0), 0.1))])
    found = evaluate(g, [X], {"n": 6, "=h": 0.7})[0][0]
    assert (found == X * np.float32(0.7 * 10.0 * 0.1)).all()


def test_nodes_are_freed_when_read_for_the_last_time() -> None:
    b = Builder()
    y = b.argument("x", F32, (N,))
    for _ in range(2000):
        y = ew.node(b, "add", y, 1)
    big = np.zeros(100_000, np.float32)  # 2,000 of these would be 800 MB
    import tracemalloc

    tracemalloc.start()
    evaluate(b.close([y]), [big], {"n": len(big)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_rounding_keeps_the_wide_dtype() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    g = b.close([b.make("round", (x,), RoundAttrs(BF16), F32, (N,))])
    values = np.array([1.001, 3.14159], np.float32)
    assert (evaluate(g, [values], {"n": 2})[0][0] == values.astype(BF16.numpy).astype(np.float32)).all()


def test_items_of_tuple_reductions() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    r = reduction.raw(b, "max_sumexp", x, (0,))
    found = evaluate(b.close([r, reduction.item(b, r, 1)]), [X], {"n": 6})[0]
    assert found[0] == 5
    np.testing.assert_allclose(found[1], np.exp(X - 5).sum(), rtol=1e-6)


def test_strided_and_gathered_reads_agree() -> None:
    b = Builder()
    x = b.argument("x", F32, (N, N))
    plain = indexing.getitem(b, views.transpose(b, x), (slice(None, None, -2), slice(1, None)))
    turned = views.roll(b, plain, 0)
    data = np.arange(25, dtype=np.float32).reshape(5, 5)
    found = evaluate(b.close([plain, turned]), [data], {"n": 5})[0]
    assert (found[0] == data.T[::-2, 1:]).all()
    assert (found[0] == found[1]).all()


def test_a_map_that_leaves_its_source_is_a_fault() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    g = b.close([b.make("view", (x,), ViewAttrs(IndexMap((axis(0) + 1,))), F32, (N,))])
    with pytest.raises(InternalError, match="leaves"):
        evaluate(g, [X], {"n": 6})


def test_pieces_are_read_inside_their_domains_only() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    shift = Piece((axis(0) - 1,), IndexMap((axis(0) - 1,)))
    g = b.close([b.make("piecewise", (x, x), PieceAttrs((shift, Piece((), IndexMap((axis(0),))))), F32, (N,))])
    assert evaluate(g, [X], {"n": 6})[0][0].tolist() == [0, 0, 1, 2, 3, 4]


def test_a_wrong_shape_is_a_fault() -> None:
    b = Builder()
    x = b.argument("x", F32, (N,))
    with pytest.raises(InternalError, match="gave"):
        evaluate(b.close([b.make("sin", (x,), None, F32, (N + 1,))]), [X], {"n": 6})
