"""Roads and entries of the native short road: blocks of words that `native_call`'s function walks.

In: a bound CPU program with what its arguments must be. Out: `Entry`, which owns all memory that native code looks
at, and `Road`, a built-in function over a short list of entries. A thread inside native code holds a reference to its
entry, so entries may be dropped from a road at any time.

Only documented interfaces are used: functions of CPython's C API and NumPy's public array struct, whose layout
`usable` probes before anything leans on it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np

from fuser.record import dataclass
from fuser.runtime import native_words as w
from fuser.runtime import pool

Name = Literal["road", "launch", "capture", "device_road", "torch_road", "torch_device_road"]  # of built-ins
ENTRIES = 8  # a road's length: what does not match within it costs a few nanoseconds an entry
METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


@dataclass(frozen=True)
class ArrayNeed:
    """An array argument: its dtype object, shape and byte strides, address modulo 16, table place."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    phase: int
    slot: int
    writable: bool


@dataclass(frozen=True)
class TensorNeed:
    """A tensor argument of torch: its type, the words of rank with dtype and of its device as DLPack has them, shape,
    strides in elements, address modulo 16, table place."""

    kind: type
    rank: int
    device: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    phase: int
    slot: int


@dataclass(frozen=True)
class NumberNeed:
    """A Python number; integers between `low` and `high`."""

    kind: type
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1


@dataclass(frozen=True)
class SameNeed:
    """The very object `value` (None, a bool, a string)."""

    value: Any


Need = ArrayNeed | TensorNeed | NumberNeed | SameNeed


class AnyEntry(Protocol):
    """What a road links: a block of words."""

    block: Any


@dataclass(frozen=True)
class Step:
    """A kernel: its address, table places, scalar slots with (slot, argument, mode) of run-time ones, trips, grain."""

    address: int
    slots: tuple[int, ...]
    scalars: tuple[int, ...]
    dynamic: tuple[tuple[int, int, int], ...]
    trips: int
    grain: int


@dataclass(frozen=True)
class Device:
    """What an entry that runs on a GPU has instead of steps: a `LaunchPlan`'s block, the device's number, what raises
    the error of a launch, and (table place, argument, mode) of run-time numbers."""

    plan: int
    ordinal: int
    fail: Callable[[int], None]
    dynamics: tuple[tuple[int, int, int], ...]


