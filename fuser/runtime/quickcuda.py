"""A bound CUDA program that takes arrays of one GPU library: the short road's launch.

In: a `Launchable`, where its arguments are among a call's, and how results are put together. Out: `CudaCall`, called
with the flat arguments of a call known to fit. Everything but addresses and run-time numbers is packed once; results
come from the array library's own allocator, temporaries from CuPy's pool, launches go to the caller's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.runtime import arrays, cuda, native_plan, values
from fuser.runtime.bound import Launch
from fuser.runtime.native_plan import KernelLaunch, LaunchPlan
from fuser.runtime.quickcpu import Places

if TYPE_CHECKING:
    from fuser.traces import Launchable


class CudaCall:
    """See the module's docstring."""

    def __init__(self, made: Launchable, places: Places, finish: Callable[[tuple[Any, ...]], Any] | None) -> None:
        program = made.program
        self._places, self._finish, self._ordinal = places, finish, made.place.ordinal
        self._arena, self._result_bytes = program.arena, program.result_bytes
        self._steps = tuple(s for s in program.steps if isinstance(s, Launch))
        self._plan: LaunchPlan | None = None  # made at the first launch, when the device is current
        self._dynamic = [(s, k) for s in self._steps for k, _, _ in s.dynamic]
        self._count = program.arguments + len(program.results) + len(program.scratch)
        order = [r.node for r in program.results]
        self._outputs = tuple(order.index(n) for n in program.graph.outputs)
        self._fixed = dict(places.fixed)
        self._torch = made.family == "torch"
        make = _torch_makers if self._torch else _cupy_makers
        self._makers = make([(r.shape, r.dtype) for r in program.results], self._ordinal)

    @staticmethod
    def suits(made: Launchable, inputs: Sequence[Any]) -> bool:
        """Whether all arrays are of one GPU library (scalars of NumPy need copies to the device)."""
        known = native_plan.usable() and made.family in ("cupy", "torch")
        return known and all(arrays.family_of(a) == made.family for a in inputs)

    def __call__(self, args: Sequence[Any]) -> Any:
        with cuda.on_device(self._ordinal):
            try:
                return self._run_torch(args) if self._torch else self._run_cupy(args)
            except Exception as error:
                cuda.raise_out_of_memory(error, self._result_bytes, self._arena.nbytes)
                raise

    def _run_cupy(self, args: Sequence[Any]) -> Any:
        results = [make() for make in self._makers]
        table = [args[k].data.ptr for k in self._places.arrays]
        table += [r.data.ptr for r in results]
        return self._run(args, results, table, cuda.cupy_stream())

    def _make_plan(self) -> LaunchPlan:
        """The launches, with every kernel loaded on the current device."""
        kernels = []
        first = self._count
        for step in self._steps:
            loaded = step.built.binary.on(self._ordinal)
            parameters = _parameters(step, first)
            first += len(step.dynamic)
            kernels.append(KernelLaunch(loaded.function, step.grid, step.block, loaded.shared, parameters))
        return LaunchPlan(kernels, first, native_plan.driver_launch())

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
        if self._plan is None:
            self._plan = self._make_plan()
        if self._dynamic:
            env = {**self._fixed, **{symbol: args[k] for k, symbol in self._places.scalars}}
            for step in self._steps:
                for _, dtype, expr in step.dynamic:
                    table.append(values.slot_bits(values.convert(expr.evaluate(env), dtype), dtype))
        code = self._plan.launch(stream, *table)
        if code == cuda.INVALID_CONTEXT:  # this thread's first call of the driver
            cuda.make_current(self._ordinal)
            code = self._plan.launch(stream, *table)
        if code:
            raise cuda.launch_failed(code)
        del held
        if self._finish is None:
            return results[self._outputs[0]]
        return self._finish(tuple(results[k] for k in self._outputs))


def _parameters(step: Launch, first: int) -> tuple[tuple[int | None, int], ...]:
    """A kernel's parameters: table places of its buffers, then scalars, of which run-time ones follow the table."""
    buffers = [(slot, 0) for slot in step.slots]
    changing = {k: first + number for number, (k, _, _) in enumerate(step.dynamic)}
    fixed = [(changing.get(k), 0 if v is None else _bits(v)) for k, v in enumerate(step.scalars)]
    return (*buffers, *fixed)


def _bits(value: Any) -> int:
    """The bytes of a ctypes value as an integer, low end first."""
    return int.from_bytes(bytes(value), "little")


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
