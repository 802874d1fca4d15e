"""Recycled memory for results and temporaries of CPU programs.

In: a shape and a dtype. Out: an uninitialised NumPy array. The first touch of fresh memory costs more than
most kernels (page faults), so large blocks are kept when the last array over them dies and handed out again. A
block belongs to a `_Lease`, which is the base of the array given out; when the last view is gone the lease
is collected and the block returns to its shelf. Small arrays come from NumPy, whose allocator is good at them.

Blocks are private to the process and survive fork (the child has its own copy); `FUSER_POOL_BYTES=0` switches this off.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from fuser.settings import settings

SMALL = 1 << 17  # bytes below which malloc reuses memory itself
HUGE_FROM = 4 << 20  # bytes from which huge pages are asked for
PAGE = mmap.PAGESIZE


class _Shelf:
    """Free blocks by size, least recently freed first. Reentrant: a lease may die at any point of its own thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.lock = threading.RLock()
        self.blocks: OrderedDict[int, list[mmap.mmap]] = OrderedDict()

    def take(self, size: int) -> mmap.mmap | None:
        with self.lock:
            free = self.blocks.get(size)
            if not free:
                return None
            self.held -= size
            return free.pop()

    def give(self, block: mmap.mmap, size: int) -> None:
        """Keep a block; older ones go where the limit asks for it."""
        with self.lock:
            if size > self.limit:
                return
            self.blocks.setdefault(size, []).append(block)
            self.blocks.move_to_end(size)
            self.held += size
            while self.held > self.limit:
                oldest, free = next(iter(self.blocks.items()))
                if free:
                    free.pop(0)
                    self.held -= oldest
                else:
                    del self.blocks[oldest]

    def clear(self) -> None:
        with self.lock:
            self.blocks.clear()
            self.held = 0


@cache
def _shelf() -> _Shelf:
    return _Shelf(settings().pool_bytes)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised C-contiguous array, 64-byte aligned where it is large."""
    count = 1
    for d in shape:
        count *= d
    nbytes = count * dtype.itemsize
    if nbytes < SMALL or not _shelf().limit:
        return np.empty(shape, dtype)
    lease = _lease_type(_class_of(nbytes)).take()
    return np.ndarray(shape, dtype, buffer=lease)


def held_bytes() -> int:
    """Bytes of blocks that are free and kept."""
    return _shelf().held


def release() -> None:
    """Give all free blocks back to the system."""
    _shelf().clear()


def _class_of(nbytes: int) -> int:
    """The block size for a request: whole pages, four sizes an octave, so at most a quarter is unused."""
    step = max(1 << max((nbytes - 1).bit_length() - 3, 0), PAGE)
    return -(-nbytes // step) * step


def _fresh(size: int) -> mmap.mmap:
    if os.name != "posix":
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages; the block works without
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


@cache
def _lease_type(size: int) -> Any:
    """The class of leases of one size: a ctypes array over the block, as NumPy wants a buffer to build on."""

    class _Lease(ctypes.Array):  # type: ignore[type-arg]
        _type_ = ctypes.c_uint8
        _length_ = size
        block: mmap.mmap

        @classmethod
        def take(cls) -> _Lease:
            block = _shelf().take(size)
            block = _fresh(size) if block is None else block
            lease = cls.from_buffer(block)
            lease.block = block
            return lease

        def __del__(self) -> None:
            _shelf().give(self.block, size)

    return _Lease


def _after_fork() -> None:
    """The lock may have been held by a thread that the child does not have."""
    if _shelf.cache_info().currsize:
        _shelf().lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
