"""The native half of the short road: one function in LLVM IR that Python calls as a built-in.

In: nothing. Out: a module with `fuser_road(self, args, nargs)`, of CPython's METH_FASTCALL signature. `self` is the
address of a road, a block of 8-byte words; the function walks the road's entries, takes the first that the arguments
fit, allocates results, runs the kernels and returns what the program returns. Where none fits it returns
NotImplemented, and the caller goes the long road. `native_entry` lays out the blocks; `native_words` numbers the words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fuser.runtime import native_launch
from fuser.runtime.native_words import (
    A_DIMS,
    A_HIGH,
    A_KIND,
    A_LOW,
    A_OBJECT,
    A_PHASE,
    A_RANK,
    A_SLOT,
    ARG_WORDS,
    DISPATCH,
    DYNAMIC_WORDS,
    E_ARGS,
    E_DYNAMIC,
    E_DYNAMICS,
    E_EFFECT,
    E_EFFECTS,
    E_ELLIPSIS,
    E_EMPTY,
    E_FINISH,
    E_HOLDER,
    E_NARGS,
    E_NEXT,
    E_OUTPUT,
    E_OUTPUTS,
    E_PAIR,
    E_PAIRS,
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
    E_THREADED,
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
    K_INT,
    K_SAME,
    KERNEL,
    N_DATA,
    N_DIMS,
    N_DTYPE,
    N_FLAGS,
    N_RANK,
    N_STRIDES,
    OUTPUT_WORDS,
    P_DISPATCH,
    P_MODE,
    P_OBJECT,
    P_STATE,
    P_THREADS,
    PAIR_WORDS,
    R_ENTRY,
    R_MISS,
    R_POOL,
    R_WATCH,
    R_WATCHES,
    RESULT_WORDS,
    STEP_WORDS,
    TASKS_PER_THREAD,
    TEMP_WORDS,
    VOID,
    W_CELL,
    W_GLOBAL,
    WATCH_WORDS,
    P,
    Writer,
    c,
)  # fmt: skip


def module() -> Any:
    """The module with `fuser_road` and `fuser_launch`."""
    m = ir.Module("fuser_road")
    matches = _Match(m).write()
    runs = _Run(m).write()
    _Road(m).write(matches, runs)
    native_launch.write(m)
    return m


class _Match(Writer):
    """`match(entry, args, nargs) -> bool`: whether the arguments are those that an entry was made for."""

    def __init__(self, m: Any) -> None:
        super().__init__(m, "fuser_road_match", ir.IntType(1), [P, P, I64])
        self.no = ir.Constant(ir.IntType(1), 0)

    def write(self) -> Any:
        entry, args, nargs = self.function.args
        self.leave_if(self.differ(nargs, self.word(entry, E_NARGS)), self.no)
        with self.records(entry, E_NARGS, E_ARGS, ARG_WORDS) as record:
            position = self.b.udiv(self.b.sub(self.b.ptrtoint(record, I64), self.word(entry, E_ARGS)), c(8 * ARG_WORDS))
            value = self.word(args, position, P)
            kind = self.word(record, A_KIND)
            object_type = self.b.load(self.at(value, 8), typ=I64)
            with self.b.if_else(self.b.icmp_signed("==", kind, c(K_SAME))) as (same, other):
                with same:
                    self.leave_if(self.differ(self.b.ptrtoint(value, I64), self.word(record, A_OBJECT)), self.no)
                with other:
                    self.leave_if(self.differ(object_type, self.word(record, A_LOW)), self.no)
            with self.b.if_then(self.b.icmp_signed("==", kind, c(K_ARRAY))):
                self._array(record, value)
            with self.b.if_then(self.b.icmp_signed("==", kind, c(K_INT))):
                self._integer(record, value)
        with self.records(entry, E_PAIRS, E_PAIR, PAIR_WORDS) as record:
            self.leave_if(self._overlap(record, args), self.no)
        self.b.ret(ir.Constant(ir.IntType(1), 1))
        return self.function

    def _overlap(self, record: Any, args: Any) -> Any:
        """Whether the byte ranges of two arrays meet: (argument, argument, low, high, low, high) from their data."""
        b = self.b
        one, other = (b.load(self.at(self.word(args, self.word(record, k), P), N_DATA), typ=I64) for k in (0, 1))
        low, high, low_2, high_2 = (self.word(record, k) for k in range(2, 6))
        before = b.icmp_unsigned("<", b.add(one, low), b.add(other, high_2))
        return b.and_(before, b.icmp_unsigned("<", b.add(other, low_2), b.add(one, high)))

    def _array(self, record: Any, array: Any) -> None:
        b = self.b
        self.leave_if(self.differ(b.load(self.at(array, N_DTYPE), typ=I64), self.word(record, A_OBJECT)), self.no)
        rank = b.sext(b.load(self.at(array, N_RANK), typ=I32), I64)
        self.leave_if(self.differ(rank, self.word(record, A_RANK)), self.no)
        needed = b.trunc(self.word(record, A_HIGH), I32)
        flags = b.and_(b.load(self.at(array, N_FLAGS), typ=I32), needed)
        self.leave_if(self.differ(flags, needed), self.no)
        phase = b.and_(b.load(self.at(array, N_DATA), typ=I64), c(15))
        self.leave_if(self.differ(phase, self.word(record, A_PHASE)), self.no)
        dims, strides = (b.load(self.at(array, offset), typ=P) for offset in (N_DIMS, N_STRIDES))
        known = self.word(record, A_DIMS, P)
        with self.each(rank) as axis:
            self.leave_if(self.differ(self.word(dims, axis), self.word(known, axis)), self.no)
            stride = self.word(known, b.add(rank, axis))
            self.leave_if(self.differ(self.word(strides, axis), stride), self.no)

    def _integer(self, record: Any, value: Any) -> None:
        """Integers must fit the parameter they become; else the long road raises NumPy's error."""
        overflow = self.variable(I32, ir.Constant(I32, 0))
        number = self.api("PyLong_AsLongLongAndOverflow", I64, value, overflow)
        self.leave_if(self.differ(self.b.load(overflow, typ=I32), ir.Constant(I32, 0)), self.no)
        bounds = self.word(record, A_DIMS, P)
        self.leave_if(self.b.icmp_signed("<", number, self.word(bounds, 0)), self.no)
        self.leave_if(self.b.icmp_signed(">", number, self.word(bounds, 1)), self.no)


