"""Dtype rules give the dtypes that NumPy gives, for every pair of dtypes and every weak Python scalar."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

from fuser.dtypes import ALL, BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U64, DType, find
from fuser.optable import table
from fuser.optable.base import Operand, Resolution, ScalarOp

STRONG = tuple(t for t in ALL if t != BF16)
WEAK: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0}
UFUNCS = [r for r in table().of(ScalarOp) if isinstance(getattr(np, r.name, None), np.ufunc)]
# Rows that ask more of NumPy's dtypes than NumPy does, and why.
DIFFERS = {
    "logical_and": "casts to bool first", "logical_or": "casts to bool first", "logical_xor": "casts to bool first",
    "logical_not": "casts to bool first",
}  # fmt: skip


def ask(name: str, *operands: Operand) -> Resolution | None:
    return table().scalar(name).rule(operands)


def numpys(ufunc: np.ufunc, operands: tuple[Operand, ...]) -> DType | None:
    """The dtype that NumPy computes, by computing it; None where it refuses."""
    values = [np.ones(1, t.numpy) if isinstance(t, DType) else WEAK[t] for t in operands]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return find(np.asarray(ufunc(*values)).dtype)
    except TypeError:
        return None


@pytest.mark.parametrize("row", UFUNCS, ids=lambda row: row.name)
def test_rule_is_numpys(row: ScalarOp) -> None:
    ufunc = getattr(np, row.name)
    operands: list[Operand] = [*STRONG, "bool", "int", "float"]
    for given in product(operands, repeat=row.arity):
        found = row.rule(given)
        want = numpys(ufunc, given)
        if row.name in DIFFERS and (found is None or found.operands[0] == BOOL):
            assert (found is None and want is None) or want == BOOL, given
            continue
        assert (found and found.result) == want, given


@pytest.mark.parametrize("row", UFUNCS, ids=lambda row: row.name)
def test_resolved_operands_compute_the_resolved_result(row: ScalarOp) -> None:
    """Casting to `operands` first changes nothing: the rule then keeps every dtype."""
    for given in product(ALL, repeat=row.arity):
        found = row.rule(given)
        if found is not None:
            assert row.rule(found.operands) == found, given


def test_bf16_promotes_by_fusers_own_table() -> None:
    pairs: list[tuple[tuple[Operand, Operand], DType]] = [
        ((BF16, BF16), BF16), ((BF16, "float"), BF16), (("int", BF16), BF16), ((BF16, I32), BF16), ((I64, BF16), BF16),
        ((BF16, F16), F32), ((F32, BF16), F32), ((BF16, F64), F64), ((BF16, BOOL), BF16),
    ]  # fmt: skip
    for given, want in pairs:
        for name in ("add", "divide", "maximum", "power", "remainder", "arctan2", "logaddexp"):
            found = ask(name, *given)
            assert found is not None
            assert found.result == want, (name, given)
            assert set(found.operands) == {want}


def test_bf16_functions_and_predicates() -> None:
    assert ask("exp", BF16) == Resolution((BF16,), BF16)
    assert ask("isnan", BF16) == Resolution((BF16,), BOOL)
    assert ask("less", BF16, "float") == Resolution((BF16, BF16), BOOL)
    assert ask("ldexp", BF16, I32) == Resolution((BF16, I32), BF16)
    assert ask("ldexp", BF16, "int") == Resolution((BF16, I32), BF16)
    assert ask("float_power", BF16, BF16) == Resolution((F64, F64), F64)
    assert ask("bitwise_and", BF16, BF16) is None
    assert ask("ldexp", I32, BF16) is None


def test_integers_to_float_functions() -> None:
    for name in ("exp", "sigmoid", "erf", "rsqrt", "lgamma"):
        results = [ask(name, t) for t in (BOOL, I8, I16, I32, I64, U64)]
        assert [r.result for r in results if r] == [F16, F16, F32, F64, F64, F64], name


def test_refusals() -> None:
    from fuser.dtypes import C64

    assert ask("subtract", BOOL, BOOL) is None
    assert ask("negative", BOOL) is None
    assert ask("add", C64, F32) is None
    assert ask("where", BOOL, "complex", F32) is None
    assert ask("left_shift", F32, I32) is None
    assert ask("add", F32) is None  # too few operands
    assert ask("clip", F32, C64, F32) is None


def test_selection_and_clip_promote_their_values() -> None:
    assert ask("where", F32, I8, I16) == Resolution((BOOL, I16, I16), I16)
    assert ask("where", BOOL, F32, "float") == Resolution((BOOL, F32, F32), F32)
    assert ask("clip", I8, "int", "float") == Resolution((F64,) * 3, F64)
    assert ask("clip", F16, "int", "int") == Resolution((F16,) * 3, F16)


def test_signed_and_unsigned_compare_without_a_common_dtype() -> None:
    assert ask("less", I64, U64) == Resolution((I64, U64), BOOL)
    assert ask("add", I64, U64) == Resolution((F64, F64), F64)
