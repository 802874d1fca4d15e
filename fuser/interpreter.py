"""The reference: a graph evaluated node by node with NumPy.

In: a graph (before or after lowering and widening), one array an argument, and the values of dims and scalars. Out:
the arrays of outputs and effects. It is the meaning of a program, the oracle of every test and the unfused
baseline, so it takes no shortcut that a backend takes: every node is one array, freed when nothing reads it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser import progress
from fuser.dtypes import DType
from fuser.errors import InternalError, OverflowArgumentError
from fuser.graph import (
    CompositeAttrs,
    Graph,
    InputAttrs,
    IotaAttrs,
    ItemAttrs,
    Node,
    OpaqueAttrs,
    PieceAttrs,
    ReduceAttrs,
    RoundAttrs,
    ScalarAttrs,
    ScanAttrs,
    ViewAttrs,
)
from fuser.hostexpr import HostExpr
from fuser.hostfunctions import FUNCTIONS
from fuser.indexmap import Index, coefficient
from fuser.loopbody import BodyStep, LoopAttrs, evaluate_loop
from fuser.optable import table
from fuser.optable.base import Composite, OpaqueOp, Reduction, ScalarOp, Scan
from fuser.optable.evaluate import evaluate_reduction, evaluate_scalar
from fuser.shapes import evaluate as evaluate_shape

Array = np.ndarray[Any, Any]
Env = Mapping[str, Any]
Values = dict[int, tuple[Array, ...]]


def evaluate(graph: Graph, arrays: Sequence[Any], env: Env) -> tuple[list[Array], list[Array]]:
    """(values of outputs, values of effects) of a graph.

    arrays: one an argument, in order, of the argument's dtype and shape. env: every dim symbol and `=scalar`
    symbol with its Python number. Raises ValueError for an empty reduction with no identity,
    OverflowArgumentError for a Python int that does not fit, InternalError when an index map leaves its source
    (a fault of fuser's).
    """
    readers = _reader_counts(graph)
    values: Values = {}
    for node in progress.track(graph.nodes, "reference", _operator):
        inputs = [values[i.id] for i in node.inputs]
        values[node.id] = _node(node, inputs, arrays, env)
        for i in node.inputs:
            readers[i.id] -= 1
            if not readers[i.id]:
                values.pop(i.id, None)
    outputs = [values[n.id][0] for n in graph.outputs]
    return outputs, [values[e.node.id][0] for e in graph.effects]


def _operator(node: Node) -> str:
    return node.op


def bind(graph: Graph, arrays: Sequence[Any], scalars: Env | None = None) -> dict[str, Any]:
    """The environment of a call: dims of arguments solved from shapes (plain symbols only), scalars as given."""
    env: dict[str, Any] = dict(scalars or {})
    for argument, array in zip(graph.arguments, arrays, strict=True):
        for d, n in zip(argument.shape, np.shape(array), strict=True):
            if isinstance(d, HostExpr) and d.op == "sym":
                env.setdefault(d.value, int(n))
    return env


def _reader_counts(graph: Graph) -> dict[int, int]:
    counts = {n.id: 0 for n in graph.nodes}
    for n in graph.nodes:
        for i in n.inputs:
            counts[i.id] += 1
    for n in graph.results:
        counts[n.id] += 1
    return counts


def _node(node: Node, inputs: Sequence[tuple[Array, ...]], arrays: Sequence[Any], env: Env) -> tuple[Array, ...]:
    firsts = [v[0] for v in inputs]
    row = table().rows.get(node.op)
    if isinstance(row, Reduction):
        assert isinstance(node.attrs, ReduceAttrs)
        return evaluate_reduction(row, firsts[0], node.attrs.axes)
    if isinstance(node.attrs, ItemAttrs):
        return (inputs[0][node.attrs.k],)
    if isinstance(row, ScalarOp):
        return (_shaped(evaluate_scalar(row, *firsts, dtype=node.dtype), node, env),)
    return (_shaped(_BY_ATTRS[type(node.attrs)](node, firsts, arrays, env), node, env),)


def _shaped(value: Any, node: Node, env: Env) -> Array:
    """The invariant that every reader relies on: the node's own shape and dtype."""
    array = np.asarray(value)
    shape = evaluate_shape(node.shape, env)
    if array.shape != shape or array.dtype != node.dtype.numpy:
        message = f"%{node.id} {node.op} gave {array.dtype}{array.shape}, not {node.dtype}{shape}"
        raise InternalError(message, "reference")
    return array


# -- leaves ----------------------------------------------------------------------------------------
def _input(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, InputAttrs)
    return np.asarray(arrays[node.attrs.position])


def host_scalar(value: Any, dtype: DType) -> Array:
    """A Python number in a node's dtype; OverflowArgumentError for an int that does not fit, as NumPy raises."""
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise OverflowArgumentError(f"Python integer {value} out of bounds for {dtype.numpy}", "integer-range")
    if dtype.is_float:
        try:
            value = float(value)
        except OverflowError:
            raise OverflowArgumentError(f"Python integer too large to convert to {dtype}", "integer-range") from None
    with np.errstate(all="ignore"):
        if dtype.is_integer and isinstance(value, float):
            from fuser.optable.casts import cast_array

            return cast_array(np.asarray(value), dtype)
        return np.asarray(value).astype(dtype.numpy)


def _scalar(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, ScalarAttrs)
    return host_scalar(node.attrs.expr.evaluate(env), node.dtype)


def _iota(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, IotaAttrs)
    shape = evaluate_shape(node.shape, env)
    line = np.arange(shape[node.attrs.axis], dtype=node.dtype.numpy)
    return np.broadcast_to(line.reshape([-1 if k == node.attrs.axis else 1 for k in range(len(shape))]), shape)


# -- views -----------------------------------------------------------------------------------------
_ON_ARRAYS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "min": np.minimum,
    "max": np.maximum,
    "where": np.where,
    "clip": lambda x, lo, hi: np.maximum(lo, np.minimum(x, hi)),
    "not": np.logical_not,
}


