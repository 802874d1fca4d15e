"""SVG and html: well-formed, with every operator and kernel, and nothing from anywhere else."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fuser
from fuser.draw import facts
from fuser.draw.svg import to_svg
from fuser.errors import ArgumentError
from fuser.plan import Plan
from tests.draw import examples

SVG = "{http://www.w3.org/2000/svg}"
PLANS = {"softmax": examples.softmax, "scores": examples.scores}


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]()


def titles(root: ElementTree.Element) -> str:
    return "\n".join(t.text or "" for t in root.iter(f"{SVG}title"))


def test_svg_has_every_operator_and_kernel(plan: Plan) -> None:
    root = ElementTree.fromstring(to_svg(plan, compiled=False))
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert {f"op-{r.node.id}" for r in facts.operators(plan)} <= set(ids)
    assert {k.label for k in plan.outline} <= set(ids)


def test_svg_says_what_the_pointer_is_on(plan: Plan) -> None:
    said = titles(ElementTree.fromstring(to_svg(plan, compiled=False)))
    for row in facts.operators(plan):
        assert row.formula in said
        assert row.type in said
        assert f"line {row.line}" in said
    for edge in facts.apart(plan):
        if not edge.siblings:
            assert edge.decision.reason + ": " in said


def test_every_operator_of_a_kernel_is_drawn_in_it_even_when_computed_again() -> None:
    plan = examples.long(120)
    root = ElementTree.fromstring(to_svg(plan, compiled=False))
    ids = {e.get("id") for e in root.iter() if e.get("id")}
    again = [(r, k) for r in facts.operators(plan) for k in r.kernels[1:]]
    assert {f"op-{r.node.id}-{k}" for r, k in again} <= ids


def test_wider_lines_for_more_bytes() -> None:
    root = ElementTree.fromstring(to_svg(examples.scores(), compiled=False))
    widths = {}
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "link memory":
            path = group.find(f"{SVG}path")
            assert path is not None
            widths[group.get("data-from")] = float(path.get("stroke-width", "0"))
    ids = {examples.scores().names[int(k or 0)]: w for k, w in widths.items()}
    assert ids["x"] > ids["w"] > ids["g"]


def test_names_are_escaped() -> None:
    compiled = fuser.compile(lambda x: np.where(x < 1, x, x * 2), device="sm_90")
    plan = compiled.plan(np.zeros((4, 4), np.float32), device="sm_90")
    ElementTree.fromstring(to_svg(plan, compiled=False))
    assert "<lambda>" not in to_svg(plan, compiled=False)


class Page(HTMLParser):
    """What a page refers to, and its parts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[str] = []
        self.data = ""
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        self.references += [found[k] or "" for k in ("href", "src", "data", "action") if k in found]
        self._in_data = found.get("id") == "plan-data"

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def test_page_needs_nothing_else() -> None:
    text = examples.softmax().to_html()
    assert re.search(r"https?:|//cdn|@import|url\(", text) is None
    page = Page(text)
    assert page.references
    assert all(r.startswith("#") for r in page.references)


def test_links_of_the_page_lead_somewhere() -> None:
    page = Page(examples.scores().to_html())
    assert {r[1:] for r in page.references} <= page.ids


def test_page_carries_code_and_facts_of_every_kernel() -> None:
    plan = examples.scores()
    data = json.loads(Page(plan.to_html()).data)
    assert list(data["kernels"]) == [k.label for k in plan.kernels]
    for k in plan.kernels:
        given = data["kernels"][k.label]
        assert list(given["code"].values()) == [b.source() for b in k.built]
        assert dict(given["facts"])["bytes"].endswith("one by one")
    assert {int(k) for k in data["operators"]} == {r.node.id for r in facts.operators(plan)}


def test_page_shows_the_source() -> None:
    text = examples.softmax().to_html()
    assert "s = sum(e, axis=-1, keepdims=True)" in text


def test_script_cannot_be_left_by_a_string() -> None:
    page = examples.softmax().to_html()
    start = page.index('id="plan-data"')
    assert "<" not in page[start : page.index("</script>", start)]


def test_notebooks_get_text_and_picture_without_scripts() -> None:
    fragment = examples.softmax()._repr_html_()
    assert "1 kernel, was 5" in fragment
    assert "<svg" in fragment
    assert "<script" not in fragment
    ElementTree.fromstring(examples.softmax()._repr_svg_())


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    from fuser.script import dump

    path = tmp_path / "plan.svg"
    assert dump(examples.softmax(), str(path)) == f"wrote {path}\n"
    ElementTree.fromstring(path.read_text(encoding="utf-8"))
    with pytest.raises(ArgumentError, match="cannot write"):
        dump(examples.softmax(), str(tmp_path / "none" / "plan.svg"))
    with pytest.raises(ArgumentError, match="cannot dump a graph as `pdf`"):
        dump(examples.softmax(), "pdf")