class _Run(Writer):
    """`run(entry, args, pool) -> object`: allocate, launch, write effects, return; NULL with an exception set."""

    def __init__(self, m: Any) -> None:
        super().__init__(m, "fuser_road_run", P, [P, P, P])
        self.null = ir.Constant(P, None)

    def write(self) -> Any:
        entry, args, pool = self.function.args
        holder = self.word(entry, E_HOLDER, P)
        table = self.room(self.word(entry, E_TABLE))
        objects = self.room(self.word(entry, E_RESULTS))
        made = self.variable(I64, c(0))

        def clean() -> None:
            with self.each(self.b.load(made, typ=I64)) as k:
                self.api("Py_DecRef", VOID, self.word(objects, k, P))
            self.api("Py_DecRef", VOID, holder)

        self.api("Py_IncRef", VOID, holder)
        self._arguments(entry, args, table)
        self._allocate(entry, table, objects, made, clean)
        self._launch(entry, args, table, pool)
        with self.records(entry, E_EFFECTS, E_EFFECT, EFFECT_WORDS) as record:
            argument, value = (self.word(args, self.word(record, 0), P), self.word(objects, self.word(record, 1), P))
            failed = self.api("PyObject_SetItem", I32, argument, self.word(entry, E_ELLIPSIS, P), value)
            self.leave_if(self.differ(failed, ir.Constant(I32, 0)), self.null, clean)
        self._finish(entry, args, objects, clean)
        return self.function

    def _arguments(self, entry: Any, args: Any, table: Any) -> None:
        count = self.variable(I64, c(0))
        with self.records(entry, E_NARGS, E_ARGS, ARG_WORDS) as record:
            k = self.b.load(count, typ=I64)
            self.b.store(self.b.add(k, c(1)), count)
            with self.b.if_then(self.b.icmp_signed("==", self.word(record, A_KIND), c(K_ARRAY))):
                data = self.b.load(self.at(self.word(args, k, P), N_DATA), typ=I64)
                self.put(table, self.word(record, A_SLOT), data)

    def _allocate(self, entry: Any, table: Any, objects: Any, made: Any, clean: Callable[[], None]) -> None:
        with self.records(entry, E_RESULTS, E_RESULT, RESULT_WORDS) as record:
            array = self.api("PyObject_CallObject", P, self.word(record, 0, P), self.word(record, 1, P))
            self.leave_if(self.is_zero(array), self.null, clean)
            k = self.b.load(made, typ=I64)
            self.put(objects, k, array)
            self.b.store(self.b.add(k, c(1)), made)
            self.put(table, self.word(record, 2), self.b.load(self.at(array, N_DATA), typ=I64))
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
        threads, mode = self.word(pool, P_THREADS), self.word(pool, P_MODE)
        shared = self.b.icmp_signed("==", mode, c(2))
        with self.b.if_then(shared):
            self.api("Py_IncRef", VOID, owner)
        with self.b.if_then(release):
            self.b.store(self.api("PyEval_SaveThread", P), state)
        with self.records(entry, E_STEPS, E_STEP, STEP_WORDS) as record:
            self._step(record, pointers, scalars, shared, threads, cell)
        with self.b.if_then(release):
            self.api("PyEval_RestoreThread", VOID, self.b.load(state, typ=P))
        with self.b.if_then(shared):
            self.api("Py_DecRef", VOID, owner)

    def _step(self, record: Any, pointers: Any, scalars: Any, shared: Any, threads: Any, cell: list[Any]) -> None:
        """One kernel: kernel address, first pointer, first scalar, trips, grain."""
        b = self.b
        buffers = self.at(pointers, b.mul(self.word(record, 1), c(8)))
        values = self.at(scalars, b.mul(self.word(record, 2), c(8)))
        trips, grain = self.word(record, 3), self.word(record, 4)
        with b.if_else(b.and_(shared, b.icmp_signed(">", trips, grain))) as (many, one):
            with many:
                tasks = b.mul(threads, c(TASKS_PER_THREAD))
                chunk = b.udiv(b.sub(b.add(trips, tasks), c(1)), tasks)
                chunk = b.select(b.icmp_signed(">", chunk, grain), chunk, grain)
                dispatch = b.inttoptr(b.ptrtoint(cell[1], I64), DISPATCH)
                b.call(dispatch, [cell[0], self.word(record, 0, P), buffers, values, trips, chunk])
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
            items = b.load(answer, typ=P)
            arguments = self.api("PyTuple_New", P, c(1))
            self.api("PyTuple_SetItem", I32, arguments, c(0), items)
            b.store(self.api("PyObject_CallObject", P, b.inttoptr(finish, P), arguments), answer)
            self.api("Py_DecRef", VOID, arguments)
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


