"""CUDA devices, modules and launches through CuPy's driver binding.

In: cubins, pointers and numbers. Out: launches on the caller's current stream, with no hidden synchronisation.
CuPy is imported at first use; what is missing is said once, with the command that brings it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

from fuser.device import driver_library
from fuser.errors import DeviceError, InternalError, OutOfMemory
from fuser.runtime.arrays import Place

INSTALL_HINT = "pip install 'fuser-compiler[cuda13]' (driver 580 or newer) or 'fuser-compiler[cuda12]'"
DEFAULT_STREAM = 0  # CUDA's handle of a device's default stream, the same for all threads
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
COUNTER_BYTES = 64 << 10  # of a device's lasting counters: those of 256 groups whose blocks meet
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
LARGE_CLUSTERS, PORTABLE_CLUSTER = 14, 8  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED; needed beyond 8 blocks


@cache
def why_unavailable() -> str | None:
    """None if a CUDA device can be used; otherwise the reason, in words for users."""
    library = driver_library()
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"{library} was not found"
    try:
        import cupy
    except ImportError:
        return f"CuPy is not installed: {INSTALL_HINT}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the CUDA driver reports: {error}"
    return None if count else "no CUDA device is present"


@cache
def nvtx() -> tuple[Callable[[str], Any], Callable[[], Any]] | None:
    """(open a range, close the last one) for profilers; None without a CuPy that has NVTX."""
    try:
        from cupy.cuda import nvtx as binding
    except ImportError:
        return None
    return binding.RangePush, binding.RangePop


def require() -> None:
    """Raise DeviceError [no-gpu] unless a CUDA device can be used."""
    reason = why_unavailable()
    if reason:
        raise DeviceError(
            f'device="cuda", but {reason}',
            "no-gpu",
            notes=["run here: omit device.", 'plan for a GPU anyway: f.plan(..., device="sm_90")'],
        )


@cache
def device_count() -> int:
    """Number of usable CUDA devices (0 without driver or CuPy)."""
    if why_unavailable():
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def architecture(ordinal: int) -> str:
    """`sm_XX` of a device."""
    import cupy

    return f"sm_{cupy.cuda.Device(ordinal).compute_capability}"


@cache
def card(ordinal: int = 0) -> str:
    """A GPU's name, as `NVIDIA H200`."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(ordinal)["name"].decode())


@contextmanager
def current(place: Place, family: str) -> Iterator[int]:
    """Make `place` the current device; yields the caller's current stream of that array library as an integer."""
    import cupy

    with cupy.cuda.Device(place.ordinal):
        cupy.cuda.runtime.free(0)  # a thread that has called no runtime function has no context
        if family == "torch":
            import torch

            stream = torch.cuda.current_stream(place.ordinal).cuda_stream
            with external_stream(stream):
                yield stream
        else:
            yield cupy.cuda.get_current_stream().ptr


class CudaKernel:
    """A loaded kernel of one device."""

    def __init__(self, cubin: bytes, name: str, shared: int = 0, cluster: int = 1) -> None:
        import cupy
        from cupy.cuda import driver

        cupy.cuda.runtime.free(0)  # makes sure that the primary context exists before the driver call
        self._launch = driver.launchKernel
        self._module = driver.moduleLoadData(cubin)
        self.function = driver.moduleGetFunction(self._module, name)
        self.shared = shared
        if shared:  # beside static arrays, which count towards the 48 KiB that need no leave
            driver.funcSetAttribute(self.function, MAX_DYNAMIC_SHARED, shared)
        if cluster > PORTABLE_CLUSTER:
            driver.funcSetAttribute(self.function, LARGE_CLUSTERS, 1)

    def launch(self, grid: tuple[int, int], block: int, arguments: Sequence[Any], stream: int) -> None:
        """Launch with ctypes values in ABI order; nothing happens for an empty grid."""
        if grid[0] == 0 or grid[1] == 0:
            return
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self._launch(
            self.function, grid[0], grid[1], 1, block, 1, 1, self.shared, stream, ctypes.addressof(pointers), 0
        )


def raise_out_of_memory(error: Exception, results: int, temporaries: int) -> None:
    """fuser's error for CuPy's and torch's "out of memory"; nothing for any other. Nothing is left allocated."""
    if type(error).__name__ != "OutOfMemoryError":
        return
    raise OutOfMemory(
        f"the device has no room for {results + temporaries} bytes",
        "out-of-memory",
        notes=[f"results {results}, temporaries at their peak {temporaries}", str(error).splitlines()[0]],
    ) from error


def launch_failed(code: int) -> Exception:
    """The error of a launch that the driver refused, as CuPy words it, or of a product that cuBLAS refused."""
    from fuser.runtime import cublas

    if code >= cublas.ERROR:
        return cublas.refused(code - cublas.ERROR)
    from cupy.cuda import driver

    return InternalError("the CUDA driver refused a launch", "launch", notes=[str(driver.CUDADriverError(code))])


@cache
def _getters() -> tuple[Any, Any, Any]:
    import cupy

    return cupy.cuda.runtime.getDevice, cupy.cuda.runtime.setDevice, cupy.cuda.get_current_stream


def make_current(ordinal: int) -> None:
    """Make a device's primary context the calling thread's (a thread that has called no runtime function has none)."""
    import cupy

    cupy.cuda.runtime.setDevice(ordinal)
    cupy.cuda.runtime.free(0)


