"""Where native code finds what it needs in an array object.

In: a function being written, the entry that it looks at. Out: values read from NumPy's array struct, whose layout is
documented, from CuPy's, whose offsets `native_cupy` has found by looking, or from what torch says of a tensor through
the C functions that DLPack defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from llvmlite import ir

from fuser.runtime import native_words as w
from fuser.runtime.native_words import I8, I32, I64, VOID, P, Writer


class Layout(Protocol):
    """How to read an array object. Addresses are numbers; `dims` and `strides` point to 64-bit words, strides in
    the unit of the entry's."""

    def __init__(self, writer: Writer, entry: Any) -> None: ...
    def see(self, array: Any) -> Any:
        """What the other methods take: what is known of the array object, until the next is seen."""
        ...

    def dtype(self, seen: Any) -> Any: ...
    def rank(self, seen: Any) -> Any: ...
    def dims(self, seen: Any) -> Any: ...
    def strides(self, seen: Any) -> Any: ...
    def data(self, seen: Any) -> Any: ...
    def unfit(self, record: Any, seen: Any) -> Iterator[Any]:
        """Conditions under which an array of the right dtype and rank does not fit."""
        ...

    def other(self, array: Any, seen: Any) -> Iterator[Any]:
        """Conditions under which the memory does not hold what the array object stands for."""
        ...

    def fixed(self, array: Any) -> Iterator[Any]:
        """Conditions under which an array, of flags that fit, is not to be written."""
        ...


class NumpyLayout:
    """NumPy's documented struct."""

    def __init__(self, writer: Writer, entry: Any) -> None:
        self.writer = writer

    def _load(self, array: Any, offset: int, kind: Any) -> Any:
        return self.writer.b.load(self.writer.at(array, offset), typ=kind)

    def see(self, array: Any) -> Any:
        return array

    def other(self, array: Any, seen: Any) -> Iterator[Any]:
        return iter(())

    def fixed(self, array: Any) -> Iterator[Any]:
        return iter(())

    def dtype(self, array: Any) -> Any:
        return self._load(array, w.N_DTYPE, I64)

    def rank(self, array: Any) -> Any:
        return self.writer.b.sext(self._load(array, w.N_RANK, I32), I64)

    def dims(self, array: Any) -> Any:
        return self._load(array, w.N_DIMS, P)

    def strides(self, array: Any) -> Any:
        return self._load(array, w.N_STRIDES, P)

    def data(self, array: Any) -> Any:
        return self._load(array, w.N_DATA, I64)

    def unfit(self, record: Any, array: Any) -> Iterator[Any]:
        """Flags that are needed and not there."""
        b = self.writer.b
        needed = b.trunc(self.writer.word(record, w.A_HIGH), I32)
        yield self.writer.differ(b.and_(self._load(array, w.N_FLAGS, I32), needed), needed)


class CupyLayout:
    """CuPy's, at the offsets that the entry's library block holds."""

    def __init__(self, writer: Writer, entry: Any) -> None:
        self.writer = writer
        self.library = writer.word(entry, w.E_LIBRARY, P)

    def see(self, array: Any) -> Any:
        return array

    def other(self, array: Any, seen: Any) -> Iterator[Any]:
        return iter(())

    def fixed(self, array: Any) -> Iterator[Any]:
        return iter(())

    def _load(self, base: Any, offset: int, kind: Any) -> Any:
        place = self.writer.b.gep(base, [self.writer.word(self.library, offset)], source_etype=I8)
        return self.writer.b.load(place, typ=kind)

    def dtype(self, array: Any) -> Any:
        return self._load(array, w.Y_DTYPE, I64)

    def rank(self, array: Any) -> Any:
        """The shape is a vector: its begin and end are side by side."""
        begin = self._load(array, w.Y_SHAPE, I64)
        end = self._load(array, w.Y_SHAPE_END, I64)
        return self.writer.b.udiv(self.writer.b.sub(end, begin), w.c(8))

    def dims(self, array: Any) -> Any:
        return self._load(array, w.Y_SHAPE, P)

    def strides(self, array: Any) -> Any:
        return self._load(array, w.Y_STRIDES, P)

    def data(self, array: Any) -> Any:
        return self.pointer(self._load(array, w.Y_DATA, P))

    def pointer(self, memory: Any) -> Any:
        """The address of a MemoryPointer."""
        return self._load(memory, w.Y_POINTER, I64)

    def unfit(self, record: Any, array: Any) -> Iterator[Any]:
        """Memory of another device."""
        device = self._load(self._load(array, w.Y_DATA, P), w.Y_DEVICE, I32)
        yield self.writer.differ(self.writer.b.sext(device, I64), self.writer.word(record, w.A_HIGH))


