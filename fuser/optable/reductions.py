"""Reductions: how an axis is folded, as tuple states.

In: nothing. Out: rows `sum prod max min any all argmax argmin moments max_sumexp`. Each state has an identity
that is neutral under `combine`, so absent lanes may hold it: infinities for float extremes, an index beyond
every other for argmax. `combine` breaks ties by index, because in a tree of lanes neither side holds only
earlier elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.dtypes import BOOL, F64, I64, U8, U64, DType
from fuser.optable.base import Cost, Names, Reduction, S, State, Table
from fuser.optable.casts import integer_range
from fuser.optable.complexes import Z

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]
Bound = Callable[[DType], float | int | bool]
LAST_INDEX = integer_range(I64)[1]


# -- operand dtypes --------------------------------------------------------------------------------
def _summed(dtype: DType) -> DType | None:
    """NumPy adds small integers and bools in 64 bits. Complex numbers are split in two, or fold by `complex_prod`."""
    return dtype if dtype.is_inexact else U64 if dtype.kind == "u" else I64


def _ordered(dtype: DType) -> DType | None:
    return None if dtype.kind == "c" else dtype


def _ordered_number(dtype: DType) -> DType | None:
    """As `_ordered`, a bool as a u8."""
    return U8 if dtype == BOOL else _ordered(dtype)


def _truth(dtype: DType) -> DType | None:
    return BOOL


def _floating(dtype: DType) -> DType | None:
    """NumPy takes means of integers in f64."""
    if dtype.kind == "c":
        return None
    return dtype if dtype.is_float else F64


def lowest(dtype: DType) -> float | int | bool:
    """The value that no other is below: -inf, the smallest integer, False."""
    if dtype.is_float:
        return float("-inf")
    return False if dtype == BOOL else integer_range(dtype)[0]


def highest(dtype: DType) -> float | int | bool:
    """The value that no other is above: inf, the largest integer, True."""
    if dtype.is_float:
        return float("inf")
    return True if dtype == BOOL else integer_range(dtype)[1]


# -- folds with one value --------------------------------------------------------------------------
def _only(dtype: DType) -> tuple[DType, ...]:
    return (dtype,)


def _value(x: S, i: S) -> State:
    return (x,)


def _itself(state: State, n: S) -> State:
    return state


def _by(name: str) -> Callable[[State, State], State]:
    """Combine single states by a scalar row."""
    return lambda a, b: (a[0].op(name, b[0]),)


def _by_order(floats: str, others: str) -> Callable[[State, State], State]:
    """Combine single states by one row for floats, another for the rest."""
    return lambda a, b: (a[0].op(floats if a[0].dtype.is_float else others, b[0]),)


def _in_wide(fold: Callable[..., Any]) -> Callable[[Array, Axes], tuple[Array, ...]]:
    """A NumPy fold of floats accumulated in f64, so that the oracle's own error does not count."""

    def reference(x: Array, axes: Axes) -> tuple[Array, ...]:
        wide = x if x.dtype.kind in "iub" else x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        return (np.asarray(fold(wide, axis=axes)),)

    return reference


def _plain(fold: Callable[..., Any]) -> Callable[[Array, Axes], tuple[Array, ...]]:
    return lambda x, axes: (np.asarray(fold(x, axis=axes)),)


def _both(dtype: DType) -> tuple[DType, ...]:
    return (dtype.component,) * 2


def _parts(x: S, i: S) -> State:
    part = x.dtype.component
    return x.op("real", dtype=part), x.op("imag", dtype=part)


def _complex_product(a: State, b: State) -> State:
    product = Z(*a) * Z(*b)
    return product.re, product.im


def _complex_prod_array(x: Array, axes: Axes) -> tuple[Array, ...]:
    found = np.prod(x.astype(np.complex128), axis=axes)
    return np.asarray(found.real), np.asarray(found.imag)