class _Road(Writer):
    """`fuser_road(self, args, nargs)`: what Python calls."""

    def __init__(self, m: Any) -> None:
        super().__init__(m, "fuser_road", P, [P, P, I64])

    def write(self, matches: Any, runs: Any) -> None:
        b = self.b
        owner, args, nargs = self.function.args
        road = self.api("PyLong_AsVoidPtr", P, owner)
        miss, pool = self.word(road, R_MISS, P), self.word(road, R_POOL, P)

        def refuse() -> None:
            self.api("Py_IncRef", VOID, miss)

        with self.records(road, R_WATCHES, R_WATCH, WATCH_WORDS) as record:
            self.leave_if(self._changed(record), miss, refuse)
        current = self.variable(P, self.word(road, R_ENTRY, P))
        head, inside, next_, end = (self.function.append_basic_block(n) for n in ("head", "inside", "next", "end"))
        b.branch(head)
        b.position_at_end(head)
        entry = b.load(current, typ=P)
        b.cbranch(self.is_zero(entry), end, inside)
        b.position_at_end(inside)
        with b.if_then(b.call(matches, [entry, args, nargs])):
            ready = b.or_(self.is_zero(self.word(entry, E_THREADED)), self.differ(self.word(pool, P_MODE), c(0)))
            with b.if_then(ready):
                b.ret(b.call(runs, [entry, args, pool]))
        b.branch(next_)
        b.position_at_end(next_)
        b.store(self.word(entry, E_NEXT, P), current)
        b.branch(head)
        b.position_at_end(end)
        refuse()
        b.ret(miss)

    def _changed(self, record: Any) -> Any:
        """Whether something the program reads from outside is not the object it was."""
        b = self.b
        kind, a, key, expected = (self.word(record, k, P if k in (1, 2) else I64) for k in range(4))
        found = self.variable(I64, c(0))
        cases = b.switch(kind, self.function.append_basic_block("function"))
        function, after = cases.default, self.function.append_basic_block("compare")
        for number, name in ((W_GLOBAL, "global"), (W_CELL, "cell")):
            block = self.function.append_basic_block(name)
            cases.add_case(c(number), block)
            b.position_at_end(block)
            if number == W_GLOBAL:
                value = self.api("PyDict_GetItem", P, a, key)
            else:
                value = self.api("PyCell_Get", P, a)
                self.api("Py_DecRef", VOID, value)
            b.store(b.ptrtoint(value, I64), found)
            b.branch(after)
        b.position_at_end(function)
        code, defaults = self.api("PyFunction_GetCode", P, a), self.api("PyFunction_GetDefaults", P, a)
        same = b.icmp_unsigned("==", code, key)
        b.store(b.select(same, b.ptrtoint(defaults, I64), c(-1)), found)
        b.branch(after)
        b.position_at_end(after)
        return self.differ(b.load(found, typ=I64), expected)
