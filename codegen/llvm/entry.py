"""How a native kernel is called: the same parameters for every kernel.

In: a kernel, a module. Out: `void NAME(ptr buffers, ptr scalars, i64 begin, i64 end)`: `buffers` points at the buffers'
addresses, `scalars` at one 8-byte slot a scalar (its bits in the low end), and [begin, end) is the share of the
parallel loop to run. It calls a second function, which `emit` writes: its buffers are `noalias` parameters, which is
how LLVM learns that they do not overlap.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import irtypes as types
from fuser.codegen.loops import Kernel


def declare_work(module: Any, kernel: Kernel) -> Any:
    """The function that does the work: buffers, scalars, then the share."""
    scalars = [types.memory(s.dtype) for s in kernel.scalars]
    arguments = [types.POINTER] * len(kernel.buffers) + scalars + [types.I64, types.I64]
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), f"{kernel.name}.work")
    work.linkage = "internal"
    work.attributes.add("noinline")
    work.attributes.add("nounwind")
    names = [*(b.name for b in kernel.buffers), *(s.name for s in kernel.scalars), "begin", "end"]
    for argument, name in zip(work.args, names, strict=True):
        argument.name = name
    for argument in work.args[: len(kernel.buffers)]:
        argument.add_attribute("noalias")
    return work


def write(module: Any, kernel: Kernel, work: Any) -> None:
    """The function with the uniform ABI: unpack the two tables and call the work."""
    kinds = [types.POINTER, types.POINTER, types.I64, types.I64]
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), kernel.name)
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    buffers, scalars, begin, end = entry.args
    values = [_slot(b, buffers, k, types.POINTER) for k in range(len(kernel.buffers))]
    values += [_slot(b, scalars, k, types.memory(s.dtype)) for k, s in enumerate(kernel.scalars)]
    b.call(work, [*values, begin, end])
    b.ret_void()


def _slot(b: Any, pointer: Any, k: int, kind: Any) -> Any:
    address = b.gep(pointer, [ir.Constant(types.I64, k)], source_etype=types.I64)
    return b.load(address, align=8, typ=kind)
