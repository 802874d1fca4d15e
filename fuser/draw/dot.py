"""Plans as Graphviz DOT: operators as boxes, kernels as clusters, edge widths by bytes.

The text goes to any DOT tool; nothing here lays anything out.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from fuser import accounting
from fuser.draw import facts, units
from fuser.graph import Node

if TYPE_CHECKING:
    from fuser.plan import Plan


def to_dot(plan: Plan) -> str:
    """One cluster a kernel; dashed edges go through memory."""
    rows = facts.operators(plan)
    shown = {r.node for r in rows}
    lines = [
        f"digraph {quote(plan.graph.name)} {{",
        "  rankdir=TB; node [shape=box, fontname=sans]; edge [fontname=sans];",
    ]
    for k in plan.outline:
        inside = [r for r in rows if r.kernels[:1] == (k.label,)]
        lines += [
            f"  subgraph {quote('cluster_' + k.label)} {{",
            f"    label={quote(f'{k.label} {k.name}')}; style=rounded;",
        ]
        lines += [f"    n{r.node.id} [label={quote(f'{r.name}: {r.formula}')}];" for r in inside]
        lines.append("  }")
    lines += [f"  n{r.node.id} [label={quote(f'{r.name} {r.type}')}, shape=ellipse];" for r in rows if not r.kernels]
    for row in rows:
        for source in dict.fromkeys(_source(i, shown) for i in row.node.inputs):
            if source is not None:
                lines.append(_edge(plan, source, row.node))
    return "\n".join([*lines, "}"]) + "\n"


def _edge(plan: Plan, a: Node, b: Node) -> str:
    nbytes = accounting.nbytes(a, plan.sizes)
    width = 1 + math.log10(max(nbytes, 1)) / 3
    ga, gb = plan.group_of.get(a.id), plan.group_of.get(b.id)
    style = "" if ga == gb else f", style=dashed, label={quote(units.size(nbytes))}"
    return f"  n{a.id} -> n{b.id} [penwidth={width:.2f}{style}];"


def _source(node: Node, shown: set[Node]) -> Node | None:
    """The nearest shown node behind views and other plumbing; None for literals."""
    while node not in shown:
        if not node.inputs:
            return None
        node = node.inputs[0]
    return node


def quote(text: str) -> str:
    """A DOT string (DOT shares JSON's escapes for quotes and backslashes)."""
    return json.dumps(text, ensure_ascii=False)
