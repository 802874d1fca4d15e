"""Short spellings that many rows share.

In: a symbol or a C name. Out: the `cuda` and `llvm` mappings of a row. Its own file so that rows stay one
declaration each, and no C name is written twice.
"""

from __future__ import annotations

from fuser.optable.base import Call, Infix, Instr, Intrinsic, Libm, Spellings


def c_call(stem: str) -> Spellings:
    """CUDA's built-in math function: `expf` for f32, `exp` for f64."""
    return {"f32": Call(f"{stem}f"), "f64": Call(stem)}


def fast(stem: str) -> Spellings:
    """CUDA: this project's approximation on f32, `codegen/cuda/arithmetic.py`."""
    return {"f32": Call(f"fuser_{stem}_fast")}


def libm(stem: str) -> Spellings:
    """The C library's function, lane by lane: `expf` for f32, `exp` for f64."""
    return {"f32": Libm(f"{stem}f"), "f64": Libm(stem)}


def intrinsic(name: str) -> Spellings:
    """`llvm.NAME` for floats."""
    return {"f": Intrinsic(name)}


def infix_arithmetic(symbol: str) -> Spellings:
    """CUDA: `a OP b` for integers (wrapping) and floats; bool is not among them."""
    wrapping = Infix(symbol, wraps=True)
    return {"i": wrapping, "u": wrapping, "f": Infix(symbol)}


def instr_arithmetic(stem: str) -> Spellings:
    """LLVM: `add` for integers (no overflow flags, so it wraps), `fadd` for floats."""
    return {"i": Instr(stem), "u": Instr(stem), "f": Instr(f"f{stem}")}
