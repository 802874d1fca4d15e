"""Where native code finds what it needs in an array object.

In: a function being written, the entry that it looks at. Out: values read from NumPy's array struct, whose layout is
documented, or from CuPy's, whose offsets `native_cupy` has found by looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from fuser.runtime import native_words as w
from fuser.runtime.native_words import I8, I32, I64, P, Writer


class Layout(Protocol):
    """How to read an array object. Addresses are numbers; `dims` and `strides` point to 64-bit words, strides in
    bytes."""

    def __init__(self, writer: Writer, entry: Any) -> None: ...
    def dtype(self, array: Any) -> Any: ...
    def rank(self, array: Any) -> Any: ...
    def dims(self, array: Any) -> Any: ...
    def strides(self, array: Any) -> Any: ...
    def data(self, array: Any) -> Any: ...
    def unfit(self, record: Any, array: Any) -> Iterator[Any]:
        """Conditions under which an array of the right dtype and shape does not fit."""
        ...


class NumpyLayout:
    """NumPy's documented struct."""

    def __init__(self, writer: Writer, entry: Any) -> None:
        self.writer = writer

    def _load(self, array: Any, offset: int, kind: Any) -> Any:
        return self.writer.b.load(self.writer.at(array, offset), typ=kind)

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
