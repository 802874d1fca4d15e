"""The graph's invariants, checked: `verify` lists every finding.

In: a graph from a front end, a pass or a text. Out: a list of sentences, empty for a sound graph. What can be
decided without a call is checked exactly (order, arity, dtypes, shapes, attributes, canonical dims); index maps
are checked by interval analysis over representative lengths, so a finding is always real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from fuser.graph import (
    Attrs,
    CompositeAttrs,
    Graph,
    InputAttrs,
    IotaAttrs,
    ItemAttrs,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
    reachable,
)
from fuser.hostexpr import HostExpr, is_scalar_symbol
from fuser.indexmap import Index, bounds
from fuser.loopbody import LoopAttrs, body_graph, findings
from fuser.optable import table
from fuser.optable.base import Composite, OpaqueOp, Reduction, ScalarOp, Scan
from fuser.shapes import text_of

# Lengths at which maps are tried: bounds must hold at each that satisfies the graph's guards.
PROBES = (7, 64, 1000)
MAX_FINDINGS = 100
Findings = Iterator[str]


def verify(graph: Graph) -> list[str]:
    """Every broken invariant, in node order, at most `MAX_FINDINGS`."""
    found: list[str] = []
    envs = _environments(graph)
    for check in (_structure, _results):
        found += list(check(graph))
    positions = {n: k for k, n in enumerate(graph.nodes)}
    for node in graph.nodes:
        if len(found) >= MAX_FINDINGS:
            break
        for finding in (*_order(node, positions), *_node(graph, node), *_maps(node, envs)):
            found.append(f"%{node.id} {node.op}: {finding}")
    return found[:MAX_FINDINGS]


# -- the whole graph -------------------------------------------------------------------------------
def _structure(graph: Graph) -> Findings:
    ids = [n.id for n in graph.nodes]
    if ids != sorted(set(ids)):
        yield "nodes are not in ascending order of distinct ids"
    live = reachable(graph.results)
    if len(live) != len(graph.nodes):
        dead = {n.id for n in graph.nodes} - {n.id for n in live}
        yield f"nodes that no result needs: {', '.join(f'%{k}' for k in sorted(dead)[:5])}"
    merged = {s for a in graph.arguments for d in a.shape if isinstance(d, HostExpr) for s in d.symbols}
    known = merged | {s for g in graph.guards for e in (g.left, g.right) for s in e.symbols}
    for name in sorted(graph.symbols - known):
        if not is_scalar_symbol(name):
            yield f"dim `{name}` belongs to no argument"


def _results(graph: Graph) -> Findings:
    members = set(graph.nodes)
    for n in graph.results:
        if n not in members:
            yield f"result %{n.id} is not a node of the graph"
    for e in graph.effects:
        if not 0 <= e.argument < len(graph.arguments):
            yield f"effect on argument {e.argument}, of {len(graph.arguments)}"
        else:
            a = graph.arguments[e.argument]
            if a.shape != e.node.shape or a.dtype != e.node.dtype:
                yield f"effect on `{a.name}` {a.dtype}{text_of(a.shape)} holds {e.node.dtype}{text_of(e.node.shape)}"
    stored = [e.argument for e in graph.effects]
    if len(set(stored)) < len(stored):
        yield "two effects on one argument"


# -- one node --------------------------------------------------------------------------------------
def _order(node: Node, positions: dict[Node, int]) -> Findings:
    for i in node.inputs:
        if i not in positions:
            yield f"operand %{i.id} is not in the graph"
        elif positions[i] >= positions[node]:
            yield f"operand %{i.id} comes later"
    for d in node.shape:
        if isinstance(d, HostExpr) and (d.kind != "int" or d.is_literal):
            yield f"dim `{d}` is not in normal form"
        elif isinstance(d, int) and d < 0:
            yield f"dim {d} is negative"


def _node(graph: Graph, node: Node) -> Findings:
    row = table().rows.get(node.op)
    if isinstance(row, ScalarOp):
        yield from _scalar_row(node, row)
    elif isinstance(row, Reduction):
        yield from _reduction(node, row)
    elif isinstance(row, Scan):
        yield from _scan(node, row)
    elif isinstance(row, Composite | OpaqueOp):
        yield from _named(node, row)
    elif node.op in _LEAVES:
        kind, count, check = _LEAVES[node.op]
        if not isinstance(node.attrs, kind):
            yield f"attributes are {type(node.attrs).__name__}, not {kind.__name__}"
        elif count is not None and len(node.inputs) != count:
            yield f"{len(node.inputs)} operands, not {count}"
        else:
            yield from check(graph, node)
    else:
        yield "no such operator"


def _scalar_row(node: Node, row: ScalarOp) -> Findings:
    if node.attrs is not None:
        yield "a scalar operator has no attributes"
    if len(node.inputs) != row.arity:
        yield f"{len(node.inputs)} operands, not {row.arity}"
        return
    for i in node.inputs:
        if i.shape != node.shape:
            yield f"operand %{i.id} {text_of(i.shape)} has another shape than the result {text_of(node.shape)}"
    if row.converts:
        if node.op == "bitcast" and node.inputs[0].dtype.bits != node.dtype.bits:
            yield f"bitcast from {node.inputs[0].dtype} to {node.dtype}"
        return
    seen = [i.dtype for i in node.inputs]
    rule = row.resolve(seen)
    if rule is None:
        yield f"refuses ({', '.join(map(str, seen))})"
    elif list(rule.operands) != seen or rule.result != node.dtype:
        wanted = f"({', '.join(map(str, rule.operands))}) -> {rule.result}"
        yield f"({', '.join(map(str, seen))}) -> {node.dtype} where the row says {wanted}"


def _axes_of(node: Node) -> Findings:
    assert isinstance(node.attrs, ReduceAttrs)
    axes = node.attrs.axes
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < node.inputs[0].rank for a in axes):
        yield f"axes {axes} of rank {node.inputs[0].rank}"


def _reduction(node: Node, row: Reduction) -> Findings:
    if not isinstance(node.attrs, ReduceAttrs) or len(node.inputs) != 1:
        yield "a reduction has ReduceAttrs and one operand"
        return
    yield from _axes_of(node)
    x = node.inputs[0]
    if row.accepts(x.dtype) != x.dtype:
        yield f"does not take {x.dtype}"
        return
    if row.results(x.dtype)[0] != node.dtype:
        yield f"gives {row.results(x.dtype)[0]}, not {node.dtype}"
    if node.shape != tuple(d for k, d in enumerate(x.shape) if k not in node.attrs.axes):
        yield f"shape {text_of(node.shape)} from {text_of(x.shape)} over {node.attrs.axes}"


def _scan(node: Node, row: Scan) -> Findings:
    if not isinstance(node.attrs, ScanAttrs) or len(node.inputs) != 1:
        yield "a scan has ScanAttrs and one operand"
        return
    x = node.inputs[0]
    if not 0 <= node.attrs.axis < x.rank:
        yield f"axis {node.attrs.axis} of rank {x.rank}"
    if node.shape != x.shape:
        yield f"shape {text_of(node.shape)} from {text_of(x.shape)}"
    fold = table().reduction(row.reduction)
    if fold.accepts(x.dtype) != x.dtype or fold.results(x.dtype)[0] != node.dtype:
        yield f"{x.dtype} -> {node.dtype}"


def _named(node: Node, row: Composite | OpaqueOp) -> Findings:
    kind = CompositeAttrs if isinstance(row, Composite) else OpaqueAttrs
    if not isinstance(node.attrs, kind):
        yield f"attributes are {type(node.attrs).__name__}, not {kind.__name__}"
        return
    from fuser.graph import Builder

    dtype, shape = row.infer(Builder("verify"), node.inputs, dict(node.attrs.params))
    if (dtype, tuple(shape)) != (node.dtype, node.shape):
        yield f"{node.dtype}{text_of(node.shape)} where its row says {dtype}{text_of(shape)}"


# -- nodes without a row ---------------------------------------------------------------------------
def _input(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, InputAttrs)
    if not 0 <= node.attrs.position < len(graph.arguments):
        yield f"argument {node.attrs.position}, of {len(graph.arguments)}"
        return
    a = graph.arguments[node.attrs.position]
    if (a.dtype, a.shape) != (node.dtype, node.shape):
        yield f"{node.dtype}{text_of(node.shape)} where argument `{a.name}` is {a.dtype}{text_of(a.shape)}"


def _scalar(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, ScalarAttrs)
    if node.shape != ():
        yield f"shape {text_of(node.shape)}, not []"
    if node.attrs.expr.kind == "float" and not node.dtype.is_float:
        yield f"a float expression as {node.dtype}"


def _iota(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, IotaAttrs)
    if not 0 <= node.attrs.axis < node.rank:
        yield f"axis {node.attrs.axis} of rank {node.rank}"


def _item(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, ItemAttrs)
    x = node.inputs[0]
    row = table().rows.get(x.op)
    if not isinstance(row, Reduction):
        yield f"an item of %{x.id} {x.op}, which has one result"
        return
    results = row.results(x.inputs[0].dtype)
    if not 0 < node.attrs.k < len(results) or results[node.attrs.k] != node.dtype or x.shape != node.shape:
        yield f"result {node.attrs.k} of {x.op} as {node.dtype}{text_of(node.shape)}"


def _round(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, RoundAttrs)
    if not node.attrs.to.is_half or node.dtype != node.inputs[0].dtype or node.shape != node.inputs[0].shape:
        yield f"rounds {node.inputs[0].dtype} through {node.attrs.to} to {node.dtype}"


def _loop(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, LoopAttrs)
    found = findings(node)
    yield from found
    if not found:
        yield from (f"in the loop: {text}" for text in verify(body_graph(node.attrs, [i.dtype for i in node.inputs])))


def _map_symbols(exprs: Index, rank: int, operands: int) -> Findings:
    allowed = {f"${k}" for k in range(rank)} | {f"@{k}" for k in range(operands)}
    for e in exprs:
        if e.kind != "int":
            yield f"index `{e}` is no integer"
        for s in sorted(e.symbols):
            if s.startswith(("$", "@")) and s not in allowed:
                yield f"index `{e}` names {s}"


def _view(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, ViewAttrs)
    if not node.inputs:
        yield "a view has an operand"
        return
    x, *index = node.inputs
    if x.dtype != node.dtype:
        yield f"a view of {x.dtype} as {node.dtype}"
    if len(node.attrs.map.exprs) != x.rank:
        yield f"a map to {len(node.attrs.map.exprs)} axes of a source of rank {x.rank}"
    yield from _map_symbols(node.attrs.map.exprs, node.rank, len(index))
    for i in index:
        if i.shape != node.shape or not i.dtype.is_integer:
            yield f"index operand %{i.id} is {i.dtype}{text_of(i.shape)}"


def _piecewise(graph: Graph, node: Node) -> Findings:
    assert isinstance(node.attrs, PieceAttrs)
    pieces = node.attrs.pieces
    if len(pieces) != len(node.inputs) or not pieces:
        yield f"{len(pieces)} pieces for {len(node.inputs)} operands"
        return
    if pieces[-1].domain or any(not p.domain for p in pieces[:-1]):
        yield "only the last piece has no domain"
    for p, x in zip(pieces, node.inputs, strict=True):
        if x.dtype != node.dtype:
            yield f"a piece of {x.dtype} in {node.dtype}"
        if len(p.map.exprs) != x.rank:
            yield f"a piece's map to {len(p.map.exprs)} axes of a source of rank {x.rank}"
        yield from _map_symbols((*p.domain, *p.map.exprs), node.rank, 0)


Check = Callable[[Graph, Node], Findings]
_LEAVES: dict[str, tuple[type[Attrs], int | None, Check]] = {
    "input": (InputAttrs, 0, _input),
    "scalar": (ScalarAttrs, 0, _scalar),
    "iota": (IotaAttrs, 0, _iota),
    "item": (ItemAttrs, 1, _item),
    "round": (RoundAttrs, 1, _round),
    "loop": (LoopAttrs, None, _loop),
    "view": (ViewAttrs, None, _view),
    "piecewise": (PieceAttrs, None, _piecewise),
}


# -- index maps ------------------------------------------------------------------------------------
def _environments(graph: Graph) -> list[dict[str, int]]:
    """Representative lengths of all dims, those kept that satisfy the guards."""
    names = set(graph.symbols) | {s for g in graph.guards for e in (g.left, g.right) for s in e.symbols}
    if any(is_scalar_symbol(s) for s in names):
        return []
    found: list[dict[str, int]] = []
    for probe in PROBES:
        env = dict.fromkeys(names, probe)
        if all(_holds(g, env) for g in graph.guards):
            found.append(env)
    return found


def _holds(guard: Any, env: dict[str, int]) -> bool:
    try:
        return bool(guard.holds(env))
    except ArithmeticError:
        return False


def _maps(node: Node, envs: list[dict[str, int]]) -> Findings:
    """A view whose affine map leaves its source at some representative length."""
    if not isinstance(node.attrs, ViewAttrs) or not node.inputs or len(node.attrs.map.exprs) != node.inputs[0].rank:
        return
    for env in envs:
        shape = [_length(d, env) for d in node.shape]
        if any(n <= 0 for n in shape):
            continue
        ranges = {f"${k}": (0, n - 1) for k, n in enumerate(shape)} | {s: (v, v) for s, v in env.items()}
        for e, d in zip(node.attrs.map.exprs, node.inputs[0].shape, strict=True):
            span = bounds(e, ranges)
            if span is not None and _exact(e) and not 0 <= span[0] <= span[1] < _length(d, env):
                yield f"index `{e}` spans {span[0]}..{span[1]} of an axis of length {_length(d, env)}"
                return


def _exact(e: HostExpr) -> bool:
    """Whether interval arithmetic is exact: every axis variable is read once, shared subexpressions counted again."""
    counts: dict[int, Counter[str]] = {}
    for n in e.walk():
        here: Counter[str] = Counter()
        for a in n.args:
            here.update(counts[id(a)])
        if n.op == "sym" and n.value.startswith("$"):
            here[n.value] += 1
        if any(c > 1 for c in here.values()):
            return False
        counts[id(n)] = here
    return True


def _length(d: Any, env: dict[str, int]) -> int:
    return int(d.evaluate(env)) if isinstance(d, HostExpr) else int(d)