SEE = ir.FunctionType(I32, [P, P]).as_pointer()  # dltensor_from_py_object_no_sync


class TorchLayout:
    """torch's tensors, as `DLTensor`s that torch fills in: they own nothing and cost no reference."""

    def __init__(self, writer: Writer, entry: Any) -> None:
        self.writer = writer
        self.library = writer.word(entry, w.E_LIBRARY, P)
        self._seen = writer.room(w.c(w.D_WORDS))
        self._self = writer.variable(P, ir.Constant(P, None))  # the arguments of a method call
        self._answer = writer.variable(I64, w.c(0))

    def see(self, array: Any) -> Any:
        """The tensor's description; of rank -1 where torch refuses it (a wrapper without memory)."""
        writer, b = self.writer, self.writer.b
        function = b.inttoptr(writer.word(self.library, w.T_SEE), SEE)
        code = b.call(function, [array, self._seen])
        with b.if_then(writer.differ(code, ir.Constant(I32, 0))):
            writer.api("PyErr_Clear", VOID)
            writer.put(self._seen, w.D_RANK, w.c(-1))
        return self._seen

    def dtype(self, seen: Any) -> Any:
        """Rank and dtype in one word, as they lie."""
        return self.writer.word(seen, w.D_RANK)

    def rank(self, seen: Any) -> Any:
        return self.writer.b.sext(self.writer.b.trunc(self.writer.word(seen, w.D_RANK), I32), I64)

    def dims(self, seen: Any) -> Any:
        return self.writer.word(seen, w.D_SHAPE, P)

    def strides(self, seen: Any) -> Any:
        return self.writer.word(seen, w.D_STRIDES, P)

    def data(self, seen: Any) -> Any:
        return self.writer.b.add(self.writer.word(seen, w.D_DATA), self.writer.word(seen, w.D_OFFSET))

    def unfit(self, record: Any, seen: Any) -> Iterator[Any]:
        """Memory of another device; strides left out, as DLPack once allowed."""
        yield self.writer.differ(self.writer.word(seen, w.D_DEVICE), self.writer.word(record, w.A_HIGH))
        yield self.writer.is_zero(self.strides(seen))

    def other(self, array: Any, seen: Any) -> Iterator[Any]:
        """Tensors that record gradients, and lazy negatives and conjugates: DLPack tells of none of them."""
        writer, b = self.writer, self.writer.b
        wants = self._true(writer.api("PyObject_GetAttr", P, array, writer.word(self.library, w.T_GRAD, P)))
        yield self._both(wants, lambda: self._true(self._mode(w.T_RECORDING)))
        b.store(array, self._self)
        yield self._true(self._ask(w.T_NEGATED))
        dtype = b.lshr(writer.word(seen, w.D_RANK), w.c(32))
        is_complex = b.icmp_unsigned("==", b.and_(dtype, w.c(0xFF)), w.c(w.D_COMPLEX))
        yield self._both(is_complex, lambda: self._true(self._ask(w.T_CONJUGATED)))

    def fixed(self, array: Any) -> Iterator[Any]:
        """Tensors made in torch's inference mode, outside of it."""
        b = self.writer.b
        b.store(array, self._self)
        yield self._both(self._true(self._ask(w.T_INFERENCE)), lambda: b.not_(self._true(self._mode(w.T_INFERRING))))

    def _both(self, condition: Any, other: Callable[[], Any]) -> Any:
        """Whether both hold; the other is asked only where the first does."""
        b = self.writer.b
        b.store(w.c(0), self._answer)
        with b.if_then(condition):
            b.store(b.zext(other(), I64), self._answer)
        return self.writer.differ(b.load(self._answer, typ=I64), w.c(0))

    def _mode(self, function: int) -> Any:
        """The answer of a function without arguments."""
        return self.writer.api("PyObject_CallNoArgs", P, self.writer.word(self.library, function, P))

    def _ask(self, name: int) -> Any:
        """The answer of a method without arguments."""
        writer = self.writer
        nothing = ir.Constant(P, None)
        return writer.api(
            "PyObject_VectorcallMethod", P, writer.word(self.library, name, P), self._self, w.c(1), nothing
        )

    def _true(self, answer: Any) -> Any:
        """Whether an answer, which is let go of, is anything but False."""
        writer, b = self.writer, self.writer.b
        with b.if_then(writer.is_zero(answer)):
            writer.api("PyErr_Clear", VOID)
        writer.api("Py_DecRef", VOID, answer)
        return writer.differ(b.ptrtoint(answer, I64), writer.word(self.library, w.T_FALSE))
