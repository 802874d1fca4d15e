"""Plans of CUDA launches for the native launcher, and their graphs.

In: loaded kernels with their grids and parameters. Out: `LaunchPlan`, whose `launch(stream, *words)` starts them all:
one by one, or, after `record`, as one CUDA graph whose nodes are patched where words have changed.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

from fuser.device import driver_library
from fuser.record import dataclass
from fuser.runtime import native_entry
from fuser.runtime import native_launch as w

FUNCTIONS = {
    "launch": "cuLaunchKernel", "clear": "cuMemsetD8Async", "device": "cuCtxGetDevice", "context": "cuCtxGetCurrent",
    "create": "cuGraphCreate", "add": "cuGraphAddKernelNode", "add_clear": "cuGraphAddMemsetNode",
    "instantiate": "cuGraphInstantiateWithFlags", "destroy_graph": "cuGraphDestroy", "destroy": "cuGraphExecDestroy",
    "replay": "cuGraphLaunch", "patch": "cuGraphExecKernelNodeSetParams",
    "patch_clear": "cuGraphExecMemsetNodeSetParams",
}  # fmt: skip


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


@dataclass(frozen=True)
class Clear:
    """Bytes to set to zero before the first kernel: their address is one of the words given at the call.

    lasting: on the default stream, words of the table (all that lie in those bytes) are replaced by these addresses of
    counters that are zero, and nothing is cleared.
    """

    place: int
    nbytes: int
    lasting: tuple[tuple[int, int], ...] = ()


class LaunchPlan:
    """Kernels launched together. given: words that a call gives after the stream."""

    def __init__(self, kernels: Sequence[KernelLaunch], given: int, driver: Driver, clear: Clear | None = None) -> None:
        self._kernels, self._given, self._driver, self._cleared = tuple(kernels), given, driver, clear
        self._constants: list[int] = []
        self._keep: list[Any] = []
        self._places = [[self._place(p) for p in k.parameters] for k in kernels]
        records: list[int] = []
        for k, places in zip(kernels, self._places, strict=True):
            records += [k.function, *k.grid, k.block, k.shared, len(places), self._words(places), 0]
        words = [0] * w.LAUNCH_WORDS
        words[w.L_FUNCTION], words[w.L_GIVEN] = driver.address("launch"), given
        words[w.L_CONSTANTS], words[w.L_CONSTANT] = len(self._constants), self._words(self._constants)
        words[w.L_STEPS], words[w.L_STEP] = len(kernels), self._words(records)
        self._records = self._keep[-1]
        if clear is not None:
            words[w.L_CLEAR], words[w.L_CLEAR_PLACE] = driver.address("clear"), clear.place
            words[w.L_CLEAR_BYTES] = clear.nbytes
            words[w.L_COUNTERS] = len(clear.lasting)
            words[w.L_COUNTER] = self._words([v for record in clear.lasting for v in record])
        self.block = self._words(words)
        self.table = given + len(self._constants)  # words of a call's table
        self._block = self._keep[-1]
        self.launch: Callable[..., int] = native_entry.built_in("launch", self.block)

    def _place(self, parameter: tuple[int | None, int]) -> int:
        place, constant = parameter
        if place is not None:
            return place
        self._constants.append(ctypes.c_int64(constant).value)
        return self._given + len(self._constants) - 1

    def _words(self, values: Sequence[int]) -> int:
        block = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._keep.append(block)
        return ctypes.addressof(block)

    @property
    def recorded(self) -> bool:
        """Whether there is a graph."""
        return bool(self._block[w.L_GRAPH])

    def record(self, words: Sequence[int]) -> None:
        """Make the graph, with the words of a first call; from now on `launch` replays it. The graph is destroyed
        with the plan; a plan is of one device, whose context must be current here."""
        made = _Graph(self._driver)
        table = (ctypes.c_uint64 * max(self.table, 1))(*(v & _ALL for v in (*words, *self._constants)))
        try:
            if self._cleared is not None:
                made.clear(int(table[self._cleared.place]), self._cleared.nbytes)
            nodes = [made.kernel(k, p, table) for k, p in zip(self._kernels, self._places, strict=True)]
            found = made.instantiate()
        except BaseException:
            made.close(0)
            raise
        for k, node in enumerate(nodes):
            self._records[k * w.STEP_WORDS + w.S_NODE] = node
        graph = [0] * w.GRAPH_WORDS
        graph[w.G_EXEC], graph[w.G_CONTEXT] = found, made.context
        graph[w.G_REPLAY], graph[w.G_PATCH] = self._driver.address("replay"), self._driver.address("patch")
        graph[w.G_CLEAR_NODE], graph[w.G_PATCH_CLEAR] = made.clear_node, self._driver.address("patch_clear")
        graph[w.G_LAST] = self._words([ctypes.c_int64(v & _ALL).value for v in words])
        weakref.finalize(self, made.close, found).atexit = False
        self._block[w.L_GRAPH] = self._words(graph)


_ALL = (1 << 64) - 1


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("sizes", ctypes.c_uint * 7), ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )  # fmt: skip


class _ClearNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("address", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("size", ctypes.c_uint),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
    )  # fmt: skip


class _Graph:
    """A graph being built: a chain of nodes in program order."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._graph, self._tail = driver, ctypes.c_void_p(), ctypes.c_void_p()
        context = ctypes.c_void_p()
        driver.check("context", ctypes.byref(context))
        driver.check("create", ctypes.byref(self._graph), ctypes.c_uint(0))
        self._context, self.clear_node = context, 0

    @property
    def context(self) -> int:
        return self._context.value or 0

    def _add(self, name: str, parameters: Any, *more: Any) -> int:
        node, after = ctypes.c_void_p(), ctypes.c_size_t(int(bool(self._tail.value)))
        tail = ctypes.c_void_p(self._tail.value)
        self._driver.check(
            name, ctypes.byref(node), self._graph, ctypes.byref(tail), after, ctypes.byref(parameters), *more
        )
        self._tail = node
        return node.value or 0

    def clear(self, address: int, nbytes: int) -> None:
        self.clear_node = self._add("add_clear", _ClearNode(address, 0, 0, 1, nbytes, 1), self._context)

    def kernel(self, k: KernelLaunch, places: Sequence[int], table: Any) -> int:
        start = ctypes.addressof(table)
        pointers = (ctypes.c_void_p * max(len(places), 1))(*(start + 8 * p for p in places))
        sizes = (ctypes.c_uint * 7)(*k.grid, 1, k.block, 1, 1, k.shared)
        return self._add("add", _KernelNode(k.function, sizes, ctypes.addressof(pointers), None))

    def instantiate(self) -> int:
        """The graph in a form that can be launched."""
        made = ctypes.c_void_p()
        self._driver.check("instantiate", ctypes.byref(made), self._graph, ctypes.c_uint64(0))
        return made.value or 0

    def close(self, instantiated: int) -> None:
        """Destroy both forms. Nodes are patched by their handles in the first, which lives as long as the second."""
        if instantiated:
            self._driver.call("destroy", ctypes.c_void_p(instantiated))
        self._driver.call("destroy_graph", self._graph)


class Driver:
    """Functions of the CUDA driver by the names of `FUNCTIONS`."""

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, symbol) for name, symbol in FUNCTIONS.items()}
        self._addresses = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in self._functions.items()}

    def address(self, name: str) -> int:
        return self._addresses[name]

    def call(self, name: str, *arguments: Any) -> int:
        return int(self._functions[name](*arguments))

    def check(self, name: str, *arguments: Any) -> None:
        """Call, and raise where the driver refuses."""
        code = self.call(name, *arguments)
        if code:
            raise_error(code)


def raise_error(code: int) -> NoReturn:
    """The error of a launch that the driver refused."""
    from fuser.runtime import cuda

    raise cuda.launch_failed(code)


@cache
def driver() -> Driver | None:
    """The driver; None where it cannot be loaded, or is too old for graphs that can be patched."""
    try:
        return Driver(ctypes.CDLL(driver_library()))
    except (OSError, AttributeError):
        return None


def usable() -> bool:
    """Whether launches can go the native road here."""
    return native_entry.usable() and driver() is not None
