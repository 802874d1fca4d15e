"""The matrix of composites: every named function made of other rows, against its own independent reference.

In: an engine, a composite. Out: a list of findings. The oracle evaluates the graph as the front end leaves it, in
which a composite is still one node with the reference its row declares; `CALLS` says how each is called and on what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import fuser
from fuser import interpreter
from fuser.compiled import Compiled
from fuser.dtypes import DType
from fuser.optable import table
from fuser.optable.base import Composite
from tests.engines import Array, Engine, with_tools
from tests.ops.matrix_folds import eps, first_wrong
from tests.ops.samples import LENGTHS, specials

Shapes = Callable[[int], tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Call:
    """One way to call a composite: shapes of its float operands for a length, and keywords. wild: also on specials."""

    shapes: Shapes = lambda n: ((n,),)
    params: dict[str, Any] = field(default_factory=dict)
    wild: bool = True


def _rows(n: int) -> tuple[tuple[int, ...], ...]:
    return ((3, n),)


CALLS: dict[str, tuple[Call, ...]] = {
    "leaky_relu": (Call(), Call(params={"negative_slope": 0.3})),
    "elu": (Call(), Call(params={"alpha": 0.5})),
    "celu": (Call(), Call(params={"alpha": 2.0})),
    "gelu": (Call(), Call(params={"approximate": "tanh"})),
    "softplus_beta": (Call(), Call(params={"beta": 2.0, "threshold": 5.0})),
    "softshrink": (Call(), Call(params={"lambd": 0.25})),
    "hardshrink": (Call(), Call(params={"lambd": 0.25})),
    "hardtanh": (Call(), Call(params={"min_val": -2.0, "max_val": 0.5})),
    "threshold": (Call(), Call(params={"threshold": 0.5, "value": -3.0})),
    **{
        name: (Call(lambda n: ((n,), (n,))), Call(lambda n: ((3, 2 * n),), wild=False))
        for name in ("glu", "swiglu", "geglu", "reglu")
    },
    **{
        name: (Call(_rows), Call(lambda n: ((n, 3),), {"axis": 0}), Call(lambda n: ((2, n, 3),), {"axis": (1, 2)}))
        for name in ("softmax", "log_softmax")
    },
    "logsumexp": (
        Call(_rows, {"axis": -1}),
        Call(_rows),
        Call(lambda n: ((n, 3),), {"axis": 0, "keepdims": True}),
    ),
    "layer_norm": (
        Call(_rows, wild=False),
        Call(lambda n: ((3, n), (n,), (n,)), {"eps": 1e-3}, wild=False),
        Call(lambda n: ((2, 3, n),), {"axis": (1, 2)}, wild=False),
    ),
    "rms_norm": (Call(_rows, wild=False), Call(lambda n: ((3, n), (n,)), {"eps": 1e-3}, wild=False)),
    "batch_norm": (
        Call(lambda n: ((2, 3, n), (3,), (3,)), wild=False),
        Call(lambda n: ((2, 3, n), (3,), (3,), (3,), (3,)), {"eps": 1e-2}, wild=False),
    ),
    "cross_entropy": (
        Call(_rows, wild=False),
        Call(_rows, {"reduction": "none", "label_smoothing": 0.1}, wild=False),
        Call(lambda n: ((3, n, 2),), {"axis": 1, "reduction": "sum"}, wild=False),
    ),
}
LENGTHS_OF_CALL = (1, 2, 33, 1000)


def composites() -> list[Composite]:
    return list(table().of(Composite))


def composite_faults(engine: Engine, row: Composite, dtype: DType) -> list[str]:
    """Findings of all calls of a composite. Activations run at every length, the rest at a few."""
    found = []
    for number, call in enumerate(CALLS.get(row.name, (Call(),))):
        program = _program(row.name, call)
        compiled, meaning = engine.compile(program), fuser.compile(program)
        for n in LENGTHS if row.name not in CALLS else LENGTHS_OF_CALL:
            for k, arrays in enumerate(_operands(row.name, call, n, dtype)):
                want = as_declared(meaning, *arrays)
                got = np.asarray(compiled(*arrays))
                if wrong := _difference(got, want, arrays):
                    found.append(f"{row.name} call {number}, {dtype}, n={n}, sample {k}: {wrong}")
    return found


def _program(name: str, call: Call) -> Callable[..., Any]:
    function, params = getattr(fuser.ops, name), call.params
    count = len(call.shapes(2)) + (name == "cross_entropy")

    def one(a: Any) -> Any:
        return function(a, **params)

    def two(a: Any, b: Any) -> Any:
        return function(a, b, **params)

    def three(a: Any, b: Any, c: Any) -> Any:
        return function(a, b, c, **params)

    def five(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return function(a, b, c, d, e, **params)

    return {1: one, 2: two, 3: three, 5: five}[count]


def _operands(name: str, call: Call, n: int, dtype: DType) -> Iterator[list[Array]]:
    rng = np.random.default_rng([n, dtype.bits])
    shapes = call.shapes(n)
    calm = [(3 * rng.standard_normal(s)).astype(dtype.numpy) for s in shapes]
    if name == "batch_norm":
        calm[2] = np.abs(calm[2]) + np.asarray(0.5, dtype.numpy)
    if name == "cross_entropy":
        axis = call.params.get("axis", -1) % len(shapes[0])
        rest = tuple(d for k, d in enumerate(shapes[0]) if k != axis)
        labels = rng.integers(0, n, rest)
        labels.reshape(-1)[-1] = -100  # ignored
        yield [*calm, labels]
        return
    yield calm
    if call.wild:
        yield [np.resize(np.roll(specials(dtype), k), s) for k, s in enumerate(shapes)]


def as_declared(compiled: Compiled, *arrays: Array) -> Array:
    """The result of the graph as traced: composites by the references that their rows declare."""
    raw = with_tools(compiled, lambda tools: replace(tools, prepare=lambda graph, **_: graph))
    bound, traced = raw._trace(arrays, {})
    (output,) = interpreter.evaluate(traced.graph, list(arrays), dict(bound.env))[0]
    return np.asarray(output)


def _difference(got: Array, want: Array, arrays: list[Array]) -> str | None:
    """Within a few dozen roundings of the largest value that entered (activations cancel near roots and tails)."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    working = 2.0**-23 if got.dtype.itemsize <= 4 else 2.0**-52
    with np.errstate(all="ignore"):
        wide = want.astype(np.float64)
        x = arrays[0].astype(np.float64)
        entered = np.abs(x) if x.shape == want.shape else np.nanmax(np.where(np.isfinite(x), np.abs(x), 0), initial=0)
        entered = np.nan_to_num(np.minimum(entered, 100), posinf=0, neginf=0)
        allowed = 32 * working * (1 + entered) * np.maximum(1, np.abs(np.nan_to_num(wide, posinf=0.0, neginf=0.0)))
        allowed += eps(got.dtype) * np.abs(np.nan_to_num(wide, posinf=0.0, neginf=0.0))
    return first_wrong(got, want, allowed)
