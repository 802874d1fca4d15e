"""A plan: which kernels a program becomes, what they move, and why.

In: a prepared graph, its groups and decisions, a size class and a device. Out: `Plan`, which answers `kernels`,
`bytes_moved`, `why`, and prints itself; kernels are compiled when first asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from fuser import accounting, dumps, planrecord
from fuser.decision import Decision
from fuser.device import Device
from fuser.dtypes import DType
from fuser.errors import NameResolutionError
from fuser.graph import Graph, InputAttrs, Node
from fuser.group import Group
from fuser.keys import SizeClass
from fuser.record import dataclass
from fuser.toolchain import Built, Toolchain

if TYPE_CHECKING:
    from fuser import building
    from fuser.naming import Names
    from fuser.schedule import Schedule
    from fuser.why import Answer


@dataclass(frozen=True)
class PlannedKernel:
    """One kernel (or library call) of a plan.

    label: K1, K2... or L1... reads/writes: bytes by variable name. predicted: estimates of the cost model (registers,
    microseconds...). built: the compiled kernels (a split reduction may take two), empty for a library call.
    """

    label: str
    group: Group
    schedule: Schedule | None
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    predicted: Mapping[str, float]
    lines: tuple[int, ...]
    operators: tuple[str, ...]
    built: tuple[Built, ...] = ()

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return sum(self.reads.values()) + sum(self.writes.values())

    @property
    def registers(self) -> int:
        """Compiled registers a thread; -1 where the target reports none."""
        return max((b.resources.registers for b in self.built), default=-1)

    @property
    def spills(self) -> int:
        """Bytes a thread spills; -1 where the target reports none."""
        return max((b.resources.spills for b in self.built), default=-1)

    @property
    def name(self) -> str:
        """The kernel's own name, as profilers show it."""
        return self.built[0].kernel.name if self.built else self.group.name