@dataclass
class Entry:
    """One kind of call. results: (callable, arguments, table place) that make an array each. temps: (place of the
    block, offset, table place). effects: (argument, result). pairs: arguments that must not overlap. outputs: (kind,
    number), see `native_run`. library: address of the words about an array library other than NumPy. written: arguments
    of which `bump` is told after they were written."""

    needs: tuple[Need, ...]
    results: tuple[tuple[Callable[..., Any], tuple[Any, ...], int], ...]
    temps: tuple[tuple[int, int, int], ...]
    steps: tuple[Step, ...]
    effects: tuple[tuple[int, int], ...]
    pairs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    single: bool
    finish: Callable[[tuple[Any, ...]], Any] | None
    table: int
    release: bool
    keep: tuple[Any, ...]
    library: int = 0
    device: Device | None = None
    written: tuple[int, ...] = ()
    bump: Callable[[tuple[Any, ...]], Any] | None = None
    block: Any = None
    _blocks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        words = [0] * w.ENTRY_WORDS
        slots = [k for s in self.steps for k in s.slots]
        scalars = [v for s in self.steps for v in s.scalars]
        words[w.E_HOLDER] = id(self)
        words[w.E_TABLE] = self.table
        words[w.E_NARGS] = len(self.needs)
        words[w.E_ARGS] = self._words([v for need in self.needs for v in self._need(need)])
        lists: tuple[tuple[int, int, list[tuple[int, ...]]], ...] = (
            (w.E_RESULTS, w.E_RESULT, [(id(f), id(a), k) for f, a, k in self.results]),
            (w.E_TEMPS, w.E_TEMP, list(self.temps)),
            (w.E_SLOTS, w.E_SLOT, [(k,) for k in slots]),
            (w.E_SCALARS, w.E_SCALAR, [(v,) for v in scalars]),
            (w.E_DYNAMICS, w.E_DYNAMIC, list(self.device.dynamics) if self.device else self._dynamics()),
            (w.E_STEPS, w.E_STEP, self._steps()),
            (w.E_EFFECTS, w.E_EFFECT, list(self.effects)),
            (w.E_OUTPUTS, w.E_OUTPUT, list(self.outputs)),
            (w.E_WRITTENS, w.E_WRITTEN, [(k,) for k in self.written]),
            (w.E_PAIRS, w.E_PAIR, [(a, b, *self._extent(a), *self._extent(b)) for a, b in self.pairs]),
        )
        for count, first, records in lists:
            words[count] = len(records)
            words[first] = self._words([v for record in records for v in record])
        words[w.E_FINISH] = id(self.finish) if self.finish is not None else int(not self.single)
        words[w.E_EMPTY], words[w.E_ELLIPSIS] = id(_EMPTY), id(Ellipsis)
        words[w.E_RELEASE] = int(self.release)
        words[w.E_THREADED] = int(any(s.trips > s.grain for s in self.steps))
        words[w.E_LIBRARY], words[w.E_MISS] = self.library, id(NotImplemented)
        words[w.E_BUMP] = id(self.bump)
        if self.device is not None:
            words[w.E_PLAN], words[w.E_ORDINAL] = self.device.plan, self.device.ordinal
            words[w.E_FAIL] = id(self.device.fail)
        self.block = (ctypes.c_int64 * len(words))(*words)

    def _words(self, values: Sequence[int]) -> int:
        """A block of words that lives as long as the entry; its address."""
        block = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._blocks.append(block)
        return ctypes.addressof(block)

    def _need(self, need: Need) -> tuple[int, ...]:
        if isinstance(need, SameNeed):
            return (w.K_SAME, id(need.value), 0, 0, 0, 0, 0, 0)
        if isinstance(need, NumberNeed):
            kind = w.K_INT if need.kind is int else w.K_FLOAT
            return (kind, 0, 0, self._words((need.low, need.high)), 0, 0, id(need.kind), 0)
        dims = self._words((*need.shape, *need.strides))
        if isinstance(need, TensorNeed):
            return (w.K_ARRAY, need.rank, len(need.shape), dims, need.phase, need.slot, id(need.kind), need.device)
        flags = w.ALIGNED | (w.WRITEABLE if need.writable else 0)
        return (w.K_ARRAY, id(need.dtype), len(need.shape), dims, need.phase, need.slot, id(np.ndarray), flags)

    def _extent(self, position: int) -> tuple[int, int]:
        """Bytes [low, high) that an array argument occupies, from its data pointer."""
        need = self.needs[position]
        assert isinstance(need, (ArrayNeed, TensorNeed))
        if 0 in need.shape:
            return 0, 0
        size, unit = (need.itemsize, need.itemsize) if isinstance(need, TensorNeed) else (need.dtype.itemsize, 1)
        reach = [(d - 1) * s * unit for d, s in zip(need.shape, need.strides, strict=True)]
        return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + int(size)

    def _dynamics(self) -> list[tuple[int, ...]]:
        out: list[tuple[int, ...]] = []
        base = 0
        for s in self.steps:
            out += [(base + k, argument, mode) for k, argument, mode in s.dynamic]
            base += len(s.scalars)
        return out

    def _steps(self) -> list[tuple[int, ...]]:
        out: list[tuple[int, ...]] = []
        slot = scalar = 0
        for s in self.steps:
            out.append((s.address, slot, scalar, s.trips, s.grain, 0))
            slot += len(s.slots)
            scalar += len(s.scalars)
        return out


_EMPTY: tuple[()] = ()


