"""`Compiled`: what `fuser.compile` gives back; a call is traced, planned, built and run at most once a key.

In: a source (Python function or `.fuse` function) and options. Out: results in kind. Three memos, one a key of
`fuser.keys`: traces by TraceKey (with guards), programs by SizeClass, and what the runtime keeps a launch.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuser import arguments, kernels, keys, planning, ranged, results
from fuser import device as devices
from fuser.arguments import Bound, Request
from fuser.construct.common import NeedsStatic
from fuser.device import Device
from fuser.errors import ArgumentError, CompileForbidden, DeviceError
from fuser.hostexpr import HostExpr, is_scalar_symbol
from fuser.longer import Longer
from fuser.plan import Plan
from fuser.quick import Roads, Ticket
from fuser.runtime import arrays, call, foreign
from fuser.runtime.arrays import ArrayInfo, Place
from fuser.runtime.quiet import collection_paused
from fuser.source import Options, Source, checked
from fuser.specs import ArraySpec, Spec
from fuser.toolchain import Toolchain
from fuser.traces import Launchable, Traced, classify, launch_key, may_store, reduced_lengths, static_dims

if TYPE_CHECKING:
    from fuser.report import Report
    from fuser.runtime.bound import BoundProgram
    from fuser.tuning import Trial, Tuned

METHODS = 16  # objects whose methods are kept compiled
LAUNCHES = 512  # bound programs kept a trace; binding again takes well under a millisecond


class Compiled:
    """A compiled function: call it as the original. One object serves all shapes, dtypes, devices and threads."""

    def __init__(self, source: Source, options: Options, toolchain: Callable[[], Toolchain]) -> None:
        self._signature = source.signature
        self._source, self._options, self._toolchain = source, checked(options, self._signature), toolchain
        self._static = frozenset(self._options.static_argnames)
        self._request = Request()
        self._traces, self._longer = dict[Any, list[Traced]](), Longer()
        self._lock = threading.RLock()
        self._specializations: dict[str, str] = {}
        self._roads = Roads(source.state, source.watch, options.cuda_graph)
        self._methods: list[tuple[Any, Compiled]] = []
        self.first_call: tuple[float, float] | None = None  # seconds of the last call that compiled; of compiling
        _all.add(self)
        self.__name__ = source.name
        original = source.reference()
        if inspect.isfunction(original):
            functools.update_wrapper(self, original)
        ranged.show(self)

    def __repr__(self) -> str:
        return f"<fuser.Compiled {self.__name__}>"

    def with_options(self, **changes: Any) -> Compiled:
        """The same function compiled with some options changed (`device`, `fast_math`, ...)."""
        return Compiled(self._source, replace(self._options, **changes), self._toolchain)

    def __get__(self, owner: Any, kind: type | None = None) -> Compiled:
        """As a method: compiled once for each object, whose attributes are read as globals are."""
        if owner is None or not inspect.isfunction(self._source.reference()):
            return self
        with self._lock:
            known = next((m for o, m in self._methods if o is owner), None)
            if known is None:
                known = Compiled(self._source.bound_to(owner), self._options, self._toolchain)
                self._methods = [(owner, known), *self._methods][:METHODS]
            return known

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where a module has this very object under it; else its source and options."""
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in getattr(self, "__qualname__", self.__name__).split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(self.__qualname__)
        return _restored, (*self._source.pickled(), self._options, self._toolchain)

    def __copy__(self, memo: Any = None) -> Compiled:
        return self

    __deepcopy__ = __copy__

    @property
    def specializations(self) -> dict[str, str]:
        """Scalars and dims that became static, and the line that asked for it."""
        return dict(self._specializations)

    # -- calling -----------------------------------------------------------------------------------
    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on arrays of NumPy (CPU), CuPy or torch; `out` receives the result(s) and is returned."""
        roads = self._roads
        answer = roads.native(*args) if out is None and not kwargs else roads.named(args, kwargs, out)
        if answer is not NotImplemented:
            return answer
        if self._traces:
            return self._other_roads(args, kwargs, out)
        with collection_paused():  # the first call imports and makes much that stays
            return self._other_roads(args, kwargs, out)

    def _other_roads(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        """A call that native code does not take."""
        roads = self._roads
        if out is None and not kwargs and (answer := roads.foreign(args)) is not NotImplemented:
            return answer
        ticket = roads.ticket(args, kwargs, out)
        if ticket is not None:
            if (known := roads.find(ticket)) is not None:
                return known(ticket.flat)
        elif out is None:
            given = foreign.call(self, roads, args, kwargs, may_store(self._traces))
            if given is not NotImplemented:
                return given
        return self._long_road(args, kwargs, out, ticket)

    def _long_road(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any, ticket: Ticket | None) -> Any:
        """Bind, trace, plan, build and run; learn the short road for calls of this kind."""
        if (blocks := arguments.dask_road(args, kwargs)) is not None:
            return blocks.call(self, args, kwargs, out)
        start, built_before = time.perf_counter(), kernels.compile_seconds()
        bound, traced = self._trace(args, kwargs)
        captured = arguments.captured(bound, traced.graph, self._source.captured(traced.graph))
        infos = (*bound.infos, *captured)
        results.require_contiguous(traced.graph, bound)
        if self._options.tune:
            self._tune_once(args, kwargs, bound, traced)
        results.check_writes(traced.graph, infos, arguments.array_names(bound, len(captured)))
        launchable = self._launchable(bound, traced, captured)
        graph = launchable.program.graph
        given = results.given(graph, out, bound)
        everything = (*arguments.on_place(bound), *captured)
        got = call.run(launchable.program, everything, bound.family, bound.place, bound.env, given)
        compiling = kernels.compile_seconds() - built_before
        if compiling or self.first_call is None:
            self.first_call = (time.perf_counter() - start, compiling)
        if ticket is not None:
            self._roads.learn(ticket, args, self._signature, bound, traced, launchable)
        return results.deliver(graph, got, bound.env, out, _originals(bound, captured))

    def _launchable(self, bound: Bound, traced: Traced, captured: Sequence[ArrayInfo]) -> Launchable:
        """The call's bound program, kept by launch key."""
        device = self._device_of(bound)
        _require_here(device, bound.place)
        key = (launch_key(bound, traced, captured), device.name)
        kept = traced.launches.get(key)
        if kept is None:
            program = self._bind_plan(self._plan_for(bound, traced, device, to_run=True), bound, captured)
            if len(traced.launches) >= LAUNCHES:
                traced.launches.clear()
            kept = traced.launches[key] = Launchable(program, bound.family, bound.place)
        return kept

    def _bind_plan(self, plan: Plan, bound: Bound, captured: Sequence[ArrayInfo]) -> BoundProgram:
        """A plan's kernels, compiled, bound to the call's shapes."""
        with self._lock:  # one thread compiles; the others find its kernels
            try:
                steps = tuple(zip(plan.groups, plan.launches, strict=True))
            except CompileForbidden as error:
                given = arguments.as_specs(bound, self._source.signature)
                error.with_context(notes=[f"the call: {self.__name__}.warm({given}, device={plan.device.name!r})"])
                raise
        return call.bind(plan.graph, steps, bound.place, _with_strides(bound, (*bound.infos, *captured)))

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], lift: bool = False) -> Bound:
        values = self._arguments(args, kwargs)
        values.apply_defaults()
        device = self._options.device or ""
        return arguments.bind(values.arguments, self._static, self._request, device, self._source.dim_names, lift)

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Arguments by the names of their parameters."""
        try:
            return self._source.signature.bind(*args, **kwargs)  # its defaults may have been replaced
        except TypeError as error:
            raise ArgumentError(f"{self.__name__}{self._signature}: {error}", "call-signature") from None

    def _trace(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Bound, Traced]:
        """The call's trace, made if no kept one fits; scalars and dims are specialised on demand."""
        lift = True
        while True:
            bound = self._bind(args, kwargs, lift)
            key = (bound.key, self._source.state(bound.statics))
            if bound.lone:
                with self._lock:
                    if longer := self._longer.find(bound, key, self._traces.setdefault(key, []), self._trace_once):
                        return bound, longer
                lift = False
                continue
            kept = self._traces.get(key, ())
            for traced in kept:
                if traced.fits(bound.env):
                    return bound, traced
            with self._lock:
                if self._traces.get(key, ()) is not kept and any(t.fits(bound.env) for t in self._traces[key]):
                    continue  # another thread was faster
                try:
                    traced = self._retrace(bound, kept)
                except NeedsStatic as wanted:
                    self._specialize(wanted, bound)
                    continue
                self._traces.setdefault(key, []).append(traced)
                return bound, traced

    def _specialize(self, wanted: NeedsStatic, bound: Bound) -> None:
        """Make the scalars and dims of an expression static from now on; `wanted` itself if they are so already."""
        scalars = {s.lstrip("=") for s in wanted.expr.symbols if is_scalar_symbol(s)}
        dims = {s for s in wanted.expr.symbols if not is_scalar_symbol(s)}
        known = self._request
        if scalars <= known.scalars and dims <= known.dims:
            raise wanted
        self._request = Request(known.scalars | scalars, known.dims | dims)
        line = wanted.spans[0].where if wanted.spans else ""
        self._specializations.update(dict.fromkeys((*scalars, *dims), line))

    def _retrace(self, bound: Bound, kept: Sequence[Traced]) -> Traced:
        """Trace with symbolic dims; where a guard of that fails for this very call, with all dims static."""
        symbolic = not kept
        if symbolic:
            traced = self._trace_once(bound, {})
            if traced.fits(bound.env):
                return traced
        dims = {
            d.value: int(bound.env[d.value])
            for s in bound.specs
            if isinstance(s, ArraySpec)
            for d in s.shape
            if isinstance(d, HostExpr)
        }
        return self._trace_once(bound, dims)

    def _trace_once(self, bound: Bound, dims: Mapping[str, int]) -> Traced:
        specs = [_static_dims(s, dims) for s in bound.specs]
        graph = self._source.trace(bound.names, specs, bound.tree, bound.env)
        prepared = self._toolchain().prepare(graph, rounding=self._options.rounding, fast_math=self._options.fast_math)
        more = static_dims(prepared, bound.env, dims)
        return Traced(prepared, dims, reduced_lengths(prepared)) if more == dims else self._trace_once(bound, more)

    # -- planning ----------------------------------------------------------------------------------
    def _device_of(self, bound: Bound) -> Device:
        if self._options.device is not None:
            return self._resolve(self._options.device, bound.place)
        return _place_device(bound.place)

    def _resolve(self, name: str, place: Place) -> Device:
        if name == "cuda":
            from fuser.runtime import cuda

            cuda.require()
            return _place_device(place if place.kind == "cuda" else Place("cuda"))
        return devices.find(name)

    def _plan_for(self, bound: Bound, traced: Traced, device: Device, to_run: bool = False) -> Plan:
        size_class = classify(bound, traced)
        key = (size_class, device.name)
        plan = traced.plans.get(key)
        if plan is None:
            with self._lock:
                plan = traced.plans.get(key)
                if plan is None:
                    head, tools = str(self._signature), self._toolchain()
                    known = (traced, size_class, device, bound.env, self._options, head, tools)
                    plan = traced.plans[key] = planning.make(*known, to_run=to_run)
        return plan

    def plan(self, *args: Any, device: str | None = None, **kwargs: Any) -> Plan:
        """The plan for arrays or specs such as `"f32[n, 4096]"`; `device` "cpu", "cuda" or "sm_90" (no GPU needed)."""
        return self._plan_of(args, kwargs, device)

    def _plan_of(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], device: str | None, to_run: bool = False
    ) -> Plan:
        given = self._arguments(args, kwargs)
        for parameter in [p for p in given.arguments if p not in self._static]:
            given.arguments[parameter] = arrays.from_specs(given.arguments[parameter])
        bound, traced = self._trace(given.args, given.kwargs)
        name = device or self._options.device
        place_device = self._resolve(name, bound.place) if name else self._device_of(bound)
        plan = self._plan_for(bound, traced, place_device, to_run)
        return replace(plan, sizes={**plan.sizes, **bound.env})

    def report(self, *args: Any, samples: int = 20, **kwargs: Any) -> Report:
        """Measure a call: median time, bytes, share of this machine's copy, and a verdict on what the time goes
        into."""
        from fuser.report import report

        return report(self, args, kwargs, samples)

    def warm(self, *specs: Any, device: str | None = None, **kwargs: Any) -> Plan:
        """Plan and compile ahead for arrays or specs such as `"f32[8192, 4096]"`, so that a call (here, or through
        the disk cache in another process) finds its kernels; returns the plan. Sizes count by their power-of-two
        bucket."""
        plan = self._plan_of(specs, kwargs, device, to_run=True)
        with self._lock:
            plan.launches  # noqa: B018 - compiles
        return plan

    def tune(self, *args: Any, say: Callable[[Trial], None] | None = None, **kwargs: Any) -> Tuned:
        """Measure schedules beside the formula's on these arguments and keep the fastest, here and in the disk cache
        for this model of machine. Results keep their bits. `say` is told of each schedule measured."""
        from fuser import tuning

        tuned = tuning.tune(self, args, kwargs, say)
        bound, traced = self._trace(args, kwargs)
        self._adopt(tuned.plan, bound, traced)
        return tuned

    def _tune_once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Bound, traced: Traced) -> None:
        """`tune=True`: the first call of a size class takes up what is known of it, or measures."""
        from fuser import tuning

        key = (classify(bound, traced), self._device_of(bound).name)
        with self._lock:
            if key not in traced.tuned:
                plan = self._plan_for(bound, traced, self._device_of(bound))
                found = tuning.recall(plan) or tuning.tune(self, args, kwargs, None)
                self._adopt(found.plan, bound, traced)

    def _adopt(self, plan: Plan, bound: Bound, traced: Traced) -> None:
        """Run this plan from now on for calls of its size class."""
        with self._lock:
            key = (plan.size_class, plan.device.name)
            traced.plans[key] = plan
            traced.tuned.add(key)
            traced.launches.clear()
            self._roads.reset()

    # -- trust -------------------------------------------------------------------------------------
    def check(self, *args: Any, rtol: float | None = None, **kwargs: Any) -> Any:
        """Run on copies, and compare every result with the reference; CheckFailed says where and by how much.

        rtol: relative difference that floats may have, instead of their dtype's (`fuser.check.RTOL`). Returns a verdict
        for each result, and for each argument that is stored into.
        """
        from fuser.check import compare

        return compare(self, args, kwargs, rtol)

    @property
    def reference(self) -> Callable[..., Any]:
        """The uncompiled meaning: evaluates the same graph node by node with NumPy."""
        return functools.partial(_reference_call, self)


