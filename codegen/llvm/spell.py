"""Operator spellings in LLVM IR: `Instr`, `Intrinsic` and `Libm` data of the operator table, on one lane or many.

In: a spelling and IR values of one width. Out: the IR value. A libm function is called lane by lane, and marked
`nobuiltin` so that LLVM never rewrites it into something that differs in a last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import irtypes as types
from fuser.errors import InternalError
from fuser.optable.base import Instr, Intrinsic, Libm, Spelling

_COMPARISONS = frozenset({"icmp_signed", "icmp_unsigned", "fcmp_ordered", "fcmp_unordered"})
# Intrinsics with an i1 "this value is undefined" flag after their operands; fuser's operators are total.
_FLAGGED = frozenset({"abs", "ctlz", "cttz"})
# Row data may use the names of LLVM or of llvmlite's builder.
_BUILDER_NAMES = {"and": "and_", "or": "or_", "not": "not_"}


def apply(builder: Any, spelling: Spelling, args: Sequence[Any], result: Any) -> Any:
    """The operator on IR values; `result` is the IR type it gives."""
    if isinstance(spelling, Instr):
        name = _BUILDER_NAMES.get(spelling.name, spelling.name)
        write = getattr(builder, name)
        return write(spelling.flag, *args) if name in _COMPARISONS else write(*args)
    if isinstance(spelling, Intrinsic):
        name = spelling.name.removeprefix("llvm.")
        extra = [ir.Constant(types.I1, 0)] if name in _FLAGGED else []
        return intrinsic(builder, name, result, [*args, *extra], suffixes=[args[0].type])
    if isinstance(spelling, Libm):
        return _library_call(builder, spelling.name, args, result)
    raise InternalError(f"{type(spelling).__name__} is no LLVM spelling", "kernel-operator")


def declare(module: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """The declared external function, once a module."""
    known = module.globals.get(name)
    return known or ir.Function(module, ir.FunctionType(result, list(arguments)), name)


def intrinsic(builder: Any, name: str, result: Any, args: Sequence[Any], suffixes: Sequence[Any]) -> Any:
    """Call `llvm.NAME` overloaded on the given types."""
    full = ".".join(["llvm", name, *(_suffix(t) for t in suffixes)])
    return builder.call(declare(builder.module, full, result, [a.type for a in args]), args)


def _suffix(t: Any) -> str:
    if isinstance(t, ir.VectorType):
        return f"v{t.count}{_suffix(t.element)}"
    return str(t.intrinsic_name)


def _library_call(builder: Any, name: str, args: Sequence[Any], result: Any) -> Any:
    width = types.width_of(args[0])
    element = result.element if isinstance(result, ir.VectorType) else result
    function = declare(builder.module, name, element, [types.element_of(a) for a in args])
    function.attributes.add("nobuiltin")
    if width == 1:
        return builder.call(function, args)
    out = ir.Constant(result, ir.Undefined)
    for lane in range(width):
        place = ir.Constant(types.I32, lane)
        value = builder.call(function, [builder.extract_element(a, place) for a in args])
        out = builder.insert_element(out, value, place)
    return out
