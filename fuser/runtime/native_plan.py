"""Plans of CUDA launches for the native launcher.

In: loaded kernels with their grids and parameters, and matrix products between them. Out: `LaunchPlan`, whose
`launch(stream, *words)` starts them all: one by one, or, after `record`, as one CUDA graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

from fuser.device import driver_library
from fuser.runtime import native_entry, native_graph
from fuser.runtime import native_launch as w
from fuser.runtime import native_product as p
from fuser.runtime.cublas import CUBLAS_GEMM_DEFAULT, KINDS, scale
from fuser.runtime.launch_steps import Blas, Clear, KernelLaunch, ProductLaunch

FUNCTIONS = {
    "launch": "cuLaunchKernel", "clear": "cuMemsetD8Async", "device": "cuCtxGetDevice", "context": "cuCtxGetCurrent",
    "create": "cuGraphCreate", "add": "cuGraphAddKernelNode", "add_clear": "cuGraphAddMemsetNode",
    "instantiate": "cuGraphInstantiateWithFlags", "destroy_graph": "cuGraphDestroy", "destroy": "cuGraphExecDestroy",
    "replay": "cuGraphLaunch", "patch": "cuGraphExecKernelNodeSetParams",
    "patch_clear": "cuGraphExecMemsetNodeSetParams", "add_child": "cuGraphAddChildGraphNode",
    "new_stream": "cuStreamCreate", "drop_stream": "cuStreamDestroy_v2", "capture": "cuStreamBeginCapture_v2",
    "captured": "cuStreamEndCapture",
}  # fmt: skip


class LaunchPlan:
    """Kernels and products launched together. given: words that a call gives after the stream. graphs: record calls
    (see `native_graph`); without it `record` is up to whoever holds the plan."""

    def __init__(
        self,
        steps: Sequence[KernelLaunch | ProductLaunch],
        given: int,
        driver: Driver,
        clear: Clear | None = None,
        blas: Blas | None = None,
        graphs: bool = False,
    ) -> None:
        self.steps, self.given, self.driver, self.cleared, self.blas = tuple(steps), given, driver, clear, blas
        self.constants: list[int] = []
        self.products: dict[ProductLaunch, int] = {}  # where their words are
        self._keep: list[Any] = []
        self.places = [[self._place(q) for q in s.parameters] if isinstance(s, KernelLaunch) else [] for s in steps]
        self.fixed = self._fixed()
        words = [0] * w.LAUNCH_WORDS
        words[w.L_FUNCTION], words[w.L_GIVEN] = driver.address("launch"), given
        words[w.L_STEPS], words[w.L_STEP] = len(steps), self.words(self._records())
        words[w.L_CONSTANTS], words[w.L_CONSTANT] = len(self.constants), self.words(self.constants)
        words[w.L_FIXEDS], words[w.L_FIXED] = len(self.fixed), self.words(self.fixed)
        if clear is not None:
            words[w.L_CLEAR], words[w.L_CLEAR_PLACE] = driver.address("clear"), clear.place
            words[w.L_CLEAR_BYTES] = clear.nbytes
            words[w.L_COUNTERS] = len(clear.lasting)
            words[w.L_COUNTER] = self.words([v for record in clear.lasting for v in record])
        if blas is not None:
            words[w.L_BLAS] = self.words(_blas_words(blas))
            words[w.L_CAPTURE], words[w.L_CAPTURED] = driver.address("capture"), driver.address("captured")
        if graphs:
            recorder = native_graph.Recorder(self)
            self._keep.append(recorder)
            words[w.L_RECORD] = id(recorder)
        self.block = self.words(words)
        self.table = given + len(self.constants)  # words of a call's table
        self._block = self._keep[-1]
        self.launch: Callable[..., int] = native_entry.built_in("launch", self.block)
        self.capture: Callable[..., int] = native_entry.built_in("capture", self.block)

    def _place(self, parameter: tuple[int | None, int]) -> int:
        place, constant = parameter
        if place is not None:
            return place
        self.constants.append(ctypes.c_int64(constant).value)
        return self.given + len(self.constants) - 1

    def _fixed(self) -> list[int]:
        """Table places that products see, whose nodes in a graph keep what they were captured with."""
        seen = {k for s in self.steps if isinstance(s, ProductLaunch) for k in s.places}
        return sorted(seen | ({self.blas.place} if self.blas is not None else set()))

    def _records(self) -> list[int]:
        records: list[int] = []
        for step, places in zip(self.steps, self.places, strict=True):
            if isinstance(step, KernelLaunch):
                sizes = (*step.grid, step.block, step.shared)
                records += [step.function, *sizes, len(places), self.words(places)]
            else:
                one, zero = scale(step.dtype)
                self._keep.append((one, zero))
                product = self.words(_product_words(step, one.ctypes.data, zero.ctypes.data))
                self.products[step] = product
                records += [0, 0, 0, 0, 0, 0, product]
        return records

    def words(self, values: Sequence[int]) -> int:
        """A block of words that lives as long as the plan; its address."""
        block = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._keep.append(block)
        return ctypes.addressof(block)

    @property
    def recorded(self) -> bool:
        """Whether there is a graph."""
        return bool(self._block[w.L_GRAPH])

    def record(self, words: Sequence[int]) -> None:
        """Make a graph, with the words of a call; from now on `launch` replays it where those at `fixed` are the same.
        It is destroyed with the plan; a plan is of one device, whose context must be current here."""
        graph = native_graph.made(self, words)
        graph[w.G_NEXT] = self._block[w.L_GRAPH]
        self._block[w.L_GRAPH] = self.words(graph)


def _blas_words(blas: Blas) -> list[int]:
    words = [0] * p.BLAS_WORDS
    words[p.B_HANDLE], words[p.B_PLACE], words[p.B_BYTES] = blas.handle, blas.place, blas.nbytes
    names = ((p.B_STREAM, "stream"), (p.B_WORKSPACE, "workspace"), (p.B_GEMM, "gemm"), (p.B_BATCHED, "batched"))
    for k, name in names:
        words[k] = blas.functions.address(name)
    return words


def _product_words(step: ProductLaunch, one: int, zero: int) -> list[int]:
    """cuBLAS is column-major: what it is asked for is out.T = second.T @ first.T."""
    q, (first, second, out) = step.product, step.places
    kind, compute, _ = KINDS[step.dtype]
    words = [int(q.b.transposed), int(q.a.transposed), q.n, q.m, q.k, kind, compute, one, zero, q.count]
    words.append(CUBLAS_GEMM_DEFAULT)
    words += [second, q.b.pointer, q.b.line, q.b.step]
    words += [first, q.a.pointer, q.a.line, q.a.step]
    return [*words, out, q.out, q.n, q.m * q.n]


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
        self.refuse(self.call(name, *arguments))

    @staticmethod
    def refuse(code: int) -> None:
        """Raise the error of a code, if it is one."""
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
