"""`KernelBuilder`: names, folding, reuse of values within their scope, parameters, branches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.folding import fold, wrap_int
from fuser.codegen.loops import If, Kernel, Launch, Let, Lit, Load, Operand, Special, Store, Var
from fuser.codegen.names import identifier
from fuser.codegen.verify import verify
from fuser.dtypes import BOOL, F16, F32, I8, I32, I64, U8, U32, DType
from fuser.errors import InternalError
from fuser.hostexpr import sym
from fuser.optable import table
from fuser.optable.evaluate import evaluate_scalar


def finish(b: KernelBuilder) -> Kernel:
    return b.finish(Launch((1, 1), 32))


def lit(value: float | int | bool, dtype: DType = I32) -> Lit:
    return Lit(value, dtype)


# -- names -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("x", "x"),
        ("exp.2", "exp_2"),
        ("2x", "v2x"),
        ("", "t"),
        ("int", "int_"),
        ("größe", "gr_e"),
        ("fuser_x", "fuser_x_"),
    ],
)
def test_hints_become_c_identifiers(hint: str, name: str) -> None:
    assert identifier(hint) == name


def test_names_are_unique_and_keep_the_users_name() -> None:
    b = KernelBuilder("k", "cuda")
    assert [b.fresh("e") for _ in range(3)] == ["e", "e_1", "e_2"]
    assert b.fresh("e_1") == "e_1_1"
    assert b.buffer("e", F32, "in") == "e_3"


# -- values ----------------------------------------------------------------------------------------
def test_equal_values_are_computed_once() -> None:
    b = KernelBuilder("k", "cuda")
    i = b.special("thread")
    assert b.let("add", (i, lit(3)), I32) == b.let("add", (i, lit(3)), I32)
    assert b.special("thread") == i
    assert sum(isinstance(s, (Let, Special)) for s in finish(b).body) == 2


def test_a_value_does_not_leave_the_loop_that_computed_it() -> None:
    b = KernelBuilder("k", "cuda")
    i = b.special("thread")
    with b.loop("j", 0, 4):
        inside = b.let("add", (i, lit(3)), I32)
    outside = b.let("add", (i, lit(3)), I32)
    assert inside != outside
    with b.loop("j", 0, 4):
        assert b.let("add", (i, lit(3)), I32) == outside
    assert verify(finish(b)) == []


def test_what_may_change_is_computed_again() -> None:
    b = KernelBuilder("k", "cuda")
    acc = b.mutable("acc", lit(0.0, F32))
    first = b.let("add", (acc, lit(1.0, F32)), F32)
    b.assign(acc, first)
    assert b.let("add", (acc, lit(1.0, F32)), F32) != first


@pytest.mark.parametrize(
    ("op", "args", "dtype", "result"),
    [
        ("multiply", (Var("i", I32), lit(1)), I32, Var("i", I32)),
        ("multiply", (lit(0), Var("i", I32)), I32, lit(0)),
        ("add", (lit(0), Var("i", I32)), I32, Var("i", I32)),
        ("subtract", (Var("i", I32), Var("i", I32)), I32, lit(0)),
        ("subtract", (lit(0), Var("i", I32)), I32, None),
        ("trunc_rem", (Var("i", I32), lit(1)), I32, lit(0)),
        ("trunc_div", (lit(-7), lit(2)), I32, lit(-3)),
        ("trunc_rem", (lit(-7), lit(2)), I32, lit(-1)),
        ("add", (lit(127, I8), lit(1, I8)), I8, lit(-128, I8)),
        ("less", (Var("i", I32), Var("i", I32)), BOOL, lit(False, BOOL)),
        ("logical_and", (Var("p", BOOL), lit(True, BOOL)), BOOL, Var("p", BOOL)),
        ("logical_or", (Var("p", BOOL), lit(True, BOOL)), BOOL, lit(True, BOOL)),
        ("where", (lit(False, BOOL), Var("x", F32), Var("y", F32)), F32, Var("y", F32)),
        ("cast", (lit(300),), U8, lit(44, U8)),
        ("cast", (lit((1 << 24) + 1),), F32, None),
        # Floats are left alone: -0.0 + 0.0, inf * 0.0 and nan - nan are not what algebra says.
        ("add", (Var("x", F32), lit(0.0, F32)), F32, None),
        ("multiply", (Var("x", F32), lit(0.0, F32)), F32, None),
        ("subtract", (Var("x", F32), Var("x", F32)), F32, None),
        ("equal", (Var("x", F32), Var("x", F32)), BOOL, None),
    ],
)
def test_folding(op: str, args: tuple[Operand, ...], dtype: DType, result: Operand | None) -> None:
    assert fold(op, args, dtype) == result


_INTEGER_OPS = [
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "less",
    "equal",
]


@given(
    st.sampled_from(_INTEGER_OPS),
    st.sampled_from([I8, U8, I32, U32, I64]),
    st.integers(-(2**63), 2**63),
    st.integers(-(2**63), 2**63),
)
def test_folded_integers_are_what_the_reference_computes(op: str, dtype: DType, a: int, b: int) -> None:
    x, y = lit(wrap_int(a, dtype), dtype), lit(wrap_int(b, dtype), dtype)
    out = BOOL if op in ("less", "equal") else dtype
    arrays = [np.array([v.value], dtype.numpy) for v in (x, y)]
    expected = evaluate_scalar(table().scalar(op), *arrays, dtype=out)[0]
    assert fold(op, (x, y), out) == Lit(expected.item(), out)


def test_literals_are_what_their_dtype_holds() -> None:
    b = KernelBuilder("k", "cuda")
    assert b.literal(0.1, F32) == Lit(float(np.float32(0.1)), F32)
    assert b.literal(-1, U32) == Lit(0xFFFFFFFF, U32)
    assert b.literal(-0.0, F32) != b.literal(0.0, F32)
    with pytest.raises(InternalError, match="f16"):
        b.literal(1.0, F16)


# -- parameters and memory -------------------------------------------------------------------------
def test_one_parameter_an_expression_and_dtype() -> None:
    b = KernelBuilder("k", "cuda")
    n, m = sym("n"), sym("m")
    assert b.scalar(n * m, I32) == b.scalar(m * n, I32)
    assert b.scalar(n * m, I64) != b.scalar(n * m, I32)
    assert b.scalar(n - n + 5, I32) == lit(5)
    assert [p.dtype for p in finish(b).scalars] == [I32, I64]


def test_masks_that_are_literals_vanish() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", F32, "in", 0, 4), b.buffer("out", F32, "out", 1, 4)
    assert b.load(x, 0, lit(False, BOOL)) == lit(0.0, F32)
    b.store(out, 0, lit(1.0, F32), lit(False, BOOL))
    v = b.load(x, 1, lit(True, BOOL))
    b.store(out, 1, v, lit(True, BOOL))
    load, store = finish(b).body
    assert isinstance(load, Load)
    assert load.mask is None
    assert isinstance(store, Store)
    assert store.mask is None


def test_stores_are_type_checked() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", F32, "out", 1, 4)
    with pytest.raises(InternalError, match="`out` is not i32"):
        b.store(out, 0, lit(1))


# -- control ---------------------------------------------------------------------------------------
def test_a_branch_on_a_literal_is_no_branch() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", I32, "out", 0, 4)
    for k, condition in enumerate((True, False)):
        with b.branch(lit(condition, BOOL)):
            b.store(out, k, lit(1))
        with b.otherwise():
            b.store(out, k, lit(2))
    assert finish(b).body == (Store(out, lit(0), lit(1)), Store(out, lit(1), lit(2)))


def test_otherwise_belongs_to_the_branch_before_it() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", I32, "out", 0, 4)
    condition = b.let("less", (b.special("thread"), lit(3)), BOOL)
    with b.branch(condition):
        b.store(out, 0, lit(1))
    with b.otherwise():
        b.store(out, 0, lit(2))
    branch = finish(b).body[-1]
    assert isinstance(branch, If)
    assert branch.orelse == (Store(out, lit(0), lit(2)),)
    with pytest.raises(InternalError), b.otherwise():
        pass


def test_a_kernel_with_an_open_block_is_refused() -> None:
    b = KernelBuilder("k", "cuda")
    with pytest.raises(InternalError, match="open"), b.loop("i", 0, 4):
        finish(b)
