"""How calls of a kind are run: the fastest launch that their arrays allow.

In: a bound program, the flat arguments of a call, and where the program's inputs are among them. Out: a callable of
the flat arguments of further calls of that kind, and its native form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fuser import arguments, results, trees
from fuser.runtime import arrays, call, quickcpu
from fuser.runtime.arrays import CPU
from fuser.runtime.bound import Launch as Launched
from fuser.runtime.quickcpu import CpuCall, Places

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.runtime.bound import BoundProgram
    from fuser.runtime.cpuproducts import ProductCall
    from fuser.runtime.quickcuda import CudaCall
    from fuser.traces import Launchable

QuickCall: TypeAlias = "CpuCall | CudaCall"
Launch: TypeAlias = "QuickCall | PlainCall | Apart"


def native_entry_of(known: QuickCall, flat: Sequence[Any]) -> tuple[Any, Any]:
    """The native road's name and its entry for calls like this one; None where it has none."""
    if isinstance(known, CpuCall):
        from fuser.runtime import native_cpu

        return "torch_road" if known.torch else "road", native_cpu.entry(known, flat)
    if known.torch:
        from fuser.runtime import native_torch

        return "torch_device_road", native_torch.entry(known, flat)
    from fuser.runtime import native_cupy

    return "device_road", native_cupy.entry(known, flat)


def library_watches(known: QuickCall) -> list[tuple[int, Any, Any, Any]]:
    """What native code must watch for the sake of the arrays' library."""
    if not known.torch:
        return []
    from fuser.runtime import native_torch

    return native_torch.watches()


def python_only(launch: Launch) -> bool:
    """Whether native code never takes a launch: one with products on the CPU, or with tensors of a torch without
    DLPack's table of functions, at which it cannot look."""
    if isinstance(launch, CpuCall) and launch.products:
        return True
    if not getattr(launch, "torch", False):
        return False
    from fuser.runtime import native_torch

    return native_torch.exchange() is None


def launch_for(flat: Sequence[Any], places: Places, bound: Bound, made: Launchable, graphs: bool) -> Launch:
    """The fastest launch for calls of the kind of these flat arguments."""
    plain = PlainCall(bound, places, made)
    program, graph = made.program, made.program.graph
    finish = _finish(graph, bound, places)
    if not quickcpu.returns_fresh(program) or finish is NotImplemented:
        return plain
    if made.place != CPU:
        return _on_device(flat, places, made, finish, graphs, plain)
    inputs = [flat[k] for k in places.arrays]
    products = _products(program, inputs)
    if products is None:
        return plain
    written = {places.arrays[e.argument] for e in graph.effects}
    if made.family == "numpy":
        if not all(map(_as_it_lies, inputs)) or any(type(flat[k]) is not np.ndarray for k in written):
            return plain
        if places.out is not None and not _out_fits(flat[places.out], program):
            return plain
        quick = CpuCall(program, places, results.returned_arguments(graph), finish, products)
        return Apart(quick, plain) if quick.pairs else quick
    if made.family == "torch":
        from fuser.runtime.quicktorch import TorchCall

        if not TorchCall.suits(program, inputs):
            return plain
        if places.out is not None and not _tensor_out_fits(flat[places.out], made):
            return plain
        tensors = TorchCall(program, places, results.returned_arguments(graph), finish, products)
        return Apart(tensors, plain) if tensors.pairs else tensors
    return plain


def _on_device(
    flat: Sequence[Any], places: Places, made: Launchable, finish: Any, graphs: bool, plain: PlainCall
) -> Launch:
    """The same on a GPU."""
    from fuser.runtime.quickcuda import CudaCall

    fits = places.out is None or _tensor_out_fits(flat[places.out], made)
    if not fits or not CudaCall.suits(made, places, flat):
        return plain
    device = CudaCall(made, places, results.returned_arguments(made.program.graph), finish, flat, graphs)
    return Apart(device, plain) if device.pairs else device


