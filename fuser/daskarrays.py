"""dask arrays as arguments: a program runs fused on every block, on dask's own schedulers.

In: a `Compiled` and a call some of whose arguments are dask arrays (of NumPy or CuPy blocks). Out: dask arrays, nothing
computed yet. The whole program is traced once, for the whole arrays, and split (`fuser.blocks`): reductions over axes
in several blocks become one fused program a block and dask's tree over the blocks' results; what lies between them is
one fused program a block. A task holds the text of its part and compiles it once a process.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import blocks, trees
from fuser.blocks import Letters, Operand, Split
from fuser.construct.common import NeedsStatic
from fuser.errors import UnsupportedError
from fuser.graph import Graph, InputAttrs, Node, ReduceAttrs
from fuser.hostexpr import HostExpr, lit, wrap
from fuser.rename import substitute_dims
from fuser.runtime.arrays import SpecArray, describe, family_of
from fuser.shapes import Guard
from fuser.source import Text
from fuser.specs import ArraySpec, Spec
from fuser.text import print_graph
from fuser.textparse import parse_graph

if TYPE_CHECKING:
    from fuser.arguments import Bound
    from fuser.compiled import Compiled


SHARE_OF_MEMORY = 0.25  # of this machine's: arguments beyond it are read, or computed, anew by every pass


def memory_bytes() -> float:
    """The machine's memory; unlimited where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows
        return float("inf")


def is_dask(value: object) -> bool:
    """Whether an argument is a dask array; dask is not imported to find out."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


def among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call has dask arrays, at any depth."""
    if "dask.array" not in sys.modules:
        return False
    leaves, _ = trees.flatten((tuple(args), dict(kwargs)), is_leaf=is_dask)
    return any(map(is_dask, leaves))


