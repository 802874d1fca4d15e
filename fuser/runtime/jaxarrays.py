"""JAX's arrays, by shorter ways than the protocols that all libraries share.

In: JAX arrays; results as NumPy or CuPy arrays. Out: views of the ones, JAX arrays over the memory of the others.
JAX's own `from_dlpack` takes 60 us, most of it about cases that cannot arise here; the function beneath it takes 10. It
is no public one, so it is used only where, tried once, it gave the same as the public one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError

_NO_ORDER = -1  # of DLPack: whoever asks looks after the order of streams
_BYTES = 4  # of the largest real dtypes that JAX takes as they are: without x64 it makes f32 of f64


def view(value: Any, name: str) -> Any:
    """A NumPy array over an array on the CPU, a CuPy array over one on a GPU; None where there is no short way."""
    if isinstance(value, _tracer()):
        raise UnsupportedError(
            f"`{name}` is a JAX tracer: it stands for an array while JAX transforms a program",
            "jax-tracer",
            notes=["call it outside of jax.jit, grad and vmap, or inside through jax.pure_callback"],
        )
    try:
        (device,) = value.devices()
        if device.platform == "cpu":
            return np.asarray(value)  # waits for the value; the same memory
        if device.platform not in ("gpu", "cuda") or not value.is_ready():
            return None  # DLPack lets the stream wait for it
        return _over(value, device.local_hardware_id)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # several devices, another JAX
        if getattr(value, "is_deleted", bool)():
            message = f"`{name}` is a JAX array that was deleted, or donated to a function"
            raise UnsupportedError(message, "deleted-array") from None
        return None


@cache
def _tracer() -> Any:
    import jax

    return jax.core.Tracer


def _over(value: Any, ordinal: int) -> Any:
    """A CuPy array over memory that is written already."""
    import cupy

    block = cupy.cuda.UnownedMemory(value.unsafe_buffer_pointer(), value.nbytes, value, ordinal)
    return cupy.ndarray(value.shape, value.dtype, cupy.cuda.MemoryPointer(block, 0))


def give(array: Any) -> Any:
    """A NumPy or CuPy array as JAX's, without a copy where JAX needs none."""
    if _taken_as_it_is(array.dtype):
        swift = _swift(None if isinstance(array, np.ndarray) else array.device.id)
        if swift is not None:
            with suppress(BufferError, TypeError):  # read-only, or a dtype that NumPy's DLPack lacks
                return swift(array)
    return _public(array)


def _taken_as_it_is(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize <= _BYTES * (1 + (dtype.kind == "c"))


def taker(ordinal: int, dtypes: Sequence[np.dtype[Any]], stream: int) -> Callable[[Any], Any] | None:
    """What makes JAX arrays of CuPy's that work of this stream of JAX's makes, of these dtypes; None where there is no
    short way."""
    if _swift(ordinal) is None or not all(map(_taken_as_it_is, dtypes)):
        return None
    return _beneath(ordinal, stream)


def wait(value: Any, stream: int) -> None:
    """Let a stream wait until an array is there."""
    value.__dlpack__(stream=stream)


def _public(array: Any) -> Any:
    import jax.numpy

    try:
        return jax.numpy.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError, ValueError):  # the same, by JAX's names
        return jax.numpy.asarray(array)


@cache
def _swift(ordinal: int | None) -> Callable[[Any], Any] | None:
    """What JAX's from_dlpack does in the end, for arrays on the CPU or a GPU; None where it is not what it was."""
    try:
        made = _beneath(ordinal)
        probe = _probe(ordinal)
        mine, wanted = made(probe), _public(probe)
        same = all(getattr(mine, k) == getattr(wanted, k) for k in ("aval", "sharding", "weak_type", "committed"))
        same = same and mine.unsafe_buffer_pointer() == wanted.unsafe_buffer_pointer() and type(mine) is type(wanted)
        return made if same else None
    except Exception:  # whatever a private function of another version may raise
        return None


def _probe(ordinal: int | None) -> Any:
    if ordinal is not None:
        import cupy

        with cupy.cuda.Device(ordinal):
            return cupy.zeros((2, 3), np.float32)
    room = np.zeros(64 + 24, np.uint8)
    start = -room.__array_interface__["data"][0] % 64  # JAX copies what is less aligned
    return room[start : start + 24].view(np.float32).reshape(2, 3)


def _beneath(ordinal: int | None, ordered: int | None = None) -> Callable[[Any], Any]:
    """ordered: a stream of JAX's on which the arrays are made."""
    import jax
    from jaxlib import _jax

    platform, kind = ("cpu", 1) if ordinal is None else ("cuda", 2)
    number = ordinal or 0
    (device,) = [d for d in jax.local_devices(backend=platform) if d.local_hardware_id == number][:1]
    take = _jax.dlpack_managed_tensor_to_buffer
    if ordinal is None:
        return lambda array: take(array.__dlpack__(), device, None, None, kind)

    if ordered is not None:
        return lambda array: take(array.__dlpack__(stream=_NO_ORDER), device, ordered, None, kind)

    def from_device(array: Any) -> Any:
        stream = device.get_stream_for_external_ready_events()
        return take(array.__dlpack__(stream=stream), device, stream, None, kind)

    return from_device
