"""Kernels of random groups, as the toolchain leaves them.

In: an architecture, how many kernels. Out: their names and what the compiler reported. Graphs come from
`tests.passes.graphs`; sizes are such that every kind of schedule is met.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

from fuser import building, wiring
from fuser import device as devices
from fuser.dtypes import BF16, F32, F64
from fuser.graph import Graph, ReduceAttrs
from fuser.hostexpr import lit, sym
from fuser.keys import SizeClass, dim_buckets, dim_factors, length_bucket, vector_unit
from fuser.passes import fuse
from fuser.passes.pipeline import prepare
from fuser.shapes import numel
from fuser.toolchain import Built
from tests.passes.graphs import RandomGraph

DTYPES = (F32, F32, F32, F64, BF16)
SIZES = ({"n": 4096, "m": 2048}, {"n": 512, "m": 1024}, {"n": 30000, "m": 64})


def built_groups(arch: str, kernels: int) -> Iterator[tuple[str, Built]]:
    """(name, compiled kernel) of random groups."""
    return islice(_all(arch), kernels)


def _all(arch: str) -> Iterator[tuple[str, Built]]:
    tools, device = wiring.toolchain(), devices.find(arch)
    for seed in count():
        made = RandomGraph(seed, [sym("n"), sym("m")], DTYPES[seed % len(DTYPES)]).build(4 + seed % 24)
        graph = prepare(made)
        sizes = {k: v for k, v in SIZES[seed % len(SIZES)].items() if k in graph.symbols}
        dense = fuse.Options(contiguous=range(len(graph.arguments)))
        groups, _ = fuse.plan_groups(graph, sizes, device, dense)
        size_class = _size_class(graph, sizes)
        for group in groups:
            schedule = tools.choose(graph, group, size_class, device)
            for built in building.build(tools, graph, group, schedule, device, size_class).built:
                yield f"random {seed}", built


def _size_class(graph: Graph, sizes: dict[str, int]) -> SizeClass:
    folds = [n for n in graph.nodes if isinstance(n.attrs, ReduceAttrs)]
    lengths = {lit(1) * numel(n.inputs[0].shape[a] for a in n.attrs.axes): None for n in folds}  # type: ignore[union-attr]
    buckets = tuple(length_bucket(e, sizes) for e in lengths)
    layouts = ("c",) * len(graph.arguments)
    factors = dim_factors(vector_unit(graph), (), sizes)
    return SizeClass(dim_buckets(sizes), buckets, layouts, True, 32, factors)  # type: ignore[arg-type]
