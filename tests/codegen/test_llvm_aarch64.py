"""Every kernel of the corpus as AArch64 code, compiled here and read: vectors, and no call that a machine may lack."""

import re
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import pytest

from fuser.codegen.expand import expand
from fuser.codegen.llvm import jit
from fuser.codegen.llvm.host import Host
from fuser.dtypes import BF16, F16, F32, F64, DType
from tests.codegen.corpus import PROGRAMS, Case, applies
from tests.codegen.test_llvm_emit import elementwise

DTYPES = (F32, F64, F16, BF16)
CALLS = {"memset", "memcpy", "memmove"}  # LLVM's own, in every C library

FUNCTIONS = [
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
    "sin",
    "cos",
    "tan",
    "power",
    "cbrt",
    "arctan2",
]


@cache
def apple_or_arm() -> Host:
    """A 64-bit Arm machine of the first generation: what every later one runs."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu, features = "aarch64-unknown-linux-gnu", "generic", "+neon"
    machine: Any = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    return Host(triple, str(machine.target_data), cpu, features, 16, native_half=True)


def assembly(name: str, t: DType) -> str:
    case = Case(name, t, (("n", 1000), ("m", 1000), ("k", 3)), arch="cpu")
    return "\n".join(jit.assembly_for(expand(kernel), apple_or_arm()) for kernel in case.kernels)


def called(text: str) -> set[str]:
    """The functions that code calls, but for the kernels' own halves (which every kernel has)."""
    found = set(re.findall(r"\tbl?\t([A-Za-z_]\S*)", text))
    assert any(c.endswith(".work") for c in found)
    return {c for c in found if not c.endswith(".work")}


@pytest.mark.parametrize(("name", "t"), [(p, t) for p in PROGRAMS for t in DTYPES if applies(p, t)], ids=str)
def test_the_corpus_compiles(name: str, t: DType) -> None:
    text = assembly(name, t)
    assert called(text) <= CALLS
    if t == F32 and name in ("polynomial", "row_sum", "softmax", "column_sum"):
        assert re.search(r"\tfadd\tv\d+\.4s", text), "no vectors"


@pytest.mark.parametrize("t", [F32, F64], ids=str)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_the_mathematical_functions_are_inline_vectors(op: str, t: DType) -> None:
    kernel = elementwise(t, t, lambda b, x: b.apply(op, (x, x)[: 2 if op in ("power", "arctan2") else 1], t))
    text = jit.assembly_for(expand(kernel), apple_or_arm())
    far = {"sin", "cos", "tan"}  # arguments so large that their remainder takes a table go to the C library
    assert called(text) <= (CALLS | {op, f"{op}f"} if op in far else CALLS)
    assert re.search(r"\tfm(la|ul)\tv\d+\.(4s|2d)", text), "no vectors"
