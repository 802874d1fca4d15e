"""CUDA launches natively: all kernels of a bound program in one call of a built-in function.

In: an LLVM module. Out: `fuser_launch(self, args, nargs)` in it, of CPython's METH_FASTCALL signature. `self` is the
address of a plan of launches; `args` are the stream, then addresses and the bits of run-time scalars; constants of the
plan follow them in one table, and each kernel's parameters are places in that table. Returns CUDA's error code, 0 for
success.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.runtime.native_words import I32, I64, VOID, P, Writer, c

NAME = "fuser_launch"
# Words of a plan of launches; of a kernel in it.
L_FUNCTION, L_GIVEN, L_CONSTANTS, L_CONSTANT, L_STEPS, L_STEP, LAUNCH_WORDS = range(7)
STEP_WORDS = 7
S_KERNEL, S_GRID_X, S_GRID_Y, S_BLOCK, S_SHARED, S_COUNT, S_PLACES = range(STEP_WORDS)
CU_LAUNCH = ir.FunctionType(I32, [P, I32, I32, I32, I32, I32, I32, I32, P, P, P]).as_pointer()


def write(m: Any) -> None:
    """Add the function to a module."""
    _Launch(m).write()


class _Launch(Writer):
    def __init__(self, m: Any) -> None:
        super().__init__(m, NAME, P, [P, P, I64])

    def write(self) -> None:
        b = self.b
        owner, args, _ = self.function.args
        plan = self.api("PyLong_AsVoidPtr", P, owner)
        given, constants = self.word(plan, L_GIVEN), self.word(plan, L_CONSTANTS)
        table = self.room(b.add(given, constants))
        stream = self.api("PyLong_AsVoidPtr", P, self.word(args, 0, P))
        with self.each(given) as k:
            number = self.api("PyLong_AsUnsignedLongLongMask", I64, self.word(args, b.add(k, c(1)), P))
            self.put(table, k, number)
        constant = self.word(plan, L_CONSTANT, P)
        with self.each(constants) as k:
            self.put(table, b.add(given, k), self.word(constant, k))
        launch = b.inttoptr(self.word(plan, L_FUNCTION), CU_LAUNCH)
        code = self.variable(I32, ir.Constant(I32, 0))
        state = self.api("PyEval_SaveThread", P)
        with self.records(plan, L_STEPS, L_STEP, STEP_WORDS) as record, b.if_then(self.is_zero(b.load(code, typ=I32))):
            b.store(self._step(record, table, launch, stream), code)
        self.api("PyEval_RestoreThread", VOID, state)
        b.ret(self.api("PyLong_FromLong", P, b.sext(b.load(code, typ=I32), I64)))

    def _step(self, record: Any, table: Any, launch: Any, stream: Any) -> Any:
        b = self.b
        count, places = self.word(record, S_COUNT), self.word(record, S_PLACES, P)
        parameters = self.room(count)
        with self.each(count) as k:
            place = self.at(table, b.mul(self.word(places, k), c(8)))
            self.put(parameters, k, place)
        grid_x, grid_y, block, shared = (
            b.trunc(self.word(record, k), I32) for k in (S_GRID_X, S_GRID_Y, S_BLOCK, S_SHARED)
        )
        one, null = ir.Constant(I32, 1), ir.Constant(P, None)
        kernel = self.word(record, S_KERNEL, P)
        return b.call(launch, [kernel, grid_x, grid_y, one, block, one, one, shared, stream, parameters, null])