def _products(program: BoundProgram, inputs: Sequence[Any]) -> Mapping[int, ProductCall] | None:
    """What runs each library call on the CPU; None where one cannot be settled ahead."""
    if all(isinstance(step, Launched) for step in program.steps):
        return {}
    from fuser.runtime.cpuproducts import products_of

    return products_of(program, inputs)


def _as_it_lies(a: Any) -> bool:
    """Whether kernels can read a NumPy array (or scalar) where it is."""
    return isinstance(a, np.generic) or (isinstance(a, np.ndarray) and arrays.describe(a).base is a)


def _out_fits(out: Any, program: Any) -> bool:
    """Whether kernels can write the only result straight into `out`."""
    if not isinstance(out, np.ndarray) or len(program.results) != 1 or len(program.graph.outputs) != 1:
        return False
    info, result = arrays.describe(out, "out"), program.results[0]
    fits = info.base is out and info.writable and info.contiguous and not program.graph.effects
    fits = fits and info.pointer % 16 == 0  # kernels store whole vectors
    return fits and info.dtype == result.dtype and info.shape == result.shape


def _tensor_out_fits(out: Any, made: Launchable) -> bool:
    """The same for CuPy's arrays and torch's tensors."""
    if arrays.family_of(out) != made.family or len(made.program.results) != 1 or len(made.program.graph.outputs) != 1:
        return False
    info, result = arrays.describe(out, "out"), made.program.results[0]
    fits = info.contiguous and info.place == made.place and not made.program.graph.effects and info.pointer % 16 == 0
    return fits and info.dtype == result.dtype and info.shape == result.shape


def _finish(graph: Any, bound: Bound, places: Places) -> Any:
    """What makes the answer of the results: None for the only one itself; NotImplemented where numbers are needed."""
    tree = graph.output_tree
    if tree is None:
        return None if len(graph.outputs) == 1 else tuple
    symbols = {s for leaf in tree.leaves if isinstance(leaf, trees.HostLeaf) for s in leaf.expr.symbols}
    if symbols & {*(symbol for _, symbol in places.scalars), *(p for _, parts in places.complexes for p in parts)}:
        return NotImplemented
    in_order = [getattr(leaf, "index", None) for leaf in tree.leaves] == list(range(len(graph.outputs)))
    if tree.tree.kind == "leaf" and in_order:
        return None
    if in_order and tree.tree.type is tuple and all(c.kind == "leaf" for c in tree.tree.children):
        return tuple
    env = {s: bound.env[s] for s in symbols}
    return lambda values: trees.rebuild(tree, values, env)


class PlainCall:
    """Any bound program on freshly described arrays: what the long road does once it knows its program."""

    def __init__(self, bound: Bound, places: Places, made: Launchable) -> None:
        self._bound = replace(bound, leaves=(), infos=())  # holds no array
        self._places, self._made = places, made
        self._given = len(bound.infos)
        self._array_names = arguments.array_names(bound, len(places.arrays) - len(bound.infos))

    def __call__(self, flat: Sequence[Any]) -> Any:
        places, made = self._places, self._made
        originals = [flat[k] for k in places.arrays]
        infos = [arrays.describe(a, name) for a, name in zip(originals, self._array_names, strict=True)]
        env = {**self._bound.env, **places.numbers(flat)}
        bound = replace(self._bound, infos=tuple(infos[: self._given]), env=env)
        graph = made.program.graph
        results.check_writes(graph, infos, self._array_names)
        everything = (*arguments.on_place(bound), *infos[self._given :])
        out = flat[places.out] if places.out is not None else None
        got = call.run(made.program, everything, made.family, made.place, env, results.given(graph, out, bound))
        return results.deliver(graph, got, env, out, originals)


class Apart:
    """A launch that writes into arrays of the caller, unless one of them overlaps another array at this call."""

    def __init__(self, quick: QuickCall, plain: PlainCall) -> None:
        self.quick, self._plain = quick, plain

    def __call__(self, flat: Sequence[Any]) -> Any:
        if self.quick.overlapping(flat):
            return self._plain(flat)
        return self.quick(flat)
