"""`fuser.ops` functions on plain NumPy arrays, outside any compiled function.

In: a row of the operator table and arguments. Out: NumPy results, by tracing the one call and interpreting its graph:
what an operator means is stated once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuser import dtypes, trees
from fuser.errors import DTypeError
from fuser.frontend import context, protocols
from fuser.frontend.trace import trace_once
from fuser.interpreter import evaluate
from fuser.optable.base import Row
from fuser.specs import ArraySpec, Spec, StaticSpec


def alone(row: Row, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The row's value for these arguments."""

    def call(args: Any, kwargs: Any) -> Any:
        ctx = context.current()
        assert ctx is not None
        return protocols.call_row(ctx, row, args, kwargs, ctx.enter())

    leaves, tree = trees.flatten({"args": list(args), "kwargs": dict(kwargs)})
    graph = trace_once(call, trees.leaf_names(tree), [_spec(v) for v in leaves], tree)
    arrays = [np.asarray(v) for v in leaves if isinstance(v, (np.ndarray, np.generic))]
    arrays += [np.asarray(get()) for get in graph.output_tree.captured]
    outputs, _ = evaluate(graph, arrays, {})
    return trees.rebuild(graph.output_tree, [o if o.ndim else o[()] for o in outputs], {})


def _spec(value: Any) -> Spec:
    if not isinstance(value, (np.ndarray, np.generic)):
        return StaticSpec(value)
    dtype = dtypes.find(value.dtype)
    if dtype is None:
        raise DTypeError(f"an array of dtype {value.dtype} is not supported", "dtype")
    return ArraySpec(dtype, value.shape)
