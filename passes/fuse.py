"""From a prepared graph to groups: which operators share a kernel, in which order kernels run, and why.

In: a graph of rows only (see `pipeline`), the representative size of each dim, a device. Out: groups in
execution order and the decisions behind them. Steps: facts, search, repairs, independent kernels into one launch, an
order that lets arguments be updated in place where that is safe, names, decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from fuser.decision import Decision
from fuser.device import Device
from fuser.graph import Graph, Node
from fuser.group import Group
from fuser.passes import batch, decisions, effects, repair
from fuser.passes.clusters import Partition
from fuser.passes.facts import Facts
from fuser.passes.legality import describe, named
from fuser.passes.limits import Limits
from fuser.passes.margins import capacity
from fuser.passes.search import Search, Wishes
from fuser.record import dataclass
from fuser.runtime.quiet import collection_paused

PATH_BUDGET = 1024  # clusters looked at when asking whether a merge would close a cycle


@dataclass(frozen=True)
class Options:
    """contiguous: positions of arguments known to be C-contiguous (others may need strides among the parameters).

    in_place: let groups store straight into updated arguments where that is safe (the runtime must then not copy back,
    and must use a plan without it when arguments overlap). path_budget: bound of one cycle question. merge: False
    leaves every operator a kernel of its own (what fused programs are compared with). always: merge whatever is legal,
    also where that costs time or registers. apart: pairs of node ids that must not share a kernel.
    """

    contiguous: Collection[int] = ()
    in_place: bool = False
    path_budget: int = PATH_BUDGET
    merge: bool = True
    always: bool = False
    apart: Collection[tuple[int, int]] = ()


@collection_paused()
def plan_groups(
    graph: Graph, sizes: Mapping[str, int], device: Device, options: Options | None = None
) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
    """The groups of a graph in execution order, and a decision for every pair of operators considered."""
    options = options or Options()
    facts = Facts(graph, sizes, capacity(device))
    partition = Partition(facts, options.path_budget)
    strided = {n.id for p, n in graph.inputs.items() if p not in options.contiguous}
    limits = Limits(facts, device, strided)
    wishes = _wishes(facts, options)
    search = Search(partition, limits, wishes)
    if options.merge:
        search.run()
    kernels = repair.units(partition, search, device)
    again = repair.Recompute(facts, kernels, limits)
    launches = batch.Batching(facts, limits, wishes)
    if options.merge and not wishes.apart:
        again.run()
    if options.merge:
        kernels = launches.run(kernels)
    order = effects.execution_order(facts, kernels)
    groups = _name_all(facts, [kernels[k].formed.group for k in order])
    if options.in_place:
        walks = [[u.formed.walk for u in kernels[k].parts or (kernels[k],)] for k in order]
        groups = effects.in_place(facts, groups, walks, options.contiguous)
    considered = decisions.settled(decisions.record(facts, search), kernels.values())
    return tuple(groups), (*considered, *again.decisions, *launches.decisions)


def _wishes(facts: Facts, options: Options) -> Wishes:
    """The options and the program's own marks, by the cores that marked values are computed by."""
    pairs: dict[bool, set[tuple[int, int]]] = {True: set(), False: set(options.apart)}
    for m in facts.graph.marks:
        a, b = (_core(facts, n) for n in (m.a, m.b))
        if a != b:
            pairs[m.together].add((a, b))
    return Wishes(options.always, frozenset(pairs[False]), frozenset(pairs[True]))


def _core(facts: Facts, node: Node) -> int:
    while node.id not in facts.core_set and node.inputs:
        node = node.inputs[0]
    return node.id


def _name_all(facts: Facts, groups: list[Group]) -> list[Group]:
    """Readable names, each once: a second `f_pointwise` is `f_pointwise_2`."""
    used: dict[str, int] = {}
    out = []
    for g in groups:
        name = named(g, describe(facts, g)).name
        used[name] = used.get(name, 0) + 1
        out.append(replace(g, name=name if used[name] == 1 else f"{name}_{used[name]}"))
    return out
