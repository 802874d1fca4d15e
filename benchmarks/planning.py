"""How long planning takes as graphs grow: processor time, so that others on the machine do not count.

In: sizes. Out: a table: seconds from a traced graph to groups, for chains, random graphs, mixed graphs (reductions,
views, broadcasts) and wide graphs, and how the time grows from a tenth of the size.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuser import device as devices
from fuser import indexmap, progress
from fuser.dtypes import F32
from fuser.graph import Builder, Graph, Node, ReduceAttrs, ViewAttrs
from fuser.hostexpr import lit, sym
from fuser.passes import fuse
from fuser.passes.pipeline import prepare

SIZES = {"n": 4096, "m": 1024}
UNARY, BINARY = ("negative", "absolute", "sqrt", "exp", "tanh"), ("add", "subtract", "multiply", "maximum")
WINDOW = 40  # a random operator takes its operands from so many values before it


class _Maker:
    """Builds a graph over [n, m] arrays from a seed."""

    def __init__(self, seed: int) -> None:
        self.b, self.random = Builder("planning"), random.Random(seed)
        self.shape = (sym("n"), sym("m"))
        self.pool: list[Node] = [self.b.argument(f"x{k}", F32, self.shape) for k in range(4)]

    def pick(self) -> Node:
        return self.random.choice(self.pool[-WINDOW:])

    def apply(self, op: str, *inputs: Node) -> Node:
        made = self.b.make(op, inputs, None, F32, self.shape)
        self.pool.append(made)
        return made

    def elementwise(self) -> Node:
        if self.random.random() < 0.3:
            return self.apply(self.random.choice(UNARY), self.pick())
        return self.apply(self.random.choice(BINARY), self.pick(), self.pick())

    def centred(self, axis: int) -> Node:
        """A value less its sum along an axis: a reduction and a broadcast."""
        x, kept = self.pick(), self.shape[1 - axis]
        total = self.b.make("sum", (x,), ReduceAttrs((axis,)), F32, (kept,))
        spread = self.b.make(
            "view", (total,), ViewAttrs(indexmap.IndexMap((indexmap.axis(1 - axis),))), F32, self.shape
        )
        return self.apply("subtract", x, spread)

    def moved(self) -> Node:
        """A value read backwards along its rows."""
        x = self.pick()
        flipped = indexmap.IndexMap((indexmap.axis(0), self.shape[1] - 1 - indexmap.axis(1)))
        return self.apply("add", x, self.b.make("view", (x,), ViewAttrs(flipped), F32, self.shape))


def chain(operators: int) -> Graph:
    """One operator after another."""
    m = _Maker(0)
    x = m.pool[0]
    for k in range(operators):
        x = m.apply(UNARY[k % 5], x) if k % 2 else m.apply(BINARY[k % 4], x, m.pool[0])
    return m.b.close([x])


def tangle(operators: int) -> Graph:
    """Elementwise operators on random values before them; eight results."""
    m = _Maker(1)
    for _ in range(operators):
        m.elementwise()
    return m.b.close(m.pool[-8:])


def mixed(operators: int) -> Graph:
    """The same with reductions, broadcasts and flips among them: about one operator in eight each."""
    m = _Maker(2)
    while len(m.b.nodes) < operators:
        kind = m.random.random()
        if kind < 0.8:
            m.elementwise()
        elif kind < 0.9:
            m.centred(1)
        elif kind < 0.93:
            m.centred(0)
        else:
            m.moved()
    return m.b.close(m.pool[-8:])


def wide(operators: int) -> Graph:
    """Independent pairs of operators on a few arrays, each pair a result."""
    m = _Maker(3)
    inputs = list(m.pool)
    for k in range(operators // 2):
        factor = m.b.make(
            "view", (m.b.scalar(lit(k + 2), F32),), ViewAttrs(indexmap.broadcast((), m.shape)), F32, m.shape
        )
        m.apply(UNARY[k % 5], m.apply("multiply", inputs[k % 4], factor))
    return m.b.close(m.pool[5::2])


GRAPHS: dict[str, tuple[Callable[[int], Graph], int]] = {
    "chain": (chain, 10_000), "random": (tangle, 10_000), "mixed": (mixed, 10_000), "wide": (wide, 3_000),
}  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """Seconds of one graph: the passes before fusion, and fusion."""

    operators: int
    prepare: float
    fuse: float
    groups: int

    @property
    def total(self) -> float:
        return self.prepare + self.fuse


def measure(make: Callable[[int], Graph], operators: int, arch: str = "sm_90", repeats: int = 1) -> Timed:
    """The least of some repeats."""
    best = None
    for _ in range(repeats):
        graph = make(operators)
        gc.collect()
        start = time.process_time()
        ready = prepare(graph)
        between = time.process_time()
        groups, _decisions = fuse.plan_groups(ready, SIZES, devices.find(arch))
        end = time.process_time()
        found = Timed(operators, between - start, end - between, len(groups))
        best = found if best is None or found.total < best.total else best
    assert best is not None
    return best


def run(names: Sequence[str], repeats: int, say: Callable[[str], None]) -> None:
    """The table, a line a graph."""
    say("| graph | operators | prepare s | fuse s | total s | kernels | times a tenth of it |")
    say("|---|---|---|---|---|---|---|")
    for name in progress.track(names, "planning", str):
        make, operators = GRAPHS[name]
        small, large = (
            measure(make, operators // 10, repeats=max(repeats, 3)),
            measure(make, operators, repeats=repeats),
        )
        say(
            f"| {name} | {operators} | {large.prepare:.2f} | {large.fuse:.2f} | {large.total:.2f} | {large.groups} "
            f"| {large.total / small.total:.1f} |"
        )
