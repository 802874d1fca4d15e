"""How a scalar row is spelled on a device: data, so that the table imports neither CuPy nor llvmlite.

In: dtypes of operands. Out: the spelling for them, if the row is primitive there. Its own file because printers and
emitters read these and rows only hold them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.dtypes import DType
from fuser.record import dataclass


@dataclass(frozen=True)
class Infix:
    """CUDA: `a OP b`. C promotes narrow integers to int, so a printer casts the result back to its dtype;
    `wraps`: signed overflow is undefined in C, so a printer computes in the unsigned type of the width."""

    symbol: str
    wraps: bool = False


@dataclass(frozen=True)
class Prefix:
    """CUDA: `OP a`; the result is cast back, and `wraps` means, as for `Infix`."""

    symbol: str
    wraps: bool = False


@dataclass(frozen=True)
class Call:
    """CUDA: `name(a, b, ...)`, a builtin that needs no header."""

    name: str


@dataclass(frozen=True)
class Ternary:
    """CUDA: `a ? b : c`."""


@dataclass(frozen=True)
class Convert:
    """Both targets: the machine's conversion between the dtypes of operand and result, in range by contract.

    CUDA: `(T)a`, for f16 a helper of the prelude. LLVM: trunc, sext, zext, fptrunc, fpext, sitofp, fptoui, ...
    `bits`: reinterpret instead (CUDA `__float_as_int` and kin, LLVM bitcast).
    """

    bits: bool = False


@dataclass(frozen=True)
class Instr:
    """LLVM: an IRBuilder instruction such as `fadd`, or `icmp_signed <`; `flag` is its predicate."""

    name: str
    flag: str = ""


@dataclass(frozen=True)
class Intrinsic:
    """LLVM: `llvm.NAME` overloaded on the (vector) type; safe to vectorise."""

    name: str


@dataclass(frozen=True)
class Libm:
    """LLVM: a scalar C function, called lane by lane (so a value never depends on its position)."""

    name: str


@dataclass(frozen=True)
class Part:
    """Both targets: the real (0) or imaginary (1) part of a complex value. CUDA: `a.x`, `a.y`. LLVM: every second
    lane of its bits."""

    index: int


@dataclass(frozen=True)
class Join:
    """Both targets: a complex value of its two parts. CUDA: `make_float2(a, b)`. LLVM: lanes of both in turn."""


Spelling = Infix | Prefix | Call | Ternary | Convert | Instr | Intrinsic | Libm | Part | Join
# key: "i64,u64" (first and second operand; for a row that converts, operand and result), else dtype name ("f32"), else
# kind ("f", "i", "u", "b"), else "*". None says that the row is not primitive there, although a later key would match.
Spellings = Mapping[str, "Spelling | None"]


def pick(spellings: Spellings, dtype: DType, second: DType | None = None) -> Spelling | None:
    """The spelling for the dtypes of the first (and second) operand, most specific key first."""
    pair = (f"{dtype},{second}",) if second is not None else ()
    for key in (*pair, dtype.name, dtype.kind, "*"):
        if key in spellings:
            return spellings[key]
    return None