SUMS = (
    Reduction(
        name="sum", state=_only, results=_only, identity=lambda t: (0.0 if t.is_float else 0,), lift=_value,
        keeps_sign=True,
        combine=_by("add"), finish=_itself, accepts=_summed, reference=_in_wide(np.sum), cost=Cost(1),
        ulp_note="pairwise over the lanes of `fuser.order`", vjp=lambda g, y, x: (g,),
        names=Names(numpy=("sum",), torch=("sum",), methods=("sum",)),
        notes="integers and bools in 64 bits, wrapping; empty: 0",
    ),
    Reduction(
        name="prod", state=_only, results=_only, identity=lambda t: (1.0 if t.is_float else 1,), lift=_value,
        combine=_by("multiply"), finish=_itself, accepts=_summed, reference=_in_wide(np.prod), cost=Cost(1),
        ulp_note="pairwise over the lanes of `fuser.order`", vjp=lambda g, y, x: (g * y / x,),
        names=Names(numpy=("prod",), torch=("prod",), methods=("prod",)),
        notes="integers and bools in 64 bits, wrapping; empty: 1",
    ),
    Reduction(
        name="complex_prod", state=_both, results=_both, identity=lambda t: (1.0, 0.0), lift=_parts,
        combine=_complex_product, finish=_itself, accepts=lambda t: t if t.is_complex else None,
        reference=_complex_prod_array, cost=Cost(6), ulp_note="pairwise over the lanes of `fuser.order`",
        no_vjp="complex numbers have no derivative here yet", notes="what `prod` is on complex numbers: both parts",
    ),
)  # fmt: skip

EXTREMES = (
    Reduction(
        name="max", state=_only, results=_only, identity=lambda t: (lowest(t),), lift=_value,
        keeps_sign=True,
        combine=_by_order("largest", "maximum"), finish=_itself, accepts=_ordered, reference=_plain(np.max),
        empty="error", exact=True, cost=Cost(2),
        names=Names(numpy=("max", "amax"), torch=("amax",), methods=("max", "amax"), dsl=("amax",)), notes="NaN wins",
        vjp=lambda g, y, x: (x.eq(y).where(g, 0),),
    ),
    Reduction(
        name="min", state=_only, results=_only, identity=lambda t: (highest(t),), lift=_value,
        keeps_sign=True,
        combine=_by_order("smallest", "minimum"), finish=_itself, accepts=_ordered, reference=_plain(np.min),
        empty="error", exact=True, cost=Cost(2),
        names=Names(numpy=("min", "amin"), torch=("amin",), methods=("min", "amin"), dsl=("amin",)), notes="NaN wins",
        vjp=lambda g, y, x: (x.eq(y).where(g, 0),),
    ),
    Reduction(
        name="any", state=_only, results=_only, identity=lambda t: (False,), lift=_value, combine=_by("bitwise_or"),
        finish=_itself, accepts=_truth, reference=_plain(np.any), exact=True, cost=Cost(1),
        no_vjp="the result is a bool",
        names=Names(numpy=("any",), torch=("any",), methods=("any",)),
        notes="the operand is cast to bool first; empty: False",
    ),
    Reduction(
        name="all", state=_only, results=_only, identity=lambda t: (True,), lift=_value, combine=_by("bitwise_and"),
        finish=_itself, accepts=_truth, reference=_plain(np.all), exact=True, cost=Cost(1),
        no_vjp="the result is a bool",
        names=Names(numpy=("all",), torch=("all",), methods=("all",)),
        notes="the operand is cast to bool first; empty: True",
    ),
)  # fmt: skip


# -- positions -------------------------------------------------------------------------------------
OPPOSITE = {"greater": "less_equal", "less": "greater_equal"}


def _better(beats: str, a: State, b: State) -> State:
    """State `b` where its value beats that of `a`, or ties with a smaller index; NaN beats numbers."""
    (x, i), (y, j) = a, b
    earlier = j < i
    if not x.dtype.is_float:
        take = y.op(beats, x, dtype=BOOL) | (y.eq(x) & earlier)
    else:  # a comparison with NaN is false, its opposite's negation true: few instructions, as `earlier` is often known
        unbeaten = y.op(beats, x, dtype=BOOL) | y.eq(x) | y.ne(y)
        above = ~y.op(OPPOSITE[beats], x, dtype=BOOL) & x.eq(x)
        take = (unbeaten & earlier) | above
    return take.where(y, x), take.where(j, i)


def _position_array(find: Callable[..., Any]) -> Callable[[Array, Axes], tuple[Array, ...]]:
    """np.argmax over several axes: their row-major index."""

    def reference(x: Array, axes: Axes) -> tuple[Array, ...]:
        kept = [a for a in range(x.ndim) if a not in axes]
        count = math.prod(x.shape[a] for a in axes)
        moved = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), count)
        return (np.asarray(find(moved, axis=-1)),)

    return reference


