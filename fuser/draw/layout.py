"""Layered placement of boxes: a thin typed face of grandalf, the Sugiyama layout in pure Python.

In: boxes with sizes, and edges between them. Out: top-left corners, the bends of edges that pass other layers, and the
whole extent. Its own file because grandalf is untyped, places centres, and lays out one connected component at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from fuser.record import dataclass

Key = TypeVar("Key", bound=Hashable)
Point = tuple[float, float]

X_GAP, Y_GAP = 22.0, 30.0
ROW = 2400.0  # components are set side by side up to this width
ROUNDS = 3  # sweeps that reduce crossings; more change little
DUMMY = 8.0  # width that a passing edge keeps free


@dataclass(frozen=True)
class Placement:
    """corners: top left of every box. bends: where an edge passes the layers between its ends, from top to bottom."""

    corners: Mapping[Any, Point]
    bends: Mapping[tuple[Any, Any], tuple[Point, ...]]
    width: float
    height: float


@dataclass
class _View:
    """What grandalf reads of a box (w, h) and writes back (xy, the centre)."""

    w: float
    h: float
    xy: Point = (0.0, 0.0)


@dataclass
class _Path:
    """What grandalf writes the way of an edge to."""

    points: list[Point] = field(default_factory=list)

    def setpath(self, points: list[Point]) -> None:
        self.points = list(points)


def place(sizes: Mapping[Key, Point], edges: Iterable[tuple[Key, Key]], gap: float = Y_GAP) -> Placement:
    """Boxes in layers, sources on top. Edges must have no cycle; repeated ones count once."""
    pen = _Pen()
    for keys, mine in _components(sizes, dict.fromkeys((a, b) for a, b in edges if a != b)):
        pen.add(_arrange({k: sizes[k] for k in keys}, mine, gap))
    return Placement(pen.corners, pen.bends, pen.width, pen.height)


def _components(
    sizes: Iterable[Key], edges: Iterable[tuple[Key, Key]]
) -> list[tuple[list[Key], list[tuple[Key, Key]]]]:
    """Boxes and edges of each connected component, in the order given (grandalf's own split is in no fixed order)."""
    import networkx

    graph: networkx.Graph[Key] = networkx.Graph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    number = {k: at for at, found in enumerate(networkx.connected_components(graph)) for k in found}
    out: dict[int, tuple[list[Key], list[tuple[Key, Key]]]] = {}
    for k in sizes:
        out.setdefault(number[k], ([], []))[0].append(k)
    for a, b in edges:
        out[number[a]][1].append((a, b))
    return list(out.values())


def _arrange(sizes: Mapping[Key, Point], edges: Iterable[tuple[Key, Key]], gap: float) -> Any:
    """grandalf's layout of one component."""
    from grandalf.graphs import Edge, Vertex, graph_core
    from grandalf.layouts import SugiyamaLayout

    vertices = {key: Vertex(key) for key in sizes}
    for key, (w, h) in sizes.items():
        vertices[key].view = _View(w, h)
    listed = [Edge(vertices[a], vertices[b]) for a, b in edges]
    for edge in listed:
        edge.view = _Path()
    component = graph_core(list(vertices.values()), listed)
    layout = SugiyamaLayout(component)
    layout.xspace, layout.yspace = X_GAP, gap
    layout.init_all()
    for dummy in (v for layer in layout.layers for v in layer if not hasattr(v, "data") or v not in component.sV):
        dummy.view.w = DUMMY
    layout.draw(ROUNDS)
    return component


class _Pen:
    """Sets components side by side, in rows, and keeps what they come to."""

    def __init__(self) -> None:
        self.corners: dict[Any, Point] = {}
        self.bends: dict[tuple[Any, Any], tuple[Point, ...]] = {}
        self.width = self.height = 0.0
        self._x = self._y = 0.0

    def add(self, component: Any) -> None:
        views = {v.data: v.view for v in component.sV}
        paths = {(e.v[0].data, e.v[1].data): e.view.points for e in component.sE}
        xs = [v.xy[0] - v.w / 2 for v in views.values()] + [x for p in paths.values() for x, _ in p]
        ends = [v.xy[0] + v.w / 2 for v in views.values()] + [x for p in paths.values() for x, _ in p]
        top = min(v.xy[1] - v.h / 2 for v in views.values())
        width = max(ends) - min(xs)
        if self._x and self._x + width > ROW:
            self._x, self._y = 0.0, self.height + Y_GAP
        dx, dy = self._x - min(xs), self._y - top
        for key, v in views.items():
            self.corners[key] = (v.xy[0] - v.w / 2 + dx, v.xy[1] - v.h / 2 + dy)
            self.height = max(self.height, v.xy[1] + v.h / 2 + dy)
        layers: dict[float, float] = {}
        for v in views.values():
            layers[v.xy[1]] = max(layers.get(v.xy[1], 0.0), v.h)
        for ends_of, points in paths.items():
            self.bends[ends_of] = tuple(
                (x + dx, y + dy + side * layers.get(y, 0.0) / 2) for x, y in points[1:-1] for side in (-1, 1)
            )
        self._x += width + 2 * X_GAP
        self.width = max(self.width, self._x - 2 * X_GAP)
