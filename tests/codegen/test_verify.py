"""`verify`: every finding has a kernel that earns it, and sound kernels earn none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.loops import (
    Alloc,
    Assign,
    Barrier,
    BufferParam,
    Collective,
    For,
    If,
    Kernel,
    Launch,
    Let,
    Lit,
    Load,
    LoadVec,
    Mutable,
    Prefetch,
    Shuffle,
    Special,
    Statement,
    Store,
    StoreVec,
    Ticket,
    Var,
)
from fuser.codegen.text import kernel_text, statement_text
from fuser.codegen.verify import check, verify
from fuser.dtypes import BF16, BOOL, F32, F64, I32, DType
from fuser.errors import InternalError
from tests.codegen.handwritten import column_sum, full_sum, row_moments, row_softmax, saxpy

X, ACC, T, P = Var("v", F32), Var("acc", F32), Var("t", I32), Var("p", BOOL)
ZERO, ONE, NUMBER = Lit(0, I32), Lit(1, I32), Lit(1.0, F32)
THREAD = Special(T, "thread")
SMALL = Let(P, "less", (T, Lit(10, I32)))
MUTABLE = Mutable(ACC, NUMBER)


def kernel(*body: Statement, target: str = "cuda", block: int = 64) -> Kernel:
    buffers = (
        BufferParam("x", F32, "in", 0, 64),
        BufferParam("out", F32, "out", 1, 64),
        BufferParam("count", I32, "counter", None, 1),
    )
    return Kernel("k", target, buffers, (), body, Launch((1, 1), block))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [saxpy, row_softmax, column_sum, full_sum, lambda: row_moments(8, 64), lambda: column_sum(24, 8)],
)
def test_sound_kernels_have_no_findings(make: Callable[[], Kernel]) -> None:
    assert verify(make()) == []
    check(expand(make()))


def loop(*body: Statement, stop: Lit | Var = ONE, kind: str = "serial") -> For:
    return For(Var("i", I32), ZERO, stop, ONE, body, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        # names
        ((Let(X, "add", (Var("u", F32), NUMBER)),), "`u` is not in scope"),
        ((Load(X, "x", ZERO), Load(X, "x", ONE)), "`v` is assigned twice"),
        ((loop(Load(X, "x", ZERO)), Store("out", ZERO, X)), "`v` is not in scope"),
        ((Load(X, "x", ZERO), Store("out", ZERO, Var("v", F64))), "`v` is f32, used as f64"),
        ((Load(X, "y", ZERO),), "no array `y` is in scope"),
        ((Load(X, "x", ZERO), Assign(X, NUMBER)), "`v` is not mutable"),
        ((Alloc("x", F32, 4, "shared"),), "`x` is declared twice"),
        # operators and types
        ((Let(X, "frobnicate", (NUMBER,)),), "`frobnicate` is no scalar operator"),
        ((Let(X, "add", (NUMBER,)),), "`add` takes 2 operands"),
        ((Store("out", ZERO, ONE),), "f32 expected, `1` is i32"),
        ((Store("x", ZERO, NUMBER),), "`x` is an input and is written"),
        ((Store("out", ZERO, NUMBER, None, Lit(True, BOOL)),), "only CPU kernels store past the caches"),
        ((Load(Var("v", F64), "x", ZERO),), "`x` holds f32, loaded as f64"),
        ((Load(X, "x", NUMBER),), "an index is i32 or i64, not f32"),
        ((Load(X, "x", ZERO, ONE),), "bool expected"),
        ((Mutable(Var("h", BF16), Lit(0.0, BF16)),), "half dtypes have no literals"),
        # vectors and arrays
        ((LoadVec((X, Var("w", F32), Var("z", F32)), "x", ZERO),), "a vector has 2, 4, 8, ... elements, not 3"),
        ((StoreVec("out", ZERO, (NUMBER,) * 8),), "8 x f32 is more than 16 bytes"),
        ((Alloc("r", F32, 0, "register"),), "an array has at least one element"),
        ((Alloc("r", F32, 4, "register"), THREAD, Load(X, "r", T)), "its index must be a literal after unrolling"),
        ((Alloc("s", F64, 8192, "shared"),), "65536 bytes of shared memory"),
        # loops
        ((For(Var("i", I32), ZERO, ONE, ZERO, ()),), "the step must be positive"),
        ((THREAD, loop(stop=T, kind="unroll")), "an unrolled loop has literal bounds"),
        ((loop(kind="parallel"),), "a parallel loop exists only on cpu"),
        ((loop(kind="vector"),), "a vector loop exists only on cpu"),
        # SIMT
        ((THREAD, SMALL, If(P, (Barrier(),))), "threads may have diverged"),
        ((THREAD, SMALL, If(P, (), (Barrier(),))), "threads may have diverged"),
        ((THREAD, loop(Barrier(), stop=T)), "threads may have diverged"),
        ((THREAD, Load(X, "x", T), Let(P, "less", (X, NUMBER)), If(P, (Barrier(),))), "threads may have diverged"),
        ((Shuffle(X, NUMBER, 32),), "a warp has 32 lanes"),
        ((MUTABLE, Collective("sum", F32, (ACC,), 3)), "a team is a power of two"),
        ((MUTABLE, Collective("sum", F32, (ACC,), 128)), "is not a multiple of the team"),
        ((MUTABLE, Collective("sum", F32, (ACC, ACC), 32)), "2 groups of 32 threads, 1 apart, are not folded together"),
        ((MUTABLE, Collective("add", F32, (ACC,), 32)), "`add` is no reduction"),
        ((MUTABLE, Collective("sum", F64, (ACC,), 32)), "the state of `sum` over f64 is"),
        ((Alloc("s", F32, 8, "shared"), Prefetch("s", ZERO)), "only global memory is prefetched"),
        ((Ticket(T, "out", ZERO, ONE),), "`out` is no counter"),
        ((Special(Var("t", F32), "thread"),), "a thread or block index is i32"),
    ],
)
def test_findings(body: tuple[Statement, ...], finding: str) -> None:
    found = verify(kernel(*body))
    assert any(finding in f for f in found), found
    with pytest.raises(InternalError, match="malformed"):
        check(kernel(*body), expanded=False)


@pytest.mark.parametrize(
    "body",
    [
        (THREAD, SMALL, If(P, (Barrier(),), uniform=True)),
        (loop(Barrier()),),
        (Special(T, "block"), SMALL, If(P, (Barrier(),))),
        (Special(T, "block"), Load(X, "x", T), Let(P, "less", (X, NUMBER)), If(P, (Barrier(),))),
        (Alloc("r", F32, 4, "register"), loop(Store("r", Var("i", I32), NUMBER), kind="unroll")),
    ],
)
def test_what_looks_like_a_fault_but_is_none(body: tuple[Statement, ...]) -> None:
    assert verify(kernel(*body)) == []


def test_blocks_with_part_of_a_warp_may_not_exchange() -> None:
    assert any("multiple of 32" in f for f in verify(kernel(Shuffle(X, NUMBER, 1), block=48)))
    assert verify(kernel(THREAD, block=48)) == []


def test_a_block_has_at_most_1024_threads() -> None:
    assert any("1 to 1024" in f for f in verify(kernel(block=2048)))


def test_simt_statements_are_refused_on_cpu() -> None:
    assert verify(kernel(THREAD, target="cpu")) == ["t = thread index: a Special exists only on cuda"]


def test_all_findings_are_listed() -> None:
    body = (Let(X, "frobnicate", (NUMBER,)), Store("x", ZERO, NUMBER), Shuffle(Var("w", F32), NUMBER, 40))
    assert len(verify(kernel(*body))) == 3


@pytest.mark.parametrize(("op", "dtype"), [("sign", F32), ("floor_divide", I32)])
def test_operators_that_are_not_primitive_are_found_after_expand(op: str, dtype: DType) -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", dtype, "in", 0, 64), b.buffer("out", dtype, "out", 1, 64)
    i = b.special("thread")
    v = b.load(x, i)
    b.store(out, i, b.let(op, (v,) if op == "sign" else (v, v), dtype))
    made = b.finish(Launch((1, 1), 64))
    assert verify(made) == []
    assert [f for f in verify(made, expanded=True) if "is not primitive on cuda" in f]
    assert verify(expand(made), expanded=True) == []


def test_collectives_are_found_after_expand() -> None:
    assert any("gone after `expand`" in f for f in verify(column_sum(), expanded=True))


# -- text ------------------------------------------------------------------------------------------
def test_kernels_read_like_python() -> None:
    text = kernel_text(saxpy())
    assert text.splitlines()[0] == (
        "kernel saxpy(in x: f32[n], in y: f32[n], out out: f32[n], n: i32 = n, a: f32 = a):"
        "  # cuda, grid ((n + 63) // 64, 1), block 64"
    )
    assert "        multiply_1: f32 = multiply(a, xv)" in text.splitlines()


def test_else_is_shown() -> None:
    text = kernel_text(kernel(THREAD, SMALL, If(P, (Store("out", T, NUMBER),), (Store("out", ZERO, NUMBER),))))
    assert text.splitlines()[3:] == ["    if p:", "        out[t] = 1.0", "    else:", "        out[0] = 1.0"]


def test_every_statement_has_a_line() -> None:
    shown = {statement_text(s) for s in (Barrier(), Shuffle(X, NUMBER, 4), Ticket(T, "count", ZERO, ONE), MUTABLE)}
    assert shown == {
        "barrier",
        "v = 1.0 of lane ^ 4",
        "t = ticket count[0] up to 1",
        "mutable acc: f32 = 1.0",
    }
