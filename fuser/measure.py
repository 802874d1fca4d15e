"""A call taken apart into steps that can be timed: what reports and tuning have in common.

In: a `Compiled` and the arguments of a call. Out: `Call`, whose bound programs run step by step under a stopwatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fuser import arguments, progress, trees
from fuser.record import dataclass
from fuser.runtime import call, stopwatch
from fuser.runtime.arrays import ArrayInfo

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.compiled import Compiled
    from fuser.plan import Plan
    from fuser.runtime.bound import BoundProgram
    from fuser.traces import Traced


@dataclass(frozen=True)
class Call:
    """A call that may be repeated: a program that stores into arguments works on copies of them."""

    compiled: Compiled
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    bound: Bound
    traced: Traced

    @property
    def captured(self) -> list[ArrayInfo]:
        graph = self.traced.graph
        return arguments.captured(self.bound, graph, self.compiled._source.captured(graph))

    def program(self, plan: Plan) -> BoundProgram:
        """A plan bound to this call's shapes."""
        return self.compiled._bind_plan(plan, self.bound, self.captured)

    def step_seconds(self, programs: Sequence[BoundProgram], samples: int) -> list[list[float]]:
        """Median seconds of every step of each program; the programs take turns, since clocks drift."""
        infos = (*arguments.on_place(self.bound), *self.captured)
        watches = [stopwatch.StepTimes(self.bound.place) for _ in programs]
        nothing = [None] * len(self.traced.graph.outputs)
        for _ in progress.track(range(samples), "time kernels"):
            for program, watch in zip(programs, watches, strict=True):
                call.run(program, infos, self.bound.family, self.bound.place, self.bound.env, nothing, watch)
        found = [watch.medians() for watch in watches]
        return [[f.get(k, 0.0) for k in range(len(p.steps))] for f, p in zip(found, programs, strict=True)]


def call_of(compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """The call `compiled(*args, **kwargs)`."""
    bound, traced = compiled._trace(args, kwargs)
    if traced.graph.effects:
        args, kwargs = trees.mapped(_copied, {"args": args, "kwargs": dict(kwargs)}).values()
        bound, traced = compiled._trace(args, kwargs)
    return Call(compiled, args, kwargs, bound, traced)


def _copied(value: Any) -> Any:
    return value.copy() if hasattr(value, "copy") else value.clone() if hasattr(value, "clone") else value


def by_kernel(plan: Plan, steps: Sequence[float]) -> list[float]:
    """Steps summed by the plan's kernels: a group may take two kernels, one over nothing is not launched."""
    left = list(steps)
    counts = [max(len(built), 1) for built in plan.built]
    left += [0.0] * (sum(counts) - len(left))
    out = []
    for count in counts:
        out.append(sum(left[:count]))
        del left[:count]
    return out
