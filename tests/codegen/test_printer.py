"""The CUDA printer: golden sources, and lines that undo C's habits.

`FUSER_UPDATE_GOLDEN=1 pytest tests/codegen/test_printer.py` writes the golden sources anew; read the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.cuda.addresses import addresses
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.cuda.types import literal
from fuser.codegen.expand import expand
from fuser.codegen.loops import Collective, Kernel, Launch, Lit, Operand
from fuser.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from fuser.errors import InternalError
from tests.codegen.handwritten import column_sum, full_sum, row_softmax, saxpy

GOLDEN = Path(__file__).parent / "golden"
KERNELS: dict[str, Callable[[], Kernel]] = {
    "saxpy": lambda: saxpy(vector=4),
    "softmax_rows": lambda: row_softmax(8, 64),
    "sum_columns": lambda: column_sum(32, 8),
    "sum_full": full_sum,
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden_sources(name: str) -> None:
    source = print_kernel(expand(KERNELS[name]()))
    path = GOLDEN / f"{name}.cu"
    if os.environ.get("FUSER_UPDATE_GOLDEN"):
        path.write_text(source, encoding="utf-8")
    assert source == path.read_text(encoding="utf-8")


# -- literals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, BOOL, "true"),
        (-5, I8, "-5"),
        (-(2**31), I32, "(-2147483647 - 1)"),
        (-(2**63), I64, "(-9223372036854775807LL - 1)"),
        (2**32 - 1, U32, "4294967295u"),
        (2**64 - 1, U64, "18446744073709551615ULL"),
        (0.5, F32, "0.5f"),
        (-0.0, F32, "-0.0f"),
        (3.0, F64, "3.0"),
        (float(np.float32(0.1)), F32, "0x1.99999ap-4f"),
        (0.1, F64, "0x1.999999999999ap-4"),
        (1e300, F64, "0x1.7e43c8800759cp+996"),
        (float("inf"), F32, "__int_as_float(0x7f800000)"),
        (float("-inf"), F64, "__longlong_as_double(0xfff0000000000000LL)"),
        (float("nan"), F32, "__int_as_float(0x7fc00000)"),
    ],
)
def test_literals(value: float | int | bool, dtype: DType, text: str) -> None:
    assert literal(Lit(value, dtype)) == text


def test_finite_literals_read_back_exactly() -> None:
    rng = np.random.default_rng(0)
    for dtype, bits in ((F32, np.uint32), (F64, np.uint64)):
        values = rng.integers(0, np.iinfo(bits).max, 500, dtype=bits).view(dtype.numpy)
        for v in values[np.isfinite(values)].tolist():
            text = literal(Lit(v, dtype)).removesuffix("f")
            assert (float.fromhex(text) if "0x" in text else float(text)) == v


# -- operators -------------------------------------------------------------------------------------
def lines_of(op: str, dtypes: Sequence[DType], result: DType) -> list[str]:
    """The lines that compute one operator on loaded operands a, b, ..."""
    b = KernelBuilder("k", "cuda")
    arrays = [b.buffer(f"in_{name}", t, "in", k, 32) for k, (name, t) in enumerate(zip("abc", dtypes, strict=False))]
    out = b.buffer("out", result, "out", 9, 32)
    i = b.special("thread")
    args: list[Operand] = [b.load(x, i, name=x[3:]) for x in arrays]
    b.store(out, i, b.let(op, args, result, "y"))
    source = print_kernel(expand(b.finish(Launch((1, 1), 32))))
    return [line.strip() for line in source.splitlines() if re.match(r"    const .* y(_\d+)? = ", line)]


@pytest.mark.parametrize(
    ("op", "dtypes", "result", "line"),
    [
        ("add", (F32, F32), F32, "const float y = a + b;"),
        # Narrow integers wrap at their own width; signed overflow is undefined in C, so it is done unsigned.
        ("add", (U8, U8), U8, "const unsigned char y = (unsigned char)((unsigned int)a + (unsigned int)b);"),
        ("multiply", (U16, U16), U16, "const unsigned short y = (unsigned short)((unsigned int)a * (unsigned int)b);"),
        ("add", (I32, I32), I32, "const int y = (int)((unsigned int)a + (unsigned int)b);"),
        (
            "subtract",
            (I64, I64),
            I64,
            "const long long y = (long long)((unsigned long long)a - (unsigned long long)b);",
        ),
        ("add", (U32, U32), U32, "const unsigned int y = a + b;"),
        ("add", (BOOL, BOOL), BOOL, "const bool y = a | b;"),
        ("invert", (U8,), U8, "const unsigned char y = (unsigned char)(~a);"),
        ("less", (I16, I16), BOOL, "const bool y = a < b;"),
        ("where", (BOOL, F64, F64), F64, "const double y = a ? b : c;"),
        ("exp", (F32,), F32, "const float y = expf(a);"),
        ("bitcast", (F32,), U32, "const unsigned int y = (unsigned int)__float_as_int(a);"),
        ("bitcast", (U64,), F64, "const double y = __longlong_as_double((long long)a);"),
        ("cast", (I32,), F64, "const double y = (double)a;"),
        ("cast", (F16,), F32, "const float y = fuser_f16_to_f32(a);"),
        ("cast", (F32,), F16, "const unsigned short y = fuser_f32_to_f16(a);"),
    ],
)
def test_operators(op: str, dtypes: tuple[DType, ...], result: DType, line: str) -> None:
    assert lines_of(op, dtypes, result) == [line]


def test_bf16_conversions_are_one_instruction_where_the_card_has_it() -> None:
    assert lines_of("cast", (BF16,), F32) == ["const float y = fuser_bf16_to_f32(a);"]
    assert lines_of("cast", (F32,), BF16) == ["const unsigned short y = fuser_f32_to_bf16(a);"]


# -- addresses -------------------------------------------------------------------------------------
def test_index_arithmetic_is_signed_and_users_integers_wrap() -> None:
    """An index may not overflow; the sum that is stored may, although it is made of the thread number too."""
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", I32, "in", 0, 1024), b.buffer("out", I32, "out", 1, 1024)
    thread = b.special("thread")
    at = b.let("multiply", (thread, b.literal(4, I32)), I32, "at")
    value = b.let("multiply", (thread, b.literal(2**30, I32)), I32, "value")
    total = b.let("add", (b.load(x, at), value), I32, "total")
    b.store(out, at, total)
    kernel = b.finish(Launch((1, 1), 64))
    assert addresses(kernel.body) == {"at"}
    source = print_kernel(kernel)
    assert "const int at = thread * 4;" in source
    assert "const int value = (int)((unsigned int)thread * (unsigned int)1073741824);" in source


def test_a_loaded_index_wraps() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("x", I32, "in", 0, 1024), b.buffer("out", I32, "out", 1, 1024)
    thread = b.special("thread")
    at = b.let("add", (b.load(x, thread), thread), I32, "at")
    b.store(out, at, thread)
    assert addresses(b.finish(Launch((1, 1), 64)).body) == frozenset()


def test_shared_arrays_are_aligned_for_the_vectors_read_from_them() -> None:
    b = KernelBuilder("k", "cuda")
    out = b.buffer("out", BOOL, "out", 0, 64)
    b.alloc("few", BOOL, 3, "shared")
    b.alloc("flags", BOOL, 256, "shared")
    thread = b.special("thread")
    b.store("few", thread, Lit(True, BOOL))
    for k, part in enumerate(b.load_vec("flags", thread, 16)):
        b.store(out, Lit(k, I32), part)
    source = print_kernel(b.finish(Launch((1, 1), 3)))
    assert "__shared__ __align__(16) bool flags[256];" in source
    assert "__shared__ bool few[3];" in source


# -- the frame -------------------------------------------------------------------------------------
def test_the_signature_says_what_may_alias_and_how_many_blocks_fit() -> None:
    b = KernelBuilder("step", "cuda")
    b.buffer("w", F32, "inout", 0, 4)
    b.buffer("g", BF16, "in", 1, 4)
    b.buffer("m", F16, "out", 2, 4)
    source = print_kernel(b.finish(Launch((1, 1), 128, min_blocks=6)))
    head = source.split(") {")[0].splitlines()
    assert head == [
        'extern "C" __global__ void __launch_bounds__(128, 6) step(',
        "    float* w,",
        "    const unsigned short* __restrict__ g,",
        "    unsigned short* __restrict__ m",
    ]


def test_names_do_not_hide_the_functions_that_are_called() -> None:
    b = KernelBuilder("k", "cuda")
    x, out = b.buffer("expf", F32, "in", 0, 32), b.buffer("out", F32, "out", 1, 32)
    i = b.special("thread")
    b.store(out, i, b.let("exp", (b.load(x, i, name="y"),), F32, "e"))
    source = print_kernel(b.finish(Launch((1, 1), 32)))
    assert "const float y = expf_[thread];" in source
    assert "const float e = expf(y);" in source


def test_line_directives_lead_to_the_users_source() -> None:
    source = print_kernel(saxpy(), lines={"add_1": ("norms.fuse", 7)})
    lines = source.splitlines()
    at = next(n for n, line in enumerate(lines) if "add_1 =" in line)
    assert lines[at - 1] == '#line 7 "norms.fuse"'
    assert lines.count('#line 7 "norms.fuse"') > 1, "the statements around it are of that line too"


def test_only_the_helpers_that_are_used_are_printed() -> None:
    source = print_kernel(expand(row_softmax(8, 64)))
    assert "float fuser_largest(float a, float b) {" in source
    assert set(re.findall(r"fuser_\w+", source)) == {"fuser_largest"}
    assert "fuser_" not in print_kernel(saxpy())


def test_collectives_must_be_expanded_first() -> None:
    kernel = column_sum()
    assert any(isinstance(s, Collective) for s in kernel.body)
    with pytest.raises(InternalError, match="Collective cannot be printed"):
        print_kernel(kernel)
