"""What the core needs of the front ends, the passes and the code generators, as one record of functions.

In: `fuser.wiring` fills it (the only place that knows all sides). Out: `compiled`, `plan` and `runtime.call` use it,
so that they need import none of those packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.decision import Decision
    from fuser.device import Device
    from fuser.graph import Graph
    from fuser.group import Group
    from fuser.keys import SizeClass
    from fuser.schedule import Schedule


@dataclass(frozen=True)
class Resources:
    """What a compiler reported of a kernel, and the registers that were expected of its code; -1 where there is
    nothing to report (CPU).
    """

    registers: int = -1
    spills: int = -1
    stack: int = -1
    shared: int = -1
    expected: int = -1


ZEROED, RESTORED = ("counter", "flags", "slots"), ("counter", "slots")  # roles: zero before a launch, and after it


class BufferLike(Protocol):
    """A kernel's global array parameter (`codegen.loops.BufferParam`)."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def role(self) -> str: ...
    @property
    def node(self) -> int | None: ...
    @property
    def size(self) -> Any: ...


class KernelLike(Protocol):
    """A kernel of the kernel language, as far as the runtime looks at it."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def buffers(self) -> Sequence[BufferLike]: ...
    @property
    def scalars(self) -> tuple[Any, ...]: ...
    @property
    def launch(self) -> Any: ...


@dataclass(frozen=True)
class Built:
    """A compiled kernel: its description, what the compiler said, how to see it, and what runs it.

    `binary` is a cubin for CUDA, a native kernel for the CPU. key: where the disk cache has it; empty where it has not.
    """

    kernel: KernelLike
    binary: Any
    resources: Resources
    source: Callable[[], str]
    key: str = ""


@dataclass(frozen=True)
class Toolchain:
    """Functions of the other packages; see /docs/architecture.md for what each does."""

    prepare: Callable[..., Graph]  # (graph, rounding=, fast_math=)
    # (graph, sizes, device, contiguous=, in_place=)
    plan_groups: Callable[..., tuple[tuple[Group, ...], tuple[Decision, ...]]]
    choose: Callable[[Graph, Group, SizeClass, Device], Schedule]
    lower: Callable[..., tuple[KernelLike, ...]]  # (graph, group, schedule, device, layouts)
    build: Callable[[KernelLike, Device], Built]
    retreat: Callable[[Schedule], Schedule | None]
    neighbours: Callable[[Schedule], tuple[Schedule, ...]]  # of the same reduction order
    estimate: Callable[..., Mapping[str, float]]  # (graph, group, schedule, sizes, device): predicted numbers
    show: Callable[[Built], Mapping[str, str]]  # all that can be read of a kernel, by the end of a file's name
    machine: Callable[[Device], str]  # the model that measurements on a device hold for
    facts: Callable[[Device], tuple[object, ...]]  # what plans and kernels depend on beside program and device
    own: Callable[[Toolchain], bool]  # whether this one plans as all processes do, so that they may share its plans
    take_up: Callable[[Any], Built | None]  # a kernel compiled before, by its record (`planrecord.Kernel`)