def call(compiled: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """The call's results as dask arrays (host values as they are)."""
    if out is not None:
        raise UnsupportedError("out= with dask arrays: their blocks do not exist yet", "blocks")
    graph, bound, arrays = _traced(compiled, args, kwargs)
    if graph.effects:
        raise UnsupportedError("a program that stores into its arguments, on dask arrays", "blocks")
    if graph.whole is not None:
        raise UnsupportedError("complex numbers in dask arrays", "blocks")
    captured = getattr(graph.output_tree, "captured", ())
    run = _Run(compiled, blocks.with_numbers(graph, bound.env), [*arrays, *(get() for get in captured)])
    results = run.results()
    return results[0] if graph.output_tree is None else trees.rebuild(graph.output_tree, results, bound.env)


def _traced(compiled: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Graph, Bound, list[Any]]:
    """The call's prepared graph with all dims static, and its array arguments in graph order."""
    leaves, tree = trees.flatten((tuple(args), dict(kwargs)), is_leaf=is_dask)
    specs = {id(a): _spec(a) for a in leaves if is_dask(a)}
    arrays = {id(specs[id(a)]): a for a in leaves if is_dask(a)}
    plain, named = trees.unflatten(tree, [specs.get(id(a), a) for a in leaves])
    while True:
        bound = compiled._bind(plain, named)
        dims = {k: int(v) for k, v in bound.env.items() if not k.startswith(("=", "#"))}
        try:
            graph = compiled._trace_once(bound, dims).graph
        except NeedsStatic as wanted:
            compiled._specialize(wanted, bound)
            continue
        given = [a for a, spec in zip(bound.leaves, bound.specs, strict=True) if isinstance(spec, ArraySpec)]
        return graph, bound, [arrays.get(id(a), a) for a in given]


def _spec(array: Any) -> SpecArray:
    """What of a dask array tracing needs."""
    if any(np.isnan(n) for n in array.shape):
        notes = ("x.compute_chunk_sizes() finds them",)
        raise UnsupportedError("a dask array with blocks of unknown size", "blocks", notes=notes)
    return SpecArray(describe(np.empty(0, array.dtype)).dtype, tuple(int(n) for n in array.shape))


class _Run:
    """One call: arguments as dask arrays, then rounds of reductions, then results."""

    def __init__(self, compiled: Compiled, graph: Graph, arrays: Sequence[Any]) -> None:
        import dask.array

        self.da: Any = dask.array
        self.compiled, self.graph = compiled, graph
        first = next(a for a in arrays if is_dask(a))
        self.meta = first._meta
        self.arrays = [a if is_dask(a) else self._from_array(a) for a in arrays]
        cut = {k: [c if len(c) > 1 else None for c in a.chunks] for k, a in enumerate(self.arrays)}
        self.split = Split(graph, cut)
        self.reduced: dict[int, Any] = {}
        self.anew = sum(a.nbytes for a in self.arrays) > SHARE_OF_MEMORY * memory_bytes()

    def _from_array(self, a: Any) -> Any:
        """Another array as a dask array of one block."""
        if family_of(a) not in ("numpy", "cupy"):
            raise UnsupportedError(f"a {type(a).__name__} beside dask arrays", "blocks", notes=("pass it as NumPy's",))
        a = np.asarray(a) if isinstance(a, np.generic) else a
        return self.da.from_array(a, chunks=a.shape, asarray=False)

    def results(self) -> list[Any]:
        """One dask array an output."""
        for number, together in enumerate(self.split.reductions()):
            self._next_pass(number)
            for group in _grouped(together, lambda n: self.split.classes(n.inputs[0])):
                self._reduce(group)
        self._next_pass(len(self.split.reductions()))
        found = {n.id: self.reduced[n.id] for n in self.graph.outputs if n.id in self.reduced}
        for n in self.graph.outputs:
            if isinstance(n.attrs, InputAttrs):
                found[n.id] = self.arrays[n.attrs.position]
        rest = [n for n in dict.fromkeys(self.graph.outputs) if n.id not in found]
        for group in _grouped(rest, self.split.classes):
            roots = [(n, self.split.letters(n)) for n in group]
            found |= dict(zip((n.id for n in group), self._blockwise(roots, {}), strict=True))
        return [found[n.id] for n in self.graph.outputs]

    def _next_pass(self, number: int) -> None:
        """Where memory cannot hold the arguments, no block is kept from one pass to the next: the tasks that make the
        blocks are in dask's graph once a pass, under other names."""
        if self.anew and number:
            from dask.graph_manipulation import clone

            self.arrays = [clone(a, seed=number) for a in self.arrays]

    def _reduce(self, group: Sequence[Node]) -> None:
        """Reductions of one block space: each block reduced, all of them in one pass, and dask's tree over that."""
        roots, keeps = [], {}
        for n in group:
            letters, gone = self.split.reduced_letters(n), _gone(self.split, n)
            roots.append((n, letters))
            keeps[n.id] = gone
        partial = self._blockwise(roots, keeps)
        for n, array in zip(group, partial, strict=True):
            axes = tuple(range(len(keeps[n.id])))
            self.reduced[n.id] = self._tree(n, array, axes)

    def _tree(self, n: Node, partial: Any, axes: tuple[int, ...]) -> Any:
        """The blocks' results reduced over the leading axes, by dask's tree."""
        combine = _Combine(n.op)
        return self.da.reduction(
            partial, chunk=_as_it_is, combine=combine, aggregate=combine, axis=axes, dtype=n.dtype.numpy,
            meta=self._meta(n.rank, n.dtype.numpy),
        )  # fmt: skip

    def _meta(self, rank: int, dtype: Any) -> Any:
        return self.da.utils.meta_from_array(self.meta, ndim=rank, dtype=dtype)

    def _blockwise(self, roots: Sequence[tuple[Node, Letters]], keeps: Mapping[int, Sequence[str]]) -> list[Any]:
        """A dask array for each value at letters. keeps: letters of cut axes that a reduction loses, which are leading
        axes of length one a block in its array."""
        part = self.split.program(roots)
        options = replace(self.compiled._options, expect_kernels=None, static_argnames=())
        leading = tuple(len(keeps.get(n.id, ())) for n, _ in roots)
        program = BlockProgram(print_graph(part.graph), options, self.compiled._toolchain, leading)
        operands: list[Any] = []
        chunks: dict[str, tuple[int, ...]] = {}
        for k, o in enumerate(part.operands):
            array = self._operand(o, chunks)
            operands += [array, tuple(x or f"u{k}.{a}" for a, x in enumerate(o.letters))]
        space = tuple(sorted({x for n, at in roots for x in (*at, *keeps.get(n.id, ())) if x}))
        assert all(x in chunks for x in space), "a cut axis is cut by an argument"
        if len(roots) == 1:
            n, letters = roots[0]
            return [self._array(program, n, letters, keeps.get(n.id, ()), operands)]
        tuples = self.da.blockwise(
            program, space, *operands, dtype=object, meta=np.empty((0,) * len(space), object), concatenate=True,
            align_arrays=False,
        )  # fmt: skip
        return [
            self._array(_Item(k), n, letters, keeps.get(n.id, ()), [tuples, space])
            for k, (n, letters) in enumerate(roots)
        ]

    def _array(self, function: Any, n: Node, letters: Letters, kept: Sequence[str], operands: Sequence[Any]) -> Any:
        """The dask array of one value: reduced letters first, then its own axes."""
        index = (*kept, *(x or f"v{a}" for a, x in enumerate(letters)))
        new = {f"v{a}": int(d) for a, (x, d) in enumerate(zip(letters, n.shape, strict=True)) if x is None}  # type: ignore[arg-type]
        spare = {x for i in operands[1::2] for x in i if x.startswith("b")} - set(index)
        assert not spare, "a part's operands have no cut axis that its results lack"
        return self.da.blockwise(
            function, index, *operands, new_axes=new, dtype=n.dtype.numpy, meta=self._meta(len(index), n.dtype.numpy),
            adjust_chunks=dict.fromkeys(kept, _ones), concatenate=True, align_arrays=False,
        )  # fmt: skip

    def _operand(self, o: Operand, chunks: dict[str, tuple[int, ...]]) -> Any:
        """What a part reads, cut as its letters ask."""
        node = o.node
        array = self.arrays[node.attrs.position] if isinstance(node.attrs, InputAttrs) else self.reduced[node.id]
        if o.picks:
            at = dict(o.picks)
            array = array[tuple(slice(at[a], at[a] + 1) if a in at else slice(None) for a in range(array.ndim))]
        wanted: dict[int, tuple[int, ...]] = {}
        for a, letter in enumerate(o.letters):
            if letter is None:
                wanted[a] = (array.shape[a],)
                continue
            known = self.split.chunks(node, a)
            assert known is not None
            wanted[a] = chunks.setdefault(letter, known)
        return array.rechunk(wanted) if tuple(wanted.values()) != array.chunks else array


def _gone(split: Split, n: Node) -> tuple[str, ...]:
    """Letters of the cut axes that a reduction loses."""
    assert isinstance(n.attrs, ReduceAttrs)
    return tuple(x for a, x in enumerate(split.letters(n.inputs[0])) if a in n.attrs.axes and x)


def _grouped(nodes: Sequence[Node], key: Callable[[Node], Any]) -> list[list[Node]]:
    """Nodes with the same key together, in the order of their first."""
    found: dict[Any, list[Node]] = {}
    for n in nodes:
        found.setdefault(key(n), []).append(n)
    return list(found.values())


def _as_it_is(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return x


def _ones(size: int) -> int:
    return 1


class _Combine:
    """Partial results of a reduction reduced further."""

    def __init__(self, op: str) -> None:
        self.op = op

    def __call__(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        function = getattr(np, self.op)
        options = {"dtype": x.dtype} if self.op in ("sum", "prod") else {}
        return function(x, axis=axis, keepdims=keepdims, **options)


class _Item:
    """One of the results of a block."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, results: Any) -> Any:
        return operator.getitem(results, self.k)


class BlockProgram:
    """What a task calls: a part of the program on one block of each operand. `leading`: axes of length one to put in
    front of each result."""

    def __init__(self, text: str, options: Any, toolchain: Any, leading: tuple[int, ...]) -> None:
        self.text, self.options, self.toolchain, self.leading = text, options, toolchain, leading

    def __call__(self, *given: Any) -> Any:
        compiled = _compiled(self.text, self.options, self.toolchain)
        found = compiled(*given)
        results = found if isinstance(found, tuple) else (found,)
        shaped = tuple(
            np.asarray(r).reshape((1,) * k) if isinstance(r, np.generic) else r.reshape((1,) * k + r.shape)
            for r, k in zip(results, self.leading, strict=True)
        )
        return shaped if len(shaped) > 1 else shaped[0]


@functools.lru_cache(maxsize=256)
def _compiled(text: str, options: Any, toolchain: Any) -> Compiled:
    from fuser.compiled import Compiled

    return Compiled(GraphSource(text), options, toolchain)


class GraphSource(Text):
    """A graph's text as what is compiled; its dims are letters, `b0`, that stand for the sizes of a block."""

    def __init__(self, text: str) -> None:
        self.text, self.graph = text, parse_graph(text)
        self.name = self.graph.name

    @property
    def signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_ONLY
        return inspect.Signature([inspect.Parameter(a.name, kind) for a in self.graph.arguments])

    def trace(self, names: Sequence[str], specs: Sequence[Spec], tree: Any, env: Mapping[str, Any]) -> Graph:
        """The graph over the call's dims; dims of one letter, and the numbers in its text, are guards."""
        binding: dict[str, HostExpr] = {}
        guards: list[Guard] = []
        for argument, spec in zip(self.graph.arguments, specs, strict=True):
            assert isinstance(spec, ArraySpec)
            for letter, size in zip(argument.shape, spec.shape, strict=True):
                known = binding.setdefault(letter.value, wrap(size)) if isinstance(letter, HostExpr) else lit(letter)
                if known != wrap(size):
                    guards.append(Guard(wrap(size), "==", known))
        return substitute_dims(self.graph, binding).with_(guards=tuple(guards))

    def reference(self) -> Callable[..., Any]:
        return self.trace

    def dim_names(self, leaf: str, rank: int) -> Sequence[str | None]:
        shape = next(a.shape for a in self.graph.arguments if a.name == leaf)
        return [d.value if isinstance(d, HostExpr) else None for d in shape]

    def pickled(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return GraphSource, (self.text,)
