"""Launching native kernels.

In: a compiled kernel, buffer addresses, scalar slots, the trip count of its parallel loop. Out: the iterations run when
`launch` returns. The interpreter's lock is released meanwhile. Work below one grain runs right here, with no pool.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from fuser.runtime import pool


class Native(Protocol):
    """What runs: the address of `void f(void** buffers, int64* scalars, int64 begin, int64 end)`."""

    @property
    def address(self) -> int: ...


_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)


class Task:
    """A kernel with its trip count: what is left to give are addresses and packed scalars."""

    __slots__ = ("_address", "_entry", "_grain", "_pack", "_trips")

    def __init__(self, native: Native, buffers: int, trips: int, grain: int) -> None:
        self._address, self._trips, self._grain = native.address, trips, grain
        self._entry = _entry(native.address)
        self._pack = _packer("P", buffers).pack

    def run(self, buffers: Sequence[int], scalars: bytes) -> None:
        """Run all iterations; see `launch`."""
        packed = self._pack(*buffers)
        workers = pool.current() if self._trips > self._grain else None
        if workers is None:
            self._entry(packed, scalars, 0, self._trips)
        else:
            workers.run(self._address, packed, scalars, self._trips, self._grain)


def pack_scalars(scalars: Sequence[int]) -> bytes:
    """8-byte slots as a kernel reads them."""
    return _packer("q", len(scalars)).pack(*scalars)


def launch(native: Native, buffers: Sequence[int], scalars: Sequence[int], trips: int, grain: int) -> None:
    """Run `trips` iterations, at least `grain` a task.

    buffers: addresses in the kernel's order; each must stay alive and be as large as the kernel's parameter says.
    scalars: 8-byte slots, the value's bits in the low end.
    """
    if trips > 0:
        Task(native, len(buffers), trips, grain).run(buffers, pack_scalars(scalars))


@cache
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"{count}{code}")


@cache
def _entry(address: int) -> Any:
    return _ENTRY(address)
