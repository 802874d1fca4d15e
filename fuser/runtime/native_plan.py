"""Plans of CUDA launches for the native launcher.

In: loaded kernels with their grids and parameters. Out: `LaunchPlan`, whose `launch(stream, *words)` starts them all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fuser.runtime import native_entry


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel: its CUfunction, grid, block, dynamic shared bytes, and its parameters as (given place, or None,
    constant).

    A parameter is one of the words given at the call, or a constant's bits; both occupy an 8-byte slot, low end first.
    """

    function: int
    grid: tuple[int, int]
    block: int
    shared: int
    parameters: tuple[tuple[int | None, int], ...]


class LaunchPlan:
    """Kernels launched together. given: words that a call gives after the stream."""

    def __init__(self, kernels: Sequence[KernelLaunch], given: int, function: int) -> None:
        constants: list[int] = []
        self._keep: list[Any] = []
        records: list[int] = []
        for k in kernels:
            places = []
            for place, constant in k.parameters:
                if place is None:
                    place = given + len(constants)
                    constants.append(_signed(constant))
                places.append(place)
            records += [k.function, *k.grid, k.block, k.shared, len(places), self._words(places)]
        words = [function, given, len(constants), self._words(constants), len(kernels), self._words(records)]
        self.launch: Callable[..., int] = native_entry.built_in("launch", self._words(words))

    def _words(self, values: Sequence[int]) -> int:
        block = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._keep.append(block)
        return ctypes.addressof(block)


def _signed(bits: int) -> int:
    """64 bits as a signed number."""
    return ctypes.c_int64(bits).value


@cache
def driver_launch() -> int:
    """The address of the driver's cuLaunchKernel; 0 where the driver cannot be loaded that way."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return ctypes.cast(library.cuLaunchKernel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def usable() -> bool:
    """Whether launches can go the native road here."""
    return native_entry.usable() and bool(driver_launch())
