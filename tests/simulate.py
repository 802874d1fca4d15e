"""Runs a compiled function's CUDA plan in the SIMT interpreter, on NumPy arrays, with no GPU.

In: anything `fuser.compile` takes. Out: a callable like `Compiled`, whose kernels are those planned for an
architecture, executed with every check of the interpreter. Library calls run in NumPy.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fuser
from fuser import shapes, trees
from fuser.compiled import Compiled
from fuser.graph import Graph, InputAttrs, Node
from fuser.hostexpr import HostExpr
from fuser.results import finished
from fuser.runtime import arrays, library
from fuser.strided import strided


class Simulated:
    """`Simulated(fn)(*arrays)` is what the CUDA kernels would compute. `after_expand`: run lowered collectives."""

    def __init__(self, fn: Any, arch: str = "sm_90", after_expand: bool = True, **options: Any) -> None:
        self.compiled: Compiled = fuser.compile(fn, **options)
        self.arch, self.after_expand = arch, after_expand

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound, traced = self.compiled._trace(args, kwargs)
        given = [i.base for i in bound.infos] + list(self.compiled._source.captured(traced.graph))
        flat = [np.ascontiguousarray(a) for a in given]  # effects are written to the arrays as given
        from fuser.device import find

        contiguous = replace(bound, infos=tuple(arrays.describe(a) for a in flat[: len(bound.infos)]))
        plan = self.compiled._plan_for(contiguous, traced, find(self.arch))
        env = dict(bound.env)
        memory = {n.id: flat[p].reshape(-1) for p, n in plan.graph.inputs.items()}
        for group in plan.groups:
            memory.update({node: flat[p].reshape(-1) for node, p in group.in_place})
        for group, schedule in zip(plan.groups, plan.schedules, strict=True):
            if schedule is None:
                self._library(plan.graph, group.library, memory, env)
                continue
            shared: dict[str, Any] = {}  # workspaces: the same name is the same memory in each of a group's kernels
            for kernel in plan.toolchain.lower(plan.graph, group, schedule, plan.device, plan.size_class.layouts):
                self._launch(plan.graph, kernel, memory, shared, env)
        return self._deliver(plan.graph, bound, given, memory, env)

    def _library(self, graph: Graph, node_id: Any, memory: dict[int, Any], env: dict[str, Any]) -> None:
        node = graph.by_id[node_id]
        result = np.empty(shapes.evaluate(node.shape, env), node.storage.numpy)
        operands = [self._operand(n, memory, env) for n in node.inputs]
        library.call(node, operands, result, arrays.CPU)
        memory[node.id] = result.reshape(-1)

    def _operand(self, node: Node, memory: dict[int, Any], env: dict[str, Any]) -> Any:
        if node.id in memory:
            return self._array(node, memory, env)
        found = strided(node)
        assert found is not None, node
        view = library.view_of(found, shapes.evaluate(node.shape, env), env)
        return library.seen(self._array(found.source, memory, env), view)

    def _array(self, node: Node, memory: dict[int, Any], env: dict[str, Any]) -> Any:
        return memory[node.id].reshape(shapes.evaluate(node.shape, env))

    def _launch(
        self, graph: Graph, kernel: Any, memory: dict[int, Any], shared: dict[str, Any], env: dict[str, Any]
    ) -> None:
        from fuser.codegen import simt
        from fuser.codegen.expand import expand

        if 0 in [g.evaluate(env) if isinstance(g, HostExpr) else g for g in kernel.launch.grid]:
            for b in kernel.buffers:
                if b.node is not None and b.role == "out":
                    memory.setdefault(b.node, self._empty(graph.by_id[b.node], env))
            return
        buffers = {}
        for b in kernel.buffers:
            if b.node is not None and b.node not in memory:
                memory[b.node] = self._empty(graph.by_id[b.node], env)
            if b.node is not None:
                buffers[b.name] = memory[b.node]
            else:
                size = int(b.size.evaluate(env)) if isinstance(b.size, HostExpr) else b.size
                fresh = np.zeros(size, b.dtype.numpy)
                buffers[b.name] = shared.setdefault(b.name, fresh) if b.role == "workspace" else fresh
        simt.run(expand(kernel) if self.after_expand else kernel, buffers, env)

    def _empty(self, node: Node, env: dict[str, Any]) -> Any:
        return np.empty(int(np.prod(shapes.evaluate(node.shape, env), dtype=np.int64)), node.storage.numpy)

    def _deliver(
        self, graph: Graph, bound: Any, given: Sequence[Any], memory: dict[int, Any], env: dict[str, Any]
    ) -> Any:
        results: dict[Node, Any] = {}
        for n in graph.outputs:
            is_input = isinstance(n.attrs, InputAttrs)
            results[n] = given[n.attrs.position] if is_input else self._array(n, memory, env)
        for effect in graph.effects:
            given[effect.argument][...] = self._array(effect.node, memory, env)
        values = [finished(arrays.describe(results[n])) for n in graph.outputs]
        return trees.rebuild(graph.output_tree, values, env)
