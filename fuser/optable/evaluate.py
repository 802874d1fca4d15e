"""The table's arithmetic on NumPy arrays: what a row means, and what its `expand` or `combine` gives.

In: rows, and arrays already of the operand dtypes. Out: arrays of the dtype asked for. `NumPyEmit` applies
each row by its reference, so an `expand` run on it is compared with the row's own reference; the reference
evaluator and the SIMT interpreter call `evaluate_scalar` and `evaluate_reduction`. Its own file because the
table itself must not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.dtypes import F32, I64, DType, find
from fuser.optable.base import Reduction, S, ScalarOp
from fuser.optable.casts import cast_array
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.optable.base import Table

Array = np.ndarray[Any, Any]


def dtype_of(array: Array) -> DType:
    """The fuser dtype of an array; TypeError for one that fuser has none for."""
    found = find(array.dtype)
    if found is None:
        raise TypeError(f"no fuser dtype for {array.dtype}")
    return found


def _widened(array: Array) -> Array:
    """Half types compute in f32, as the pass `widen` makes every backend do."""
    return array.astype(F32.numpy) if dtype_of(array).is_half else array


def evaluate_scalar(row: ScalarOp, *arrays: Array, dtype: DType) -> Array:
    """A scalar operator by its reference, silently (no warnings).

    arrays: broadcastable, already cast to the row's operand dtypes. Halves are computed in f32 (but by rows that read
    bits) and the result rounded once, which is what NumPy does for f16. Returns an array of `dtype`.
    """
    with np.errstate(all="ignore"):
        if row.converts:
            return np.asarray(row.reference(np.asarray(arrays[0]), dtype))
        meaning = row.reference
        if row.pairs is not None and any(np.asarray(a).dtype.kind == "c" for a in arrays):
            meaning = row.pairs.reference or row.reference
        given = (np.asarray(a) for a in arrays)
        found = np.asarray(meaning(*(given if row.by_bits else map(_widened, given))))
        return found if found.dtype == dtype.numpy else cast_array(found, dtype)


def evaluate_reduction(row: Reduction, array: Array, axes: tuple[int, ...]) -> tuple[Array, ...]:
    """A reduction by its reference: one array a result, the axes gone.

    Raises ValueError where a reduced axis is empty and the row has no identity.
    """
    if row.empty == "error" and any(array.shape[a] == 0 for a in axes):
        raise ValueError(f"zero-size array to reduction operation {row.name} which has no identity")
    results = row.results(dtype_of(array))
    with np.errstate(all="ignore"):
        found = row.reference(array, axes)
        return tuple(cast_array(np.asarray(a), t) for a, t in zip(found, results, strict=True))


@dataclass(frozen=True)
class NumPyEmit:
    """`Emit` on NumPy arrays: every operator by its reference."""

    table: Table

    def apply(self, op: str, args: Sequence[Any], dtype: DType) -> Array:
        return evaluate_scalar(self.table.scalar(op), *args, dtype=dtype)

    def literal(self, value: float | int | bool, dtype: DType) -> Array:
        return np.asarray(value, dtype=dtype.numpy)

    def handle(self, array: Array) -> S:
        """An array as a handle for row arithmetic."""
        return S(self, array, dtype_of(array))


def evaluate_expand(row: ScalarOp, *arrays: Array, dtype: DType, table: Table) -> Array:
    """A scalar operator by its `expand`, one level deep; arguments and result as `evaluate_scalar`'s, no half types."""
    assert row.expand is not None, row.name
    emit = NumPyEmit(table)
    handles = [emit.handle(np.asarray(a)) for a in arrays]
    with np.errstate(all="ignore"):
        out = row.expand(*handles, dtype) if row.converts else row.expand(*handles)
    assert out.dtype == dtype, (row.name, out.dtype, dtype)
    return np.asarray(out.value)


def evaluate_states(row: Reduction, array: Array, table: Table) -> tuple[Array, ...]:
    """A reduction along the last axis by its own lift, combine and finish, pairwise as `fuser.order` does.

    Lanes are padded to a power of two with the identity. Returns one array a result.
    """
    emit, dtype = NumPyEmit(table), dtype_of(array)
    n = array.shape[-1]
    lanes = 1 << max(n - 1, 0).bit_length()
    with np.errstate(all="ignore"):
        index = np.broadcast_to(np.arange(n, dtype=np.int64), array.shape)
        lifted = row.lift(emit.handle(array), emit.handle(index))
        state = tuple(_padded(s, v, lanes, array.shape) for s, v in zip(lifted, row.identity(dtype), strict=True))
        while lanes > 1:
            even = tuple(emit.handle(s.value[..., 0::2]) for s in state)
            odd = tuple(emit.handle(s.value[..., 1::2]) for s in state)
            state, lanes = row.combine(even, odd), lanes // 2
        done = row.finish(state, emit.handle(np.asarray(n, I64.numpy)))
        return tuple(np.broadcast_to(s.value, (*array.shape[:-1], 1))[..., 0] for s in done)


def _padded(s: S, identity: float | int | bool, lanes: int, shape: tuple[int, ...]) -> S:
    """A state component broadcast to the array's shape and filled up with the identity."""
    full = np.full((*shape[:-1], lanes), identity, dtype=s.dtype.numpy)
    full[..., : shape[-1]] = s.value
    return S(s.emit, full, s.dtype)
