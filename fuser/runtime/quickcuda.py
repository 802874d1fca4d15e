"""A bound CUDA program that takes arrays of one GPU library: the short road's launch.

In: a `Launchable`, where its arguments are among a call's, and how results are put together. Out: `CudaCall`, called with
the flat arguments of a call known to fit. Everything but addresses and run-time numbers is packed once; results come
from the array library's own allocator, temporaries from CuPy's pool, launches go to the caller's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.runtime import arrays, bound, cuda
from fuser.runtime.bound import Launch
from fuser.runtime.quickcpu import Places

if TYPE_CHECKING:
    from fuser.traces import Launchable


class CudaCall:
    """See the module's docstring."""

    def __init__(
        self, made: Launchable, places: Places, finish: Callable[[tuple[Any, ...]], Any] | None
    ) -> None:
        program = made.program
        self._places, self._finish, self._ordinal = places, finish, made.place.ordinal
        self._arena = program.arena
        self._steps = tuple(_Step(s, self._ordinal) for s in program.steps if isinstance(s, Launch))
        order = [r.node for r in program.results]
        self._outputs = tuple(order.index(n) for n in program.graph.outputs)
        self._fixed = dict(places.fixed)
        self._torch = made.family == "torch"
        make = _torch_makers if self._torch else _cupy_makers
        self._makers = make([(r.shape, r.dtype) for r in program.results], self._ordinal)

    @staticmethod
    def suits(made: Launchable, inputs: Sequence[Any]) -> bool:
        """Whether all arrays are of one GPU library (scalars of NumPy need copies to the device)."""
        return made.family in ("cupy", "torch") and all(arrays.family_of(a) == made.family for a in inputs)

    def __call__(self, args: Sequence[Any]) -> Any:
        with cuda.on_device(self._ordinal):
            if self._torch:
                return self._run_torch(args)
            results = [make() for make in self._makers]
            table = [args[k].data.ptr for k in self._places.arrays]
            table += [r.data.ptr for r in results]
            return self._run(args, results, table, cuda.cupy_stream())

    def _run_torch(self, args: Sequence[Any]) -> Any:
        results = [make() for make in self._makers]
        table = [args[k].data_ptr() for k in self._places.arrays]
        table += [r.data_ptr() for r in results]
        stream = cuda.torch_stream(self._ordinal)
        if not self._arena.nbytes:
            return self._run(args, results, table, stream)
        with cuda.external_stream(stream):  # so that the arena's memory is that stream's
            return self._run(args, results, table, stream)

    def _run(self, args: Sequence[Any], results: list[Any], table: list[int], stream: int) -> Any:
        held = None
        if self._arena.nbytes:
            held = cuda.scratch(self._arena.nbytes, self._arena.zeroed, stream)
            table += [held.ptr + offset for offset in self._arena.offsets]
        env = self._fixed
        if self._places.scalars:
            env = {**env, **{symbol: args[k] for k, symbol in self._places.scalars}}
        for step in self._steps:
            step.launch(table, env, stream)
        del held
        if self._finish is None:
            return results[self._outputs[0]]
        return self._finish(tuple(results[k] for k in self._outputs))


class _Step:
    """One kernel with its argument block packed but for addresses and run-time numbers."""

    def __init__(self, step: Launch, ordinal: int) -> None:
        self._step, self._ordinal = step, ordinal
        self._kernel = step.built.binary
        self._loaded: Any = None
        self._slots = step.slots
        self._blocks: list[cuda.ArgumentBlock] = []  # one a thread that is inside; taken and given back

    def launch(self, table: Sequence[int], env: Any, stream: int) -> None:
        """Launch on a stream of the current device."""
        step = self._step
        if self._loaded is None:
            self._loaded = self._kernel.on(self._ordinal)
        try:
            block = self._blocks.pop()
        except IndexError:
            block = cuda.ArgumentBlock(len(self._slots), step.values(env, bound.encode_ctype))
        for k, slot in enumerate(self._slots):
            block.pointers[k] = table[slot]
        if step.dynamic:
            block.set(step.values(env, bound.encode_ctype))
        self._loaded.start(step.grid, step.block, block.address, stream)
        self._blocks.append(block)


def _cupy_makers(wanted: Sequence[tuple[tuple[int, ...], Any]], ordinal: int) -> list[Callable[[], Any]]:
    import functools

    import cupy

    return [functools.partial(cupy.ndarray, shape, dtype.numpy) for shape, dtype in wanted]


def _torch_makers(wanted: Sequence[tuple[tuple[int, ...], Any]], ordinal: int) -> list[Callable[[], Any]]:
    import functools

    import torch

    device = torch.device("cuda", ordinal)
    return [
        functools.partial(torch.empty, shape, dtype=arrays.torch_dtype(dtype), device=device) for shape, dtype in wanted
    ]
