"""Plan records: what was planned, kept in the disk cache, so that another process neither plans nor lowers it again.

In: a plan whose kernels are compiled. Out: one entry with its groups, its decisions, and of every kernel what it takes
to launch it: parameters, grid formulas, the key that its binary lies under. A plan that comes from a record answers
`why` at once; its schedules, loops and sources are made from its groups when someone asks.

The key of an entry covers all that planning looks at: the prepared graph's text with its marks, the size class, the
device's numbers, and what the toolchain names (fuser's own sources, compilers, the machine). So a record is never
out of date, only not found. Records hold plain JSON: numbers, texts, lists, and the few classes named below.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fuser.decision import Decision
from fuser.dtypes import DType, find
from fuser.group import Group, Reducer, Space, Stage, Store
from fuser.hostexpr import Dim, HostExpr
from fuser.record import dataclass
from fuser.runtime import cache
from fuser.text import print_graph
from fuser.toolchain import Built

if TYPE_CHECKING:
    from fuser.device import Device
    from fuser.graph import Graph
    from fuser.keys import SizeClass
    from fuser.plan import Plan

SCHEMA = "plan 1"


@dataclass(frozen=True)
class Buffer:
    """A kernel's array parameter (see `codegen.loops.BufferParam`)."""

    name: str
    dtype: DType
    role: str
    node: int | None
    size: Dim


@dataclass(frozen=True)
class Scalar:
    """A kernel's scalar parameter, and what it is worked out from."""

    name: str
    dtype: DType
    expr: HostExpr


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched (see `codegen.loops.Launch`)."""

    grid: tuple[Dim, Dim]
    block: int
    min_blocks: int
    grain: int
    cluster: int


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel without its body. key: where its binary lies. shared: bytes of dynamic shared memory."""

    name: str
    target: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    launch: Launch
    key: str
    shared: int


@dataclass(frozen=True)
class Record:
    """What a plan is taken up from. kernels: those of each group, in launch order."""

    groups: tuple[Group, ...]
    kernels: tuple[tuple[Kernel, ...], ...]
    decisions: tuple[Decision, ...]


CLASSES = {c.__name__: c for c in (Group, Space, Stage, Reducer, Store, Decision, Kernel, Buffer, Scalar, Launch)}


def key_of(graph: Graph, size_class: SizeClass, device: Device, facts: tuple[object, ...]) -> str:
    """The key of a plan's record."""
    marks = [(m.together, m.a.id, m.b.id) for m in graph.marks]
    return cache.key_of(SCHEMA, print_graph(graph), marks, repr(size_class), repr(device), *facts)


def save(key: str, plan: Plan) -> None:
    """Keep a compiled plan, unless it has no key or a kernel no binary to come back to."""
    kernels = tuple(tuple(_described(b) for b in built) for built in plan.built)
    if not key or not all(k.key for ks in kernels for k in ks):
        return
    parts = {"plan": _packed((plan.groups, kernels)), "decisions": _packed(plan.decisions)}
    cache.store().save(key, parts, {})


def load(key: str) -> Record | None:
    """The record of a key."""
    entry = cache.store().load(key)
    if entry is None:
        return None
    groups, kernels = _unpacked(entry.parts["plan"])
    return Record(groups, kernels, _unpacked(entry.parts["decisions"]))


def _described(built: Built) -> Kernel:
    k = built.kernel
    at = k.launch
    return Kernel(
        k.name,
        k.target,
        tuple(Buffer(b.name, b.dtype, b.role, b.node, b.size) for b in k.buffers),
        tuple(Scalar(s.name, s.dtype, s.expr) for s in k.scalars),
        Launch(at.grid, at.block, at.min_blocks, at.grain, at.cluster),
        built.key,
        getattr(built.binary, "shared", 0),
    )


# -- values as JSON ------------------------------------------------------------------------------------
# A tuple is a list; everything else that JSON has no word for is a dict of one item that names what it is. Expressions
# are numbers in a table in which operands come before what reads them: shared ones are written once.
def _packed(value: Any) -> bytes:
    table: list[Any] = []
    numbers: dict[HostExpr, int] = {}

    def number(root: HostExpr) -> int:
        for e in root.walk() if root not in numbers else ():
            if e not in numbers:
                numbers[e] = len(table)
                table.append([e.op, [numbers[a] for a in e.args], e.value, e.kind])
        return numbers[root]

    plain = _plain(value, number)
    return zlib.compress(json.dumps([table, plain], separators=(",", ":")).encode(), 1)


def _plain(value: Any, number: Callable[[HostExpr], int]) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [_plain(v, number) for v in value]
    if isinstance(value, HostExpr):
        return {"expr": number(value)}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Mapping):
        return {"map": {k: _plain(v, number) for k, v in value.items()}}
    name = type(value).__name__
    assert CLASSES.get(name) is type(value), f"a plan's record cannot hold a {name}"
    return {name: [_plain(getattr(value, f.name), number) for f in fields(value)]}


def _unpacked(data: bytes) -> Any:
    table, plain = json.loads(zlib.decompress(data))
    exprs: list[HostExpr] = []
    for op, args, value, kind in table:
        exprs.append(HostExpr(op, tuple(exprs[a] for a in args), value, kind))
    return _value(plain, exprs)


def _value(plain: Any, exprs: list[HostExpr]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(v, exprs) for v in plain)
    if not isinstance(plain, dict):
        return plain
    ((name, content),) = plain.items()
    if name == "expr":
        return exprs[content]
    if name == "dtype":
        return find(content)
    if name == "map":
        return {k: _value(v, exprs) for k, v in content.items()}
    return CLASSES[name](*(_value(v, exprs) for v in content))
