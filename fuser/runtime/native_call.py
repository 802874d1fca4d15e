"""The native half of the short road: functions in LLVM IR that Python calls as built-ins.

In: nothing. Out: a module with `fuser_road(self, args, nargs)`, of CPython's METH_FASTCALL signature, for NumPy arrays,
`fuser_device_road` for CuPy's, and `fuser_launch`; another with the roads of torch's tensors. `self` is the address of
a road, a block of 8-byte words; the function walks the road's entries, takes the first that the arguments fit,
allocates results, runs the kernels and returns what the program returns. Where none fits it returns NotImplemented, and
the caller goes the long road. `native_entry` lays out the blocks; `native_words` numbers the words.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.runtime import native_device, native_launch
from fuser.runtime.native_layout import CupyLayout, NumpyLayout, TorchLayout
from fuser.runtime.native_match import Match
from fuser.runtime.native_run import Run
from fuser.runtime.native_words import (
    E_NEXT,
    E_THREADED,
    I64,
    P_MODE,
    R_ENTRY,
    R_MISS,
    R_POOL,
    R_WATCH,
    R_WATCHES,
    VOID,
    W_CELL,
    W_GLOBAL,
    WATCH_WORDS,
    P,
    Writer,
    c,
)


def module() -> Any:
    """The module with all functions but those for torch."""
    m = ir.Module("fuser_road")
    run = Run(m, "fuser_road_run", NumpyLayout).write()
    Road(m, "fuser_road").write(Match(m, "fuser_road_match", NumpyLayout).write(), run)
    plan = native_launch.write(m)
    run = native_device.DeviceRun(m, "fuser_device_run", plan).write()
    Road(m, "fuser_device_road").write(Match(m, "fuser_device_match", CupyLayout).write(), run)
    return m


def torch_module() -> Any:
    """The module for torch's tensors: of its own, so that only those who have torch load it."""
    m = ir.Module("fuser_torch_road")
    match = Match(m, "fuser_torch_match", TorchLayout).write()
    Road(m, "fuser_torch_road").write(match, Run(m, "fuser_torch_run", TorchLayout).write())
    plan = native_launch.write(m)
    run = native_device.TorchDeviceRun(m, "fuser_torch_device_run", plan).write()
    Road(m, "fuser_torch_device_road").write(match, run)
    return m


class Road(Writer):
    """`name(self, args, nargs)`: what Python calls."""

    def __init__(self, m: Any, name: str) -> None:
        super().__init__(m, name, P, [P, P, I64])

    def write(self, matches: Any, runs: Any) -> None:
        b = self.b
        owner, args, nargs = self.function.args
        road = self.api("PyLong_AsVoidPtr", P, owner)
        miss, pool = self.word(road, R_MISS, P), self.word(road, R_POOL, P)

        def refuse() -> None:
            self.api("Py_IncRef", VOID, miss)

        with self.records(road, R_WATCHES, R_WATCH, WATCH_WORDS) as record:
            self.leave_if(self._changed(record), miss, refuse)

        def fits(entry: Any) -> Any:
            ready = b.or_(self.is_zero(self.word(entry, E_THREADED)), self.differ(self.word(pool, P_MODE), c(0)))
            return b.and_(b.call(matches, [entry, args, nargs]), ready)

        entry = self.first(self.word(road, R_ENTRY, P), E_NEXT, fits)
        self.leave_if(self.is_zero(entry), miss, refuse)
        b.ret(b.call(runs, [entry, args, pool]))

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
