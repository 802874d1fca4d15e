"""A bound CUDA program that takes arrays of one GPU library: the short road's launch.

In: a `Launchable`, where its arguments are among a call's, and how results are put together. Out: `CudaCall`, called
with the flat arguments of a call known to fit. Everything but addresses and run-time numbers is packed once; results
come from the array library's own allocator, temporaries from CuPy's pool, launches go to the caller's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.graph import Graph, Node
from fuser.runtime import arrays, cublas, cuda, native_plan, tensors, values
from fuser.runtime.arrays import Place
from fuser.runtime.bound import BoundProgram, Launch, Library
from fuser.runtime.cublas import Memory
from fuser.runtime.launch_steps import Blas, Clear, KernelLaunch, ProductLaunch
from fuser.runtime.native_plan import LaunchPlan
from fuser.runtime.quickcpu import Places
from fuser.runtime.tensors import Maker

if TYPE_CHECKING:
    from fuser.traces import Launchable

RESULT, ARGUMENT = 0, 2  # kinds of outputs, see `native_run`


class CudaCall:
    """See the module's docstring. finish: makes the program's answer of its result arrays; None: the only one itself.

    fresh: (number, (shape, dtype)) of results that a call allocates: all, or none where `out` is given.
    pairs: flat positions of an array that is written and of another array, which must not overlap at a call.
    graphs: replay the launches as a CUDA graph.
    """

    def __init__(
        self,
        made: Launchable,
        places: Places,
        returned: Sequence[tuple[int, int]],
        finish: Callable[[tuple[Any, ...]], Any] | None,
        flat: Sequence[Any] = (),
        graphs: bool = False,
    ) -> None:
        program = self.program = made.program
        graph: Graph = program.graph
        self.misses = 0  # calls that came here although native code might have taken them
        self.places, self.finish, self.graphs = places, finish, graphs
        self.place, self.ordinal = made.place, made.place.ordinal
        self.arena, self.results, self.returned = program.arena, program.results, dict(returned)
        self._result_bytes = program.result_bytes
        self._steps = tuple(s for s in program.steps if isinstance(s, Launch))
        self._products = products_of(program, places, flat) or {}
        self._count = program.arguments + len(program.results) + len(program.scratch) + 1
        self.plan: LaunchPlan | None = None  # made at the first launch, when the device is current
        self._dynamic = [(dtype, expr) for s in self._steps for _, dtype, expr in s.dynamic]
        order = [r.node for r in program.results]
        self.outputs = tuple(order.index(n) for n in graph.outputs)
        self.torch = made.family == "torch"
        wanted = [] if places.out is not None else [(r.shape, r.dtype) for r in program.results]
        self.fresh = [(k, (shape, dtype.numpy)) for k, (shape, dtype) in enumerate(wanted)]
        self._alone = self.torch and cuda.device_count() == 1  # no other device can be current
        make = _torch_makers if self.torch else _cupy_makers
        self.makers = make(wanted, made.place)
        self._find_pairs(graph, flat)

    def _find_pairs(self, graph: Graph, flat: Sequence[Any]) -> None:
        places = self.places
        self.written = {places.arrays[e.argument] for e in graph.effects}
        if places.out is not None:
            self.written.add(places.out)
        self.pairs = tuple((k, r) for k in sorted(self.written) for r in dict.fromkeys(places.arrays) if r != k)
        touched = sorted({k for pair in self.pairs for k in pair})
        infos = {k: arrays.describe(flat[k]) for k in touched}
        self._extents = {k: (i.extent[0] - i.pointer, i.extent[1] - i.pointer) for k, i in infos.items()}

    @staticmethod
    def suits(made: Launchable, places: Places, flat: Sequence[Any]) -> bool:
        """Whether all arrays are of one GPU library (scalars of NumPy need copies to the device), kernels store all
        effects, and cuBLAS does what else there is."""
        known = native_plan.usable() and made.family in ("cupy", "torch")
        stored = all(made.program.places[e.node.id] == e.argument for e in made.program.graph.effects)
        if not known or not stored or any(arrays.family_of(flat[k]) != made.family for k in places.arrays):
            return False
        return products_of(made.program, places, flat) is not None

    def overlapping(self, args: Sequence[Any]) -> bool:
        """Whether an array that is written shares memory with another one in this call."""
        address = _torch_address if self.torch else _cupy_address
        for one, other in self.pairs:
            (a, b), (x, y) = self._extents[one], self._extents[other]
            p, q = address(args[one]), address(args[other])
            if p + a < q + y and q + x < p + b:
                return True
        return False

    def slot_of(self, position: int) -> int:
        """The table place of an array argument."""
        return len(self.places.arrays) if position == self.places.out else self.places.arrays.index(position)

    def native_dynamics(self) -> list[tuple[int, int, int]] | None:
        """(table place, argument, mode) of run-time numbers; None where native code cannot work one out."""
        from fuser.runtime.native_numbers import mode_of

        positions = {symbol: k for k, symbol in self.places.scalars}
        found = []
        for k, (dtype, expr) in enumerate(self._dynamic):
            mode = mode_of(expr, dtype)
            if mode is None or expr.value not in positions:
                return None
            found.append((self._count + k, positions[expr.value], mode))
        return found

    def native_outputs(self) -> list[tuple[int, int]]:
        """(kind, number) of what the program returns: a result, or an argument itself."""
        if self.places.out is not None:
            return [(ARGUMENT, self.places.out)]
        found = [(RESULT, k) for k in self.outputs]
        for k, argument in self.returned.items():
            found[k] = (ARGUMENT, self.places.arrays[argument])
        return found

    def __call__(self, args: Sequence[Any]) -> Any:
        try:
            if self._alone:
                return self._run_torch(args)
            with cuda.on_device(self.ordinal):
                return self._run_torch(args) if self.torch else self._run_cupy(args)
        except Exception as error:
            cuda.raise_out_of_memory(error, self._result_bytes, self.arena.nbytes)
            raise

    def _run_cupy(self, args: Sequence[Any]) -> Any:
        results = self._results(args)
        table = [args[k].data.ptr for k in self.places.arrays]
        table += [r.data.ptr for r in results]
        return self._run(args, results, table, cuda.cupy_stream())

    def _run_torch(self, args: Sequence[Any]) -> Any:
        results = self._results(args)
        table = [args[k].data_ptr() for k in self.places.arrays]
        table += [r.data_ptr() for r in results]
        stream = cuda.torch_stream(self.ordinal)
        if not self.arena.nbytes:
            return self._run(args, results, table, stream)
        with cuda.external_stream(stream):  # so that the arena's memory is that stream's
            return self._run(args, results, table, stream)

    def _results(self, args: Sequence[Any]) -> list[Any]:
        out = self.places.out
        return [make(*given) for make, given in self.makers] if out is None else [args[out]]

    def _run(self, args: Sequence[Any], results: list[Any], table: list[int], stream: int) -> Any:
        self._launch(args, table, stream)
        if self.torch and self.written:
            tensors.bump()(tuple(args[k] for k in self.written))
        return self.answer(args, results)

    def on_stream(self, args: Sequence[Any], table: list[int], stream: int) -> list[Any]:
        """Launch on a stream, which is CuPy's current one; gives the fresh results. table: addresses of the arguments;
        only numbers are taken from `args`."""
        try:
            results = [make(*given) for make, given in self.makers]
            self._launch(args, [*table, *(r.data.ptr for r in results)], stream)
        except Exception as error:
            cuda.raise_out_of_memory(error, self._result_bytes, self.arena.nbytes)
            raise
        return results

    def _launch(self, args: Sequence[Any], table: list[int], stream: int) -> None:
        held, base = None, 0
        if self.arena.nbytes:
            held = cuda.allocate(self.arena.nbytes)
            base = held.ptr
        table += [base + offset for offset in self.arena.offsets]
        table.append(base)
        if self._dynamic:
            env = self.places.numbers(args)
            table += [values.slot_bits(values.convert(e.evaluate(env), dtype), dtype) for dtype, e in self._dynamic]
        plan = self.plan or self._make_plan(stream)
        code = plan.launch(stream, *table)
        if code == cuda.INVALID_CONTEXT:  # this thread's first call of the driver
            cuda.make_current(self.ordinal)
            code = plan.launch(stream, *table)
        if code:
            raise cuda.launch_failed(code)
        del held

    def answer(self, args: Sequence[Any], results: list[Any]) -> Any:
        """What the program returns, of its results."""
        if self.places.out is not None:
            return results[0]
        if self.finish is None and not self.returned:
            return results[self.outputs[0]]
        found = [results[k] for k in self.outputs]
        for k, argument in self.returned.items():
            found[k] = args[self.places.arrays[argument]]
        return found[0] if self.finish is None else self.finish(tuple(found))

    def _make_plan(self, stream: int) -> LaunchPlan:
        """The launches, with every kernel loaded on the current device; `stream` is that of the first call."""
        driver = native_plan.driver()
        assert driver is not None, "ask suits() first"
        steps: list[KernelLaunch | ProductLaunch] = []
        first = self._count
        for k, step in enumerate(self.program.steps):
            if isinstance(step, Library):
                steps += self._products[k]
                continue
            loaded = step.built.binary.on(self.ordinal)
            parameters = _parameters(step, first)
            first += len(step.dynamic)
            steps.append(KernelLaunch(loaded.function, step.grid, step.block, loaded.shared, parameters))
        clear = Clear(self._count - 1, self.arena.zeroed, self._lasting(stream)) if self.arena.zeroed else None
        self.plan = LaunchPlan(steps, first, driver, clear, self._blas(), self.graphs and bool(steps))
        return self.plan

    def _blas(self) -> Blas | None:
        """How products are run; None where there are none."""
        found = [s.workspace for k, s in enumerate(self.program.steps) if isinstance(s, Library) and self._products[k]]
        functions = cublas.direct()
        if not found or found[0] is None or functions is None:
            return None
        nbytes = self.program.scratch[found[0] - len(self.places.arrays) - len(self.results)].nbytes
        return Blas(cublas.handle_function(), functions, found[0], nbytes)

    def _lasting(self, stream: int) -> tuple[tuple[int, int], ...]:
        """Table places of counters and where they are on the default stream. None for a plan that is first used on
        another stream: that one may be recording a graph, when no memory can be had."""
        arena = self.arena
        if stream != cuda.DEFAULT_STREAM or not arena.counters or arena.zeroed > cuda.COUNTER_BYTES:
            return ()
        first, address = self._count - 1 - len(arena.offsets), cuda.counters(self.ordinal)
        return tuple((first + k, address + arena.offsets[k]) for k in arena.counters)


def products_of(program: BoundProgram, places: Places, flat: Sequence[Any]) -> dict[int, list[ProductLaunch]] | None:
    """By step, the calls of cuBLAS for each product; None where something else runs a step."""

    def at(node: Node, place: int) -> Memory:
        shape, itemsize = program.shapes[node.id], node.storage.bytes
        if place >= len(places.arrays):
            return Memory(0, shape, cublas.in_c_order(shape, itemsize), itemsize)
        return Memory(
            0, shape, tuple(s * itemsize for s in arrays.describe(flat[places.arrays[place]]).strides), itemsize
        )

    found: dict[int, list[ProductLaunch]] = {}
    for k, step in enumerate(program.steps):
        if isinstance(step, Library):
            calls = cublas.planned(step, at)
            if calls is None:
                return None
            where = step.operands[0].place, step.operands[1].place, step.result
            found[k] = [ProductLaunch(p, where, step.node.storage) for p in calls]
    return found


def _parameters(step: Launch, first: int) -> tuple[tuple[int | None, int], ...]:
    """A kernel's parameters: table places of its buffers, then scalars, of which run-time ones follow the table."""
    buffers = [(slot, 0) for slot in step.slots]
    changing = {k: first + number for number, (k, _, _) in enumerate(step.dynamic)}
    fixed = [(changing.get(k), 0 if v is None else _bits(v)) for k, v in enumerate(step.scalars)]
    return (*buffers, *fixed)


def _bits(value: Any) -> int:
    """The bytes of a ctypes value as an integer, low end first."""
    return int.from_bytes(bytes(value), "little")


def _cupy_address(a: Any) -> int:
    return int(a.data.ptr)


def _torch_address(a: Any) -> int:
    return int(a.data_ptr())


def _cupy_makers(wanted: Sequence[tuple[tuple[int, ...], Any]], place: Place) -> list[Maker]:
    import cupy

    return [(cupy.ndarray, (shape, dtype.numpy)) for shape, dtype in wanted]


def _torch_makers(wanted: Sequence[tuple[tuple[int, ...], Any]], place: Place) -> list[Maker]:
    return [tensors.maker(shape, dtype, place) for shape, dtype in wanted]
