"""CuPy's array objects for the native road: where their fields lie, and how results are made.

In: CuPy as it is installed. Out: `library()`, a block of words for native code, or None where something is not as
expected, and `entry`, the native form of a `CudaCall`. Offsets are found by looking for known values in probe arrays;
functions are those that CuPy's Cython modules export, taken only under the C signature that they are called with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fuser.runtime import native_plan
from fuser.runtime import native_words as w
from fuser.runtime.native_entry import NumberNeed, SameNeed, struct_word
from fuser.runtime.native_numbers import number_need

if TYPE_CHECKING:
    from fuser.runtime.quickcuda import CudaCall

ARRAY = "struct __pyx_obj_4cupy_5_core_4core__ndarray_base *"
SHAPE = "__pyx_t_4cupy_5_core_7_carray_shape_t const &"
MEMORY = "struct __pyx_obj_4cupy_4cuda_6memory_MemoryPointer *"
CREATE = f"{ARRAY}(PyObject *, {SHAPE}, PyObject *, PyObject *)"
ALLOCATE = f"{MEMORY}(PyObject *, int __pyx_skip_dispatch)"
STREAM = "intptr_t (void)"


@cache
def library() -> Any:
    """Words of `Y_*`; None where CuPy's objects or functions are not what native code knows."""
    import cupy
    from cupy._core import core

    places = _offsets(cupy)
    driver = native_plan.driver()
    functions = [
        exported(core, "_ndarray_init", CREATE),
        exported(cupy.cuda.memory, "alloc", ALLOCATE),
        exported(cupy.cuda.stream, "get_current_stream_ptr", STREAM),
    ]
    if places is None or driver is None or not all(functions):
        return None
    words = [0] * w.LIBRARY_WORDS
    for word, offset in places.items():
        words[word] = offset
    words[w.Y_TYPE] = id(cupy.ndarray)
    words[w.Y_CREATE], words[w.Y_ALLOCATE], words[w.Y_STREAM] = functions
    words[w.Y_CURRENT] = driver.address("device")
    return (ctypes.c_int64 * len(words))(*words)


def exported(module: Any, name: str, signature: str) -> int:
    """The address of a C function that a Cython module exports; 0 where it has none of this signature."""
    capsule = getattr(module, "__pyx_capi__", {}).get(name)
    if capsule is None:
        return 0
    valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.restype, valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return pointer(capsule, signature.encode()) or 0 if valid(capsule, signature.encode()) else 0


def probe(cupy: Any, shape: tuple[int, ...], dtype: str, address: int, device: int) -> Any:
    """An array over memory that does not exist: to look at, not to use."""
    import numpy as np

    memory = cupy.cuda.memory.UnownedMemory(address, 1 << 20, None, device)
    return cupy.ndarray(shape, np.dtype(dtype), cupy.cuda.memory.MemoryPointer(memory, 64))


def _offsets(cupy: Any) -> dict[int, int] | None:
    """Where the fields of an array and of its memory lie, the same in three unlike arrays; None where they differ."""
    kinds = (((7, 11, 13), "f4", 0x7F0000001000, 3), ((5, 2), "i8", 0x7E0000340000, 1), ((17,), "u1", 0x5000, 6))
    found = [_offsets_in(probe(cupy, *kind)) for kind in kinds]
    common = set.intersection(*(set(f.items()) for f in found))
    places = dict(common)
    return places if len(common) == len(places) == len(_FIELDS) else None


_FIELDS = (w.Y_DTYPE, w.Y_SHAPE, w.Y_SHAPE_END, w.Y_STRIDES, w.Y_DATA, w.Y_POINTER, w.Y_DEVICE)


def _offsets_in(array: Any) -> dict[int, int]:
    """Offsets of fields in one array; none for a field that is not seen."""
    words = {k: struct_word(array, k) for k in range(16, type(array).__basicsize__, 8)}
    memory = {k: struct_word(array.data, k) for k in range(16, type(array.data).__basicsize__, 8)}
    found: dict[int, int] = {}
    for k, value in words.items():
        if value == id(array.dtype):
            found[w.Y_DTYPE] = k
        elif value == id(array.data):
            found[w.Y_DATA] = k
    for name, wanted in ((w.Y_SHAPE, array.shape), (w.Y_STRIDES, array.strides)):
        for k, value in words.items():
            end = words.get(k + 8, 0)
            if value > 1 << 16 and end - value == 8 * array.ndim and _words_at(value, array.ndim) == wanted:
                found[name] = k
                if name == w.Y_SHAPE:
                    found[w.Y_SHAPE_END] = k + 8
                break
    for k, value in memory.items():
        if value == array.data.ptr:
            found[w.Y_POINTER] = k
        elif value & 0xFFFFFFFF == array.data.device_id:
            found[w.Y_DEVICE] = k
    return found


