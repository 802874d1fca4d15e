"""Results on their way to the caller: `out=` arrays going in, containers and scalars coming out.

In: a graph, what the caller passed as `out`, result arrays. Out: arrays that kernels may write directly, and what the
call returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuser import shapes, trees
from fuser.arguments import Bound
from fuser.errors import ArgumentError, DeviceError, ShapeError
from fuser.graph import Graph
from fuser.runtime import arrays, call, foreign, tensors
from fuser.runtime.arrays import ArrayInfo
from fuser.specs import ArraySpec
from fuser.trees import ArrayLeaf


def out_leaves(graph: Graph, out: Any) -> list[Any]:
    """The arrays of `out`, one a result; ArgumentError where their number differs."""
    leaves = [out] if arrays.is_array(out) else trees.flatten(out, is_leaf=arrays.is_array)[0]
    if len(leaves) != len(graph.outputs):
        raise ArgumentError(f"out= has {len(leaves)} arrays for {len(graph.outputs)} results", "out-count")
    return list(leaves)


def given(graph: Graph, out: Any, bound: Bound) -> list[ArrayInfo | None]:
    """For each result, the array of `out` that kernels may write as it is; None where none was given, or where the
    result must be computed apart and copied (another dtype, strides, or memory that an argument overlaps)."""
    if out is None:
        return [None] * len(graph.outputs)
    return [_usable(a, n, graph, bound) for a, n in zip(out_leaves(graph, out), graph.outputs, strict=True)]


def _usable(array: Any, node: Any, graph: Graph, bound: Bound) -> ArrayInfo | None:
    info = arrays.describe(array, "out")
    if info.place != bound.place:
        message = f"out= is on {info.place} but the call's arrays are on {bound.place}"
        raise DeviceError(message, "mixed-devices", notes=["fuser copies nothing between devices by itself"])
    wanted = shapes.evaluate(node.shape, bound.env)
    if info.shape != wanted:
        raise ShapeError(f"out= has shape {info.shape}, the result {wanted}", "out-shape")
    if info.is_scalar or not (array.flags.writeable if isinstance(array, np.ndarray) else info.writable):
        raise ArgumentError("out= cannot be written", "read-only", notes=[_why_not_written(info)])
    if arrays.repeats(info):
        note = "it is a broadcast or a sliding view; pass an array of its own"
        raise ArgumentError("some elements of out= are the same memory", "overlap", notes=[note])
    direct = info.dtype == node.storage and info.contiguous and not graph.effects
    direct = direct and info.writable  # not a native copy of an array of odd address or foreign byte order
    direct = direct and info.pointer % 16 == 0  # kernels store whole vectors
    return info if direct and not any(arrays.overlaps(info, i) for i in bound.infos) else None


def deliver(
    graph: Graph, results: Sequence[ArrayInfo], env: Mapping[str, Any], out: Any, arguments: Sequence[Any]
) -> Any:
    """What the call returns: `out` filled, or the results nested as the program nests them.

    arguments: the call's arrays in graph order; a program that returns an argument it wrote returns that very object.
    """
    tensors.written(arguments[e.argument] for e in graph.effects)
    if out is None:
        arrays_out = [finished(info) for info in results]
        for index, position in returned_arguments(graph):
            arrays_out[index] = arguments[position]
        return trees.rebuild(graph.output_tree, arrays_out, env)
    for array, info in zip(out_leaves(graph, out), results, strict=True):
        if info.base is not array:
            target = array if isinstance(array, np.ndarray) else call.as_place_array(arrays.describe(array, "out"))
            target[...] = call.as_place_array(info)
    tensors.written(out_leaves(graph, out))
    return out


def returned_arguments(graph: Graph) -> list[tuple[int, int]]:
    """(result number, argument) of results that are arguments themselves."""
    tree = graph.output_tree
    leaves = () if tree is None else tree.leaves
    return [(leaf.index, leaf.argument) for leaf in leaves if isinstance(leaf, ArrayLeaf) and leaf.argument is not None]


def finished(info: ArrayInfo) -> Any:
    """A result as users get it: full reductions of NumPy arrays are NumPy scalars."""
    if info.family.startswith(foreign.PREFIX):
        return foreign.give(info.base, info.family)
    return info.base[()] if info.family == "numpy" and info.shape == () else info.base


def check_writes(graph: Graph, infos: Sequence[ArrayInfo], names: Sequence[str]) -> None:
    """Refuse to store into read-only arguments, and into arguments whose memory another argument shares.

    infos: the call's arrays in graph order, with their names (captured arrays last). A program is one step to its
    caller: where NumPy would let a store into `x` show up in `y`, there is no right answer to give silently.
    """
    for position in dict.fromkeys(e.argument for e in graph.effects):
        info = infos[position]
        if not info.writable:
            raise ArgumentError(
                f"`{names[position]}` is stored into and cannot be written",
                "read-only",
                notes=[_why_not_written(info)],
            )
        if arrays.repeats(info):
            raise ArgumentError(
                f"`{names[position]}` is stored into and some of its elements are the same memory",
                "overlap",
                notes=["it is a broadcast or a sliding view; pass a plain x.copy()"],
            )
        for other, neighbour in enumerate(infos):
            if other != position and arrays.share_memory(info, neighbour):
                raise ArgumentError(
                    f"`{names[position]}` is stored into and shares memory with `{names[other]}`",
                    "overlap",
                    notes=["pass a copy of one of them"],
                )


def _why_not_written(info: ArrayInfo) -> str:
    """What to say of an array that cannot be stored into."""
    if info.is_scalar:
        return "it is a NumPy scalar, which is a value; pass an array"
    if info.family == "torch" and arrays.is_fixed(info.base):
        return "it was made in torch.inference_mode(): store into it there, or pass x.clone()"
    if info.family == foreign.IMMUTABLE:
        return "JAX's arrays never change; return the new value instead"
    return "it is read-only, misaligned or of foreign byte order; pass a plain x.copy()"


def require_contiguous(graph: Graph, bound: Bound) -> None:
    """Refuse arguments that the program stores into through a reshape, where NumPy's reshape would have copied."""
    needed = getattr(graph.output_tree, "contiguous", ())
    names = [n for n, s in zip(bound.names, bound.specs, strict=True) if isinstance(s, ArraySpec)]
    for position in sorted(needed):
        if position < len(bound.infos) and not bound.infos[position].contiguous:
            raise ArgumentError(
                f"`{names[position]}` is stored into through a reshape and is not C-contiguous",
                "needs-contiguous",
                notes=["NumPy would store into a copy here; pass np.ascontiguousarray(x)"],
            )
