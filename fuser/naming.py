"""Names of values in everything users see: their own variable names first.

In: a graph with the names and spans that front ends noted. Out: one unique name a node: the user's variable,
else the operator's name with a number on repeats (`exp`, `exp.2`); literals show as themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cached_property

from fuser.graph import Graph, InputAttrs, Node, ScalarAttrs


class Names:
    """`names[node_id]`, and lookup by what a user might type."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def _by_id(self) -> Mapping[int, str]:
        used: dict[str, int] = {}
        out: dict[int, str] = {}
        for n in self.graph.nodes:
            base = self._base(n)
            used[base] = used.get(base, 0) + 1
            out[n.id] = base if used[base] == 1 else f"{base}.{used[base]}"
        return out

    def _base(self, node: Node) -> str:
        given = self.graph.names.get(node)
        if given:
            return given[-1]
        if isinstance(node.attrs, InputAttrs):
            return self.graph.arguments[node.attrs.position].name
        if isinstance(node.attrs, ScalarAttrs):
            return str(node.attrs.expr)
        if node in self.graph.outputs and len(self.graph.outputs) == 1:
            return "out"
        return node.op

    def __getitem__(self, node_id: int) -> str:
        return self._by_id[node_id]

    def find(self, spelling: str | int) -> list[Node]:
        """Nodes that a variable name, operator name (`exp`, `exp.2`), `line 3` or node id means."""
        by_id = self.graph.by_id
        if isinstance(spelling, int):
            return [by_id[spelling]] if spelling in by_id else []
        exact = [by_id[k] for k, name in self._by_id.items() if name == spelling]
        if exact:
            return exact
        called = [n for n in self.graph.nodes if spelling in self.graph.names.get(n, ())]
        if called:
            return called[-1:]
        if spelling.startswith("line ") and spelling[5:].isdigit():
            line = int(spelling[5:])
            return [n for n in self.graph.nodes if any(s.line == line for s in self.graph.spans.get(n, ()))]
        return [n for n in self.graph.nodes if n.op == spelling]

    def near(self, spelling: str | int) -> list[str]:
        """A hint line with the closest names, or all of them when nothing is close."""
        known = sorted(set(self._by_id.values()))
        close = difflib.get_close_matches(str(spelling), known, 3) or known[:12]
        return ["did you mean " + ", ".join(close) + "?"]