class on_device:
    """Makes a device current for a block; costs one question where it is current already."""

    __slots__ = ("_before", "_ordinal")

    def __init__(self, ordinal: int) -> None:
        self._ordinal, self._before = ordinal, ordinal

    def __enter__(self) -> None:
        get, put, _ = _getters()
        self._before = get()
        if self._before != self._ordinal:
            put(self._ordinal)

    def __exit__(self, *error: object) -> None:
        if self._before != self._ordinal:
            _getters()[1](self._before)


def cupy_stream() -> int:
    """CuPy's current stream on the current device."""
    return int(_getters()[2]().ptr)


def torch_stream(ordinal: int) -> int:
    """torch's current stream on a device."""
    return int(_torch_streams()(ordinal))


@cache
def _torch_streams() -> Callable[[int], int]:
    """Device -> its current stream. The first costs 0.2 us; the public way makes an object first."""
    import torch

    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw if raw is not None else lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream)


class _Stream:
    """Someone else's stream, as CUDA's stream protocol has it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


@lru_cache(64)
def external_stream(stream: int) -> Any:
    """A context in which CuPy uses someone else's stream."""
    import cupy

    made = getattr(cupy.cuda.Stream, "from_external", None)  # CuPy 14
    return made(_Stream(stream)) if made is not None else cupy.cuda.ExternalStream(stream)


def copy_to(place: Place, value: Any) -> Any:
    """A NumPy array or scalar as a CuPy array on a device."""
    import cupy
    import numpy as np

    with cupy.cuda.Device(place.ordinal):
        return cupy.asarray(np.asarray(value))


def allocate(nbytes: int) -> Any:
    """Device memory from CuPy's pool on the current device and stream; `.ptr` is its address."""
    import cupy

    return cupy.cuda.alloc(max(nbytes, 1))


def scratch(nbytes: int, zeroed: int, stream: int) -> Any:
    """Device memory whose first `zeroed` bytes are set to zero in stream order."""
    import cupy

    memory = allocate(nbytes)
    if zeroed:
        cupy.cuda.runtime.memsetAsync(memory.ptr, 0, zeroed, stream)
    return memory


@cache
def counters(ordinal: int) -> int:
    """The address of `COUNTER_BYTES` of zeros on a device, for kernels on its default stream alone.

    Kernels of one stream run one after another, and each leaves the counters that it uses at zero; so whoever launches
    there, from whichever thread, finds zeros, and none has to be set before a launch (1.5-2.5 us on one H200). They
    last as long as the process.
    """
    import cupy

    with cupy.cuda.Device(ordinal):
        address = int(cupy.cuda.runtime.malloc(COUNTER_BYTES))
        cupy.cuda.runtime.memsetAsync(address, 0, COUNTER_BYTES, DEFAULT_STREAM)
    return address


class _Kept:
    """Objects that work on streams of a device still needs, oldest first, and events that wait for nothing now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[tuple[Any, Any]] = deque()
        self.spare: list[Any] = []

    def event(self) -> Any:
        """An event to be recorded."""
        with self.lock:
            if self.spare:
                return self.spare.pop()
        import cupy

        return cupy.cuda.Event(disable_timing=True)

    def add(self, event: Any, objects: Any) -> None:
        with self.lock:
            self.waiting.append((event, objects))
            done = []
            while self.waiting and self.waiting[0][0].done:
                done.append(self.waiting.popleft())
            self.spare += [event for event, _ in done]
        del done  # outside of the lock: a library's destructor may call back


@cache
def _kept(ordinal: int) -> _Kept:
    return _Kept()


def keep_until_done(objects: Sequence[Any]) -> None:
    """Keep objects alive until what CuPy's current stream holds now is done: for memory of libraries that would hand
    it out again without asking this stream. They are let go of at a later call of this function."""
    kept = _kept(_getters()[0]())
    event = kept.event()
    event.record()
    kept.add(event, objects)


class Uncompiled:
    """In place of a `LazyKernel` where there is no NVRTC: any launch raises what is missing."""

    def __init__(self, missing: DeviceError) -> None:
        self.missing = missing

    def on(self, ordinal: int) -> CudaKernel:
        raise self.missing

    def launch(self, grid: tuple[int, int], block: int, arguments: Sequence[Any], stream: int) -> None:
        raise self.missing


class LazyKernel:
    """A cubin that is loaded on each device at its first launch there (planning needs no GPU)."""

    def __init__(self, cubin: bytes, name: str, shared: int = 0, cluster: int = 1) -> None:
        self.cubin, self.name, self.shared, self.cluster = cubin, name, shared, cluster
        self._loaded: dict[int, CudaKernel] = {}

    def on(self, ordinal: int) -> CudaKernel:
        """The kernel loaded on a device, which must be the current one."""
        kernel = self._loaded.get(ordinal)
        if kernel is None:
            kernel = self._loaded.setdefault(ordinal, CudaKernel(self.cubin, self.name, self.shared, self.cluster))
        return kernel

    def launch(self, grid: tuple[int, int], block: int, arguments: Sequence[Any], stream: int) -> None:
        """Launch on the current device."""
        import cupy

        self.on(cupy.cuda.runtime.getDevice()).launch(grid, block, arguments, stream)
