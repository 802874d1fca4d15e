"""f16 and bf16 on x86-64, compiled for named processors and read: whole vectors are converted, by the machine."""

import re
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import pytest

from fuser.codegen.expand import expand
from fuser.codegen.llvm import jit
from fuser.codegen.llvm.host import Host
from fuser.dtypes import BF16, F16
from tests.codegen.corpus import Case

MACHINES = {  # processor: features, vector bytes, the register of a vector of f32
    "haswell": ("+avx2,+f16c,+fma", 32, "ymm"),
    "skylake-avx512": ("+avx512f,+avx512bw,+avx512vl,+avx512dq,+f16c,+fma", 64, "zmm"),
}


@cache
def machine(cpu: str) -> Host:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, (features, vector, _) = "x86_64-unknown-linux-gnu", MACHINES[cpu]
    target: Any = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    return Host(triple, str(target.target_data), cpu, features, vector, native_half=True)


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("t", [F16, BF16], ids=str)
@pytest.mark.parametrize("program", ["polynomial", "row_sum", "softmax"])
def test_conversions_are_whole_vectors(program: str, t: Any, cpu: str) -> None:
    case = Case(program, t, (("n", 1000), ("m", 1000), ("k", 3)), arch="cpu")
    text = "\n".join(jit.assembly_for(expand(kernel), machine(cpu)) for kernel in case.kernels)
    register = MACHINES[cpu][2]
    widened = "vcvtph2ps" if t == F16 else "vpmovzxwd"
    assert re.search(rf"\t{widened}\t.*%{register}\d+$", text, re.MULTILINE), text
    if program != "row_sum" and t == F16:  # the others store halves
        assert re.search(rf"\tvcvtps2ph\t.*%{register}\d+, ", text), text
    assert not re.search(r"\tcall\w*\t\S*(half|truncsf|extendhf|gnu_)", text)
