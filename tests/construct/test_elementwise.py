"""Promotion, weak scalars, broadcasting, `where=`, `dtype=` and refusals of scalar operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.construct import elementwise as ew
from fuser.dtypes import BF16, BOOL, C64, F16, F32, F64, I32, I64, U8
from fuser.errors import ComplexError, DTypeError, OverflowArgumentError, ShapeError
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr, lit, scalar_symbol, sym
from tests.construct.support import run, same

DTYPES = ["bool", "int8", "uint8", "int32", "uint64", "int64", "float16", "float32", "float64"]
VALUES = [0, 1, 2, 3, 5]


def sample(dtype: str) -> Any:
    return np.array(VALUES).astype(dtype)


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "less", "true_divide"])
def test_two_arrays_promote_as_numpy(name: str, left: str, right: str) -> None:
    row = {"true_divide": "divide"}.get(name, name)
    same(lambda b, x, y: ew.apply(b, row, x, y), getattr(np, name), sample(left), sample(right))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scalar", [True, 2, 2.5, np.float32(2.5), np.int8(2), np.float64(2)], ids=repr)
@pytest.mark.parametrize("name", ["add", "multiply", "greater", "power"])
def test_array_and_scalar_promote_as_numpy(name: str, dtype: str, scalar: Any) -> None:
    x = sample(dtype)
    same(lambda b, a: ew.apply(b, name, a, scalar), lambda a: getattr(np, name)(a, scalar), x, tolerance=1e-3)
    if name != "power":
        same(lambda b, a: ew.apply(b, name, scalar, a), lambda a: getattr(np, name)(scalar, a), x)


@pytest.mark.parametrize("scalar", [-1, 255, 256, 1000, -1000])
@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_comparison_with_an_int_beyond_the_dtype(name: str, scalar: int) -> None:
    x = np.array([0, 1, 254, 255], np.uint8)
    same(lambda b, a: ew.apply(b, name, a, scalar), lambda a: getattr(np, name)(a, scalar), x)
    same(lambda b, a: ew.apply(b, name, scalar, a), lambda a: getattr(np, name)(scalar, a), x)
    found = run(lambda b, a, k: ew.apply(b, name, a, k), x, scalars={"k": scalar})
    assert found[0].tolist() == getattr(np, name)(x, scalar).tolist()


def test_an_int_that_does_not_fit_raises() -> None:
    b = Builder()
    x = b.argument("x", U8, (3,))
    with pytest.raises(OverflowArgumentError, match="Python integer 300 out of bounds for uint8"):
        ew.apply(b, "add", x, 300)


def test_bool_minus_bool_is_refused_with_the_way_out() -> None:
    b = Builder()
    p = b.argument("p", BOOL, (3,))
    with pytest.raises(DTypeError, match="subtract") as caught:
        ew.apply(b, "subtract", p, p)
    assert "`p`" in str(caught.value)
    assert "logical_xor" in str(caught.value)
    with pytest.raises(DTypeError):
        ew.apply(b, "negative", p)


def test_complex_numbers_are_weak_and_not_ordered() -> None:
    b = Builder()
    x = b.argument("x", F32, (3,))
    z = ew.apply(b, "add", x, 1j)
    assert isinstance(z, Node)
    assert z.dtype == C64
    assert ew.node(b, "absolute", z).dtype == F32
    with pytest.raises(ComplexError, match="less") as caught:
        ew.apply(b, "less", z, 2)
    assert isinstance(caught.value, TypeError)
    assert "np.abs(z)" in str(caught.value)


def test_broadcasting_is_explicit() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"), sym("d")))
    y = b.argument("y", F32, (sym("m"),))
    z = ew.node(b, "add", x, y)
    assert z.shape == (sym("n"), sym("d"))
    assert all(i.shape == z.shape for i in z.inputs)
    assert [i.op for i in z.inputs] == ["input", "view"]
    graph = b.close([z])
    assert [str(g) for g in graph.guards] == ["d == m"]


def test_a_clash_names_both_operands() -> None:
    b = Builder()
    x = b.argument("x", F32, (3, 4))
    w = b.argument("w", F32, (5,))
    with pytest.raises(ShapeError) as caught:
        ew.apply(b, "multiply", x, w)
    assert "`x` f32[3, 4]" in str(caught.value)
    assert "`w` f32[5]" in str(caught.value)


def test_host_values_stay_on_the_host() -> None:
    b = Builder()
    h = scalar_symbol("h", "float")
    doubled = ew.apply(b, "multiply", 2.0, h)
    assert isinstance(doubled, HostExpr)
    assert ew.apply(b, "sqrt", lit(16.0)) == lit(4.0)
    x = b.argument("x", F32, (3,))
    made = ew.node(b, "multiply", x, doubled)
    assert made.dtype == F32
    assert made.inputs[1].inputs[0].dtype == F32  # the scalar meets the array in the array's dtype
    assert isinstance(ew.apply(b, "arctan", h), Node)


def test_bf16_rules() -> None:
    b = Builder()
    x, h, i = (b.argument(n, t, (3,)) for n, t in (("x", BF16), ("h", F16), ("i", I32)))
    assert ew.node(b, "add", x, 1.5).dtype == BF16
    assert ew.node(b, "add", x, h).dtype == F32
    assert ew.node(b, "add", x, i).dtype == BF16


def test_dtype_argument() -> None:
    x = np.array([1, 2], np.int32)
    same(lambda b, a: ew.apply(b, "add", a, a, dtype="f64"), lambda a: np.add(a, a, dtype=np.float64), x)
    same(lambda b, a: ew.apply(b, "less", a, 2, dtype=bool), lambda a: np.less(a, 2, dtype=bool), x)
    with pytest.raises(DTypeError):
        run(lambda b, a: ew.apply(b, "bitwise_and", a, a, dtype="f32"), x)


def test_where_argument() -> None:
    x = np.array([1.0, -1.0, 4.0])
    out = np.zeros(3)
    same(
        lambda b, a, o: ew.apply(b, "sqrt", a, where=ew.node(b, "greater", a, 0), out=o),
        lambda a, o: np.sqrt(a, where=a > 0, out=o),
        x,
        out,
    )


def test_casts() -> None:
    b = Builder()
    x = b.argument("x", F32, (3,))
    assert ew.cast(b, x, "float32") is x
    assert ew.cast(b, x, np.float64).dtype == F64
    assert ew.cast(b, 3, I64).op == "scalar"
    with pytest.raises(DTypeError, match="unknown dtype"):
        ew.cast(b, x, "f33")
    assert ew.cast(b, x, np.complex64).dtype == C64
    with pytest.raises(ComplexError, match="imaginary"):
        ew.cast(b, ew.cast(b, x, np.complex64), F32)


def test_equal_constants_are_one_node() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    assert ew.node(b, "add", x, 2) is ew.node(b, "add", x, 2.0)


def test_a_long_chain_builds_without_recursion() -> None:
    b = Builder()
    x = b.argument("x", F32, (sym("n"),))
    y: Node = x
    for k in range(10_000):
        y = ew.node(b, "multiply" if k % 2 else "add", y, 1.5)
    assert len(b.close([y]).nodes) > 10_000
