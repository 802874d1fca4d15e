"""Index arithmetic: simplification with extents, proofs, and the operands it becomes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.codegen import simt
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.indices import IndexEmitter, TileLane
from fuser.codegen.loops import Launch, Let, Lit, walk
from fuser.codegen.schedule.alignment import Alignment
from fuser.dtypes import I32, I64, DType
from fuser.hostexpr import HostExpr, call, lit, sym
from fuser.proofs import Ranges

P, Q, N, M = sym("p"), sym("q"), sym("n"), sym("m")
RANGES = Ranges({"p": N, "q": M})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (call("//", P * M + Q, M), P),
        (call("%", P * M + Q, M), Q),
        (call("%", P, N), P),
        (call("//", Q, M), lit(0)),
        (call("//", P * M + Q, M) * M + call("%", P * M + Q, M), P * M + Q),
        (call("min", call("max", P, lit(0)), N - 1), P),
        (call("%", call("%", P - 3, N) - 4, N), call("%", P - 7, N)),
        (call("//", P * (N - 2) + 1, N - 2), P + call("//", lit(1), N - 2)),
    ],
    ids=str,
)
def test_simplify(before: HostExpr, after: HostExpr) -> None:
    assert RANGES.simplify(before) == after


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (P, True), (N - 1 - P, True), (N - P, True), (N - 2 - P, False), (P - Q, False), (P * M + Q, True),
        (call("%", P - 5, N), True), (sym("#0.0") * P, False), (sym("=k"), False), (call("max", P - 9, lit(0)), True),
    ],
    ids=str,
)  # fmt: skip
def test_nonnegative(e: HostExpr, expected: bool) -> None:
    assert RANGES.nonnegative(e) is expected


def test_negative_and_below() -> None:
    assert RANGES.negative(P - N)
    assert not RANGES.negative(P - N + 1)
    assert RANGES.below(P * M + Q, N * M)
    assert not RANGES.below(P * M + Q, N * M - 1)


ATOMS = st.sampled_from([P, Q, N, M, lit(2), lit(-3), lit(5)])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> HostExpr:
    """Random index expressions over p, q and the dims; divisors are dims or positive literals."""
    if depth == 0:
        return draw(ATOMS)
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]))
    a = draw(expressions(depth - 1))
    if op in ("//", "%"):
        return call(op, a, draw(st.sampled_from([N, M, lit(3), N + 1])))
    return call(op, a, draw(expressions(depth - 1)))


@given(expressions(), st.integers(1, 5), st.integers(1, 4))
def test_simplify_keeps_values_and_proofs_hold(e: HostExpr, n: int, m: int) -> None:
    simple = RANGES.simplify(e)
    proven, refuted, most = RANGES.nonnegative(e), RANGES.negative(e), RANGES.most(e, {"n": 8, "m": 8})
    for p in range(n):
        for q in range(m):
            env = {"p": p, "q": q, "n": n, "m": m}
            value = e.evaluate(env)
            assert simple.evaluate(env) == value
            assert not (proven and value < 0)
            assert not (refuted and value >= 0)
            assert most is None or value <= most


@given(expressions(2), st.sampled_from([I32, I64]))
def test_emitted_arithmetic_computes_the_expression(e: HostExpr, dtype: object) -> None:
    n, m = 7, 5
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", dtype, "out", None, n * m)
    thread = b.apply("cast", (b.special("thread"),), dtype)
    place = IndexEmitter(b, {"t": thread}, Ranges({"t": lit(n * m)}), dtype)
    bound = {"p": place.value(call("//", sym("t"), lit(m))), "q": place.value(call("%", sym("t"), lit(m)))}
    b.store(out, thread, IndexEmitter(b, bound, RANGES, dtype).value(RANGES.simplify(e)))
    kernel = b.finish(Launch((1, 1), n * m))
    got = np.zeros(n * m, dtype.numpy)
    simt.run(expand(kernel), {"out": got}, {"n": n, "m": m})
    want = [e.evaluate({"p": t // m, "q": t % m, "n": n, "m": m}) for t in range(n * m)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
@pytest.mark.parametrize("d", [1, 2, 3, 7, 641, 65_536, 1_000_003, (1 << 30) + 1, (1 << 31) - 1])
def test_division_by_a_parameter(d: int, dtype: DType) -> None:
    """In 64 bits too, where the dims are known to be small enough."""
    rng = np.random.default_rng(d)
    x = np.concatenate(
        [rng.integers(0, 1 << 31, 500), [0, 1, d - 1, d % (1 << 31), (1 << 31) - 1, (1 << 31) // d * d - 1]]
    )
    x = np.clip(x, 0, (1 << 31) - 1).astype(np.int32)
    b = KernelBuilder("k", "cuda")
    source, out = b.buffer("x", I32, "in", None, len(x)), b.buffer("out", dtype, "out", None, 2 * len(x))
    thread = b.special("thread")
    ranges = Ranges({"v": lit(1 << 31)})
    value = b.apply("cast", (b.load(source, thread),), dtype)
    emitter = IndexEmitter(b, {"v": value}, ranges, dtype, most={"n": d})
    b.store(out, thread, emitter.value(call("//", sym("v"), N)))
    b.store(out, b.apply("add", (thread, b.literal(len(x), I32)), I32), emitter.value(call("%", sym("v"), N)))
    got = np.zeros(2 * len(x), dtype.numpy)
    kernel = b.finish(Launch((1, 1), len(x)))
    assert not any(isinstance(s, Let) and s.op in ("trunc_div", "trunc_rem") for s in walk(kernel.body))
    simt.run(expand(kernel), {"x": x, "out": got}, {"n": d})
    np.testing.assert_array_equal(got, np.concatenate([x // d, x % d]))


@pytest.mark.parametrize("most", [{}, {"n": 1 << 33}, {"n": 1 << 20, "m": 1 << 12}], ids=str)
def test_what_may_be_large_is_divided_in_64_bits(most: dict[str, int]) -> None:
    b = KernelBuilder("k", "cuda")
    value = b.apply("cast", (b.special("thread"),), I64)
    IndexEmitter(b, {"v": value}, Ranges({"v": N * M}), I64, most=most).value(call("//", sym("v"), N))
    assert [s.op for s in b.finish(Launch((1, 1), 1)).body if isinstance(s, Let)][-1] == "trunc_div"


def test_host_parts_become_parameters() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", I32, "out", None, 1)
    thread = b.special("thread")
    emitter = IndexEmitter(b, {"p": thread}, Ranges({"p": N}), I32)
    b.store(out, 0, emitter.value(P * N * M + N * 2 - 1))
    kernel = b.finish(Launch((1, 1), 1))
    assert {str(p.expr) for p in kernel.scalars} == {"m*n", "2*n - 1"}


@pytest.mark.parametrize("q", [2, 4, 8, 16])
def test_lanes_of_a_tile_share_quotients_and_know_their_remainders(q: int) -> None:
    b = KernelBuilder("k", "cuda")
    first = b.apply("multiply", (b.special("thread"), b.literal(8, I32)), I32)
    divides = Alignment(True, (("m", 16),)).divides
    at = IndexEmitter(b, {"p": b.scalar(N, I32)}, RANGES, I32, divides)
    lanes = [at.in_lane("q", TileLane(first, j, 8)) for j in range(8)]
    quotients = [lane.value(call("//", P * M + Q, q)) for lane in lanes]
    remainders = [lane.value(call("%", P * M + Q, q)) for lane in lanes]
    assert len(set(quotients)) == max(8 // q, 1)
    assert all(isinstance(r, Lit) and r.value == j % q for j, r in enumerate(remainders)) == (q <= 8)


def test_an_unproved_multiple_is_divided_lane_by_lane() -> None:
    b = KernelBuilder("k", "cuda")
    first = b.apply("multiply", (b.special("thread"), b.literal(8, I32)), I32)
    at = IndexEmitter(b, {"p": b.scalar(N, I32)}, RANGES, I32, Alignment(True).divides)
    found = {at.in_lane("q", TileLane(first, j, 8)).value(call("//", P * M + Q, 4)) for j in range(8)}
    assert len(found) == 8
