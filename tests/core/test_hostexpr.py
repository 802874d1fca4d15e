"""Host expressions: canonical integers, Python's semantics, evaluation and substitution without recursion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.hostexpr import HostExpr, as_dim, call, lit, scalar_symbol, split_multiple, sym
from fuser.hostfunctions import FUNCTIONS

N, D = sym("n"), sym("d")
ENV = {"n": 12, "d": 5, "=h": 0.1, "=k": -7}


def expressions() -> st.SearchStrategy[HostExpr]:
    """Integer expressions over n, d, k and small literals."""
    leaf = st.sampled_from([N, D, scalar_symbol("k", "int")]) | st.integers(-4, 9).map(lit)

    def grow(inner: st.SearchStrategy[HostExpr]) -> st.SearchStrategy[HostExpr]:
        binary = st.sampled_from(["+", "-", "*", "min", "max"])
        divisor = st.integers(1, 6).map(lit) | st.sampled_from([N, D])
        return st.builds(call, binary, inner, inner) | st.builds(call, st.sampled_from(["//", "%"]), inner, divisor)

    return st.recursive(leaf, grow, max_leaves=12)


def plain(e: HostExpr, env: dict[str, Any]) -> Any:
    """Evaluation by the definition, recursive and without tricks."""
    if e.op == "lit":
        return e.value
    if e.op == "sym":
        return env[e.value]
    values = [plain(a, env) for a in e.args]
    if e.op in ("+", "*"):
        total = values[0]
        for v in values[1:]:
            total = FUNCTIONS[e.op](total, v)
        return total
    return FUNCTIONS[e.op](*values)


@given(expressions(), expressions(), st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "<", "=="]))
def test_simplifying_keeps_the_value(a: HostExpr, b: HostExpr, op: str) -> None:
    x, y = plain(a, ENV), plain(b, ENV)
    if op in ("//", "%") and y == 0:
        return
    made = call(op, a, b)
    assert made.evaluate(ENV) == FUNCTIONS[op](x, y)
    assert made.evaluate(ENV) == plain(made, ENV)


@given(expressions())
def test_equal_expressions_are_equal_objects(e: HostExpr) -> None:
    again = e.substitute({"n": sym("m")}).substitute({"m": N})
    assert again == e
    assert hash(again) == hash(e)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (N - 1 + 1, "n"),
        (N * D, "d*n"),
        (2 * N + N, "3*n"),
        (N - N, "0"),
        ((N + 1) * (N - 1), "n*n - 1"),
        ((N * D) // D, "n"),
        ((N * D + 3) % D, "3 % d"),
        ((4 * N + 6) // 2, "2*n + 3"),
        (call("max", N, N), "n"),
        (N // 2, "n // 2"),
        (-(N - 2), "-n + 2"),
    ],
)
def test_canonical_forms(made: HostExpr, text: str) -> None:
    assert str(made) == text


def test_floats_are_never_rearranged() -> None:
    h = scalar_symbol("h", "float")
    assert ((h + 1.0) - 1.0).evaluate({"=h": 1e-17}) == (1e-17 + 1.0) - 1.0
    assert (2.0 * h * 0.1).evaluate({"=h": 0.3}) == 2.0 * 0.3 * 0.1
    assert (h - h).op == "-"


def test_division_by_zero_raises_at_the_call_only() -> None:
    k = scalar_symbol("k", "int")
    e = N // k
    with pytest.raises(ZeroDivisionError):
        e.evaluate({"n": 1, "=k": 0})
    with pytest.raises(ZeroDivisionError):
        call("//", 1, 0).evaluate({})
    assert (k % k).evaluate({"=k": 3}) == 0  # not folded: k may be 0


def test_literals_are_told_apart_by_bits() -> None:
    assert lit(0.0) != lit(-0.0)
    assert lit(1) != lit(1.0)
    assert lit(True) != lit(1)
    assert lit(float("nan")) == lit(float("nan"))
    assert lit(float("nan")) != lit(float("-nan"))


def test_kinds() -> None:
    h, k = scalar_symbol("h", "float"), scalar_symbol("k", "int")
    assert [(k / 2).kind, (k * h).kind, call("<", k, h).kind, call("int", h).kind] == ["float", "float", "bool", "int"]
    assert as_dim(lit(3)) == 3
    assert as_dim(N) is N


def test_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(N)


def test_a_missing_symbol_is_named() -> None:
    with pytest.raises(KeyError, match="d"):
        (N + D).evaluate({"n": 1})


def test_deep_and_shared_expressions() -> None:
    h = scalar_symbol("h", "float")
    deep: HostExpr = h
    for _ in range(20_000):
        deep = deep * 1.0
    assert deep.evaluate({"=h": 2.5}) == 2.5
    assert deep.substitute({"=h": lit(1.5)}).value == 1.5
    shared: HostExpr = h
    for _ in range(100):
        shared = shared + shared
    assert shared.evaluate({"=h": 1.0}) == 2.0**100
    assert shared.symbols == {"=h"}


def test_multiples_split_off() -> None:
    assert split_multiple(N * D * 4 + D + 3, D) == (N * 4 + 1, lit(3))
    assert split_multiple(N, D) == (lit(0), N)
