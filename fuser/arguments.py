"""The arguments of one call: bound, classified, keyed.

In: what the user passed. Out: a `Bound` call: a spec a leaf for the front ends (array, run-time scalar, static value),
the arrays' descriptions, the host environment (dims, strides, scalars), and the trace key.

Classes of leaves: arrays (NumPy scalars are strong 0-d arrays); Python `int` and `float` are run-time scalars;
everything else is static and part of the key, as are scalars and dims that an earlier trace asked to specialise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from fuser import trees
from fuser.errors import ArgumentError, DeviceError
from fuser.hostexpr import HostExpr
from fuser.keys import Layout, TraceKey, stride_symbol
from fuser.record import dataclass
from fuser.runtime import arrays
from fuser.runtime.arrays import CPU, ArrayInfo, Family, Place
from fuser.specs import ArraySpec, ScalarSpec, Spec, StaticSpec, looks_like_array, symbolic_shape

if TYPE_CHECKING:
    from fuser.graph import Graph

PreferredDims = Callable[[str, int], Sequence[str | None]]  # (leaf name, rank) -> the user's names for its dims


@dataclass(frozen=True)
class Bound:
    """One call, ready to be traced, planned and run.

    names/leaves/specs are parallel, one entry a leaf of the argument tree; `infos` describes the array leaves in order.
    `env` binds dim symbols (`n`, `x.0`), strides (`#0.1`) and scalars (`=h`). `lone`: the dim symbols that stand for
    axes of length 1.
    """

    tree: Any
    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    specs: tuple[Spec, ...]
    infos: tuple[ArrayInfo, ...]
    env: Mapping[str, Any]
    family: Family
    place: Place
    key: TraceKey
    lone: frozenset[str] = frozenset()

    @property
    def statics(self) -> dict[str, Any]:
        """Arguments that are neither arrays nor numbers, by name: what is in an object may change between calls."""
        named = zip(self.names, self.specs, strict=True)
        found = {n: s.value for n, s in named if isinstance(s, StaticSpec)}
        return {n: v for n, v in found.items() if not isinstance(v, (str, bool, type(None)))}

    @property
    def layouts(self) -> tuple[Layout, ...]:
        return tuple("c" if i.contiguous else "s" for i in self.infos)


@dataclass(frozen=True)
class Request:
    """What earlier traces asked to know: names of scalars and dim symbols that must be static."""

    scalars: frozenset[str] = frozenset()
    dims: frozenset[str] = frozenset()


def bind(
    arguments: Mapping[str, Any],
    static_names: frozenset[str],
    request: Request,
    device: str,
    dims: PreferredDims,
    lift: bool = False,
) -> Bound:
    """Classify the bound arguments of a call; ArgumentError, DTypeError or DeviceError where they do not fit.

    Names of leaves are readable: `x`, `params.w`, `state.0`. lift: lone axes of length 1 are symbols, as longer ones.
    """
    taken: set[str] = set()
    leaves, tree = trees.flatten(dict(arguments), static=static_names)
    names = tuple(trees.leaf_names(tree))
    specs: list[Spec] = []
    infos: list[ArrayInfo] = []
    env: dict[str, Any] = {}
    found = {
        k: arrays.describe(leaf, name)
        for k, (name, leaf) in enumerate(zip(names, leaves, strict=True))
        if name.partition(".")[0] not in static_names and arrays.is_array(leaf)
    }
    lone = _lone_axes(list(found.values())) if lift else frozenset()
    for k, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        root = name.partition(".")[0]
        if k in found:
            sizes = _lifted(found[k].shape, lone)
            shape = symbolic_shape(sizes, dims(name, len(sizes)), name, taken)
            specs.append(_array_spec(found[k], shape, request, env, len(infos)))
            infos.append(found[k])
        elif root not in static_names and type(leaf) in (int, float) and name not in request.scalars:
            specs.append(ScalarSpec("int" if type(leaf) is int else "float"))
            env[f"={name}"] = leaf
        elif (
            root not in static_names
            and type(leaf) is complex
            and not {f"{name}.real", f"{name}.imag"} & request.scalars
        ):
            specs.append(ScalarSpec("complex"))
            env |= {f"={name}.real": leaf.real, f"={name}.imag": leaf.imag}
        else:
            if root not in static_names:
                _refuse_descriptions(leaf, name)
            specs.append(StaticSpec(_hashable(leaf, name)))
    family, place = placement(names, specs, infos)
    key = TraceKey(tree, _array_keys(specs), _scalar_keys(specs), _static_keys(specs), device or str(place))
    alone = _symbols_of_one(specs, env) if lone else frozenset()
    return Bound(tree, names, tuple(leaves), tuple(specs), tuple(infos), env, family, place, key, alone)


def _lone_axes(infos: Sequence[ArrayInfo]) -> frozenset[int]:
    """The axes, counted from the last one (-1), along which all arrays that have them have length 1: nothing is
    broadcast along these, so the program of longer ones may serve."""
    longest = max((len(i.shape) for i in infos), default=0)
    sizes = {k: {i.shape[k] for i in infos if len(i.shape) >= -k} for k in range(-longest, 0)}
    return frozenset(k for k, found in sizes.items() if found == {1})


def _lifted(shape: tuple[int, ...], lone: frozenset[int]) -> tuple[int, ...]:
    """A shape to take symbols for: lone axes as if they were longer."""
    return tuple(2 if k - len(shape) in lone else n for k, n in enumerate(shape))


def _symbols_of_one(specs: Sequence[Spec], env: Mapping[str, Any]) -> frozenset[str]:
    shapes = [s.shape for s in specs if isinstance(s, ArraySpec)]
    return frozenset(d.value for shape in shapes for d in shape if isinstance(d, HostExpr) and env[d.value] == 1)


def _array_spec(
    info: ArrayInfo, shape: Sequence[int | HostExpr], request: Request, env: dict[str, Any], position: int
) -> ArraySpec:
    """The spec of an array leaf; binds its dims and strides in `env`."""
    dims: list[int | HostExpr] = []
    for axis, (d, size, stride) in enumerate(zip(shape, info.shape, info.strides, strict=True)):
        env[stride_symbol(position, axis)] = stride
        if isinstance(d, HostExpr):
            env[d.value] = size
            dims.append(size if d.value in request.dims else d)
        else:
            dims.append(d)
    return ArraySpec(info.dtype, tuple(dims), info.is_scalar, info.family)


def placement(names: Sequence[str], specs: Sequence[Spec], infos: Sequence[ArrayInfo]) -> tuple[Family, Place]:
    """The one library and device of a call's arrays (NumPy on the CPU when there are none).

    NumPy scalars go anywhere. Arrays of two devices raise DeviceError naming both.
    """
    array_names = [n for n, s in zip(names, specs, strict=True) if isinstance(s, ArraySpec)]
    real = [(n, i) for n, i in zip(array_names, infos, strict=True) if not i.is_scalar]
    if not real:
        return "numpy", CPU
    first_name, first = real[0]
    for name, info in real[1:]:
        if info.place != first.place:
            raise DeviceError(
                f"`{first_name}` is on {first.place} but `{name}` is on {info.place}",
                "mixed-devices",
                notes=["move one of them; fuser copies nothing between devices by itself"],
            )
    families = [i.family for _, i in real]
    ranked = ("numpy", "cupy", "torch")  # a NumPy array among torch tensors gives a tensor
    return max(families, key=lambda f: ranked.index(f) if f in ranked else len(ranked)), first.place


def captured(bound: Bound, graph: Graph, found: Sequence[Any]) -> list[ArrayInfo]:
    """The arrays that a program refers to, as they are now; they are the graph's last arguments.

    DeviceError, by the name in the program, for one that is not where the call's arrays are.
    """
    infos = [arrays.describe(a, "captured array") for a in found]
    for argument, info in zip(graph.arguments[len(graph.arguments) - len(infos) :], infos, strict=True):
        if info.place != bound.place:
            raise DeviceError(
                f"`{argument.name}`, which the program refers to, is on {info.place} but the call's arrays are on "
                f"{bound.place}",
                "mixed-devices",
                notes=["move one of them; fuser copies nothing between devices by itself"],
            )
    return infos


def _array_keys(specs: Sequence[Spec]) -> tuple[Any, ...]:
    """Dtype and class of each dim; a dim asked to be static is keyed by its value."""
    return tuple(
        (
            s.dtype.name + ("!" if s.is_scalar else "") + s.family[0],
            tuple("n" if isinstance(d, HostExpr) else str(d) for d in s.shape),
        )
        for s in specs
        if isinstance(s, ArraySpec)
    )


def _scalar_keys(specs: Sequence[Spec]) -> tuple[str, ...]:
    return tuple(s.kind for s in specs if isinstance(s, ScalarSpec))


def _static_keys(specs: Sequence[Spec]) -> tuple[Any, ...]:
    """Static values with their types (True == 1 in Python, but not as a static argument)."""
    return tuple((type(s.value).__name__, s.value) for s in specs if isinstance(s, StaticSpec))


def _refuse_descriptions(value: Any, name: str) -> None:
    """ArgumentError for what only describes an array, which a program would take for a setting."""
    if isinstance(value, str) and "[" in value and looks_like_array(value):
        what = f'the text "{value}"'
    elif arrays.only_shaped(value):
        what = f"a {type(value).__name__}"
    else:
        return
    raise ArgumentError(
        f"`{name}` is {what}: it describes an array and is none",
        "description",
        notes=[
            "pass an array; to plan or compile for a description: f.plan(...), f.warm(...)",
            f'a setting of the program that looks like one: static_argnames=("{name.partition(".")[0]}",)',
        ],
    )


def _hashable(value: Any, name: str) -> Any:
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"`{name}` is a {type(value).__name__}: neither an array, a number nor hashable",
            "unhashable-argument",
            notes=["pass arrays, numbers, or hashable values such as strings and tuples"],
        ) from None
    return value


def as_specs(bound: Bound, signature: Signature) -> str:
    """The arguments of `warm` for calls like this one: arrays as specs, all else as it is."""
    found = iter(bound.infos)
    leaves = [
        next(found).spec if isinstance(s, ArraySpec) else leaf
        for leaf, s in zip(bound.leaves, bound.specs, strict=True)
    ]
    texts: list[str] = []
    by_name = False
    for name, value in trees.unflatten(bound.tree, leaves).items():
        kind = signature.parameters[name].kind
        if kind == Parameter.VAR_POSITIONAL:
            texts += map(repr, value)
        elif kind == Parameter.VAR_KEYWORD:
            texts += [f"{key}={v!r}" for key, v in value.items()]
        else:
            by_name = by_name or kind == Parameter.KEYWORD_ONLY
            texts.append(f"{name}={value!r}" if by_name else repr(value))
    return ", ".join(texts)


def array_names(bound: Bound, captured: int) -> list[str]:
    """Names of the call's arrays in graph order; captured arrays are last."""
    named = [n for n, s in zip(bound.names, bound.specs, strict=True) if isinstance(s, ArraySpec)]
    return [*named, *["captured array"] * captured]


def on_place(bound: Bound) -> tuple[ArrayInfo, ...]:
    """The call's arrays with NumPy scalars moved to the call's device."""
    if bound.place == CPU or not any(i.is_scalar for i in bound.infos):
        return bound.infos
    from fuser.runtime import cuda

    return tuple(
        arrays.describe(cuda.copy_to(bound.place, i.base), "scalar") if i.is_scalar else i for i in bound.infos
    )


def dask_road(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The module that runs a call on dask arrays; None where no argument is one (nor can be: dask is not imported)."""
    if "dask.array" not in sys.modules:
        return None
    from fuser import daskarrays

    return daskarrays if daskarrays.among(args, kwargs) else None
