"""Words, types and a small writer of LLVM IR, shared by the native short road and what lays out its blocks.

In: an llvmlite module. Out: `Writer`, a function under construction, with loops over records and calls of CPython's C
API. Its own file so that the functions of `native_call` read as what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

# Words of a road, of its watch, of an entry.
R_ENTRY, R_MISS, R_POOL, R_WATCHES, R_WATCH = range(5)
WATCH_WORDS = 4  # kind, a, b, expected
W_GLOBAL, W_CELL, W_FUNCTION = range(3)
(
    E_NEXT, E_HOLDER, E_NARGS, E_ARGS, E_TABLE, E_RESULTS, E_RESULT, E_TEMPS, E_TEMP, E_SLOTS, E_SLOT, E_SCALARS,
    E_SCALAR, E_DYNAMICS, E_DYNAMIC, E_STEPS, E_STEP, E_EFFECTS, E_EFFECT, E_OUTPUTS, E_OUTPUT, E_FINISH, E_EMPTY,
    E_ELLIPSIS, E_RELEASE, E_THREADED, E_PAIRS, E_PAIR, E_LIBRARY, E_PLAN, E_ORDINAL, E_ARENA, E_MISS, E_FAIL,
    E_WRITTENS, E_WRITTEN, E_BUMP, ENTRY_WORDS,
) = range(38)  # fmt: skip
ARG_WORDS = 8
A_KIND, A_OBJECT, A_RANK, A_DIMS, A_PHASE, A_SLOT, A_LOW, A_HIGH = range(ARG_WORDS)
K_ARRAY, K_FLOAT, K_INT, K_SAME = range(4)
RESULT_WORDS, TEMP_WORDS, DYNAMIC_WORDS, STEP_WORDS, EFFECT_WORDS, OUTPUT_WORDS, PAIR_WORDS = 3, 3, 3, 6, 2, 2, 6
F64_OF_FLOAT, F32_OF_FLOAT, I64_OF_INT, F64_OF_INT, F32_OF_INT = range(5)  # what a run-time scalar becomes
P_MODE, P_OBJECT, P_STATE, P_DISPATCH = range(4)  # words of the pool's cell; mode 1: one thread, 2: a pool

# NumPy's documented array struct, after the object header of 16 bytes.
N_DATA, N_RANK, N_DIMS, N_STRIDES, N_DTYPE, N_FLAGS = 16, 24, 32, 40, 56, 64
ALIGNED = 0x0100  # NPY_ARRAY_ALIGNED
WRITEABLE = 0x0400

# A GPU array library: offsets in its array object and in its memory object, then addresses of functions.
(
    Y_DTYPE, Y_SHAPE, Y_SHAPE_END, Y_STRIDES, Y_DATA, Y_POINTER, Y_DEVICE, Y_TYPE, Y_CREATE, Y_ALLOCATE, Y_STREAM,
    Y_CURRENT, LIBRARY_WORDS,
) = range(13)  # fmt: skip

# torch's DLPack functions, the driver's question for the current device, what is asked of a tensor by name, and the
# functions that tell torch's modes.
(
    T_SEE, T_STREAM, T_CURRENT, T_GRAD, T_NEGATED, T_CONJUGATED, T_INFERENCE, T_RECORDING, T_INFERRING, T_FALSE,
    TORCH_WORDS,
) = range(11)  # fmt: skip
# The DLTensor of dlpack.h: address, device (kind and number), rank with dtype, shape, strides, offset.
D_DATA, D_DEVICE, D_RANK, D_SHAPE, D_STRIDES, D_OFFSET, D_WORDS = range(7)
D_COMPLEX = 5  # kDLComplex, the code of a dtype

I64, I32, I8, F64, F32, VOID, P = (
    ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.DoubleType(), ir.FloatType(), ir.VoidType(), ir.PointerType(),
)  # fmt: skip
KERNEL = ir.FunctionType(VOID, [P, P, I64, I64]).as_pointer()
DISPATCH = ir.FunctionType(VOID, [P, P, P, P, I64, I64]).as_pointer()


def c(value: int) -> Any:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


class Writer:
    """A function being written: words, loops, calls of the C API."""

    def __init__(self, m: Any, name: str, result: Any, arguments: list[Any]) -> None:
        self.module = m
        self.function = ir.Function(m, ir.FunctionType(result, arguments), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    # -- memory ------------------------------------------------------------------------------------
    def at(self, base: Any, byte: Any) -> Any:
        return self.b.gep(base, [c(byte) if isinstance(byte, int) else byte], source_etype=I8)

    def word(self, base: Any, k: Any, kind: Any = I64) -> Any:
        """Word `k` of a block."""
        index = c(k) if isinstance(k, int) else k
        return self.b.load(self.b.gep(base, [index], source_etype=I64), typ=kind)

    def put(self, base: Any, k: Any, value: Any) -> None:
        index = c(k) if isinstance(k, int) else k
        self.b.store(value, self.b.gep(base, [index], source_etype=I64))

    def room(self, count: Any) -> Any:
        """Words on the stack, at least one."""
        space = self.b.alloca(I64, self.b.add(count, c(1)))
        space.type = P
        return space

    def variable(self, kind: Any, value: Any) -> Any:
        with self.b.goto_entry_block():  # elsewhere it would take stack anew in every turn of a loop
            slot = self.b.alloca(kind)
        slot.type = P
        self.b.store(value, slot)
        return slot

    # -- control -----------------------------------------------------------------------------------
    @contextmanager
    def each(self, count: Any) -> Iterator[Any]:
        """A loop over range(count)."""
        counter = self.variable(I64, c(0))
        head, inside, after = (self.function.append_basic_block(n) for n in ("head", "inside", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        k = self.b.load(counter, typ=I64)
        self.b.cbranch(self.b.icmp_signed("<", k, count), inside, after)
        self.b.position_at_end(inside)
        yield k
        self.b.store(self.b.add(k, c(1)), counter)
        self.b.branch(head)
        self.b.position_at_end(after)

    @contextmanager
    def records(self, entry: Any, count: int, first: int, words: int) -> Iterator[Any]:
        """A loop over an entry's records."""
        base = self.word(entry, first, P)
        with self.each(self.word(entry, count)) as k:
            yield self.at(base, self.b.mul(k, c(8 * words)))

    def first(self, head: Any, following: int, fits: Callable[[Any], Any]) -> Any:
        """The first record of a chain that fits, null where none does. following: the word with the next record."""
        current = self.variable(P, head)
        top, inside, after, end = (self.function.append_basic_block(n) for n in ("first", "record", "next", "found"))
        self.b.branch(top)
        self.b.position_at_end(top)
        record = self.b.load(current, typ=P)
        self.b.cbranch(self.is_zero(record), end, inside)
        self.b.position_at_end(inside)
        self.b.cbranch(fits(record), end, after)
        self.b.position_at_end(after)
        self.b.store(self.word(record, following, P), current)
        self.b.branch(top)
        self.b.position_at_end(end)
        return record

    def leave_if(self, condition: Any, value: Any, before: Callable[[], None] | None = None) -> None:
        """Return `value` where the condition holds."""
        with self.b.if_then(condition):
            if before is not None:
                before()
            self.b.ret(value)

    def is_zero(self, value: Any) -> Any:
        zero = ir.Constant(P, None) if value.type == P else ir.Constant(value.type, 0)
        return self.b.icmp_unsigned("==", value, zero)

    def differ(self, a: Any, b: Any) -> Any:
        return self.b.icmp_unsigned("!=", a, b)

    def api(self, name: str, result: Any, *arguments: Any) -> Any:
        """A call of CPython's C API."""
        known = self.module.globals.get(name)
        function = known or ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def ask(self, function: Any, item: Any) -> Any:
        """The answer of a Python function called with one object, which it takes over; null where it raised."""
        arguments = self.api("PyTuple_New", P, c(1))
        self.api("PyTuple_SetItem", I32, arguments, c(0), item)
        answer = self.api("PyObject_CallObject", P, function, arguments)
        self.api("Py_DecRef", VOID, arguments)
        return answer
