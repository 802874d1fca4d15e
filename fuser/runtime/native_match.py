"""Whether the arguments of a call are those that an entry was made for, natively.

In: an LLVM module, how arrays lie in memory. Out: `match(entry, args, nargs) -> bool` in it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.runtime.native_layout import Layout
from fuser.runtime.native_words import (
    A_DIMS,
    A_KIND,
    A_LOW,
    A_OBJECT,
    A_PHASE,
    A_RANK,
    ARG_WORDS,
    E_ARGS,
    E_NARGS,
    E_PAIR,
    E_PAIRS,
    E_WRITTEN,
    E_WRITTENS,
    I32,
    I64,
    K_ARRAY,
    K_INT,
    K_SAME,
    PAIR_WORDS,
    P,
    Writer,
    c,
)


class Match(Writer):
    """`match(entry, args, nargs) -> bool`: whether the arguments are those that an entry was made for."""

    def __init__(self, m: Any, name: str, layout: type[Layout]) -> None:
        super().__init__(m, name, ir.IntType(1), [P, P, I64])
        self.layout = layout(self, self.function.args[0])
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
        with self.records(entry, E_WRITTENS, E_WRITTEN, 1) as record:
            for condition in self.layout.fixed(self.word(args, self.word(record, 0), P)):
                self.leave_if(condition, self.no)
        with self.records(entry, E_PAIRS, E_PAIR, PAIR_WORDS) as record:
            self.leave_if(self._overlap(record, args), self.no)
        self.b.ret(ir.Constant(ir.IntType(1), 1))
        return self.function

    def _overlap(self, record: Any, args: Any) -> Any:
        """Whether the byte ranges of two arrays meet: (argument, argument, low, high, low, high) from their data."""
        b = self.b
        one, other = (self.layout.data(self.layout.see(self.word(args, self.word(record, k), P))) for k in (0, 1))
        low, high, low_2, high_2 = (self.word(record, k) for k in range(2, 6))
        before = b.icmp_unsigned("<", b.add(one, low), b.add(other, high_2))
        return b.and_(before, b.icmp_unsigned("<", b.add(other, low_2), b.add(one, high)))

    def _array(self, record: Any, array: Any) -> None:
        b, layout = self.b, self.layout
        seen = layout.see(array)
        self.leave_if(self.differ(layout.dtype(seen), self.word(record, A_OBJECT)), self.no)
        rank = layout.rank(seen)
        self.leave_if(self.differ(rank, self.word(record, A_RANK)), self.no)
        for condition in layout.unfit(record, seen):
            self.leave_if(condition, self.no)
        address = layout.data(seen)
        self.leave_if(b.icmp_signed("==", address, c(0)), self.no)  # no elements, or no memory for them
        phase = b.and_(address, c(15))
        self.leave_if(self.differ(phase, self.word(record, A_PHASE)), self.no)
        dims, strides = layout.dims(seen), layout.strides(seen)
        known = self.word(record, A_DIMS, P)
        with self.each(rank) as axis:
            self.leave_if(self.differ(self.word(dims, axis), self.word(known, axis)), self.no)
            stride = self.word(known, b.add(rank, axis))
            self.leave_if(self.differ(self.word(strides, axis), stride), self.no)
        for condition in layout.other(array, seen):
            self.leave_if(condition, self.no)

    def _integer(self, record: Any, value: Any) -> None:
        """Integers must fit the parameter they become; else the long road raises NumPy's error."""
        overflow = self.variable(I32, ir.Constant(I32, 0))
        number = self.api("PyLong_AsLongLongAndOverflow", I64, value, overflow)
        self.leave_if(self.differ(self.b.load(overflow, typ=I32), ir.Constant(I32, 0)), self.no)
        bounds = self.word(record, A_DIMS, P)
        self.leave_if(self.b.icmp_signed("<", number, self.word(bounds, 0)), self.no)
        self.leave_if(self.b.icmp_signed(">", number, self.word(bounds, 1)), self.no)
