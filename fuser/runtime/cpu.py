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


def launch(native: Native, buffers: Sequence[int], scalars: Sequence[int], trips: int, grain: int) -> None:
    """Run `trips` iterations, at least `grain` a task.

    buffers: addresses in the kernel's order; each must stay alive and be as large as the kernel's parameter says.
    scalars: 8-byte slots, the value's bits in the low end.
    """
    if trips <= 0:
        return
    packed_buffers = _packer("P", len(buffers)).pack(*buffers)
    packed_scalars = _packer("q", len(scalars)).pack(*scalars)
    workers = pool.current() if trips > grain else None
    if workers is None:
        _entry(native.address)(packed_buffers, packed_scalars, 0, trips)
    else:
        workers.run(native.address, packed_buffers, packed_scalars, trips, grain)


@cache
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"{count}{code}")


@cache
def _entry(address: int) -> Any:
    return _ENTRY(address)
