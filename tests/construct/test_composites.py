"""Composites: what each lowers to, against its own independent reference, with awkward values too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.dtypes import BF16
from fuser.errors import FuserError
from fuser.interpreter import bind, evaluate
from fuser.optable import table
from fuser.optable.base import Composite
from fuser.passes.lower import Lower
from fuser.verify import verify
from tests.construct.support import run, trace

RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 8)).astype(np.float32) * 3
ROW = RNG.standard_normal(8).astype(np.float32)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 20.0, -20.0, 90.0, -90.0, 1e30, -1e30], np.float32)
IMAGE = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
LABELS = np.array([0, 7, -100, 3, 2, -100])

# Every composite must have at least one entry: name -> (arrays, parameters).
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "softmax": [((X,), {}), ((X,), {"axis": 0}), ((X,), {"axis": (0, 1)}), ((X * 1000,), {})],
    "log_softmax": [((X,), {}), ((X,), {"axis": 0}), ((X * 1000,), {})],
    "logsumexp": [((X,), {}), ((X,), {"axis": 1, "keepdims": True}), ((X * 1000,), {"axis": 0})],
    "layer_norm": [((X,), {}), ((X, ROW, ROW), {"eps": 1e-3}), ((X,), {"axis": (0, 1)}), ((X + 50, ROW), {})],
    "rms_norm": [((X,), {}), ((X, ROW), {"eps": 1e-3}), ((X, ROW), {"normalized_shape": 8})],
    "batch_norm": [((IMAGE, ROW[:3], np.abs(ROW[:3])), {}), ((IMAGE, ROW[:3], np.abs(ROW[:3]), ROW[3:6], ROW[:3]), {})],
    "cross_entropy": [
        ((X, LABELS), {}),
        ((X, LABELS), {"reduction": "none"}),
        ((X, LABELS), {"reduction": "sum", "label_smoothing": 0.1}),
        ((X.T.copy(), LABELS), {"axis": 0, "ignore_index": 3}),
    ],
    "gelu": [((EDGES,), {}), ((EDGES,), {"approximate": "tanh"})],
    "leaky_relu": [((EDGES,), {}), ((EDGES,), {"negative_slope": 0.2})],
    "elu": [((EDGES,), {"alpha": 1.5})],
    "celu": [((EDGES,), {"alpha": 1.5})],
    "softplus_beta": [((EDGES,), {"beta": 2.0})],
    "softshrink": [((EDGES,), {"lambd": 1.0})],
    "hardshrink": [((EDGES,), {"lambd": 1.0})],
    "hardtanh": [((EDGES,), {"min_val": -2.0})],
    "threshold": [((EDGES,), {"threshold": 0.5, "value": 9.0})],
    **{name: [((EDGES,), {})] for name in (
        "relu", "relu6", "selu", "quick_gelu", "silu", "mish", "log_sigmoid", "softsign", "tanhshrink", "hardsigmoid",
        "hardswish",
    )},
    **{name: [((X, X[::-1].copy()), {}), ((X,), {})] for name in ("glu", "swiglu", "geglu", "reglu")},
}  # fmt: skip


def test_every_composite_is_called_here() -> None:
    assert {row.name for row in table().of(Composite)} == set(CALLS)


def both(name: str, arrays: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Any]:
    """(by the composite's reference, by what it lowers to)."""
    row: Any = table().rows[name]
    graph = trace(lambda b, *n: row.build(b, *n, **params), arrays)
    assert any(n.op == name for n in graph.nodes)
    lowered = Lower().run(graph)
    assert not any(n.op == name for n in lowered.nodes)
    assert verify(lowered) == []
    given = [np.asarray(a) for a in arrays]
    env = bind(graph, given)
    return evaluate(graph, given, env)[0][0], evaluate(lowered, given, env)[0][0]


@pytest.mark.parametrize(("name", "k"), [(n, k) for n, calls in CALLS.items() for k in range(len(calls))])
def test_lowering_agrees_with_the_reference(name: str, k: int) -> None:
    arrays, params = CALLS[name][k]
    expected, found = both(name, arrays, params)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("name", [n for n, c in CALLS.items() if c[0][0][0] is EDGES])
def test_activations_keep_nan_and_meet_infinities(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float64)
    expected, found = both(name, (x,), {})
    assert np.isnan(found[0])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_rows_of_infinities() -> None:
    x = np.array([[-np.inf] * 3, [-np.inf, 0, -np.inf], [np.inf, 0, 1]], np.float32)
    expected, found = both("logsumexp", (x,), {"axis": 1})
    assert found.tolist() == expected.tolist() == [-np.inf, 0.0, np.inf]
    expected, found = both("softmax", (x,), {})
    assert np.isnan(found[0]).all()
    assert found[1].tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(found, expected)


def test_integers_compute_in_double() -> None:
    row: Any = table().rows["softmax"]
    assert run(row.build, np.arange(4))[0].dtype == np.float64


def test_halves_keep_their_dtype_and_f32_statistics() -> None:
    x = (X * 200).astype(BF16.numpy)
    expected, found = both("rms_norm", (x, ROW), {})
    assert found.dtype == BF16.numpy
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2**-7)
    big = np.full((2, 4096), 200, np.float16)  # the sum of squares overflows f16
    expected, found = both("layer_norm", (big + np.float16(1),), {})
    assert np.isfinite(found).all()


