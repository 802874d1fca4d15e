"""`f.report(...)`: a call measured, held against what the machine can do, and judged.

In: a `Compiled` and arguments. Out: `Report`: times, bytes, share of this machine's copy, and a verdict that says
what the time goes into. The judging is a function of plain numbers (`judge`), so that it can be tested without a
stopwatch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fuser import measure, progress, trees
from fuser.draw import facts, units
from fuser.draw.text import graph_line
from fuser.errors import FuserError
from fuser.record import dataclass
from fuser.runtime import pool, stopwatch
from fuser.runtime.arrays import CPU

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.compiled import Compiled
    from fuser.plan import Plan

Kind = Literal["launch", "library", "page-fault", "bandwidth", "issue"]
REFERENCE_SECONDS = 2.0  # the original function is timed beside it where one run takes no longer
SHORT_SECONDS = 20e-6
SHORTEST = 2e-7  # of a kernel that is told from the call around it
NEAR_COPY = 0.6  # of the copy rate: beyond, nothing but memory can be what holds a kernel up
MOST_A_FAULT = 2e-3  # seconds: zeroing a page of 2 MB on a slow machine
KEPT_BYTES = 1 << 30  # most bytes of results kept alive to see what fresh memory costs


@dataclass(frozen=True)
class KernelTime:
    """One kernel or library call: bytes it must move, median seconds, and the cost model's shares of its time."""

    label: str
    name: str
    nbytes: int
    seconds: float
    library: bool
    predicted: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Measured:
    """The numbers that a verdict is made of. faults: seconds of a call spent in first touches of pages."""

    call: float
    overhead: float
    faults: float
    copy_rate: float
    cache: int
    kernels: tuple[KernelTime, ...]


def judge(m: Measured) -> Kind:
    """What the time of a call goes into most."""
    if m.overhead > m.call / 2:
        return "launch"
    busy = sum(k.seconds for k in m.kernels)
    if sum(k.seconds for k in m.kernels if k.library) > busy / 2:
        return "library"
    if m.faults > 0.4 * m.call:
        return "page-fault"
    if not m.kernels:
        return "launch"
    main = max(m.kernels, key=lambda k: k.seconds)
    if main.nbytes > m.cache and main.rate > NEAR_COPY * m.copy_rate:
        return "bandwidth"
    compute = max(main.predicted.get("issue", 0.0), main.predicted.get("special", 0.0))
    if main.nbytes <= m.cache or compute >= main.predicted.get("memory", 1.0) or main.rate < m.copy_rate / 3:
        return "issue"
    return "bandwidth"


@dataclass(frozen=True)
class Report:
    """See the module's docstring; `str` is what people read, `to_json` what programs read. Times in seconds."""

    title: str
    device: str
    samples: int
    first: tuple[float, float] | None
    measured: Measured
    verdict: Kind
    kept: float | None
    reference: float | None
    launches: str | None = None  # whether they are replayed as a CUDA graph, where that was asked for
    widened: tuple[str, ...] = ()  # lines of the program that make f64 of narrower floats

    def __str__(self) -> str:
        m = self.measured
        lines = [f"{self.title}  {self.device}        median of {self.samples}", "  " + self._call_line()]
        lines += [f"  {k.label}  {units.size(k.nbytes)}  {self._rate(k)}" for k in m.kernels]
        if self.launches is not None:
            lines.append(f"  launches  {self.launches}")
        lines.append("  verdict  " + "; ".join([f"{self.verdict}-bound", *self._advice()]))
        lines += [f"           {line}" for line in self.widened]
        if self.reference is not None:
            lines.append(f"  vs numpy  {_time(self.reference)} ({units.digits(self.reference / m.call)}x)")
        return "\n".join(lines)

    __repr__ = __str__

    def _rate(self, k: KernelTime) -> str:
        """A kernel's time, and its bytes a second beside this machine's copy."""
        if k.seconds < SHORTEST:
            return "too short to be told from the call around it"
        if not k.nbytes:
            return _time(k.seconds)
        copy = self.measured.copy_rate
        share = f" = {k.rate / copy:.0%} of this machine's copy" if copy and not k.library else ""
        return f"{_time(k.seconds)}  {units.digits(k.rate / 1e9)} GB/s{share}"

    def _call_line(self) -> str:
        m = self.measured
        first = f"first call {self.first[0]:.2g} s (compile {self.first[1]:.2g})   " if self.first else ""
        return f"{first}call {_time(m.call)}, overhead {_time(m.overhead)}"

    def _advice(self) -> list[str]:
        m = self.measured
        found = {
            "launch": "the work is smaller than a call: give it larger arrays, or more of the program",
            "library": "more fusion can touch only the rest",
            "issue": "instructions, not memory: fast_math=True permits cheaper ones",
        }.get(self.verdict)
        advice = [found] if found else []
        if self.verdict == "page-fault":
            advice.append(f"~{_time(m.faults)} are page faults of the fresh output: pass out=")
        elif self.kept is not None and self.kept > 1.15 * m.call:
            advice.append(f"~{_time(self.kept - m.call)} more are page faults where results are kept: pass out=")
        return advice

    def to_json(self) -> dict[str, Any]:
        """All numbers, seconds and bytes."""
        return {"schema": 1, **asdict(self)}


def _time(seconds: float) -> str:
    return units.time(seconds * 1e6)


