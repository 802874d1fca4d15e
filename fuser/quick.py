"""The short road of a call: arguments seen before in kind go from a key straight to the launches.

In: the arguments of a call. Out: results, with none of the binding, tracing and planning looked at again. Three roads,
fastest first: `native` (one built-in function; NumPy arrays and Python numbers, all positional), a launch made for the
call's kind (`CpuCall`, `CudaCall`), and `PlainCall`, which runs any bound program on freshly described arrays.
Everything else (nested arguments, unhashable ones) takes the long road, which is also where a key is learned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from fuser import arguments, results, trees
from fuser.hostexpr import is_scalar_symbol
from fuser.record import dataclass
from fuser.runtime import arrays, call, quickcpu
from fuser.runtime.arrays import CPU
from fuser.runtime.quickcpu import CpuCall, Places, address
from fuser.specs import ArraySpec, ScalarSpec

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.runtime.native_entry import Road
    from fuser.runtime.quickcuda import CudaCall
    from fuser.traces import Launchable, Traced

KINDS = 512  # kinds of calls remembered; beyond, all are forgotten and learned again

QuickCall: TypeAlias = "CpuCall | CudaCall"
SOON = 8  # calls of a kind after which a process takes the time to load its native road

Launch: TypeAlias = "QuickCall | PlainCall | _Apart"


def miss(*args: Any) -> Any:
    """A native road that fits nothing."""
    return NotImplemented


# -- keys --------------------------------------------------------------------------------------------
_ALIGNED_WRITEABLE = 0x500


def _numpy_part(a: Any) -> Any:
    return a.dtype, a.shape, a.strides, address(a) & 15, a.flags.num & _ALIGNED_WRITEABLE


def _cupy_part(a: Any) -> Any:
    return a.dtype.char, a.shape, a.strides, a.data.ptr & 15, a.data.device_id


def _torch_part(a: Any) -> Any:
    if a.requires_grad:
        return None  # an error or not, by torch's grad mode: the long road looks
    return a.dtype, a.shape, a.stride(), a.data_ptr() & 15, a.device


def _value_part(a: Any) -> Any:
    return type(a), a


_NUMBERS = (int, float, complex)
_PARTS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _numpy_part, float: type, int: type, complex: type, bool: _value_part, str: _value_part,
    type(None): _value_part,
}  # fmt: skip


def _part_of(kind: type) -> Callable[[Any], Any] | None:
    """How to take the key of an argument of a type not seen before."""
    name = (kind.__module__.partition(".")[0], kind.__qualname__)
    if issubclass(kind, np.generic):
        found: Callable[[Any], Any] = type
    elif name == ("cupy", "ndarray"):
        found = _cupy_part
    elif name in (("torch", "Tensor"), ("torch", "Parameter")):
        found = _torch_part
    else:
        return None
    _PARTS[kind] = found
    return found


def key_of(args: Sequence[Any], by_value: bool) -> tuple[Any, ...] | None:
    """What a call's program depends on; None where some argument is not plain. `by_value`: numbers count too."""
    parts: list[Any] = []
    for a in args:
        kind = type(a)
        part = _PARTS.get(kind) or _part_of(kind)
        if part is None:
            return None
        value = part(a)
        if value is None:
            return None
        parts.append(value)
        if by_value and kind in _NUMBERS:
            parts.append(repr(a))
    return tuple(parts)


@dataclass(frozen=True)
class Ticket:
    """A call by its flat arguments (positional, by keyword, captured, `out`), its key, and the test taken before it."""

    names: tuple[str, ...]
    flat: tuple[Any, ...]
    key: Any
    has_out: bool
    watch: Any


class Watch(Protocol):
    """A cheap test that nothing a program reads from outside has changed; `entries` is the same for native code."""

    def __call__(self) -> bool: ...
    def entries(self, nothing: Any) -> Sequence[tuple[int, Any, Any, Any]]: ...


class Always:
    """The watch of a program that reads nothing from outside."""

    def __call__(self) -> bool:
        return True

    def entries(self, nothing: Any) -> Sequence[tuple[int, Any, Any, Any]]:
        return ()


