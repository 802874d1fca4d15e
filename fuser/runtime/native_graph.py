"""CUDA graphs of a plan of launches: made node by node, or captured where a library makes the nodes.

In: a `LaunchPlan`, the words of a call. Out: the words of a graph for native code, which replays it and gives its
kernels other words. What cuBLAS launches cannot be given any: such a graph serves the calls whose products see the
addresses that it was captured with. Allocators hand out the same few again and again, so a plan has a few graphs, each
made for addresses that have come twice.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.runtime import native_launch as w
from fuser.runtime.launch_steps import KernelLaunch, ProductLaunch

if TYPE_CHECKING:
    from fuser.runtime.native_plan import Driver, LaunchPlan

GRAPHS = 16  # most of a plan: those for the addresses of products that came first
RECENT = 32  # sets of addresses remembered
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
INVALIDATED = 901  # CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
TRIES = 3  # of captures in a row that something else has broken
_ALL = (1 << 64) - 1


class Recorder:
    """What native code calls with the address of the words of a call that no graph fits."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = weakref.ref(plan)
        self._lock = threading.Lock()
        self._recent: dict[tuple[int, ...], None] = {}
        self._made = self._broken = 0

    def __call__(self, address: int) -> None:
        plan = self._plan()
        if plan is None or self._made >= GRAPHS or not self._lock.acquire(blocking=False):
            return
        try:
            words = list((ctypes.c_uint64 * max(plan.given, 1)).from_address(address))[: plan.given]
            key = tuple(words[k] for k in plan.fixed)
            if key and key not in self._recent:
                self._recent[key] = None
                if len(self._recent) > RECENT:
                    del self._recent[next(iter(self._recent))]
                return
            self._recent.pop(key, None)
            self._made += 1
            self._record(plan, words)
        finally:
            self._lock.release()

    def _record(self, plan: LaunchPlan, words: Sequence[int]) -> None:
        try:
            plan.record(words)
            self._broken = 0
        except CaptureBroken as broken:
            self._broken += 1
            if self._broken == TRIES:
                plan.driver.refuse(broken.code)


class CaptureBroken(Exception):
    """Another thread's waiting for the device has ended a capture; a later one may do."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def made(plan: LaunchPlan, words: Sequence[int]) -> list[int]:
    """The words of a graph that does what a call with these words does; it goes with the plan."""
    building = _Graph(plan.driver)
    table = (ctypes.c_uint64 * max(plan.table, 1))(*(v & _ALL for v in (*words, *plan.constants)))
    try:
        if plan.cleared is not None:
            building.clear(int(table[plan.cleared.place]), plan.cleared.nbytes)
        nodes = [
            building.kernel(step, p, table) if isinstance(step, KernelLaunch) else building.product(plan, step, table)
            for step, p in zip(plan.steps, plan.places, strict=True)
        ]
        found = building.instantiate()
    except BaseException:
        building.close(0)
        raise
    driver, graph = plan.driver, [0] * w.GRAPH_WORDS
    graph[w.G_EXEC], graph[w.G_CONTEXT], graph[w.G_NODES] = found, building.context, plan.words(nodes)
    graph[w.G_REPLAY], graph[w.G_PATCH] = driver.address("replay"), driver.address("patch")
    graph[w.G_CLEAR_NODE], graph[w.G_PATCH_CLEAR] = building.clear_node, driver.address("patch_clear")
    signed = [ctypes.c_int64(v & _ALL).value for v in words]
    graph[w.G_LAST], graph[w.G_FIXED] = plan.words(signed), plan.words([signed[k] for k in plan.fixed])
    weakref.finalize(plan, building.close, found).atexit = False
    return graph


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

    def _add(self, name: str, *described: Any) -> int:
        """A node behind the last one."""
        node, after = ctypes.c_void_p(), ctypes.c_size_t(int(bool(self._tail.value)))
        tail = ctypes.c_void_p(self._tail.value)
        self._driver.check(name, ctypes.byref(node), self._graph, ctypes.byref(tail), after, *described)
        self._tail = node
        return node.value or 0

    def clear(self, address: int, nbytes: int) -> None:
        self.clear_node = self._add("add_clear", ctypes.byref(_ClearNode(address, 0, 0, 1, nbytes, 1)), self._context)

    def kernel(self, k: KernelLaunch, places: Sequence[int], table: Any) -> int:
        start = ctypes.addressof(table)
        pointers = (ctypes.c_void_p * max(len(places), 1))(*(start + 8 * p for p in places))
        sizes = (ctypes.c_uint * 7)(*k.grid, 1, k.block, 1, 1, k.shared)
        return self._add("add", ctypes.byref(_KernelNode(k.function, sizes, ctypes.addressof(pointers), None)))

    def product(self, plan: LaunchPlan, step: ProductLaunch, table: Any) -> int:
        """A node for all that cuBLAS launches for a product, captured on a stream of its own."""
        stream, child = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver.check("new_stream", ctypes.byref(stream), ctypes.c_uint(NON_BLOCKING))
        try:
            at = plan.products[step], ctypes.addressof(table), ctypes.addressof(child), stream.value or 0
            code = plan.capture(*at)
            if code == INVALIDATED:
                raise CaptureBroken(code)
            self._driver.refuse(code)
            return self._add("add_child", child)
        finally:
            self._driver.call("drop_stream", stream)
            if child.value:
                self._driver.call("destroy_graph", child)

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