def report(compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any], samples: int) -> Report:
    """Measure `compiled(*args, **kwargs)`. A program that stores into arguments runs on copies of them."""
    subject = measure.call_of(compiled, args, kwargs)
    args, kwargs, bound = subject.args, subject.kwargs, subject.bound
    with progress.task("first call"):
        compiled(*args, **kwargs)
    plan = compiled.plan(*args, **kwargs)

    def once() -> Any:
        return compiled(*args, **kwargs)

    once()
    seconds = stopwatch.per_call(once, bound.place, samples)
    faults = _faults_a_call(once, _into(compiled, args, kwargs, once()), bound, seconds, samples)
    steps = subject.step_seconds([subject.program(plan)], samples)[0]
    total = sum(steps)
    if bound.place == CPU and seconds < SHORT_SECONDS and total:
        # Timing a step by itself costs more than the step: share out what a call takes beyond an empty one.
        scale = max(seconds - _call_floor(), 0.0) / total
        steps = [s * scale for s in steps]
    times = _kernel_times(plan, steps)
    busy = sum(k.seconds for k in times)
    host = stopwatch.host_per_call(once, bound.place, samples)
    overhead = max(seconds - busy, 0.0) if bound.place == CPU else min(host, seconds)
    if bound.place != CPU and busy > host:
        overhead = max(seconds - busy, 0.0)  # the device works while the host goes on
    rate = stopwatch.copy_rate(bound.place)
    measured = Measured(seconds, overhead, faults, rate, plan.device.l2, times)
    return Report(
        _title(compiled, bound), _device(plan, bound), samples, compiled.first_call, measured, judge(measured),
        _kept(once, bound), _reference(compiled, args, kwargs, bound), graph_line(plan) if plan.cuda_graph else None,
        tuple(facts.made_f64(plan)),
    )  # fmt: skip


@cache
def _call_floor() -> float:
    """Seconds of a call that does nothing to speak of: one kernel over one number."""
    import fuser

    nothing, number = fuser.compile("lambda x: x + 1"), np.ones(1)
    return stopwatch.per_call(lambda: nothing(number), CPU, 9)


def _into(compiled: Compiled, args: Any, kwargs: Any, results: Any) -> Callable[[], Any] | None:
    """The same call with results that exist already; None where it cannot be given any."""
    leaves = trees.flatten(results)[0]
    if not leaves or not all(getattr(leaf, "shape", ()) for leaf in leaves):
        return None

    def again() -> Any:
        return compiled(*args, out=results, **kwargs)

    try:
        again()
    except (FuserError, TypeError, ValueError):
        return None
    return again


def _faults_a_call(
    once: Callable[[], Any], again: Callable[[], Any] | None, bound: Bound, seconds: float, samples: int
) -> float:
    """Seconds of a call spent in first touches of pages: what it takes longer than into results that exist already;
    where that cannot be asked, from the system's count and what a small page costs. (A large one costs a hundred
    times that, and nothing says which they were.)"""
    if bound.place != CPU:
        return 0.0
    before = stopwatch.faults()
    for _ in range(4):
        once()
    count = (stopwatch.faults() - before) / 4
    if count < 1:
        return 0.0
    if again is None:
        return min(count * stopwatch.fault_seconds(), seconds)
    return min(max(seconds - stopwatch.per_call(again, bound.place, samples), 0.0), count * MOST_A_FAULT)


def _kernel_times(plan: Plan, steps: Sequence[float]) -> tuple[KernelTime, ...]:
    """Every kernel of the plan with its time."""
    return tuple(
        KernelTime(k.label, k.name, k.bytes_moved, seconds, k.group.library is not None, dict(k.predicted))
        for k, seconds in zip(plan.kernels, measure.by_kernel(plan, steps), strict=True)
    )


def _kept(once: Callable[[], Any], bound: Bound) -> float | None:
    """Median seconds of a call whose earlier results are still alive, so that it writes memory never touched before."""
    if bound.place != CPU:
        return None
    results = [once()]
    size = sum(getattr(leaf, "nbytes", 0) for leaf in trees.flatten(results)[0])
    count = min(5, KEPT_BYTES // max(size, 1))
    if size < 1 << 20 or count < 3:
        return None
    found = []
    for _ in range(count):
        start = time.perf_counter()
        results.append(once())
        found.append(time.perf_counter() - start)
    return stopwatch.median(found)


def _reference(compiled: Compiled, args: Any, kwargs: Any, bound: Bound) -> float | None:
    """Seconds of the original NumPy function, where there is one and it is quick enough to be asked."""
    original = getattr(compiled, "__wrapped__", None)
    if original is None or bound.family != "numpy":
        return None
    try:
        with progress.task("time NumPy"):
            start = time.perf_counter()
            original(*args, **kwargs)
            once = time.perf_counter() - start
    except Exception:  # a program that uses what only fuser has (fuser.ops on specs, DSL annotations)
        return None
    if once > REFERENCE_SECONDS:
        return once
    return stopwatch.per_call(lambda: original(*args, **kwargs), CPU, 3)


def _title(compiled: Compiled, bound: Bound) -> str:
    shown = [f"{i.dtype}[{', '.join(map(str, i.shape))}]" for i in bound.infos]
    return f"{compiled.__name__}  {' '.join(shown)}"


def _device(plan: Plan, bound: Bound) -> str:
    if bound.place == CPU:
        return f"cpu, {units.count(pool.num_threads(), 'thread')}"
    return plan.device.label