def _name_of(planned: tuple[Group, Any]) -> str:
    return planned[0].name


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of one program for one size class on one device.

    sizes: the dims that byte counts and times are computed for (those of the call, or representatives). tuned: measured
    schedules, by position of the group, instead of the formula's. cuda_graph: its launches are to be replayed as one.
    record: gives the key that it is kept under in the disk cache (None: it is not). recorded: its kernels as another
    process left them there, ready to be launched but without loops.
    """

    graph: Graph
    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...]
    size_class: SizeClass
    sizes: Mapping[str, Any]
    device: Device
    toolchain: Toolchain = field(repr=False)
    header: str = ""
    tuned: Mapping[int, Schedule] = field(default_factory=dict)
    cuda_graph: bool = False
    record: Callable[..., str] | None = field(default=None, repr=False)
    recorded: tuple[tuple[Built, ...], ...] | None = field(default=None, repr=False)

    @cached_property
    def names(self) -> Names:
        """The user's name of every node."""
        from fuser.naming import Names

        return Names(self.graph)

    @cached_property
    def schedules(self) -> tuple[Schedule | None, ...]:
        return tuple(None if g.library is not None else self._schedule(k) for k, g in enumerate(self.groups))

    def _schedule(self, position: int) -> Schedule:
        chosen = self.tuned.get(position)
        if chosen is None:
            chosen = self.toolchain.choose(self.graph, self.groups[position], self.size_class, self.device)
        return chosen

    @cached_property
    def compiled(self) -> tuple[building.Compiled | None, ...]:
        """Each group as it will run: the schedule that the compiler's report left standing, and its kernels."""
        from fuser import building, progress

        made = tuple(
            None if s is None else building.build(self.toolchain, self.graph, g, s, self.device, self.size_class)
            for g, s in progress.track(tuple(zip(self.groups, self.schedules, strict=True)), "compile", _name_of)
        )
        if dumps.wanted():
            vars(self)["compiled"] = made  # a plan's text asks for it
            dumps.write_plan(self)
        return made

    @property
    def built(self) -> tuple[tuple[Built, ...], ...]:
        """Compiled kernels of each group; none for a library call."""
        return tuple(() if c is None else c.built for c in self.compiled)

    @cached_property
    def launches(self) -> tuple[tuple[Built, ...], ...]:
        """What is launched for each group: kernels of an earlier process where a record has them, else compiled now and
        recorded."""
        if self.tuned:
            return self.built
        if self.recorded is not None:
            return self.recorded
        if self.record is not None:
            built = self.built  # what the key says of fuser's sources is found out meanwhile
            planrecord.save(self.record(), self)
            return built
        return self.built

    @property
    def replans(self) -> tuple[Decision, ...]:
        """Schedules given up because of what the compiler reported of their kernels."""
        return tuple(d for c in self.compiled if c is not None for d in c.replans)

    @cached_property
    def kernels(self) -> tuple[PlannedKernel, ...]:
        """All kernels, compiled, in launch order."""
        return tuple(self._describe(k, compiled) for k, compiled in enumerate(self.compiled))

    @cached_property
    def outline(self) -> tuple[PlannedKernel, ...]:
        """All kernels as planned, without compiling them."""
        return tuple(self._describe(k, None) for k in range(len(self.groups)))

    def _describe(self, position: int, compiled: building.Compiled | None) -> PlannedKernel:
        group, schedule = self.groups[position], self.schedules[position]
        built = () if compiled is None else compiled.built
        schedule = schedule if compiled is None else compiled.schedule
        library = group.library is not None
        number = sum((g.library is not None) == library for g in self.groups[: position + 1])
        members = [self.graph.by_id[m] for m in group.members]
        shown = [n for n in members if accounting.is_operator(n)]
        lines = sorted({s.line for n in members for s in self.graph.spans.get(n, ())[:1]})
        reads = accounting.group_reads(self.graph, group, self.sizes)
        writes = accounting.group_writes(self.graph, group, self.sizes)
        needs = max((b.resources.registers for b in built), default=0)
        known = (self.graph, group, schedule, self.sizes, self.device, max(needs, 0))
        predicted = dict(self.toolchain.estimate(*known))
        if (expected := max((b.resources.expected for b in built), default=-1)) > 0:
            predicted["registers"] = expected  # of the code itself: nearer than a guess from operators
        return PlannedKernel(
            f"{'L' if library else 'K'}{number}", group, schedule,
            {self.names[k]: v for k, v in reads.items()}, {self.names[k]: v for k, v in writes.items()},
            predicted, tuple(lines), tuple(n.op for n in shown), built,
        )  # fmt: skip

    @property
    def graph_refusal(self) -> str | None:
        """Why the launches are not replayed as a CUDA graph although that was asked for; None where they are."""
        if self.device.kind == "cpu":
            return "it runs on the CPU"
        from fuser.runtime import cublas

        others = [k.label for k in self.outline if self._library_dtype(k.group) not in (None, *cublas.KINDS)]
        if others:
            return f"{', '.join(others)} {'is no product' if len(others) == 1 else 'are no products'} of floats"
        returned = any(isinstance(n.attrs, InputAttrs) for n in self.graph.outputs)
        return "an argument is returned as it is" if returned else None

    @property
    def has_products(self) -> bool:
        """Whether some of the work is matrix products, done by a library."""
        return any(g.library is not None for g in self.groups)

    def _library_dtype(self, group: Group) -> DType | None:
        return self.graph.by_id[group.library].storage if group.library is not None else None

    # -- totals ------------------------------------------------------------------------------------
    @cached_property
    def bytes_moved(self) -> int:
        """Bytes that all kernels read and write."""
        return sum(
            sum(accounting.group_reads(self.graph, g, self.sizes).values())
            + sum(accounting.group_writes(self.graph, g, self.sizes).values())
            for g in self.groups
        )

    @cached_property
    def temporary_bytes(self) -> int:
        """Peak bytes of values that live between kernels only (workspaces of split reductions apart)."""
        return accounting.temporaries(self.graph, self.groups, self.sizes)

    @property
    def bytes_unfused(self) -> int:
        """Bytes when every operator runs alone."""
        return accounting.unfused(self.graph, self.sizes)[1]

    @property
    def kernels_unfused(self) -> int:
        return accounting.unfused(self.graph, self.sizes)[0]

    @property
    def bytes_floor(self) -> int:
        """Arguments read once, results written once."""
        return accounting.floor(self.graph, self.sizes)

    @cached_property
    def group_of(self) -> Mapping[int, int]:
        """Node id -> position of the (first) group that computes it."""
        out: dict[int, int] = {}
        for k, g in enumerate(self.groups):
            for m in g.members:
                out.setdefault(m, k)
        return out

    # -- answers -----------------------------------------------------------------------------------
    def node(self, spelling: str | int) -> Node:
        """A node by variable name, operator name or node id; NameResolutionError lists what is near or ambiguous."""
        found = self.names.find(spelling)
        if len(found) == 1:
            return found[0]
        if not found:
            raise NameResolutionError(
                f"no value is called `{spelling}`", "unknown-name", notes=self.names.near(spelling)
            )
        raise NameResolutionError(
            f"`{spelling}` names {len(found)} values", "ambiguous-name", notes=self.names.candidates(found)
        )

    def why(self, a: str | int, b: str | int) -> Answer:
        """Why two values share a kernel or do not, with the numbers the decision was made on."""
        from fuser.why import answer

        return answer(self, self.node(a), self.node(b))

    def explain(self) -> str:
        """The whole plan in words: every operator, every kernel, every reason."""
        from fuser.draw.text import render

        return render(self, full=True)

    def to_text(self) -> str:
        """What `--dump-graph` prints: in full for one kernel, in brief for several."""
        from fuser.draw.text import render

        return render(self)

    def to_json(self) -> dict[str, Any]:
        from fuser.draw.json import to_json

        return to_json(self)

    def to_dot(self) -> str:
        from fuser.draw.dot import to_dot

        return to_dot(self)

    def to_svg(self) -> str:
        """A picture: kernels as regions, lines as wide as their bytes; needs no script and no Graphviz."""
        from fuser.draw.svg import to_svg

        return to_svg(self)

    def to_html(self) -> str:
        """A page that works offline: source, graph and generated code, linked."""
        from fuser.draw.html import to_html

        return to_html(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        from fuser.draw.html import to_fragment

        return to_fragment(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan file that `check` and `diff` compare with (kernels by the names of their operators)."""
        from fuser import planfile

        planfile.save(self, path)

    def check(self, path: str | PathLike[str]) -> None:
        """Raise FusionLost, naming what changed, where this plan fuses less than the one saved at `path`."""
        from fuser import planfile

        planfile.check(self, planfile.load(path))

    def diff(self, path: str | PathLike[str]) -> str:
        """What differs from the plan saved at `path`, a line each; empty when nothing does."""
        from fuser import planfile

        return "\n".join(planfile.diff(self, planfile.load(path)))

    def sources(self) -> dict[str, str]:
        """Generated source of every kernel by kernel name (CUDA C, or LLVM IR)."""
        return {b.kernel.name: b.source() for built in self.built for b in built}

    def __str__(self) -> str:
        from fuser.draw.text import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"<fuser.Plan {self.graph.name}: {self}>"