def _position(name: str, worst: Bound, beats: str, find: Callable[..., Any]) -> Reduction:
    """argmax or argmin: `worst` is the identity's value, `beats` the row by which a later value wins."""
    return Reduction(
        name=name, state=lambda t: (t, I64), results=lambda t: (I64,), identity=lambda t: (worst(t), LAST_INDEX),
        lift=lambda x, i: (x, i), combine=lambda a, b: _better(beats, a, b), finish=lambda state, n: (state[1],),
        accepts=_ordered_number, reference=_position_array(find), empty="error",
        uses_index=True, symmetric=True, exact=True, cost=Cost(6, registers=2),
        names=Names(numpy=(name,), torch=(name,), methods=(name,)),
        no_vjp="the result is an index", notes="the first of equal values; the first NaN before any number; i64",
    )  # fmt: skip


POSITIONS = (
    _position("argmax", lowest, "greater", np.argmax),
    _position("argmin", highest, "less", np.argmin),
)


# -- moments: count, mean, sum of squared distances ------------------------------------------------
def _combine_moments(a: State, b: State) -> State:
    """Chan, Golub and LeVeque's update. An empty side is left out, so that 0 * inf makes no NaN."""
    (na, ma, qa), (nb, mb, qb) = a, b
    n = na + nb
    a_empty, b_empty = na.eq(0), nb.eq(0)
    share = nb / (a_empty & b_empty).where(n.like(1), n)
    distance = mb - ma
    step = distance * share
    mean = (step - step).eq(0).where(ma + step, ma + mb)  # an infinity on one side stays one, as in a sum
    spread = qa + qb + distance * distance * na * share
    return (
        n,
        b_empty.where(ma, a_empty.where(mb, mean)),
        b_empty.where(qa, a_empty.where(qb, spread)),
    )


def _moments_array(x: Array, axes: Axes) -> tuple[Array, ...]:
    wide = x.astype(np.float64)
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        shape = tuple(n for a, n in enumerate(x.shape) if a not in axes)
        return np.full(shape, np.nan), np.zeros(shape)
    mean = wide.mean(axis=axes, keepdims=True)
    return mean.squeeze(axes), np.asarray(np.square(wide - mean).sum(axis=axes))


# -- maximum and sum of exponentials ---------------------------------------------------------------
def _combine_sumexp(a: State, b: State) -> State:
    """The sum under the smaller maximum is rescaled to the larger one; equal infinities are not subtracted."""
    (m, s), (n, t) = a, b
    distance = m - n
    scale = m.eq(n).where(1.0, (-distance.op("absolute")).op("exp"))
    first = distance > 0
    return m.op("largest", n), first.where(s, s * scale) + first.where(t * scale, t)


def _sumexp_array(x: Array, axes: Axes) -> tuple[Array, ...]:
    wide = x.astype(np.float64)
    top = wide.max(axis=axes, keepdims=True, initial=-np.inf)
    scaled = np.where(wide == top, 1.0, np.exp(wide - top))
    return top.squeeze(axes), np.asarray(scaled.sum(axis=axes))


PAIRS = (
    Reduction(
        name="moments", state=lambda t: (t, t, t), results=lambda t: (t, t), identity=lambda t: (0.0, 0.0, 0.0),
        lift=lambda x, i: (x.like(1.0), x, x - x), combine=_combine_moments,
        finish=lambda state, n: (n.eq(0).where(state[1].like(float("nan")), state[1]), state[2]),
        accepts=_floating, reference=_moments_array, cost=Cost(20, sfu=1, registers=4),
        ulp_note="Chan's update, pairwise",
        no_vjp="a helper of mean, var and std, which lower to it",
        notes="results: mean, and sum of squared distances from it; stable for a large mean; "
        "an infinity makes the second NaN; empty: NaN and 0",
    ),
    Reduction(
        name="max_sumexp", state=lambda t: (t, t), results=lambda t: (t, t), identity=lambda t: (float("-inf"), 0.0),
        lift=lambda x, i: (x, x.ne(x).where(x, 1.0)), combine=_combine_sumexp, finish=_itself, accepts=_floating,
        reference=_sumexp_array, cost=Cost(18, sfu=1, registers=4), ulp_note="one rescaling a combination",
        no_vjp="a helper of softmax and logsumexp, which lower to it",
        notes="results: the maximum m, and the sum of exp(x - m), an element equal to m counts 1 even if infinite",
    ),
)  # fmt: skip

ROWS = (*SUMS, *EXTREMES, *POSITIONS, *PAIRS)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