def _restored(source: Callable[..., Source], facts: tuple[Any, ...], options: Options, tools: Any) -> Compiled:
    """A pickled function again."""
    return Compiled(source(*facts), options, tools)


def _reference_call(compiled: Compiled, *args: Any, **kwargs: Any) -> Any:
    from fuser.check import reference_results

    return reference_results(compiled, args, kwargs)


def _originals(bound: Bound, captured: Sequence[ArrayInfo]) -> list[Any]:
    """The call's arrays as the caller holds them, in graph order."""
    given = [leaf for leaf, s in zip(bound.leaves, bound.specs, strict=True) if isinstance(s, ArraySpec)]
    return [*given, *(i.base for i in captured)]


_all: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _after_fork() -> None:
    """Locks may have been held by threads that the child does not have."""
    for compiled in list(_all):
        compiled._lock = threading.RLock()
        compiled._roads.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _with_strides(bound: Bound, infos: Sequence[ArrayInfo]) -> dict[str, Any]:
    env = dict(bound.env)
    for position, info in enumerate(infos):
        for axis, s in enumerate(info.strides):
            env[keys.stride_symbol(position, axis)] = s
    return env


def _static_dims(spec: Spec, dims: Mapping[str, int]) -> Spec:
    if not dims or not isinstance(spec, ArraySpec):
        return spec
    return replace(spec, shape=tuple(dims.get(d.value, d) if isinstance(d, HostExpr) else d for d in spec.shape))


def _require_here(device: Device, place: Place) -> None:
    """Refuse to run kernels of one device on another one's memory."""
    if device.kind != place.kind or (device.kind == "cuda" and device.name != _place_device(place).name):
        raise DeviceError(
            f"`{device.name}` was asked for, but the arrays are on {place}",
            "wrong-device",
            notes=["omit device= to run where the arrays are, or move them", "to plan only: f.plan(..., device=...)"],
        )


def _place_device(place: Place) -> Device:
    if place.kind == "cpu":
        return devices.find("cpu")
    from fuser.runtime import cuda

    return devices.find(cuda.architecture(place.ordinal))
