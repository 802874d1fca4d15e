"""What a call that fits an entry does, natively: allocate, run the kernels, write effects, return.

In: an LLVM module. Out: `run(entry, args, pool) -> object` in it, for NumPy arrays; its parts, for other libraries'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fuser.runtime.native_layout import Layout
from fuser.runtime.native_words import (
    A_KIND,
    A_SLOT,
    ARG_WORDS,
    DISPATCH,
    DYNAMIC_WORDS,
    E_ARGS,
    E_BUMP,
    E_DYNAMIC,
    E_DYNAMICS,
    E_EFFECT,
    E_EFFECTS,
    E_ELLIPSIS,
    E_EMPTY,
    E_FINISH,
    E_HOLDER,
    E_NARGS,
    E_OUTPUT,
    E_OUTPUTS,
    E_RELEASE,
    E_RESULT,
    E_RESULTS,
    E_SCALAR,
    E_SCALARS,
    E_SLOT,
    E_SLOTS,
    E_STEP,
    E_STEPS,
    E_TABLE,
    E_TEMP,
    E_TEMPS,
    E_WRITTEN,
    E_WRITTENS,
    EFFECT_WORDS,
    F32,
    F32_OF_FLOAT,
    F32_OF_INT,
    F64,
    F64_OF_FLOAT,
    F64_OF_INT,
    I32,
    I64,
    K_ARRAY,
    KERNEL,
    OUTPUT_WORDS,
    P_DISPATCH,
    P_MODE,
    P_OBJECT,
    P_STATE,
    RESULT_WORDS,
    STEP_WORDS,
    TEMP_WORDS,
    VOID,
    P,
    Writer,
    c,
)


class Run(Writer):
    """`run(entry, args, pool) -> object`: allocate, launch, write effects, return; NULL with an exception set."""

    def __init__(self, m: Any, name: str, layout: type[Layout]) -> None:
        super().__init__(m, name, P, [P, P, P])
        self.null = ir.Constant(P, None)
        self.reader = layout(self, self.function.args[0])

    def write(self) -> Any:
        entry, args, pool = self.function.args
        table = self.room(self.word(entry, E_TABLE))
        objects = self.room(self.word(entry, E_RESULTS))
        made, clean = self._begin(entry, objects)
        self._arguments(entry, args, table)
        self._allocate(entry, table, objects, made, self.null, clean)
        self._launch(entry, args, table, pool)
        with self.records(entry, E_EFFECTS, E_EFFECT, EFFECT_WORDS) as record:
            argument, value = (self.word(args, self.word(record, 0), P), self.word(objects, self.word(record, 1), P))
            failed = self.api("PyObject_SetItem", I32, argument, self.word(entry, E_ELLIPSIS, P), value)
            self.leave_if(self.differ(failed, ir.Constant(I32, 0)), self.null, clean)
        self._tell(entry, args, clean)
        self._finish(entry, args, objects, clean)
        return self.function

    def _tell(self, entry: Any, args: Any, clean: Callable[[], None]) -> None:
        """Call what an entry wants to be told of the arguments that were written."""
        b = self.b
        count = self.word(entry, E_WRITTENS)
        with b.if_then(self.differ(count, c(0))):
            written = self.api("PyTuple_New", P, count)
            places = self.word(entry, E_WRITTEN, P)
            with self.each(count) as k:
                value = self.word(args, self.word(places, k), P)
                self.api("Py_IncRef", VOID, value)
                self.api("PyTuple_SetItem", I32, written, k, value)
            answer = self.ask(self.word(entry, E_BUMP, P), written)
            self.leave_if(self.is_zero(answer), self.null, clean)
            self.api("Py_DecRef", VOID, answer)

    def _begin(self, entry: Any, objects: Any) -> tuple[Any, Callable[[], None]]:
        """Take hold of the entry; (count of objects made so far, what lets go of them and of the entry)."""
        holder = self.word(entry, E_HOLDER, P)
        made = self.variable(I64, c(0))

        def clean() -> None:
            with self.each(self.b.load(made, typ=I64)) as k:
                self.api("Py_DecRef", VOID, self.word(objects, k, P))
            self.api("Py_DecRef", VOID, holder)

        self.api("Py_IncRef", VOID, holder)
        return made, clean

    def _arguments(self, entry: Any, args: Any, table: Any) -> None:
        count = self.variable(I64, c(0))
        with self.records(entry, E_NARGS, E_ARGS, ARG_WORDS) as record:
            k = self.b.load(count, typ=I64)
            self.b.store(self.b.add(k, c(1)), count)
            with self.b.if_then(self.b.icmp_signed("==", self.word(record, A_KIND), c(K_ARRAY))):
                seen = self.reader.see(self.word(args, k, P))
                self.put(table, self.word(record, A_SLOT), self.reader.data(seen))

    def _allocate(
        self, entry: Any, table: Any, objects: Any, made: Any, failed: Any, clean: Callable[[], None]
    ) -> None:
        """Results and the block of temporaries by calls of what makes them; `failed` is the answer where one fails."""
        with self.records(entry, E_RESULTS, E_RESULT, RESULT_WORDS) as record:
            array = self.api("PyObject_CallObject", P, self.word(record, 0, P), self.word(record, 1, P))
            self.leave_if(self.is_zero(array), failed, clean)
            k = self.b.load(made, typ=I64)
            self.put(objects, k, array)
            self.b.store(self.b.add(k, c(1)), made)
            self.put(table, self.word(record, 2), self.reader.data(self.reader.see(array)))
        with self.records(entry, E_TEMPS, E_TEMP, TEMP_WORDS) as record:
            base = self.word(table, self.word(record, 0))
            self.put(table, self.word(record, 2), self.b.add(base, self.word(record, 1)))

    def _launch(self, entry: Any, args: Any, table: Any, pool: Any) -> None:
        pointers = self.room(self.word(entry, E_SLOTS))
        slots = self.word(entry, E_SLOT, P)
        with self.each(self.word(entry, E_SLOTS)) as k:
            self.put(pointers, k, self.word(table, self.word(slots, k)))
        scalars = self.room(self.word(entry, E_SCALARS))
        template = self.word(entry, E_SCALAR, P)
        with self.each(self.word(entry, E_SCALARS)) as k:
            self.put(scalars, k, self.word(template, k))
        with self.records(entry, E_DYNAMICS, E_DYNAMIC, DYNAMIC_WORDS) as record:
            self.put(scalars, self.word(record, 0), self._scalar(record, args))
        state = self.variable(P, self.null)
        release = self.differ(self.word(entry, E_RELEASE), c(0))
        owner = self.word(pool, P_OBJECT, P)
        cell = [self.word(pool, k, P) for k in (P_STATE, P_DISPATCH)]
        shared = self.b.icmp_signed("==", self.word(pool, P_MODE), c(2))
        with self.b.if_then(shared):
            self.api("Py_IncRef", VOID, owner)
        with self.b.if_then(release):
            self.b.store(self.api("PyEval_SaveThread", P), state)
        with self.records(entry, E_STEPS, E_STEP, STEP_WORDS) as record:
            self._step(record, pointers, scalars, shared, cell)
        with self.b.if_then(release):
            self.api("PyEval_RestoreThread", VOID, self.b.load(state, typ=P))
        with self.b.if_then(shared):
            self.api("Py_DecRef", VOID, owner)

    def _step(self, record: Any, pointers: Any, scalars: Any, shared: Any, cell: list[Any]) -> None:
        """One kernel: kernel address, first pointer, first scalar, trips, grain."""
        b = self.b
        buffers = self.at(pointers, b.mul(self.word(record, 1), c(8)))
        values = self.at(scalars, b.mul(self.word(record, 2), c(8)))
        trips, grain = self.word(record, 3), self.word(record, 4)
        with b.if_else(b.and_(shared, b.icmp_signed(">", trips, grain))) as (many, one):
            with many:
                dispatch = b.inttoptr(b.ptrtoint(cell[1], I64), DISPATCH)
                b.call(dispatch, [cell[0], self.word(record, 0, P), buffers, values, trips, grain])
            with one:
                b.call(b.inttoptr(self.word(record, 0), KERNEL), [buffers, values, c(0), trips])

    def _scalar(self, record: Any, args: Any) -> Any:
        """A Python number as the bits of a kernel's 8-byte slot."""
        b = self.b
        value, mode = self.word(args, self.word(record, 1), P), self.word(record, 2)
        bits = self.variable(I64, c(0))
        floating = b.icmp_signed("<=", mode, c(F32_OF_FLOAT))
        with b.if_else(floating) as (yes, no):
            with yes:
                number = self.api("PyFloat_AsDouble", F64, value)
                b.store(b.bitcast(number, I64), bits)
            with no:
                b.store(self.api("PyLong_AsLongLong", I64, value), bits)
        whole = b.load(bits, typ=I64)
        real = b.select(floating, b.bitcast(whole, F64), b.sitofp(whole, F64))
        with b.if_then(b.or_(b.icmp_signed("==", mode, c(F64_OF_INT)), b.icmp_signed("==", mode, c(F64_OF_FLOAT)))):
            b.store(b.bitcast(real, I64), bits)
        with b.if_then(b.or_(b.icmp_signed("==", mode, c(F32_OF_INT)), b.icmp_signed("==", mode, c(F32_OF_FLOAT)))):
            b.store(b.zext(b.bitcast(b.fptrunc(real, F32), I32), I64), bits)
        return b.load(bits, typ=I64)

    def _finish(self, entry: Any, args: Any, objects: Any, clean: Callable[[], None]) -> None:
        """The only result, or a tuple of all, or what a Python function makes of that tuple."""
        b = self.b
        count, finish = self.word(entry, E_OUTPUTS), self.word(entry, E_FINISH)
        single = b.icmp_signed("==", finish, c(0))
        answer = self.variable(P, self.null)
        with b.if_then(b.not_(single)):
            b.store(self.api("PyTuple_New", P, count), answer)
            self.leave_if(self.is_zero(b.load(answer, typ=P)), self.null, clean)
        number = self.variable(I64, c(0))
        with self.records(entry, E_OUTPUTS, E_OUTPUT, OUTPUT_WORDS) as record:
            value = self._output(entry, record, args, objects)
            with b.if_then(self.is_zero(value)):
                self.api("Py_DecRef", VOID, b.load(answer, typ=P))
                clean()
                b.ret(self.null)
            k = b.load(number, typ=I64)
            b.store(b.add(k, c(1)), number)
            with b.if_else(single) as (alone, many):
                with alone:
                    b.store(value, answer)
                with many:
                    self.api("PyTuple_SetItem", I32, b.load(answer, typ=P), k, value)
        with b.if_then(b.icmp_unsigned(">", finish, c(1))):
            b.store(self.ask(b.inttoptr(finish, P), b.load(answer, typ=P)), answer)
        clean()
        b.ret(b.load(answer, typ=P))

    def _output(self, entry: Any, record: Any, args: Any, objects: Any) -> Any:
        """A result (kind 0), a result as a NumPy scalar (1), or an argument itself (2)."""
        b = self.b
        kind, k = self.word(record, 0), self.word(record, 1)
        value = self.variable(P, self.null)
        with b.if_else(b.icmp_signed("==", kind, c(1))) as (scalar, whole):
            with scalar:
                item = self.api("PyObject_GetItem", P, self.word(objects, k, P), self.word(entry, E_EMPTY, P))
                b.store(item, value)
            with whole:
                block = b.select(b.icmp_signed("==", kind, c(0)), objects, args)
                b.store(self.word(block, k, P), value)
                self.api("Py_IncRef", VOID, b.load(value, typ=P))
        return b.load(value, typ=P)