class Road:
    """A built-in function over at most `ENTRIES` entries, newest first. watches: (kind, a, b, expected) objects."""

    def __init__(self, watches: Sequence[tuple[int, Any, Any, Any]], name: Name = "road") -> None:
        self.name = name
        self._watches = tuple(watches)  # keeps the objects alive that the words below point to
        self._entries: list[AnyEntry] = []
        words = [v for kind, a, b, expected in self._watches for v in (kind, id(a), _id(b), _id(expected))]
        self._watch = (ctypes.c_int64 * max(len(words), 1))(*words)
        self._block = (ctypes.c_int64 * 5)(
            0, id(NotImplemented), pool.cell_address(), len(self._watches), ctypes.addressof(self._watch)
        )
        self.call = built_in(name, ctypes.addressof(self._block))

    def add(self, entry: AnyEntry) -> None:
        """Put an entry in front; the last one goes where there are too many."""
        kept = [entry, *(e for e in self._entries if e is not entry)][:ENTRIES]
        for e, after in zip(kept, [*kept[1:], None], strict=True):
            e.block[w.E_NEXT] = ctypes.addressof(after.block) if after is not None else 0
        self._block[w.R_ENTRY] = ctypes.addressof(entry.block)
        self._entries = kept

    def close(self) -> None:
        """Match nothing from now on."""
        self._block[w.R_ENTRY] = 0
        self._entries = []


class _Nothing:
    """Stands for C's NULL among watched values."""


NOTHING = _Nothing()


def _id(value: Any) -> int:
    return 0 if value is NOTHING else id(value)


@dataclass(frozen=True)
class _Native:
    """Functions by name, without the `fuser_` of their symbols."""

    functions: Mapping[str, _MethodDef]
    keep: Any


def _native(of_torch: bool = False) -> _Native | None:
    """The compiled functions; None where this interpreter or NumPy is not what they lean on.

    One thread makes them: a second set would be forgotten with the call that made it, and its built-ins left dangling.
    """
    with _MAKING:
        return _made_for_torch() if of_torch else _made()


_MAKING = threading.Lock()


@cache
def _made() -> _Native | None:
    if sys.implementation.name != "cpython" or object.__basicsize__ != 16 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    if not all(_struct_is_as_documented(a) for a in (np.empty((2, 3)), np.arange(10.0)[7:2:-2], np.array(1))):
        return None
    return _load("native", ("fuser_road", "fuser_launch", "fuser_capture", "fuser_device_road"), "module")


@cache
def _made_for_torch() -> _Native | None:
    if _made() is None:
        return None
    return _load("native_torch", ("fuser_torch_road", "fuser_torch_device_road"), "torch_module")


def _load(label: str, names: Sequence[str], module: str) -> _Native:
    """The functions of one of `native_call`'s modules."""
    from fuser.runtime import native_code

    def write() -> Any:
        from fuser.runtime import native_call

        return getattr(native_call, module)()

    linked = native_code.link(label, names, "native_*.py", write)
    functions = {
        name.removeprefix("fuser_"): _MethodDef(name.encode(), address, METH_FASTCALL, None)
        for name, address in linked.addresses.items()
    }
    return _Native(functions, linked)


def built_in(name: Name, owner: int) -> Callable[..., Any]:
    """A built-in function over the block of words at `owner`, which must outlive it."""
    native = _native(name.startswith("torch"))
    assert native is not None, "ask usable() first"
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(ctypes.addressof(native.functions[name]), owner, None)
    return made


def loaded(of_torch: bool = False) -> bool:
    """Whether the compiled functions (for torch's tensors) are in this process: loading takes 5 ms, compiling 70."""
    return bool((_made_for_torch if of_torch else _made).cache_info().currsize)


def usable(of_torch: bool = False) -> bool:
    """Whether the native road (for torch's tensors) can be used in this process."""
    return _native(of_torch) is not None


def struct_word(value: object, offset: int) -> int:
    """A word of an object's memory."""
    return int(ctypes.c_int64.from_address(id(value) + offset).value)


def _struct_is_as_documented(a: np.ndarray[Any, Any]) -> bool:
    def read(kind: Any, offset: int) -> Any:
        return kind.from_address(id(a) + offset).value

    dims, strides = read(ctypes.c_void_p, w.N_DIMS), read(ctypes.c_void_p, w.N_STRIDES)
    return (
        read(ctypes.c_void_p, w.N_DATA) == a.__array_interface__["data"][0]
        and read(ctypes.c_int, w.N_RANK) == a.ndim
        and tuple(ctypes.c_ssize_t.from_address(dims + 8 * k).value for k in range(a.ndim)) == a.shape
        and tuple(ctypes.c_ssize_t.from_address(strides + 8 * k).value for k in range(a.ndim)) == a.strides
        and read(ctypes.c_void_p, w.N_DTYPE) == id(a.dtype)
        and read(ctypes.c_int, w.N_FLAGS) == a.flags.num
    )
