"""Where everything of a plan is drawn: operators inside kernels, kernels below what they read.

In: a plan. Out: a `Scene` of boxes (operators and arrays), regions (kernels) and links (values), with coordinates. Two
layouts, one in the other: the operators of each kernel first, then kernels and arrays as boxes of the size found. What
a kernel reads enters at a *port* on its upper edge, so that one line is one read however many operators share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fuser import accounting
from fuser.draw import because, facts, layout, units
from fuser.draw.layout import Point
from fuser.graph import Node
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.plan import Plan

LIMIT = 1200  # operators drawn one by one; beyond, kernels only
GLYPH, LINE = 6.7, 38.0  # width of a character, height of a box
TITLE, PAD = 44.0, 12.0  # room for a region's heading; around its boxes
LONGEST = 30  # characters of a formula
ARRAY = -1  # the region of values in no kernel

Place = tuple[int, int]  # region (or ARRAY), node id
Port = tuple[str, int, int]


@dataclass(frozen=True)
class Box:
    """An operator where one kernel computes it, or an array argument. `again`: another kernel computes it too."""

    place: Place
    row: facts.Operator
    x: float
    y: float
    w: float
    h: float
    again: bool = False
    result: bool = False

    @property
    def anchor(self) -> str:
        """The id that links lead to: `op-3`; later copies `op-3-K2`."""
        return f"op-{self.row.node.id}" + (f"-{self.row.kernels[-1]}" if self.again else "")


@dataclass(frozen=True)
class Region:
    """A kernel (or library call), by its position in the plan."""

    position: int
    label: str
    title: str
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True)
class Link:
    """A value on its way. memory: through memory (solid), else inside a kernel. points: from top to bottom."""

    source: int
    reader: int
    regions: tuple[int, int]
    points: tuple[Point, ...]
    bytes: int
    memory: bool
    text: str


@dataclass(frozen=True)
class Scene:
    """All that is drawn. brief: the program is too large, operators are left out."""

    boxes: tuple[Box, ...]
    regions: tuple[Region, ...]
    links: tuple[Link, ...]
    width: float
    height: float
    brief: bool


@dataclass
class _Inside:
    """One kernel before it has a place: its boxes and ports, and how they lie in it."""

    rows: Mapping[int, facts.Operator]
    sizes: dict[int | Port, Point]
    edges: dict[tuple[int | Port, int | Port], Node]
    placed: layout.Placement
    title: str
    size: Point


def scene(plan: Plan) -> Scene:
    """The drawing of a plan, in pixels."""
    return _Drawing(plan).scene()


def box_size(row: facts.Operator) -> Point:
    """Room for a name and a formula."""
    return (max(len(row.name) + 4, min(len(row.formula), LONGEST)) * GLYPH + 18, LINE)


class _Drawing:
    """Gathers a plan into boxes and links, then places them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.labels = plan, [k.label for k in plan.outline]
        self.rows = {r.node.id: r for r in facts.operators(plan)}
        self.brief = len(self.rows) > LIMIT
        self.members = [set(g.members) for g in plan.groups]
        homes: dict[int, int] = {}
        for position, g in enumerate(plan.groups):
            homes.update(dict.fromkeys((k for k in g.members if k in self.rows), position))
        self.arrays = {k: r for k, r in self.rows.items() if k not in homes}
        self.writer = {k: at for at, g in reversed(list(enumerate(plan.groups))) for k in g.outputs}
        self.reasons = {e: because.reason(plan, e) for e in because.edges(plan)} if not self.brief else {}
        self.inside_reason = {(e.group, e.source.id, e.reader.id): (e, t) for e, t in self.reasons.items()}
        self.reads = [accounting.group_reads(plan.graph, g, plan.sizes) for g in plan.groups]
        self.apart = {(a.kernels, a.producer): a for a in facts.apart(plan)}

    # -- gathering ---------------------------------------------------------------------------------
    def _shown(self, node: Node, at: int | None = None) -> int | None:
        """The drawn value that an operand stands for: behind plumbing, but never across a kernel's border."""
        while node.id not in self.rows:
            if at is not None and node.id not in self.members[at]:
                break
            if not node.inputs:
                return None
            node = node.inputs[0]
        return node.id

    def _inside(self, position: int) -> _Inside:
        """The boxes of one kernel, its ports, and what leads where."""
        group, by_id = self.plan.groups[position], self.plan.graph.by_id
        rows = {} if self.brief else {k: self.rows[k] for k in group.members if k in self.rows}
        sizes: dict[int | Port, Point] = {("port", position, k): (8.0, 8.0) for k in group.inputs}
        sizes.update((k, box_size(r)) for k, r in rows.items())
        edges: dict[tuple[int | Port, int | Port], Node] = {}
        for k in rows:
            for operand in by_id[k].inputs:
                source = self._shown(operand, position)
                if source is None:
                    continue
                start: int | Port = source if source in rows else ("port", position, source)
                if start in sizes:
                    edges[(start, k)] = by_id[source]
        placed = layout.place(sizes, edges, 26.0) if sizes else layout.Placement({}, {}, 0.0, 0.0)
        title = f"{self.labels[position]}  {group.name}"
        width = max(placed.width, (len(title) + 2) * GLYPH + 10, 250.0) + 2 * PAD
        return _Inside(rows, sizes, edges, placed, title, (width, placed.height + TITLE + 2 * PAD))

    def _transfers(self) -> dict[tuple[int, int, int], int]:
        """(region that wrote it or ARRAY, node, reading kernel) -> bytes, for all that goes through memory."""
        out: dict[tuple[int, int, int], int] = {}
        for position, reads in enumerate(self.reads):
            for k, size in reads.items():
                out[self.writer.get(k, ARRAY), k, position] = size
        return out

    # -- placing -----------------------------------------------------------------------------------
    def scene(self) -> Scene:
        insides = [self._inside(k) for k in range(len(self.plan.groups))]
        transfers = self._transfers()
        sizes: dict[Place, Point] = {(ARRAY, k): box_size(r) for k, r in self.arrays.items()}
        sizes.update(((k, 0), i.size) for k, i in enumerate(insides))
        edges = {key: ends for key in transfers if (ends := self._ends(key)) is not None}
        outer = layout.place(sizes, edges.values(), 56.0)
        boxes = [self._array(k, outer.corners[ARRAY, k]) for k in self.arrays]
        links: list[Link] = []
        regions = []
        for position, inside in enumerate(insides):
            x, y = outer.corners[position, 0]
            regions.append(Region(position, self.labels[position], inside.title, x, y, *inside.size))
            origin = (x + (inside.size[0] - inside.placed.width) / 2, y + TITLE + PAD)
            boxes += self._boxes(position, inside, origin)
            links += self._links(position, inside, origin)
        for key, ends in edges.items():
            links.append(self._transfer(key, transfers[key], insides, outer, ends))
        return Scene(tuple(boxes), tuple(regions), tuple(links), outer.width, outer.height, self.brief)

    def _ends(self, key: tuple[int, int, int]) -> tuple[Place, Place] | None:
        """What the outer layout joins for one transfer; None for a value that is drawn nowhere."""
        writer, node, reader = key
        if writer != ARRAY:
            return ((writer, 0), (reader, 0))
        source = self._shown(self.plan.graph.by_id[node])
        return None if source not in self.arrays else ((ARRAY, source), (reader, 0))

    def _array(self, k: int, corner: Point) -> Box:
        return Box((ARRAY, k), self.rows[k], *corner, *box_size(self.rows[k]))

    def _boxes(self, position: int, inside: _Inside, origin: Point) -> list[Box]:
        results = {self._shown(n) for n in self.plan.graph.results}
        out = []
        for k, row in inside.rows.items():
            x, y = inside.placed.corners[k]
            first = min(at for at, m in enumerate(self.members) if k in m)
            row = row if first == position else _copy(row, self.labels[position])
            corner = (origin[0] + x, origin[1] + y)
            out.append(Box((position, k), row, *corner, *inside.sizes[k], first != position, k in results))
        return out

    def _links(self, position: int, inside: _Inside, origin: Point) -> list[Link]:
        """Values that stay inside a kernel, and what its ports lead to."""
        out = []
        for (start, end), source in inside.edges.items():
            (sx, sy), (sw, sh) = inside.placed.corners[start], inside.sizes[start]
            (ex, ey), (ew, _) = inside.placed.corners[end], inside.sizes[end]
            way = [(sx + sw / 2, sy + sh), *inside.placed.bends.get((start, end), ()), (ex + ew / 2, ey)]
            points = tuple((x + origin[0], y + origin[1]) for x, y in way)
            reader = end if isinstance(end, int) else -1
            known = self.inside_reason.get((position, accounting.materialised(source).id, reader))
            size = accounting.nbytes(source, self.plan.sizes)
            text = known[1] if known else "a view of it" if self.rows[reader].node.op == "view" else "one kernel"
            saves = f"; saves {units.size(known[0].saves)}" if known and known[0].saves else ""
            out.append(Link(source.id, reader, (position, position), points, size, False, text + saves))
        return out

    def _transfer(
        self, key: tuple[int, int, int], size: int, insides: list[_Inside], outer: layout.Placement,
        ends: tuple[Place, Place],
    ) -> Link:  # fmt: skip
        """One read of a kernel's, from where the value was written to the kernel's port."""
        writer, node, reader = key
        source = self._shown(self.plan.graph.by_id[node], writer if writer != ARRAY else None)
        start = self._bottom(writer, node if source is None else source, insides, outer, ends[0])
        inside, (x, y) = insides[reader], outer.corners[reader, 0]
        px, py = inside.placed.corners["port", reader, node]
        end = (x + (inside.size[0] - inside.placed.width) / 2 + px + 4, y + TITLE + PAD + py)
        points = (start, *outer.bends.get(ends, ()), (end[0], y), end)
        return Link(
            node if source is None else source,
            -1,
            (writer, reader),
            points,
            size,
            True,
            self._why(writer, node, reader),
        )

    def _bottom(self, writer: int, source: int, insides: list[_Inside], outer: layout.Placement, end: Place) -> Point:
        """Where a value leaves its box, or its region when no operator is drawn."""
        x, y = outer.corners[end]
        if writer == ARRAY:
            w, h = box_size(self.rows[end[1]])
            return (x + w / 2, y + h)
        inside = insides[writer]
        if source not in inside.rows:
            return (x + inside.size[0] / 2, y + inside.size[1])
        bx, by = inside.placed.corners[source]
        w, h = inside.sizes[source]
        return (x + (inside.size[0] - inside.placed.width) / 2 + bx + w / 2, y + TITLE + PAD + by + h)

    def _why(self, writer: int, node: int, reader: int) -> str:
        """The reason that this value goes through memory."""
        from fuser.draw.text import why

        if writer == ARRAY:
            return "an argument, read from memory"
        pair, name = (self.labels[writer], self.labels[reader]), self.plan.names[node]
        found = self.apart.get((pair, name)) or next((a for (p, _), a in self.apart.items() if p == pair), None)
        return f"{found.decision.reason}: {why(found)}" if found else "stored by an earlier kernel, which ends before"


def _copy(row: facts.Operator, label: str) -> facts.Operator:
    """The row of an operator that a later kernel computes again."""
    others = tuple(k for k in row.kernels if k != label)
    return facts.Operator(row.node, row.name, row.formula, row.type, (*others, label), row.stage, row.line)
