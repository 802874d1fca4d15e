"""The short road of a call: arguments seen before in kind go from a key straight to the launches.

In: the arguments of a call. Out: results, with none of the binding, tracing and planning looked at again. Three roads,
fastest first: `native` (one built-in function), a launch made for the call's kind (`CpuCall`, `CudaCall`), and
`PlainCall`, which runs any bound program on freshly described arrays (`launches` chooses).
Everything else (nested arguments, unhashable ones) takes the long road, which is also where a key is learned.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fuser.callkey import NUMBERS, key_of
from fuser.hostexpr import is_scalar_symbol
from fuser.launches import (
    Apart,
    Launch,
    PlainCall,
    QuickCall,
    launch_for,
    library_watches,
    native_entry_of,
    python_only,
)
from fuser.record import dataclass
from fuser.runtime import arrays
from fuser.runtime.arrays import CPU
from fuser.runtime.quickcpu import CpuCall, Places
from fuser.specs import ArraySpec, ScalarSpec

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.runtime.native_entry import Road
    from fuser.runtime.quickcuda import CudaCall
    from fuser.traces import Launchable, Traced

KINDS = 512  # kinds of calls remembered; beyond, all are forgotten and learned again
ForeignCall = Callable[[Sequence[Any]], Any]
SOON = 8  # calls of a kind after which a process takes the time to load its native road


def miss(*args: Any) -> Any:
    """A native road that fits nothing."""
    return NotImplemented


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
        self._early = iter(range(1, SOON))  # calls that do without native code
        self._captured: tuple[Callable[[], Any], ...] = ()
        self._native: dict[tuple[tuple[str, ...], bool], Road] = {}
        self._foreign: dict[Any, ForeignCall] = {}
        self._key_of_foreign: Callable[[Sequence[Any]], Any] | None = None
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
        self._native, self._table, self._foreign, self._watch = {}, {}, {}, None
        self._key_of_foreign = None

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
        where there is none. What `native` is for launches that native code never takes."""
        watch = self._watch
        if watch is None or watch is self._state or self._captured or not watch():
            return NotImplemented
        key = key_of(args, self._by_value)
        known = self._table.get(key) if key is not None else None
        return known(args) if known is not None else NotImplemented

    def foreign(self, args: Sequence[Any]) -> Any:
        """The answer of a call with another library's arrays, of a kind learned before and if nothing read from outside
        has changed since; NotImplemented for others."""
        if self._key_of_foreign is None:
            return NotImplemented
        known = self._foreign.get(self._key_of_foreign(args))
        if known is None or self._watch is None or not self._watch():
            return NotImplemented
        return known(args)

    def learn_foreign(self, key_of: Callable[[Sequence[Any]], Any], args: Sequence[Any], call: ForeignCall) -> None:
        """Remember such a call, if it is told by the types of its numbers and reads no arrays from outside."""
        with self._lock:
            if self._by_value or self._captured or self._watch is None or self._watch is self._state:
                return
            if len(self._foreign) >= KINDS:
                self._foreign = {}
            self._foreign[key_of(args)] = call
            self._key_of_foreign = key_of

    def device_launch(self, args: Sequence[Any]) -> CudaCall | None:
        """The launch on a GPU learned for positional arguments."""
        key = None if self._captured else key_of(args, self._by_value)
        known = self._table.get(key) if key is not None else None
        from fuser.runtime.quickcuda import CudaCall

        return known if isinstance(known, CudaCall) and known.plan is not None else None

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
        quick = known.quick if isinstance(known, Apart) else known
        if quick is not None and not isinstance(quick, PlainCall) and not self._captured:
            self._go_native(quick, ticket)
        return known

    def _go_native(self, known: QuickCall, ticket: Ticket) -> None:
        """A call that native code could have taken, but did not know (or no longer did)."""
        if isinstance(known, CpuCall) and known.products:
            return  # NumPy multiplies
        known.misses += 1
        if known.misses & (known.misses - 1) or self._by_value or not hasattr(ticket.watch, "entries"):
            return  # now and then only: a road may be too short for all kinds of calls that take turns
        from fuser.runtime import native_entry

        waits = isinstance(known, CpuCall) and known.misses < SOON  # calls on a GPU waited before they were learned
        if waits and not native_entry.loaded(known.torch):
            return
        if not native_entry.usable(known.torch):
            return
        kind, entry = native_entry_of(known, ticket.flat)
        if entry is None:
            return
        with self._lock:
            if self._watch is not ticket.watch:
                return
            form = (ticket.names, ticket.has_out)
            road = self._native.get(form)
            if road is None or road.name != kind:  # a function that goes from one device to another starts again
                watches = [*ticket.watch.entries(native_entry.NOTHING), *library_watches(known)]
                road = self._native[form] = native_entry.Road(watches, kind)
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
        if made.place != CPU and not self._graphs and next(self._early, None) and not _has_native_code():
            return  # a program that is called once on a GPU should not wait for it
        launch = launch_for(ticket.flat, places, bound, made, self._graphs)
        with self._lock:
            if self._watch is ticket.watch:  # else what was traced may be of the past
                if len(self._table) >= KINDS:
                    self._table = {}
                self._table[ticket.key] = launch
                if self.native is miss and python_only(launch):
                    self.native = self.direct


def _has_native_code() -> bool:
    native = sys.modules.get("fuser.runtime.native_entry")
    return native is not None and bool(native.loaded())


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
        elif position is not None and type(ticket.flat[position]) in NUMBERS:
            by_value = True
    end = len(ticket.flat) - captured
    out = end - 1 if ticket.has_out else None
    array_places += range(end, len(ticket.flat))
    return Places(tuple(array_places), tuple(scalars), tuple(fixed), out, tuple(complexes)), by_value