def index_value(expr: HostExpr, env: Env) -> Any:
    """An index expression over arrays of axis values (broadcast against each other) and numbers."""
    values: dict[int, Any] = {}
    for n in expr.walk():
        if n.op == "lit":
            values[id(n)] = n.value
        elif n.op == "sym":
            values[id(n)] = env[n.value]
        else:
            parts = [values[id(a)] for a in n.args]
            f = _ON_ARRAYS[n.op]
            if n.op in ("+", "*") and len(parts) > 2:
                total = parts[0]
                for p in parts[1:]:
                    total = f(total, p)
                values[id(n)] = total
            else:
                values[id(n)] = f(*parts)
    return values[id(expr)]


def _axis_env(shape: Sequence[int], operands: Sequence[Array], env: Env) -> dict[str, Any]:
    """The environment with `$k` bound to open grids and `@k` to index operands."""
    found = dict(env)
    for k, n in enumerate(shape):
        found[f"${k}"] = np.arange(n, dtype=np.int64).reshape([-1 if a == k else 1 for a in range(len(shape))])
    found.update({f"@{k}": v for k, v in enumerate(operands)})
    return found


def _read(x: Array, exprs: Index, shape: tuple[int, ...], env: Env, mask: Any = True) -> Array:
    """Elements of `x` at mapped indices; where `mask` is False any element will do."""
    index = []
    for e, n in zip(exprs, x.shape, strict=True):
        at = np.asarray(index_value(e, env), dtype=np.int64)
        if np.any(np.logical_and(mask, (at < 0) | (at >= n))):
            raise InternalError(f"index {e} leaves an axis of length {n}", "index-map")
        index.append(np.clip(at, 0, max(n - 1, 0)))
    if not index:
        return np.broadcast_to(x, shape)
    return np.broadcast_to(x[tuple(index)], shape)


def _strided(x: Array, exprs: Index, shape: tuple[int, ...], env: Env) -> Array | None:
    """The view as a NumPy slice and transpose where each source axis follows one result axis; None otherwise."""
    slices: list[Any] = []
    kept: list[int] = []
    for e, n in zip(exprs, x.shape, strict=True):
        used = sorted(s for s in e.symbols if s.startswith(("$", "@")))
        if not used:
            slices.append(int(index_value(e, env)))
            continue
        step = coefficient(e, used[0])
        if len(used) > 1 or used[0][0] == "@" or step is None or step.symbols & set(used):
            return None
        k, by = int(used[0][1:]), int(step.evaluate(env))
        start = int(e.substitute({used[0]: HostExpr("lit", (), 0, "int")}).evaluate(env))
        if k in kept or by == 0 or not 0 <= start < n or not 0 <= start + by * (shape[k] - 1) < n:
            return None
        kept.append(k)
        stop = start + by * shape[k]
        slices.append(slice(start, stop if stop >= 0 else None, by))
    if any(isinstance(s, int) and not 0 <= s < n for s, n in zip(slices, x.shape, strict=True)):
        return None
    picked = x[tuple(slices)].transpose(np.argsort(kept))
    return np.broadcast_to(picked.reshape([n if k in kept else 1 for k, n in enumerate(shape)]), shape)


