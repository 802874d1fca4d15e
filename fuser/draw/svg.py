"""A plan as SVG: kernels as coloured regions, operators in them, lines as wide as the bytes they stand for.

In: a plan (its scene from `layout_plan`). Out: an element tree, or its text: a picture that needs no script, says more
under the pointer, and follows the reader's light or dark preference. The html page puts the same tree in its middle.
"""

from __future__ import annotations

from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

from fuser.draw import facts, kernels, units
from fuser.draw.layout import Point
from fuser.draw.layout_plan import ARRAY, GLYPH, LONGEST, Box, Link, Region, Scene, scene

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

NAMESPACE = "http://www.w3.org/2000/svg"
MARGIN, HEAD = 24.0, 54.0
HUES = 8  # colours of regions, in turn
THIN, WIDE = 1.0, 8.0  # pixels, for no bytes and for the most bytes of the plan


def to_svg(plan: Plan, *, compiled: bool = True) -> str:
    """The picture as a file. compiled: with registers and occupancy of the compiled kernels, which compiles them."""
    root = draw(plan, plan.kernels if compiled else plan.outline)
    root.set("xmlns", NAMESPACE)
    return tostring(root, encoding="unicode") + "\n"


def draw(plan: Plan, described: tuple[PlannedKernel, ...]) -> Element:
    """The picture as elements without a namespace, as html wants them inline."""
    from fuser.draw.text import summary

    found = scene(plan)
    name, total = plan.graph.name, summary(plan)
    width = max(found.width, max(len(total), len(name) + 30) * GLYPH) + 2 * MARGIN
    height = found.height + HEAD + 2 * MARGIN
    root = Element("svg", {
        "class": "fuser-plan", "viewBox": f"0 0 {_px(width)} {_px(height)}", "width": _px(width),
        "height": _px(height), "role": "img", "aria-label": f"plan of {name}: {total}",
    })  # fmt: skip
    SubElement(root, "style").text = resource("plan.css")
    SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    _text(root, MARGIN, MARGIN + 8, f"{name}  {_where(plan)}", "title")
    _text(root, MARGIN, MARGIN + 28, total, "muted")
    body = SubElement(root, "g", {"transform": f"translate({_px(MARGIN)} {_px(MARGIN + HEAD)})"})
    _contents(body, plan, found, described)
    return root


def resource(name: str) -> str:
    """A file that lies beside this module."""
    return resources.files("fuser.draw").joinpath(name).read_text(encoding="utf-8")


def _where(plan: Plan) -> str:
    sizes = " ".join(f"{k}={v}" for k, v in facts.dims(plan).items())
    return f"{sizes}, {plan.device.name}" if sizes else plan.device.name


def _contents(body: Element, plan: Plan, found: Scene, described: tuple[PlannedKernel, ...]) -> None:
    """Regions below, then lines, then boxes."""
    for region in found.regions:
        _region(body, plan, region, described[region.position])
    most = max((link.bytes for link in found.links), default=1)
    entered: dict[int, int] = {}
    for link in sorted(found.links, key=lambda link: link.memory):
        entered[link.regions[1]] = order = entered.get(link.regions[1], -1) + link.memory
        _link(body, plan, link, most, order % 3)
    for link in found.links:
        if link.memory:
            _port(body, link)
    for region in found.regions:
        _heading(body, plan, region, described[region.position])
    for box in found.boxes:
        _box(body, plan, box)


def _region(body: Element, plan: Plan, region: Region, k: PlannedKernel) -> None:
    group = SubElement(body, "g", {"class": f"region hue{region.position % HUES}", "data-kernel": region.label})
    rect = {"id": region.label, "width": _px(region.w), "height": _px(region.h), "rx": "10"}
    SubElement(group, "rect", {"x": _px(region.x), "y": _px(region.y), **rect})
    SubElement(group, "title").text = "\n".join([region.title, *(f"{n}: {v}" for n, v in kernel_lines(plan, k))])


def _heading(body: Element, plan: Plan, region: Region, k: PlannedKernel) -> None:
    """A region's two lines of text, above the lines that enter there."""
    group = SubElement(body, "g", {"class": f"head hue{region.position % HUES}", "data-kernel": region.label})
    figures = _cut(" · ".join(kernel_facts(plan, k)), int((region.w - 20) / GLYPH))
    _text(group, region.x + 12, region.y + 20, region.title, "heading")
    _text(group, region.x + 12, region.y + 37, figures, "muted")


def kernel_facts(plan: Plan, k: PlannedKernel) -> list[str]:
    """`268 MB`, `regs 48/40`, `occ 75%`: what a region's second line says."""
    out = [units.size(k.bytes_moved)]
    if k.registers >= 0:
        out.append(f"regs {k.predicted.get('registers', 0):.0f}/{k.registers}")
    busy = kernels.occupancy(plan, k).partition(";")[0]
    return [*out, f"occ {busy}"] if busy else out


