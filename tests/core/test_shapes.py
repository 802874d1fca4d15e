"""Unions of dims, broadcasting and guards."""

from __future__ import annotations

import pytest

from fuser.errors import ShapeError
from fuser.hostexpr import lit, sym
from fuser.shapes import Guard, Shape, ShapeEnv, evaluate, numel, substitute, text_of

N, M, D = sym("n"), sym("m"), sym("d")


def test_symbols_unify_under_a_guard() -> None:
    env = ShapeEnv()
    assert env.unify(N, M)
    assert env.same(N, M)
    assert [str(g) for g in env.guards] == ["n == m"]
    assert env.unify(M, N)
    assert len(env.guards) == 1


def test_merges_chain() -> None:
    env = ShapeEnv()
    env.unify(N, M)
    env.unify(M, D)
    env.unify(D, 4)
    assert {env.canonical(d) for d in (N, M, D)} == {4}
    assert not env.unify(N, 5)


def test_a_symbol_does_not_merge_into_itself() -> None:
    env = ShapeEnv()
    assert env.unify(N, N * 2 - 4)
    assert env.canonical(N) == N
    assert [str(g) for g in env.guards] == ["n == 2*n - 4"]


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        ([(N, D), (D,)], (N, D)),
        ([(N, 1), (1, D)], (N, D)),
        ([(), (N,)], (N,)),
        ([(2, 3), (3,), (1, 1, 1)], (1, 2, 3)),
        ([(N, 1), (0,)], (N, 0)),
    ],
)
def test_broadcasting(shapes: list[Shape], result: Shape) -> None:
    assert ShapeEnv().broadcast(shapes) == result


def test_a_computed_dim_is_guarded_against_being_one() -> None:
    env = ShapeEnv()
    assert env.broadcast([(N - 2, D), (1, D)]) == (N - 2, D)
    assert [str(g) for g in env.guards] == ["n - 2 != 1"]


def test_a_clash() -> None:
    with pytest.raises(ShapeError, match=r"\[3\] and \[4\] do not broadcast"):
        ShapeEnv().broadcast([(3,), (4,)])


def test_guards_hold_per_call() -> None:
    g = Guard(N - 2, ">=", lit(0))
    assert g.holds({"n": 2})
    assert not g.holds({"n": 1})
    env = ShapeEnv()
    assert not env.guard(3, ">=", 4)
    assert env.guard(4, ">=", 4)
    assert env.guards == {}


def test_helpers() -> None:
    assert numel((N, 2, D)) == 2 * N * D
    assert numel(()) == 1
    assert text_of((N, 1, D - 2)) == "[n, 1, d - 2]"
    assert substitute((N, 3), {"n": lit(7)}) == (7, 3)
    assert evaluate((N + 1, 2), {"n": 4}) == (5, 2)