def test_run_time_parameters() -> None:
    row: Any = table().rows["rms_norm"]
    found = run(lambda b, x, eps: row.build(b, x, None, eps), X, scalars={"eps": 0.5})[0]
    np.testing.assert_allclose(found, X / np.sqrt((X * X).mean(-1, keepdims=True) + 0.5), rtol=1e-5)


def test_group_norm_and_batch_statistics() -> None:
    rows: Any = table().rows
    x = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3) ** 1.5
    found = run(lambda b, x: rows["group_norm"].build(b, x, 2), x)[0]
    grouped = x.reshape(2, 2, 6).astype(np.float64)
    mean, var = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    np.testing.assert_allclose(found, ((grouped - mean) / np.sqrt(var + 1e-5)).reshape(x.shape), rtol=1e-4, atol=1e-5)
    y, m, v = run(lambda b, x: rows["batch_norm_train"].build(b, x), IMAGE)
    np.testing.assert_allclose(m, IMAGE.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(v, IMAGE.var((0, 2, 3)), rtol=1e-5)
    assert abs(y.mean()) < 1e-5


LOSSES: dict[str, Any] = {
    "mse_loss": lambda x, y: ((x - y) ** 2).mean(),
    "l1_loss": lambda x, y: abs(x - y).mean(),
    "huber_loss": lambda x, y: np.where(abs(x - y) <= 1, (x - y) ** 2 / 2, abs(x - y) - 0.5).mean(),
    "smooth_l1_loss": lambda x, y: np.where(abs(x - y) < 1, (x - y) ** 2 / 2, abs(x - y) - 0.5).mean(),
    "binary_cross_entropy": lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)).mean(),
    "bce_with_logits": lambda x, y: (np.logaddexp(0, x) - x * y).mean(),
    "kl_div": lambda x, y: (y * (np.log(y) - x)).mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    row: Any = table().rows[name]
    x, y = RNG.random((4, 5)), RNG.random((4, 5))
    np.testing.assert_allclose(run(row.build, x, y)[0], LOSSES[name](x, y), rtol=1e-12)
    none = run(lambda b, p, q: row.build(b, p, q, reduction="none"), x, y)[0]
    np.testing.assert_allclose(none.mean(), LOSSES[name](x, y), rtol=1e-12)


def test_torch_cross_entropy_has_classes_in_the_second_axis() -> None:
    row: Any = table().find("torch", "cross_entropy")
    x, t = RNG.standard_normal((2, 3, 4)), np.array([[0, 1, 2, 1], [2, 2, -100, 0]])
    log = x - np.log(np.exp(x).sum(1, keepdims=True))
    picked = np.take_along_axis(log, np.where(t < 0, 0, t)[:, None], 1)[:, 0]
    np.testing.assert_allclose(run(row.build, x, t)[0], -picked[t >= 0].mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("gelu", {"approximate": "erf"}, "approximate"),
        ("elu", {"beta": 1.0}, "no parameter"),
        ("layer_norm", {"normalized_shape": 5}, "normalized_shape"),
        ("softmax", {"axis": 2}, "out of bounds"),
    ],
)
def test_bad_parameters(name: str, params: dict[str, Any], words: str) -> None:
    row: Any = table().rows[name]
    with pytest.raises(FuserError, match=words):
        trace(lambda b, x: row.build(b, x, **params), [X], static=True)


def test_cross_entropy_checks_its_target() -> None:
    row: Any = table().rows["cross_entropy"]
    with pytest.raises(FuserError, match="class numbers"):
        trace(row.build, [X, LABELS.astype(np.float32)])
    with pytest.raises(FuserError, match="does not fit"):
        trace(row.build, [X, LABELS[:4]], static=True)
    with pytest.raises(FuserError, match="reduction"):
        trace(lambda b, x, t: row.build(b, x, t, reduction="max"), [X, LABELS])
