"""Comparing a compiled function with the reference.

In: a `Compiled` and arguments. Out: a `Verdict` for every result and every argument that is stored into, or CheckFailed
saying where and by how much.
Tolerances: results of integer and bool dtype must be equal; floats may differ by `rtol` of the reference's element, or
of a hundredth of the largest one where that is more, because reductions are ordered per device kind.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import progress, trees
from fuser.errors import CheckFailed
from fuser.record import dataclass
from fuser.runtime import arrays
from fuser.specs import ArraySpec

if TYPE_CHECKING:
    from fuser.compiled import Compiled
    from fuser.graph import Graph, Node

# Two units in the last place of a half type; of f32 and f64, more than sums in another order differ by.
RTOL = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-12}


@dataclass(frozen=True)
class Verdict:
    """One result, or one argument that was stored into: largest relative difference, where, and how large it may be."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    equal: bool
    largest: float
    where: tuple[int, ...]
    got: Any
    wanted: Any
    allowed: float

    def __str__(self) -> str:
        same = "equal bit for bit" if self.equal else f"largest difference {self.largest:.3g}"
        same = "equal" if self.largest == 0 and not self.equal else same  # the sign of a zero, the bits of a NaN
        return f"{self.name} {self.dtype}{list(self.shape)}: {same}"


def host(value: Any) -> Any:
    """A result on the host as a NumPy array or scalar; bfloat16 as ml_dtypes stores it."""
    family = arrays.family_of(value)
    if family == "cupy":
        return value.get()
    if family == "torch":
        from fuser.runtime import tensors

        return tensors.to_numpy(value)
    return value if family in (None, "numpy") else host(arrays.describe(value).base)


def to_host(tree: Any) -> Any:
    """A tree of arguments or results with every array on the host."""
    leaves, structure = trees.flatten(tree)
    return trees.unflatten(structure, [host(leaf) for leaf in leaves])


def reference_results(compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the program means: its graph evaluated node by node with NumPy; arguments are left alone."""
    graph, outputs, _, env = _evaluate(compiled, args, kwargs)
    return trees.rebuild(graph.output_tree, outputs, env)


def _evaluate(
    compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Graph, list[Any], list[Any], dict[str, Any]]:
    """(graph, values of its outputs, values of its effects, environment of the call), by the reference."""
    from fuser import interpreter

    bound, traced = compiled._trace(args, kwargs)  # of the arrays themselves: methods are those of their library
    given = [*(i.base for i in bound.infos), *compiled._source.captured(traced.graph)]
    env = dict(bound.env)
    outputs, effects = interpreter.evaluate(traced.graph, [np.array(host(a)) for a in given], env)
    return traced.graph, [o[()] if o.shape == () else o for o in outputs], effects, env


def stored(compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a call with these stores into, by name, as they are now."""
    bound, traced = compiled._trace(args, kwargs)
    given = [leaf for leaf, spec in zip(bound.leaves, bound.specs, strict=True) if isinstance(spec, ArraySpec)]
    positions = dict.fromkeys(e.argument for e in traced.graph.effects if e.argument < len(given))
    return {traced.graph.arguments[k].name: given[k] for k in positions}


def compare(compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any], rtol: float | None) -> list[Verdict]:
    """Run both and compare results leaf by leaf, then the arguments that the program stores into; the compiled run
    works on copies, so arguments stay as they are."""
    graph, outputs, effects, env = _evaluate(compiled, args, kwargs)
    copies = copy.deepcopy((args, dict(kwargs)))
    with progress.task("run"):
        got = trees.flatten(to_host(compiled(*copies[0], **copies[1])))[0]
    names = [f"result {k}" if len(got) > 1 else "result" for k in range(len(got))]
    allowed = _allowed(graph)
    wanted, bounds = (
        trees.flatten(trees.rebuild(graph.output_tree, leaves, env))[0]
        for leaves in (outputs, [np.float64(allowed[n]) for n in graph.outputs])  # NumPy's: as leaves of the same tree
    )
    pairs = [p for p in zip(names, got, wanted, bounds, strict=True) if p[1] is not None]
    after = {
        graph.arguments[e.argument].name: (v, allowed[e.node]) for e, v in zip(graph.effects, effects, strict=True)
    }
    pairs += [(f"argument {n}", host(a), *after[n]) for n, a in stored(compiled, *copies).items()]
    verdicts = [_compare_leaf(*pair) for pair in progress.track(pairs, "compare")]
    bad = [v for v in verdicts if v.largest > 0 and v.largest > (v.allowed if rtol is None or not v.allowed else rtol)]
    if bad:
        notes = [f"{v}, at {v.where}: got {v.got}, reference {v.wanted}" for v in bad]
        message = f"`{compiled.__name__}` differs from the reference in {len(bad)} results"
        raise CheckFailed(message, "check-failed", notes=notes)
    return verdicts


def _compare_leaf(name: str, got: Any, wanted: Any, allowed: float) -> Verdict:
    a, b = np.asarray(got), np.asarray(wanted)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise CheckFailed(f"{name} is {a.dtype}{a.shape}, the reference {b.dtype}{b.shape}", "check-failed")
    if a.size == 0:
        return Verdict(name, str(a.dtype), a.shape, True, 0.0, (), None, None, float(allowed))
    equal = a.tobytes() == b.tobytes()
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    wide_a, wide_b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.where(np.isfinite(wide_b), np.abs(wide_b), 0)) or 1.0
        difference = np.where(wide_a == wide_b, 0, np.abs(wide_a - wide_b) / np.maximum(np.abs(wide_b), scale * 1e-2))
    both_nan = np.isnan(wide_a) & np.isnan(wide_b)
    difference = np.where(both_nan, 0, np.where(np.isnan(difference), np.inf, difference))
    where = tuple(int(k) for k in np.unravel_index(int(np.argmax(difference)), difference.shape))
    return Verdict(
        name, str(a.dtype), a.shape, equal, float(difference[where]), where, a[where], b[where], float(allowed)
    )


def _allowed(graph: Graph) -> dict[Node, float]:
    """Relative difference that each value may have: that of its dtype, or of a coarser one that it was rounded to on
    the way, since a last bit before may be a unit there; none for integers and truths."""
    coarsest: dict[Node, float] = {}
    for n in graph.nodes:
        computed = n.op != "input" and (n.storage.is_float or n.dtype.is_complex)
        own = RTOL[n.storage.component.name] if computed else 0.0
        coarsest[n] = max([own, *(coarsest[i] for i in n.inputs)])
    return {n: c if n.dtype.is_float or n.dtype.is_complex else 0.0 for n, c in coarsest.items()}
