"""The short road of JAX's arrays: calls of a kind seen before, with nothing looked at that the kind tells.

In: the arguments of a call, what the function has learned of calls on views of such arrays. Out: the answer as JAX's
arrays. On the CPU NumPy's arrays over JAX's memory take NumPy's road. On a GPU kernels read JAX's memory by its
address, on a stream that JAX waits for when it takes over a result: no library has to be asked to order two streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import trees
from fuser.runtime import cuda, jaxarrays

if TYPE_CHECKING:
    from fuser.quick import Roads
    from fuser.runtime.quickcuda import CudaCall

_VALUES = (bool, str, type(None))
_devices: dict[int, tuple[Any, Any]] = {}  # by a sharding's id: the sharding, its only device


@cache
def _array() -> Any:
    """The type of JAX's arrays."""
    return type(sys.modules["jax"].numpy.zeros(()))


def key_of(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """The kind of a call: JAX's dtypes, shapes and devices, other values' types; None where there is something else."""
    parts: list[Any] = []
    kind_of_array = _array()
    for a in args:
        kind = type(a)
        if kind is kind_of_array:
            sharding = a.sharding
            known = _devices.get(id(sharding))
            parts.append(a.aval)
            parts.append(known[1] if known is not None and known[0] is sharding else _device_of(sharding))
        elif kind is float or kind is int:
            parts.append(kind)
        elif kind in _VALUES:
            parts += (kind, a)
        else:
            return None
    return tuple(parts)


def _device_of(sharding: Any) -> Any:
    """A sharding's only device; several, where there are."""
    found = tuple(sharding.device_set)
    device = found[0] if len(found) == 1 else found
    if len(_devices) > 256:
        _devices.clear()
    _devices[id(sharding)] = sharding, device
    return device


def learn(roads: Roads, args: Sequence[Any], views: Sequence[Any]) -> None:
    """After a call on views of JAX's arrays: remember how to run others of its kind."""
    if key_of(args) is None:
        return
    kinds = {type(v) for v, a in zip(views, args, strict=True) if v is not a}
    if kinds == {np.ndarray}:
        roads.learn_foreign(key_of, args, HostCall(roads))
        return
    found = roads.device_launch(views)
    if found is not None and (made := DeviceCall.of(found, args, views)) is not None:
        roads.learn_foreign(key_of, args, made)


class HostCall:
    """A call on arrays in the host's memory."""

    def __init__(self, roads: Roads) -> None:
        self._roads, self._array = roads, _array()

    def __call__(self, args: Sequence[Any]) -> Any:
        array = self._array
        try:
            views = [np.asarray(a) if type(a) is array else a for a in args]  # waits for values
        except RuntimeError:  # an array that was deleted: the other road says so
            return NotImplemented
        answer = self._roads.native(*views)
        if answer is NotImplemented:
            return answer
        if type(answer) is np.ndarray and not any(answer is v for v in views):
            return jaxarrays.give(answer)
        known = {id(v): a for v, a in zip(views, args, strict=True)}
        leaves, tree = trees.flatten(answer)
        return trees.unflatten(tree, [_given(leaf, known) for leaf in leaves])


def _given(leaf: Any, known: dict[int, Any]) -> Any:
    """A leaf of an answer: an argument itself, or a result in kind."""
    if id(leaf) in known:
        return known[id(leaf)]
    return jaxarrays.give(np.asarray(leaf)) if isinstance(leaf, (np.ndarray, np.generic)) else leaf


class DeviceCall:
    """A call on arrays of a GPU, launched on a stream of JAX's for work of others. phases: addresses modulo 16."""

    def __init__(self, call: CudaCall, phases: tuple[int, ...], stream: int, take: Callable[[Any], Any]) -> None:
        self._call, self._phases, self._stream, self._take = call, phases, stream, take
        self._current = cuda.external_stream(stream)

    @staticmethod
    def of(call: CudaCall, args: Sequence[Any], views: Sequence[Any]) -> DeviceCall | None:
        """For calls of the kind of these; None where the program stores into arguments or returns one, or where JAX
        has no short way in for results."""
        places = call.places
        whole = not call.written and not call.returned and places.out is None
        if not whole or any(type(args[k]) is not _array() for k in places.arrays):
            return None
        device = _device_of(args[places.arrays[0]].sharding)
        if device.local_hardware_id != call.ordinal:
            return None
        stream = device.get_stream_for_external_ready_events()
        take = jaxarrays.taker(call.ordinal, [r.dtype.numpy for r in call.program.results], stream)
        phases = tuple(views[k].data.ptr & 15 for k in places.arrays)
        return DeviceCall(call, phases, stream, take) if take is not None else None

    def __call__(self, args: Sequence[Any]) -> Any:
        call, stream = self._call, self._stream
        try:
            table = self._addresses(args)
        except RuntimeError:  # an array that was deleted: the other road says so
            return NotImplemented
        if table is None:
            return NotImplemented
        with cuda.on_device(call.ordinal), self._current:
            made = call.on_stream(args, table, stream)
            cuda.keep_until_done([args[k] for k in call.places.arrays])  # their library knows nothing of these kernels
        results = [self._take(r) for r in made]
        return call.answer(args, results)

    def _addresses(self, args: Sequence[Any]) -> list[int] | None:
        """Of the arrays, for which the stream waits where they are not ready; None where one lies otherwise."""
        table = []
        for k, phase in zip(self._call.places.arrays, self._phases, strict=True):
            array = args[k]
            if not array.is_ready():
                jaxarrays.wait(array, self._stream)
            address = array.unsafe_buffer_pointer()
            if address & 15 != phase:
                return None
            table.append(address)
        return table