def kernel_lines(plan: Plan, k: PlannedKernel) -> list[tuple[str, str]]:
    """Everything there is to say about one kernel, as (label, text)."""
    before = bytes_before(plan, k)
    pairs = [
        ("space", kernels.space(k)),
        ("bytes", f"{units.size(k.bytes_moved)} fused, {units.size(before)} one by one"),
        ("reads", ", ".join(f"{n} {units.size(b)}" for n, b in k.reads.items())),
        ("writes", ", ".join(f"{n} {units.size(b)}" for n, b in k.writes.items())),
        ("schedule", kernels.schedule(plan, k)), ("registers", kernels.registers(k)),
        ("occupancy", kernels.occupancy(plan, k)), ("bound by", kernels.bound_by(plan, k)),
        ("valid for", kernels.valid_for(plan, k)),
    ]  # fmt: skip
    return [(label, text) for label, text in pairs if text]


def bytes_before(plan: Plan, k: PlannedKernel) -> int:
    """Bytes that a kernel's operators would move, each run alone."""
    from fuser import accounting

    members = [n for n in (plan.graph.by_id[m] for m in k.group.members) if accounting.is_launched(n)]
    return sum(
        sum(size for _, size, _ in accounting.operands(n, plan.sizes)) + accounting.nbytes(n, plan.sizes)
        for n in members
    )


def _link(body: Element, plan: Plan, link: Link, most: int, row: int) -> None:
    """One value: solid through memory with its bytes (in one of a few rows, clear of its neighbours), pale inside."""
    width = THIN + (WIDE - THIN) * (link.bytes / max(most, 1)) ** 0.5
    kind = "memory" if link.memory else "inside"
    name = plan.names[link.source]
    group = SubElement(body, "g", {
        "class": f"link {kind}", "data-from": str(link.source), "data-to": str(link.reader),
        "data-regions": " ".join(map(str, link.regions)),
    })  # fmt: skip
    SubElement(group, "path", {"d": _curve(link.points), "stroke-width": f"{width:.1f}"})
    what = f"{name}  {units.size(link.bytes)}" + ("" if link.memory else ", never in memory")
    SubElement(group, "title").text = f"{what}\n{link.text}"
    if link.memory:
        (x, y) = link.points[-2]
        _text(group, x + 7, y - 7 - 11 * row, units.size(link.bytes), "label")


def _port(body: Element, link: Link) -> None:
    x, y = link.points[-1]
    SubElement(body, "circle", {"class": "port", "cx": _px(x), "cy": _px(y + 4), "r": "4"})


def _box(body: Element, plan: Plan, box: Box) -> None:
    """An operator, or an array in no kernel; the link around it makes it reachable by keyboard and by address."""
    row, region = box.row, box.place[0]
    hue = f"hue{region % HUES}" if region != ARRAY else "array"
    kinds = [hue, *(["again"] if box.again else []), *(["result"] if box.result else [])]
    anchor = SubElement(body, "a", {"href": f"#{box.anchor}", "class": "box " + " ".join(kinds)})
    anchor.set("id", box.anchor)
    anchor.set("data-node", str(row.node.id))
    SubElement(anchor, "rect", {"x": _px(box.x), "y": _px(box.y), "width": _px(box.w), "height": _px(box.h), "rx": "5"})
    _text(anchor, box.x + 9, box.y + 15, row.name, "name")
    _text(anchor, box.x + 9, box.y + 30, _cut(row.formula, LONGEST), "formula")
    if row.stage and region != ARRAY:
        _text(anchor, box.x + box.w - 8, box.y + 15, str(row.stage), "stage")
    SubElement(anchor, "title").text = "\n".join(operator_lines(plan, box))


def operator_lines(plan: Plan, box: Box) -> list[str]:
    """Name, formula, shape, bytes, place and source line, one a line."""
    from fuser import accounting

    row = box.row
    sizes = units.size(accounting.nbytes(row.node, plan.sizes))
    place = " and ".join(row.kernels) + (f", stage {row.stage}" if row.stage and row.kernels else "")
    lines = [f"{row.name} = {row.formula}", f"{row.type}, {sizes}", place, f"line {row.line}" if row.line else ""]
    return [line for line in (*lines, "computed again here" if box.again else "") if line]


def _curve(points: tuple[Point, ...]) -> str:
    """Straight down at every point, and smooth between."""
    x, y = points[0]
    parts = [f"M{_px(x)} {_px(y)}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 == x1:
            parts.append(f"V{_px(y1)}")
        else:
            half = (y0 + y1) / 2
            parts.append(f"C{_px(x0)} {_px(half)} {_px(x1)} {_px(half)} {_px(x1)} {_px(y1)}")
    return "".join(parts)


def _text(parent: Element, x: float, y: float, text: str, kind: str) -> None:
    SubElement(parent, "text", {"x": _px(x), "y": _px(y), "class": kind}).text = text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
