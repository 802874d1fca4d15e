"""Index simplification: against brute force, and the forms that fusion relies on."""

import itertools
import random

import pytest

from fuser.hostexpr import HostExpr, lit, sym
from fuser.indexmap import linear, unravel
from fuser.ranges import in_range, non_negative, simplify

P0, P1, R0, N, H, K = map(sym, ("p0", "p1", "r0", "n", "h", "k"))
EXTENTS = {"p0": N, "p1": H, "r0": K}


def random_expr(rng: random.Random, depth: int) -> HostExpr:
    if depth == 0:
        return rng.choice([P0, P1, R0, lit(rng.randint(0, 4)), H, K])
    kind = rng.choice("+*/%+")
    a = random_expr(rng, depth - 1)
    if kind == "+":
        return a + random_expr(rng, depth - 1)
    if kind == "*":
        return a * random_expr(rng, 0)
    divisor = rng.choice([H, K, H * K, lit(2), lit(3), 6 * K])
    return a // divisor if kind == "/" else a % divisor


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_keep_their_value(seed: int) -> None:
    rng = random.Random(seed)
    dims = {"n": rng.randint(1, 4), "h": rng.randint(1, 5), "k": rng.randint(1, 4)}
    changed = 0
    for _ in range(150):
        e = random_expr(rng, rng.randint(1, 5))
        s = simplify(e, EXTENTS)
        changed += s is not e
        for a, b, c in itertools.product(range(dims["n"]), range(dims["h"]), range(dims["k"])):
            env = {"p0": a, "p1": b, "r0": c, **dims}
            assert e.evaluate(env) == s.evaluate(env), (str(e), str(s), env)
    assert changed > 10


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((P0 * H + P1) // H, "p0"),
        ((P0 * H + P1) % H, "p1"),
        (((P0 * H + P1) * K + R0) // (H * K), "p0"),
        (((P0 * H + P1) * K + R0) // K % H, "p1"),
        (P1 // H, "0"),
        (P1 % (H * K), "p1"),
        (P0 // K * K + P0 % K, "p0"),
    ],
)
def test_what_division_becomes(before: HostExpr, after: str) -> None:
    assert str(simplify(before, EXTENTS)) == after


def test_splitting_and_joining_a_position_gives_it_back() -> None:
    shape = (lit(8), sym("w"), sym("v"))
    position = P1 * K + R0
    there = linear(unravel(position, shape), shape)
    assert simplify(there, EXTENTS) == position


def test_a_run_time_scalar_may_be_zero_and_stays() -> None:
    e = P0 // sym("=step")
    assert simplify(e, EXTENTS) is e


def test_proofs_hold_for_every_size() -> None:
    assert in_range(P0 * H + P1, N * H, EXTENTS)
    assert not in_range(P0 * H + P1, N * K, EXTENTS)
    assert not in_range(P0 - 1, N, EXTENTS)
    assert non_negative(N * H - H)
    assert not non_negative(N - 2)
