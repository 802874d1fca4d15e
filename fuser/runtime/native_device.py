"""A call on CuPy arrays or torch tensors of a GPU, natively: results from the library's own functions, launches on its
current stream.

In: an LLVM module. Out: `run(entry, args, miss) -> object` in it. What cannot be done here without an exception of a
library's (no memory, another device current) is left to the caller's other road: the answer is then NotImplemented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fuser.runtime import native_words as w
from fuser.runtime.native_launch import RAISED
from fuser.runtime.native_layout import CupyLayout, Layout, TorchLayout
from fuser.runtime.native_run import Run
from fuser.runtime.native_words import I32, I64, VOID, P, c

CREATE = ir.FunctionType(P, [P, P, P, P]).as_pointer()  # type, shape, dtype, template array -> array
ALLOCATE = ir.FunctionType(P, [P, I32]).as_pointer()  # bytes as a Python integer, 0 -> memory
STREAM = ir.FunctionType(I64, []).as_pointer()
CURRENT = ir.FunctionType(I32, [P]).as_pointer()  # cuCtxGetDevice
WORK_STREAM = ir.FunctionType(I32, [I32, I32, P]).as_pointer()  # DLPack: kind of device, number, stream
DLPACK_CUDA = 2  # kDLCUDA


class DeviceRun(Run):
    """See the module's docstring. This one is for CuPy's arrays."""

    current = w.Y_CURRENT  # where the library's words have cuCtxGetDevice

    def __init__(self, m: Any, name: str, plan: Any, layout: type[Layout] = CupyLayout) -> None:
        super().__init__(m, name, layout)
        self.plan, self.library = plan, self.word(self.function.args[0], w.E_LIBRARY, P)

    def write(self) -> Any:
        b = self.b
        entry, args, _ = self.function.args
        table = self.room(self.word(entry, w.E_TABLE))
        objects = self.room(b.add(self.word(entry, w.E_RESULTS), c(1)))
        made, clean = self._begin(entry, objects)

        def refuse() -> None:
            self.api("PyErr_Clear", VOID)
            clean()
            self.api("Py_IncRef", VOID, miss)

        miss = self.word(entry, w.E_MISS, P)
        self.leave_if(self._elsewhere(entry), miss, refuse)
        self._arguments(entry, args, table)
        self._memory(entry, table, objects, made, miss, refuse)
        with self.records(entry, w.E_DYNAMICS, w.E_DYNAMIC, w.DYNAMIC_WORDS) as record:
            self.put(table, self.word(record, 0), self._scalar(record, args))
        stream = self._stream(entry, miss, refuse)
        code = b.call(self.plan, [self.word(entry, w.E_PLAN, P), table, b.inttoptr(stream, P)])
        with b.if_then(self.differ(code, ir.Constant(I32, 0))):
            with b.if_then(self.differ(code, ir.Constant(I32, RAISED))):
                self._fail(entry, code)
            clean()
            b.ret(self.null)
        self._tell(entry, args, clean)
        self._finish(entry, args, objects, clean)
        return self.function

    def _memory(self, entry: Any, table: Any, objects: Any, made: Any, miss: Any, refuse: Callable[[], None]) -> None:
        """Results, then temporaries."""
        self._results(entry, table, objects, made, miss, refuse)
        self._arena(entry, table, objects, made, miss, refuse)

    def _stream(self, entry: Any, miss: Any, refuse: Callable[[], None]) -> Any:
        """The library's current stream."""
        b = self.b
        stream = b.call(self._function(w.Y_STREAM, STREAM), [])
        with b.if_then(b.icmp_signed("==", stream, c(-1))):  # perhaps an error: Cython's sign of one
            self.leave_if(b.not_(self.is_zero(self.api("PyErr_Occurred", P))), miss, refuse)
        return stream

    def _function(self, word: int, kind: Any) -> Any:
        return self.b.inttoptr(self.word(self.library, word), kind)

    def _elsewhere(self, entry: Any) -> Any:
        """Whether the entry's device is not the current one (or there is none)."""
        b = self.b
        device = self.variable(I32, ir.Constant(I32, -1))
        code = b.call(self._function(self.current, CURRENT), [device])
        other = self.differ(b.sext(b.load(device, typ=I32), I64), self.word(entry, w.E_ORDINAL))
        return b.or_(self.differ(code, ir.Constant(I32, 0)), other)

    def _results(self, entry: Any, table: Any, objects: Any, made: Any, miss: Any, refuse: Callable[[], None]) -> None:
        """An array each: (shape, dtype, table place)."""
        create, kind = self._function(w.Y_CREATE, CREATE), self.word(self.library, w.Y_TYPE, P)
        none = self.word(entry, w.E_EMPTY, P)
        with self.records(entry, w.E_RESULTS, w.E_RESULT, w.RESULT_WORDS) as record:
            array = self.b.call(create, [kind, self.word(record, 0, P), self.word(record, 1, P), none])
            self.leave_if(self.is_zero(array), miss, refuse)
            self._keep(array, objects, made)
            self.put(table, self.word(record, 2), self.reader.data(array))

    def _arena(self, entry: Any, table: Any, objects: Any, made: Any, miss: Any, refuse: Callable[[], None]) -> None:
        """One block for temporaries: (offset, 0, table place) of each."""
        b = self.b
        assert isinstance(self.reader, CupyLayout)
        wanted = self.word(entry, w.E_ARENA, P)
        base = self.variable(I64, c(0))
        with b.if_then(b.not_(self.is_zero(wanted))):
            memory = b.call(self._function(w.Y_ALLOCATE, ALLOCATE), [wanted, ir.Constant(I32, 0)])
            self.leave_if(self.is_zero(memory), miss, refuse)
            self._keep(memory, objects, made)
            b.store(self.reader.pointer(memory), base)
        with self.records(entry, w.E_TEMPS, w.E_TEMP, w.TEMP_WORDS) as record:
            self.put(table, self.word(record, 2), b.add(b.load(base, typ=I64), self.word(record, 0)))

    def _keep(self, value: Any, objects: Any, made: Any) -> None:
        k = self.b.load(made, typ=I64)
        self.put(objects, k, value)
        self.b.store(self.b.add(k, c(1)), made)

    def _fail(self, entry: Any, code: Any) -> None:
        """Let Python raise the error of a launch."""
        self.ask(self.word(entry, w.E_FAIL, P), self.api("PyLong_FromLong", P, self.b.sext(code, I64)))


class TorchDeviceRun(DeviceRun):
    """For torch's tensors: results and temporaries from torch's allocator, by calls of what an entry holds."""

    current = w.T_CURRENT

    def __init__(self, m: Any, name: str, plan: Any) -> None:
        super().__init__(m, name, plan, TorchLayout)

    def _memory(self, entry: Any, table: Any, objects: Any, made: Any, miss: Any, refuse: Callable[[], None]) -> None:
        self._allocate(entry, table, objects, made, miss, refuse)

    def _stream(self, entry: Any, miss: Any, refuse: Callable[[], None]) -> Any:
        b = self.b
        found = self.variable(I64, c(0))
        ordinal = b.trunc(self.word(entry, w.E_ORDINAL), I32)
        ask = self._function(w.T_STREAM, WORK_STREAM)
        code = b.call(ask, [ir.Constant(I32, DLPACK_CUDA), ordinal, found])
        self.leave_if(self.differ(code, ir.Constant(I32, 0)), miss, refuse)
        return b.load(found, typ=I64)
