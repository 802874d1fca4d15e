"""What choosing a schedule on CUDA asks of a group: its order, the vectors its addresses allow, steps and registers.

In: a group's body, a size class, a device. Out: numbers. Its own file so that `cuda.py` holds the formulas alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from fuser.codegen.program import Apply, Program, instructions, shared_lanes
from fuser.codegen.schedule.accumulate import Fold, folds_of
from fuser.codegen.schedule.alignment import Alignment, widest
from fuser.codegen.schedule.axes import Axis
from fuser.codegen.schedule.body import Body, analyse, analyse_scan
from fuser.codegen.schedule.exchange import bytes_needed
from fuser.codegen.schedule.lengths import length_bucket
from fuser.device import Device
from fuser.dtypes import F32, compute_dtype
from fuser.errors import InternalError
from fuser.graph import Graph, Node, ReduceAttrs
from fuser.group import Group
from fuser.hostexpr import HostExpr, lit
from fuser.keys import SizeClass
from fuser.optable import table
from fuser.order import Order, order
from fuser.schedule import CudaKind, CudaSchedule
from fuser.shapes import numel

ONE = Order(1)
BLOCK = 256  # threads of a block unless a row needs more
LANE_STEPS = 2048  # steps times lanes that a kernel's main body may have: beyond, the compiler is the bottleneck


@lru_cache(maxsize=32)
def body_of(graph: Graph, group: Group, layouts: tuple[str, ...]) -> Body:
    """`analyse`, remembered between choosing and lowering."""
    analysed = analyse if group.scan is None else analyse_scan
    return analysed(graph, group, layouts)  # type: ignore[arg-type]


def _registers(fold: Fold, narrow: bool) -> int:
    parts = zip(fold.dtypes, fold.index_parts, strict=True)
    return sum(1 if narrow and index else -(-t.bytes // 4) for t, index in parts)


class Measures:
    """The numbers of one group."""

    def __init__(self, graph: Graph, group: Group, size_class: SizeClass, device: Device) -> None:
        self.graph, self.group, self.size_class, self.device = graph, group, size_class, device
        self.body = body_of(graph, group, tuple(size_class.layouts))
        self.alignment = Alignment(size_class.aligned, size_class.factors)
        self.bits = size_class.index_bits

    def _schedule(
        self, kind: CudaKind, threads: int, vector: int, unroll: int, team: int = 1, fixed: Order = ONE, length: int = 0
    ) -> CudaSchedule:
        return CudaSchedule(
            kind, threads, vector, unroll, team, fixed, False, self.size_class.aligned, self.bits, 1, length,
            self.size_class.factors, bounds=self.size_class.dims if self.bits == 64 else (),
        )  # fmt: skip

    def _order(self) -> tuple[int, Order]:
        """Bucket of the reduced length, and the order that all reductions along the space share."""
        return self._shared_order(set(self.group.reductions) - set(self.group.across))

    def _shared_order(self, nodes: Iterable[int]) -> tuple[int, Order]:
        found = {self._order_of(self.graph.by_id[n]) for n in nodes}
        if len(found) != 1:
            raise InternalError(f"group `{self.group.name}` mixes reduction orders {found}", "mixed-orders")
        return found.pop()

    def _order_of(self, node: Node) -> tuple[int, Order]:
        assert isinstance(node.attrs, ReduceAttrs)
        operand = node.inputs[0]
        length = length_bucket(self.graph, self.size_class, lit(1) * numel(operand.shape[a] for a in node.attrs.axes))
        inner = operand.rank - 1 in node.attrs.axes
        return length, order(length, compute_dtype(operand.dtype).bytes, "inner" if inner else "outer", "cuda")

    def _representative(self, e: HostExpr) -> int:
        return int(e.evaluate(self.size_class.representative))

    def _vector(self, axis: Axis) -> int:
        """Elements of a 16-byte vector along an axis; 1 where pointers are not aligned."""
        if not self.alignment.pointers:
            return 1
        return widest(self._accesses(), axis.name)

    def _accesses(self) -> Iterator[tuple[HostExpr, int]]:
        """(offset, bytes an element) of every load and store in loops."""
        for stage in self.body.stages:
            for k in stage.loop.fetches:
                yield stage.loop.fetch(k).index[0], stage.loop.fetch(k).dtype.bytes
            for site in stage.stores:
                yield site.offset, site.dtype.bytes

    def _any_whole(self, vector: int, axis: Axis) -> bool:
        """Whether any access of a loop is a whole vector; else neighbouring threads take neighbouring elements."""
        offsets = [e for e, _ in self._accesses()]
        rows = {a.name for a in self.body.parallel}
        streams = [e for e in offsets if not e.symbols.isdisjoint(rows)]  # a vector of weights is read from the cache
        return any(self.alignment.whole(vector, e, axis.name) for e in streams or offsets)

    def _dividing(self, vector: int, extent: HostExpr) -> int:
        """The widest vector up to `vector` that provably tiles an axis."""
        while vector > 1 and not self.alignment.divides(vector, extent):
            vector //= 2
        return vector

    def _steps(self) -> int:
        """Steps of the largest program a lane; with a loop inside, more than any vector leaves room for: a thread that
        has one element runs one loop, and so does not wait for the longest of several."""
        return max((LANE_STEPS if p.has_loop else self._lane_steps(p) for p in self.body.programs), default=1)

    def _lane_steps(self, program: Program, needed: Sequence[bool] | None = None) -> int:
        """Steps of a program a lane (of the needed ones); what neighbouring lanes share counts by share."""
        axes = self.body.reduced if self.body.reduced and self.group.space.inner else self.body.parallel
        if not axes:
            return len(program.steps)
        alike = shared_lanes(program, axes[-1].name, self.alignment.divides)
        return math.ceil(sum(1 / n for k, n in enumerate(alike) if needed is None or needed[k]))

    def _fewer(self, vector: int, total: int) -> int:
        """Narrower vectors for long programs (code size) and for inputs that would leave the device idle."""
        while vector > 1 and (vector * self._steps() > LANE_STEPS or total < vector * BLOCK * 8):
            vector //= 2
        return vector

    @cached_property
    def guards(self) -> bool:
        """Whether exact divisions are to share tests: where there are some, and arithmetic takes the device longer than
        half of what memory does. Elsewhere the registers that grouping takes cost more (adamw on H200)."""
        steps = [s for stage in self.body.stages for s in stage.loop.steps if isinstance(s, Apply)]
        if not any(s.dtype == F32 and getattr(table().known[s.op], "near", False) for s in steps if s.loop is None):
            return False
        points = self._representative(self.body.rows * self.body.length)
        stored = (self.graph.by_id[n] for n in {*self.group.inputs, *self.group.outputs})
        nbytes = sum(self._representative(lit(1) * numel(n.shape)) * n.storage.bytes for n in stored)
        busy = points * sum(map(instructions, steps)) / self.device.issue
        return 2 * busy > nbytes / self.device.bandwidth

    def _streams(self, program: Program) -> Iterator[int]:
        """Loads that walk along with the innermost axis."""
        inner = {a.name for a in (*self.body.parallel[-1:], *self.body.reduced[-1:])}
        for k in program.fetches:
            if not program.symbols(k).isdisjoint(inner):
                yield k

    def _state_registers(self, narrow: bool = False) -> int:
        """32-bit registers of one state of every reduction of the largest stage; narrow: with indices of 32 bits, as
        lanes hold them in a loop."""
        sets = (folds_of(self.graph, stage.reduces) for stage in self.body.stages)
        return max(sum(_registers(fold, narrow) for fold in folds) for folds in sets)

    def _state_bytes(self) -> int:
        """Bytes of one state of every reduction of the largest stage, each component in an array of its own."""
        sets = (folds_of(self.graph, stage.reduces) for stage in self.body.stages)
        return max(sum(t.bytes for fold in folds for t in fold.dtypes) for folds in sets)

    def _exchanged(self, points: int) -> int:
        """Shared bytes of the largest stage's fold."""
        sets = (folds_of(self.graph, stage.reduces) for stage in self.body.stages)
        return max(bytes_needed([fold.dtypes for fold in folds], points) for folds in sets)