def _view(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, ViewAttrs)
    shape, exprs = evaluate_shape(node.shape, env), node.attrs.map.exprs
    if 0 in shape:
        return np.empty(shape, node.dtype.numpy)
    found = _strided(inputs[0], exprs, shape, env) if len(inputs) == 1 else None
    return found if found is not None else _read(inputs[0], exprs, shape, _axis_env(shape, inputs[1:], env))


def _piecewise(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, PieceAttrs)
    shape = evaluate_shape(node.shape, env)
    here = _axis_env(shape, (), env)
    result = np.empty(shape, node.dtype.numpy)
    open_: Array = np.ones(shape, bool)
    for piece, x in zip(node.attrs.pieces, inputs, strict=True):
        mask = open_
        for e in piece.domain:
            mask = mask & (np.asarray(index_value(e, here)) >= 0)
        if mask.any():
            np.copyto(result, _read(x, piece.map.exprs, shape, here, mask), where=mask)
        open_ = open_ & ~mask
    if open_.any():
        raise InternalError(f"no piece of %{node.id} covers some index", "index-map")
    return result


# -- the rest --------------------------------------------------------------------------------------
def _scan(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    row, attrs = table().rows[node.op], node.attrs
    assert isinstance(row, Scan)
    assert isinstance(attrs, ScanAttrs)
    with np.errstate(all="ignore"):
        return np.asarray(row.reference(inputs[0], attrs.axis, attrs.exclusive, attrs.reverse))


def _round(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, RoundAttrs)
    with np.errstate(all="ignore"):
        return inputs[0].astype(node.attrs.to.numpy).astype(inputs[0].dtype)


def _loop(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    assert isinstance(node.attrs, LoopAttrs)
    return evaluate_loop(node.attrs, inputs, _body_step)[node.attrs.k]


def _body_step(step: BodyStep, args: Sequence[Array]) -> Array:
    """One operator of a loop's body, on arrays that broadcast."""
    if isinstance(step.attrs, LoopAttrs):
        return evaluate_loop(step.attrs, np.broadcast_arrays(*args), _body_step)[step.attrs.k]
    if isinstance(step.attrs, ScalarAttrs):
        return host_scalar(step.attrs.expr.evaluate({}), step.dtype)
    with np.errstate(all="ignore"):
        if isinstance(step.attrs, RoundAttrs):
            return np.asarray(args[0]).astype(step.attrs.to.numpy).astype(step.dtype.numpy)
    return evaluate_scalar(table().scalar(step.op), *args, dtype=step.dtype)


def _params(params: Sequence[tuple[str, Any]], env: Env) -> dict[str, Any]:
    return {k: v.evaluate(env) if isinstance(v, HostExpr) else v for k, v in params}


def _call(node: Node, inputs: Sequence[Array], arrays: Sequence[Any], env: Env) -> Array:
    """Composites by their own reference, opaque calls by NumPy's."""
    row, attrs = table().rows[node.op], node.attrs
    assert isinstance(row, Composite | OpaqueOp)
    assert isinstance(attrs, CompositeAttrs | OpaqueAttrs)
    with np.errstate(all="ignore"):
        return np.asarray(row.reference(*inputs, **_params(attrs.params, env))).astype(node.dtype.numpy, copy=False)


_BY_ATTRS: dict[type[Any], Callable[..., Any]] = {
    InputAttrs: _input,
    ScalarAttrs: _scalar,
    IotaAttrs: _iota,
    ViewAttrs: _view,
    PieceAttrs: _piecewise,
    ScanAttrs: _scan,
    RoundAttrs: _round,
    LoopAttrs: _loop,
    CompositeAttrs: _call,
    OpaqueAttrs: _call,
}
