"""What a reshape has proved divisible is written as a multiple, so that equal indices look equal.

In: a graph whose guards may say that k*(c // k) is c. Out: the same graph with k*(c // k) for c everywhere but in the
guards, which calls are held against.
before: guard 4*(c // 4)*s == c*s, x: f32[c, s]    after: x: f32[4*(c // 4), s]
"""

from __future__ import annotations

from typing import ClassVar

from fuser.graph import Graph
from fuser.hostexpr import HostExpr, is_scalar_symbol, lit, sym
from fuser.passes.base import Pass
from fuser.record import dataclass
from fuser.rename import substitute_dims
from fuser.shapes import Guard


@dataclass(frozen=True)
class Divisible(Pass):
    """Write dims as the multiples that guards make them."""

    name: ClassVar[str] = "divisible"

    def run(self, graph: Graph) -> Graph:
        if self.limit == 0:
            return graph
        used = {e for n in graph.nodes for d in n.shape if isinstance(d, HostExpr) for e in d.walk()}
        found: dict[str, HostExpr] = {}
        for guard in graph.guards:
            for name, multiple in _multiples(guard):
                if sym(name) in used and not _written(graph, name, multiple):
                    found.setdefault(name, multiple)
        return substitute_dims(graph, found) if found else graph


def _multiples(guard: Guard) -> list[tuple[str, HostExpr]]:
    """(c, k*(c // k)) if a guard equates a product of argument dims, none of which is 0, with the same product in which
    one c is k*(c // k)."""
    if guard.relation != "==":
        return []
    found = []
    for plain, other in ((guard.left, guard.right), (guard.right, guard.left)):
        if any(e.op not in ("sym", "*", "lit") for e in plain.walk()) or any(map(is_scalar_symbol, plain.symbols)):
            continue
        for e in other.walk():
            if e.op == "//" and e.args[0].op == "sym" and e.args[1].op == "lit" and e.args[1].value > 1:
                name, multiple = e.args[0].value, e * e.args[1].value
                binding = {name: multiple}
                if plain != other and plain.substitute(binding) == other.substitute(binding) != lit(0):
                    found.append((name, multiple))
    return found


def _written(graph: Graph, name: str, multiple: HostExpr) -> bool:
    """Whether every argument dim that holds `name` is the multiple already."""
    dims = [d for a in graph.arguments for d in a.shape if isinstance(d, HostExpr) and name in d.symbols]
    return all(d.substitute({name: multiple}) == d for d in dims)