def _words_at(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address))


class DeviceEntry:
    """One kind of call on CuPy arrays, as words for native code; owns all memory that they point to."""

    def __init__(self, call: CudaCall, args: Sequence[Any], known: Any) -> None:
        self._call, self._blocks = call, [known]
        plan = call.plan
        assert plan is not None
        needs = [self._need(call, k, a) for k, a in enumerate(args)]
        first = len(call.places.arrays)
        results = first + len(call.results)
        arena = call.arena
        temps = [*arena.offsets, 0]  # the last is the block itself, which is cleared from its start
        words = [0] * w.ENTRY_WORDS
        words[w.E_HOLDER], words[w.E_TABLE], words[w.E_NARGS] = id(self), plan.table, len(needs)
        words[w.E_ARGS] = self._words([v for need in needs for v in need])
        self._list(words, w.E_RESULTS, [(self._shape(s), id(self._held(d)), first + k) for k, (s, d) in call.fresh])
        self._list(words, w.E_TEMPS, [(offset, 0, results + k) for k, offset in enumerate(temps)])
        self._list(words, w.E_DYNAMICS, call.native_dynamics() or [])
        self._list(words, w.E_PAIRS, [(a, b, *self._extent(args[a]), *self._extent(args[b])) for a, b in call.pairs])
        self._list(words, w.E_OUTPUTS, call.native_outputs())
        finish = None if call.places.out is not None or call.finish is tuple else call.finish
        single = call.finish is None or call.places.out is not None
        words[w.E_FINISH] = id(finish) if finish is not None else int(not single)
        words[w.E_EMPTY], words[w.E_MISS] = id(None), id(NotImplemented)
        words[w.E_LIBRARY], words[w.E_PLAN] = ctypes.addressof(known), plan.block
        words[w.E_ORDINAL], words[w.E_FAIL] = call.ordinal, id(native_plan.raise_error)
        words[w.E_ARENA] = id(self._held(arena.nbytes)) if arena.nbytes else 0
        self.block = (ctypes.c_int64 * len(words))(*words)

    def _held(self, value: Any) -> Any:
        self._blocks.append(value)
        return value

    def _words(self, values: Sequence[int]) -> int:
        return ctypes.addressof(self._held((ctypes.c_int64 * max(len(values), 1))(*values)))

    def _list(self, words: list[int], count: int, records: Sequence[tuple[int, ...]]) -> None:
        words[count], words[count + 1] = len(records), self._words([v for r in records for v in r])

    def _shape(self, shape: tuple[int, ...]) -> int:
        """A C++ vector: begin, end, end of its memory."""
        begin = self._words(shape)
        end = begin + 8 * len(shape)
        return self._words((begin, end, end))

    def _need(self, call: CudaCall, position: int, value: Any) -> tuple[int, ...]:
        """The record of an argument."""
        if type(value) in (float, int):
            need = number_need(call.program, dict(call.places.scalars)[position], type(value))
            kind = w.K_INT if isinstance(need, NumberNeed) and need.kind is int else w.K_FLOAT
            return (kind, 0, 0, self._words((need.low, need.high)), 0, 0, id(need.kind), 0)
        if not hasattr(value, "strides"):
            return (w.K_SAME, id(self._held(SameNeed(value)).value), 0, 0, 0, 0, 0, 0)
        slot = call.slot_of(position)
        dims = self._words((*value.shape, *value.strides))
        phase = value.data.ptr & 15
        return (w.K_ARRAY, id(value.dtype), value.ndim, dims, phase, slot, id(type(value)), value.data.device_id)

    @staticmethod
    def _extent(value: Any) -> tuple[int, int]:
        """Bytes [low, high) that an array occupies, from its data pointer."""
        if 0 in value.shape:
            return 0, 0
        reach = [(d - 1) * s for d, s in zip(value.shape, value.strides, strict=True)]
        return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + int(value.itemsize)


def entry(call: CudaCall, args: Sequence[Any]) -> DeviceEntry | None:
    """The entry for calls whose arguments are of the kinds of `args`; None where native code cannot make one: arrays
    of another library, run-time numbers that are expressions."""
    import cupy

    known = library()
    plain = all(type(args[k]) is cupy.ndarray for k in call.places.arrays)
    if known is None or call.plan is None or not plain or call.native_dynamics() is None:
        return None
    return DeviceEntry(call, args, known)