class Roads:
    """What one compiled function has learned. Readers take no lock; writers do."""

    def __init__(self, state: Callable[[], Any], watch: Callable[[], Any], graphs: bool = False) -> None:
        self._state, self._make_watch, self._graphs = state, watch, graphs
        self._watch: Any = None
        self._table: dict[Any, Launch] = {}
        self._by_value = False
        self._captured: tuple[Callable[[], Any], ...] = ()
        self._native: dict[tuple[tuple[str, ...], bool], Road] = {}
        self._lock = threading.Lock()
        self.native: Callable[..., Any] = miss

    def reset(self) -> None:
        """Forget everything (something that the program reads from outside has changed)."""
        with self._lock:
            self._forget()

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def _forget(self) -> None:
        self.native = miss
        for road in self._native.values():
            road.close()
        self._native, self._table, self._watch = {}, {}, None

    def ticket(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Ticket | None:
        """The call's ticket; None where it can only go the long road. Taken before anything is traced."""
        watch = self._watch
        if watch is None:
            watch = self._watch = self._make_watch() or self._state
        elif watch is not self._state and not watch():
            self.reset()
            watch = self._watch = self._make_watch() or self._state
        names = tuple(kwargs)
        flat = (*args, *kwargs.values()) if kwargs else args
        if out is not None:
            if not arrays.is_array(out):
                return None
            flat = (*flat, out)
        if self._captured:
            flat = (*flat, *(get() for get in self._captured))
        key: Any = key_of(flat, self._by_value)
        if key is None:
            return None
        if names or out is not None:
            key = (key, names, out is not None)
        if watch is self._state:
            key = (key, watch())
        return Ticket(names, flat, key, out is not None, watch)

    def direct(self, *args: Any) -> Any:
        """A launch learned for positional arguments, found and started with nothing made on the way; NotImplemented
        where there is none. What `native` is for torch's tensors, into which native code does not look."""
        watch = self._watch
        if watch is None or watch is self._state or self._captured or not watch():
            return NotImplemented
        key = key_of(args, self._by_value)
        known = self._table.get(key) if key is not None else None
        return known(args) if known is not None else NotImplemented

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        """The native road of a call with keyword arguments or `out`; NotImplemented where it does not fit."""
        road = self._native.get((tuple(kwargs), out is not None))
        if road is None:
            return NotImplemented
        flat = (*args, *kwargs.values())
        return road.call(*flat) if out is None else road.call(*flat, out)

    def find(self, ticket: Ticket) -> Launch | None:
        """The launch learned for a ticket."""
        known = self._table.get(ticket.key)
        quick = known.quick if isinstance(known, _Apart) else known
        if quick is not None and not isinstance(quick, PlainCall) and not self._captured:
            self._go_native(quick, ticket)
        return known

    def _go_native(self, known: QuickCall, ticket: Ticket) -> None:
        """A call that native code could have taken, but did not know (or no longer did)."""
        known.misses += 1
        if known.misses & (known.misses - 1) or self._by_value or not hasattr(ticket.watch, "entries"):
            return  # now and then only: a road may be too short for all kinds of calls that take turns
        from fuser.runtime import native_entry

        if known.misses < SOON and not native_entry.loaded():
            return
        if not native_entry.usable():
            return
        kind, entry = _native_entry(known, ticket.flat)
        if entry is None:
            return
        with self._lock:
            if self._watch is not ticket.watch:
                return
            form = (ticket.names, ticket.has_out)
            road = self._native.get(form)
            if road is None or road.name != kind:  # a function that goes from one device to another starts again
                road = self._native[form] = native_entry.Road(ticket.watch.entries(native_entry.NOTHING), kind)
            road.add(entry)
            if form == ((), False):
                self.native = road.call

    def learn(
        self, ticket: Ticket, args: tuple[Any, ...], signature: Any, bound: Bound, traced: Traced, made: Launchable
    ) -> None:
        """Remember how to run calls like this one."""
        captured = tuple(getattr(traced.graph.output_tree, "captured", ()))
        if captured != self._captured:
            with self._lock:
                if not self._captured:  # the key must include them from now on
                    self._forget()
                    self._captured = captured
            return
        placed = _places(ticket, len(args), signature, bound, len(captured))
        if placed is None:
            return
        places, needs_value = placed
        guarded = any(is_scalar_symbol(s) for g in traced.graph.guards for s in (*g.left.symbols, *g.right.symbols))
        if (needs_value or guarded) and not self._by_value:
            with self._lock:
                self._forget()
                self._by_value = True
            return
        launch = _launch(ticket, places, bound, made, self._graphs)
        with self._lock:
            if self._watch is ticket.watch:  # else what was traced may be of the past
                if len(self._table) >= KINDS:
                    self._table = {}
                self._table[ticket.key] = launch
                if getattr(launch, "torch", False) and self.native is miss:
                    self.native = self.direct


def _places(ticket: Ticket, positional: int, signature: Any, bound: Bound, captured: int) -> tuple[Places, bool] | None:
    """Where the program's inputs are in the flat arguments, and whether a number among them is static."""
    parameters = list(signature.parameters.values())[:positional]
    if len(parameters) < positional or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return None
    at = {name: k for k, name in enumerate((*(p.name for p in parameters), *ticket.names))}
    if not set(at) <= set(bound.names):
        return None
    array_places: list[int] = []
    scalars: list[tuple[int, str]] = []
    fixed: list[tuple[str, Any]] = []
    complexes: list[tuple[int, tuple[str, str]]] = []
    by_value = False
    for name, spec in zip(bound.names, bound.specs, strict=True):
        position = at.get(name)
        if isinstance(spec, ArraySpec):
            if position is None:
                return None
            array_places.append(position)
        elif isinstance(spec, ScalarSpec) and spec.kind == "complex":
            parts = (f"={name}.real", f"={name}.imag")
            if position is None:
                fixed += [(p, bound.env[p]) for p in parts]
            else:
                complexes.append((position, parts))
        elif isinstance(spec, ScalarSpec):
            if position is None:
                fixed.append((f"={name}", bound.env[f"={name}"]))
            else:
                scalars.append((position, f"={name}"))
        elif position is not None and type(ticket.flat[position]) in _NUMBERS:
            by_value = True
    end = len(ticket.flat) - captured
    out = end - 1 if ticket.has_out else None
    array_places += range(end, len(ticket.flat))
    return Places(tuple(array_places), tuple(scalars), tuple(fixed), out, tuple(complexes)), by_value


def _native_entry(known: QuickCall, flat: Sequence[Any]) -> tuple[Any, Any]:
    """The native road's name and its entry for calls like this one; None where it has none."""
    if isinstance(known, CpuCall):
        from fuser.runtime import native_cpu

        return "road", native_cpu.entry(known, flat)
    if known.torch:
        return "device_road", None
    from fuser.runtime import native_cupy

    return "device_road", native_cupy.entry(known, flat)


def _launch(ticket: Ticket, places: Places, bound: Bound, made: Launchable, graphs: bool) -> Launch:
    """The fastest launch for calls of a kind."""
    plain = PlainCall(bound, places, made)
    program, graph = made.program, made.program.graph
    finish = _finish(graph, bound, places)
    if not quickcpu.suits(program) or finish is NotImplemented:
        return plain
    inputs = [ticket.flat[k] for k in places.arrays]
    written = {places.arrays[e.argument] for e in graph.effects}
    if made.place == CPU and made.family == "numpy":
        if not all(map(_as_it_lies, inputs)) or any(type(ticket.flat[k]) is not np.ndarray for k in written):
            return plain
        if places.out is not None and not _out_fits(ticket.flat[places.out], program):
            return plain
        quick = CpuCall(program, places, results.returned_arguments(graph), finish)
        return _Apart(quick, plain) if quick.pairs else quick
    if made.place != CPU:
        from fuser.runtime.quickcuda import CudaCall

        fits = places.out is None or _device_out_fits(ticket.flat[places.out], made)
        if fits and CudaCall.suits(made, inputs):
            device = CudaCall(made, places, results.returned_arguments(graph), finish, ticket.flat, graphs)
            return _Apart(device, plain) if device.pairs else device
    return plain


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


def _device_out_fits(out: Any, made: Launchable) -> bool:
    """Whether kernels can write the only result straight into an array on a device."""
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


class _Apart:
    """A launch that writes into arrays of the caller, unless one of them overlaps another array at this call."""

    def __init__(self, quick: QuickCall, plain: PlainCall) -> None:
        self.quick, self._plain = quick, plain

    def __call__(self, flat: Sequence[Any]) -> Any:
        if self.quick.overlapping(flat):
            return self._plain(flat)
        return self.quick(flat)
