"""A plan as one html page that needs nothing else: source, graph and generated code side by side, linked.

In: a plan. Out: the text of the page (`to_html`), or a static fragment for notebooks, whose front ends strip scripts
(`to_fragment`). The picture is `svg`'s; what the panes show of a selection travels as JSON in the page.
"""

from __future__ import annotations

import json
import linecache
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, tostring

from fuser.draw import facts, svg
from fuser.draw.layout_plan import LIMIT

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

SPREAD = 40  # source lines shown beyond the ones a plan mentions, within one file
NOTEBOOK = 400  # operators beyond which a notebook shows text alone


def to_html(plan: Plan) -> str:
    """The page. Compiles the kernels: their code and registers are in it."""
    from fuser.draw.text import summary

    described = plan.kernels
    page = Element("html", {"lang": "en"})
    head = SubElement(page, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "meta", {"name": "color-scheme", "content": "light dark"})
    SubElement(head, "title").text = f"{plan.graph.name}: {len(plan.groups)} kernels"
    SubElement(head, "style").text = svg.resource("page.css")
    body = SubElement(page, "body")
    _bar(body, plan, summary(plan))
    panes = SubElement(body, "main")
    _source(panes, plan)
    picture = _pane(panes, "graph", "Operators")
    picture.append(svg.draw(plan, described))
    _code(panes)
    data = SubElement(body, "script", {"type": "application/json", "id": "plan-data"})
    data.text = json.dumps(_data(plan, described), ensure_ascii=False).replace("<", "\\u003c")
    SubElement(body, "script").text = svg.resource("page.js")
    return "<!doctype html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def to_fragment(plan: Plan) -> str:
    """Text and picture, without scripts."""
    root = Element("div")
    SubElement(root, "pre").text = plan.to_text()
    if len(facts.operators(plan)) <= NOTEBOOK:
        root.append(svg.draw(plan, plan.kernels))
    return tostring(root, encoding="unicode", method="html")


def _bar(body: Element, plan: Plan, total: str) -> None:
    """The line on top: what this is, search, and where the view can be taken back to the whole."""
    bar = SubElement(body, "header")
    SubElement(bar, "h1").text = plan.graph.name
    SubElement(bar, "p").text = total
    SubElement(bar, "input", {
        "id": "search", "type": "search", "placeholder": "search: name, operator, type, line 3   ( / )",
        "aria-label": "search operators",
    })  # fmt: skip
    SubElement(bar, "output", {"id": "found"})
    for name, title in (("fit", "whole graph"), ("in", "closer"), ("out", "farther")):
        SubElement(bar, "button", {"id": f"zoom-{name}", "type": "button"}).text = title
    if len(facts.operators(plan)) > LIMIT:
        SubElement(bar, "p").text = "too many operators to draw one by one; kernels only"


def _pane(parent: Element, name: str, title: str) -> Element:
    pane = SubElement(parent, "section", {"id": name, "aria-label": title})
    SubElement(pane, "h2").text = title
    return pane


def _source(parent: Element, plan: Plan) -> None:
    """The lines of the program, each with the colours of the kernels that compute something of it."""
    pane = _pane(parent, "source", "Source")
    labels = [k.label for k in plan.outline]
    homes: dict[tuple[str, int], set[str]] = {}
    for position, group in enumerate(plan.groups):
        for m in group.members:
            for span in plan.graph.spans.get(plan.graph.by_id[m], ())[:1]:
                homes.setdefault((span.filename, span.line), set()).add(labels[position])
    for filename, lines in _texts(plan).items():
        SubElement(pane, "h3").text = filename.rpartition("/")[2]
        listing = SubElement(pane, "ol", {"class": "listing"})
        for number, text in lines.items():
            row = SubElement(listing, "li", {"data-line": str(number), "value": str(number)})
            for label in sorted(homes.get((filename, number), ())):
                hue = f"chip hue{labels.index(label) % svg.HUES}"
                SubElement(row, "a", {"class": hue, "href": f"#{label}"}).text = label
            SubElement(row, "code").text = text or " "


def _texts(plan: Plan) -> dict[str, dict[int, str]]:
    """Lines by number, of every file that operators come from: around what they mention, as far as it can be read."""
    known: dict[str, dict[int, str]] = {}
    for n in plan.graph.nodes:
        for span in plan.graph.spans.get(n, ())[:1]:
            known.setdefault(span.filename, {})[span.line] = span.text.rstrip()
    own = next(iter(known), "")
    for filename, lines in known.items():
        whole = linecache.getlines(filename)
        if not whole and filename == own and "\n" in plan.graph.source:
            whole = plan.graph.source.splitlines()
        if len(whole) < max(lines) or any(whole[k - 1].strip() != text.strip() for k, text in lines.items()):
            continue  # the file has changed since: the lines that were traced are all there is
        first, last = max(1, min(lines) - SPREAD), min(len(whole), max(lines) + SPREAD)
        lines.update({k: whole[k - 1].rstrip() for k in range(first, last + 1)})
    return {filename: dict(sorted(lines.items())) for filename, lines in known.items()}


def _code(parent: Element) -> None:
    """Details of the selection, and the generated code of its kernel."""
    pane = _pane(parent, "code", "Kernel")
    SubElement(pane, "nav", {"id": "kernels", "aria-label": "kernels"})
    SubElement(pane, "dl", {"id": "details", "aria-live": "polite"})
    SubElement(pane, "pre", {"id": "listing", "tabindex": "0"})


def _data(plan: Plan, described: tuple[PlannedKernel, ...]) -> dict[str, Any]:
    """What the page's script looks up: operators by node id, kernels by label."""
    from fuser import accounting

    return {
        "operators": {
            str(r.node.id): {
                "name": r.name, "formula": r.formula, "type": r.type, "kernels": r.kernels, "stage": r.stage,
                "line": r.line, "bytes": accounting.nbytes(r.node, plan.sizes), "op": r.node.op,
            }
            for r in facts.operators(plan)
        },
        "kernels": {
            k.label: {
                "name": k.name, "hue": at % svg.HUES, "lines": k.lines, "facts": svg.kernel_lines(plan, k),
                "code": {b.kernel.name: b.source() for b in k.built},
            }
            for at, k in enumerate(described)
        },
    }  # fmt: skip
