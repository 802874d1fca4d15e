"""A group run by the letter of its definition, with NumPy: the meaning of spaces, stages, reducers and stores.

In: a graph, its groups in order, argument arrays, an environment for dims and scalars. Out: the stored
values. Each group is evaluated over its whole space at once, values as arrays over (p..., r...); a value from
memory is read at its index, a reduction of an earlier stage only in its own row. Every element of a stored
value must be written exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuser.graph import (
    Graph,
    IotaAttrs,
    ItemAttrs,
    Node,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
)
from fuser.group import Group, Reducer, Space, Stage
from fuser.hostexpr import HostExpr
from fuser.indexmap import Index
from fuser.optable import table
from fuser.optable.evaluate import evaluate_scalar
from fuser.shapes import evaluate

Array = np.ndarray[Any, Any]


class GroupRun:
    """One group over one space; `memory` holds arguments and what earlier groups stored."""

    def __init__(self, graph: Graph, group: Group, memory: dict[int, Array], env: Mapping[str, Any]) -> None:
        self.graph, self.group, self.memory, self.env = graph, group, memory, env
        self.done: dict[int, tuple[Array, ...]] = {}
        self.members = set(group.members)

    def run(self) -> None:
        for space, stages in zip(self.group.spaces, self.group.stages, strict=True):
            self.space = space
            parallel, reduced = evaluate(space.parallel, self.env), evaluate(space.reduced, self.env)
            self.rank, self.extent = len(parallel), (*parallel, *reduced)
            grids = np.indices(self.extent, sparse=True) if self.extent else []
            names = [*(f"p{k}" for k in range(len(parallel))), *(f"r{k}" for k in range(len(reduced)))]
            self.grid = dict(zip(names, grids, strict=True))
            self._check(space)
            for stage in stages:
                self._stage(stage)
            for s in self.group.column_stores:
                self._store(self.graph.by_id[s.node], s.index, (*[1] * self.rank, *reduced))

    def _check(self, space: Space) -> None:
        assert len(space.parallel_index) == len(space.parallel)

    def _stage(self, stage: Stage) -> None:
        for s in stage.stores:
            if not s.per_row:
                self._store(self.graph.by_id[s.node], s.index, self.extent)
        rows = (*self.extent[: self.rank], *[1] * (len(self.extent) - self.rank))
        finished = {r.node: self._finish(r, range(self.rank, len(self.extent))) for r in stage.reducers}
        finished |= {r.node: self._finish(r, range(self.rank)) for r in stage.across}
        self.done.update(finished)
        for s in stage.stores:
            if s.per_row:
                self._store(self.graph.by_id[s.node], s.index, rows)

    def _finish(self, r: Reducer, folded: range) -> tuple[Array, ...]:
        """The results of a reduction over some axes of the space, which keep an extent of 1."""
        node = self.graph.by_id[r.node]
        x = np.broadcast_to(self.value(node.inputs[0], r.index), self.extent)
        kept = [k for k in range(len(self.extent)) if k not in folded]
        shape = [self.extent[k] for k in kept]
        flat = np.ascontiguousarray(x.transpose(*kept, *folded).reshape(*shape, -1))
        found = table().reduction(node.op).reference(flat, (len(kept),))
        return tuple(np.asarray(v).reshape([1 if k in folded else d for k, d in enumerate(self.extent)]) for v in found)

    def _store(self, node: Node, index: Index, space: tuple[int, ...]) -> None:
        shape = evaluate(node.shape, self.env)
        value = np.broadcast_to(self.value(node, index), space)
        out = np.zeros(shape, node.storage.numpy)
        count = np.zeros(shape, np.int64)
        if not index:
            assert value.size == 1, f"{node} is stored more than once"
            self.memory[node.id] = value.reshape(()).astype(node.storage.numpy)
            return
        at = tuple(np.broadcast_to(self.number(e), space) for e in index)
        np.add.at(count, at, 1)
        assert (count == 1).all(), f"{node} is not stored exactly once"
        out[at] = value.astype(node.storage.numpy)
        self.memory[node.id] = out

    # -- values ------------------------------------------------------------------------------------
    def number(self, e: HostExpr, gathered: Mapping[str, Array] | None = None) -> Array:
        return np.asarray(e.evaluate({**self.env, **self.grid, **(gathered or {})}))

    def value(self, node: Node, index: Index) -> Array:
        """The node at an index; everything below it that is not in memory is computed on the way."""
        memo: dict[tuple[int, Index], Array] = {}
        stack: list[tuple[Node, Index, bool]] = [(node, index, False)]
        while stack:
            n, at, ready = stack.pop()
            if (n.id, at) in memo:
                continue
            below = self.operands(n, at)
            if ready or not below:
                memo[n.id, at] = self.compute(n, at, [memo[o.id, i] for o, i in below])
            else:
                stack.append((n, at, True))
                stack.extend((o, i, False) for o, i in below)
        return memo[node.id, index]

    def operands(self, n: Node, at: Index) -> list[tuple[Node, Index]]:
        if (
            n.id not in self.members
            or n.op in ("input", "scalar", "iota")
            or isinstance(n.attrs, ReduceAttrs | ItemAttrs)
        ):
            return []
        if isinstance(n.attrs, ViewAttrs):
            assert len(n.inputs) == 1, "gather is not part of these tests"
            return [(n.inputs[0], n.attrs.map.apply(at))]
        if isinstance(n.attrs, PieceAttrs):
            return [(o, p.map.apply(at)) for o, p in zip(n.inputs, n.attrs.pieces, strict=True)]
        return [(o, at) for o in n.inputs]

    def compute(self, n: Node, at: Index, values: Sequence[Array]) -> Array:
        if n.op == "input" or n.id not in self.members:
            assert n.id in self.memory, f"{n} is read before it is stored"
            assert n.id in self.group.inputs, f"{n} is read but not listed"
            return self._read(self.memory[n.id], at)
        if isinstance(n.attrs, ReduceAttrs | ItemAttrs):
            return self._reduced(n, at)
        if isinstance(n.attrs, ScalarAttrs):
            return np.asarray(n.attrs.expr.evaluate(self.env)).astype(n.dtype.numpy)
        if isinstance(n.attrs, IotaAttrs):
            return self.number(at[n.attrs.axis]).astype(n.dtype.numpy)
        if isinstance(n.attrs, PieceAttrs):
            return self._pieces(n, n.attrs, at, values)
        if isinstance(n.attrs, ViewAttrs):
            return values[0]
        if isinstance(n.attrs, RoundAttrs):
            return values[0].astype(n.attrs.to.numpy).astype(n.dtype.numpy)
        if isinstance(n.attrs, ScanAttrs):
            assert self.group.scan is not None
            assert (self.group.scan.node, self.group.scan.index) == (n.id, at)
            row, operand = table().rows[n.op], np.broadcast_to(values[0], self.extent)
            return np.asarray(row.reference(operand, len(self.extent) - 1, n.attrs.exclusive, n.attrs.reverse))
        return np.asarray(evaluate_scalar(table().scalar(n.op), *values, dtype=n.dtype))

    def _read(self, array: Array, at: Index) -> Array:
        """Elements of an array; masked lanes (outside their piece) may point anywhere and are clamped."""
        place = tuple(np.clip(self.number(e), 0, max(d - 1, 0)) for e, d in zip(at, array.shape, strict=True))
        return np.asarray(array[place])

    def _reduced(self, n: Node, at: Index) -> Array:
        base, k = (n.inputs[0], n.attrs.k) if isinstance(n.attrs, ItemAttrs) else (n, 0)
        assert base.id in self.done, f"{base} is read before its stage"
        result = self.done[base.id][k].astype(n.dtype.numpy)
        flat = result.reshape(evaluate(n.shape, self.env))
        there = self._read(flat, at)
        assert np.array_equal(
            np.broadcast_to(there, self.extent), np.broadcast_to(result, self.extent), equal_nan=True
        ), f"{base} is read outside its row"
        return result

    def _pieces(self, n: Node, attrs: PieceAttrs, at: Index, values: Sequence[Array]) -> Array:
        out = values[-1]
        binding = {f"${k}": e for k, e in enumerate(at)}
        for p, v in reversed(list(zip(attrs.pieces[:-1], values[:-1], strict=True))):
            inside = np.asarray(True)
            for e in p.domain:
                inside = inside & (self.number(e.substitute(binding)) >= 0)
            out = np.where(inside, v, out)
        return out.astype(n.dtype.numpy)


def run_groups(graph: Graph, groups: Sequence[Group], arrays: Sequence[Array], env: Mapping[str, Any]) -> list[Array]:
    """The graph's outputs, computed group by group; a value stored twice or read too early is an error."""
    memory = {n.id: arrays[p] for p, n in graph.inputs.items()}
    for group in groups:
        assert group.library is None
        for k in group.outputs:
            assert k not in memory, f"%{k} is stored twice"
        GroupRun(graph, group, memory, env).run()
    return [memory[n.id] for n in graph.outputs]
