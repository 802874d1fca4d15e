"""Names of values in everything users see: their own variable names first.

In: a graph with the names and spans that front ends noted. Out: one name a node: the user's variable, else the
operator's name with a number on repeats (`exp`, `exp.2`); literals show as themselves. A node that only re-reads a
value (a view, a rounding, the cast of a half-precision input) and has no name of its own goes by that value's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from fuser.graph import Graph, InputAttrs, Node, ScalarAttrs

REREADS = ("view", "round", "item")


class Names:
    """`names[node_id]`, and lookup by what a user might type."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def shown(self) -> Mapping[Node, Node]:
        """The node whose name each node goes by: itself, or what it merely re-reads."""
        out: dict[Node, Node] = {}
        for n in self.graph.nodes:
            out[n] = out[n.inputs[0]] if _rereads(n) and not self._own(n) else n
        return out

    def _own(self, node: Node) -> bool:
        """Whether the user gave this node a name that what it re-reads does not have too."""
        given, source = self.graph.names.get(node), node.inputs[0]
        known = self.graph.names.get(source, ())
        if isinstance(source.attrs, InputAttrs):
            known = (*known, self.graph.arguments[source.attrs.position].name)
        return given is not None and given[-1] not in known

    @cached_property
    def _by_id(self) -> Mapping[int, str]:
        used: dict[str, int] = {}
        out: dict[int, str] = {}
        for n in self.graph.nodes:
            source = self.shown[n]
            if source is not n:
                out[n.id] = out[source.id]
                continue
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
        if node in self.graph.outputs:
            outputs = list(dict.fromkeys(self.graph.outputs))
            if len(outputs) == 1:
                return "out"
            return f"out{outputs.index(node)}" if node.op == "cast" else node.op
        return node.op

    def __getitem__(self, node_id: int) -> str:
        return self._by_id[node_id]

    @cached_property
    def _values(self) -> list[Node]:
        """What can be asked for: everything with a name of its own but numbers."""
        return [n for n in self.graph.nodes if self.shown[n] is n and not isinstance(n.attrs, ScalarAttrs)]

    def find(self, spelling: str | int) -> list[Node]:
        """Nodes that a variable name, operator name (`exp`, `exp.2`), `line 3` or node id means.

        A bare name means all values that bear it; `exp.1`, `exp.2` mean one of them, as plans print them.
        """
        by_id = self.graph.by_id
        if isinstance(spelling, int):
            return [by_id[spelling]] if spelling in by_id else []
        values = self._values
        if spelling.startswith("line ") and spelling[5:].strip().isdigit():
            line = int(spelling[5:])
            return [n for n in values if n.op != "input" and line in (s.line for s in self.graph.spans.get(n, ())[:1])]
        alike = [n for n in values if self._base(n) == spelling]
        if alike:
            return alike
        exact = [n for n in values if self._by_id[n.id] == spelling.removesuffix(".1")]
        if exact:
            return exact
        called = [n for n in values if spelling in self.graph.names.get(n, ())]
        return called[-1:] or [n for n in values if n.op == spelling]

    def near(self, spelling: str | int) -> list[str]:
        """A hint line with the closest names, or the first of all when nothing is close."""
        for symbol, kind in ((f"={spelling}", "a number"), (spelling, "a length")):
            if symbol in self.graph.symbols:
                return [f"`{spelling}` is {kind} of the call, which kernels are given"]
        known = sorted({self._by_id[n.id] for n in self._values})
        import difflib

        close = difflib.get_close_matches(str(spelling), known, 3)
        if close:
            return ["did you mean " + ", ".join(f"`{c}`" for c in close) + "?"]
        return ["there are " + ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")]

    def candidates(self, found: Sequence[Node]) -> list[str]:
        """One line a node, for a name that means several: `exp.2  line 4  f32[n, d]`."""
        bases = [self._base(n) for n in self._values]
        rows = []
        for n in found:
            name = self._by_id[n.id]
            span = next(iter(self.graph.spans.get(n, ())), None)
            rows.append(
                (
                    name if name.rpartition(".")[2].isdigit() or bases.count(name) == 1 else f"{name}.1",
                    f"line {span.line}" if span else "",
                    f"{n.op} {n.dtype}{_dims(n)}",
                )
            )
        width = max(len(r[0]) for r in rows)
        return [f"{name:<{width}}  {line:<9} {what}".rstrip() for name, line, what in rows]


def _rereads(node: Node) -> bool:
    """Whether a node is plumbing around its first operand: no arithmetic of its own."""
    return node.op in REREADS or (node.op == "cast" and node.inputs[0].op in ("round", "input"))


def _dims(node: Node) -> str:
    return "[" + ", ".join(map(str, node.shape)) + "]"
